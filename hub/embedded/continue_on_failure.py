"""Independent steps: one that fails does not keep the others from running."""

import threading

from gpuvigil.errors import StoreError


class ContinueOnFailure:
    """A context manager for each of several steps: failures wait until the end, unless stopped."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._failures: list[StoreError] = []
        self.done = 0

    def __enter__(self) -> None:
        """Begin a step."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, StoreError) or self._stopping.is_set():
            return False
        self._failures.append(error)
        return True

    def count(self) -> int:
        """Return how many steps were done; raise the first failure if there was one."""
        if self._failures:
            raise self._failures[0]
        return self.done
