"""A shared thread pool in which a large question does not hold up a small one."""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

_T = TypeVar("_T")


class WorkerPool:
    """A pool of `count` threads; any thread may give it work, which is taken in the order it comes."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads = self._pool()

    def each(self, work: Callable[[_T], object], things: Iterable[_T]) -> None:
        """Do the work with each thing; when one fails, no work is left waiting or running.

        No more of them wait for a thread at a time than there are threads: the next comes behind
        what others have submitted meanwhile.
        """
        left, futures = deque(things), list[Future[None]]()

        def go_on() -> None:
            # Several threads may try to take the last one.
            with suppress(IndexError):
                futures.append(self._threads.submit(turn, left.popleft()))

        def turn(thing: _T) -> None:
            try:
                work(thing)
            except BaseException:
                left.clear()
                raise
            go_on()

        for _ in range(self._count):
            go_on()
        try:
            # Each turn appends the next before it is done, so that the end of the list is the end
            # of the work.
            for future in futures:
                future.result()
        finally:
            left.clear()
            for future in futures:
                if not future.cancel():
                    wait([future])

    def close(self) -> None:
        """Stop the threads; the next work starts new ones."""
        gone, self._threads = self._threads, self._pool()
        gone.shutdown()

    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._count, thread_name_prefix="scan")
