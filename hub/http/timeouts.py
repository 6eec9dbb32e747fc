"""Timeouts with one timer for all tasks, at next to no cost for each."""

import asyncio
from types import TracebackType


class Timeout:
    """A context manager that cancels the task inside it when it takes longer than `seconds`.

    It then raises TimeoutError, at most a quarter of that time late. An instance belongs to one
    event loop at a time, and a task may be inside it once.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        # The tasks inside, in order of entry, and their deadlines; None once cancelled for it.
        self._due: dict[asyncio.Task[object], float | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> None:
        task, loop = _task(), asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._timer = loop, None
            self._due.clear()
        if self._timer is None:
            self._timer = loop.call_later(self.seconds / 4, self._cancel_overdue)
        self._due[task] = loop.time() + self.seconds

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        task = _task()
        cancelled = self._due.pop(task) is None
        # Somebody else may have cancelled it as well.
        if cancelled and task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from None

    def _cancel_overdue(self) -> None:
        assert self._loop is not None
        now = self._loop.time()
        for task, due in self._due.items():
            if due is None:
                continue
            if due > now:
                break
            self._due[task] = None
            task.cancel()
        self._timer = (
            self._loop.call_later(self.seconds / 4, self._cancel_overdue) if self._due else None
        )


def _task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task
