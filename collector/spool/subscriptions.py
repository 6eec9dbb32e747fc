"""Threads that wait for bodies of the spool; one body wakes one thread.

Each waits on a bare lock: a condition variable costs several times as much at every body.
"""

import threading
from collections.abc import Collection
from enum import Enum


class Lane(str, Enum):
    """The kind of a body, in order of precedence: records, live telemetry, the backlog."""

    RECORDS = "records"
    LIVE = "live"
    BACKLOG = "backlog"


class Waiter:
    """A thread that waits for bodies of some lanes; woken once."""

    __slots__ = ("_asleep", "lanes")

    def __init__(self, lanes: Collection[Lane]) -> None:
        self.lanes = frozenset(lanes)
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self) -> None:
        """Wake the thread, now or as soon as it waits; once."""
        self._asleep.release()

    def wait(self, seconds: float) -> None:
        """Wait to be woken, for `seconds` at most."""
        self._asleep.acquire(timeout=max(seconds, 0.0))


class Waiters:
    """All waiting threads; callers must hold the spool's lock."""

    def __init__(self) -> None:
        self._waiting: list[Waiter] = []

    def add(self, lanes: Collection[Lane]) -> Waiter:
        """Add a waiter for a thread that is about to wait for a body of these lanes."""
        waiter = Waiter(lanes)
        self._waiting.append(waiter)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter that no longer waits."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def wake(self, lane: Lane) -> None:
        """Wake one thread that waits for this lane: the one that waits for the fewest lanes."""
        waiting = [waiter for waiter in self._waiting if lane in waiter.lanes]
        if waiting:
            waiter = min(waiting, key=lambda it: len(it.lanes))
            self._waiting.remove(waiter)
            waiter.wake()

    def wake_all(self) -> None:
        """Wake all threads."""
        for waiter in self._waiting:
            waiter.wake()
        self._waiting.clear()
