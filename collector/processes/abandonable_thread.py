"""Runs work that may never return in a thread of its own, with a limited wait."""

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class AbandonableThread:
    """Runs one piece of work at a time: while one is stuck, no other is started."""

    def __init__(self, seconds: float) -> None:
        """Set up; `seconds` is the longest wait for a result."""
        self._seconds = seconds
        self._thread: threading.Thread | None = None

    def call(self, work: Callable[[], T], otherwise: T) -> T:
        """Return the result of `work`, or `otherwise` when it is late or no thread can start."""
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
