"""Runs work that may never return in a thread of its own, and waits only so long."""

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class AbandonableThread:
    """One piece of work at a time: while one is stuck, no other is begun."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is how long the result is waited for."""
        self._seconds = seconds
        self._thread: threading.Thread | None = None

    def call(self, work: Callable[[], T], otherwise: T) -> T:
        """What `work` returns, or `otherwise` when it does not come back in time, or has no room."""
        if self._thread is not None and self._thread.is_alive():
            return otherwise
        found: queue.SimpleQueue[T] = queue.SimpleQueue()
        thread = threading.Thread(target=lambda: found.put(work()), name="abandonable", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return otherwise
        self._thread = thread
        try:
            return found.get(timeout=self._seconds)
        except queue.Empty:
            return otherwise
