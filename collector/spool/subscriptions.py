"""Who waits for which bodies of the spool, and who is woken when one has come: one thread alone.

A bare lock for each that waits: a condition variable costs several times as much at every body.
"""

import threading
from collections.abc import Collection
from enum import Enum


class Lane(str, Enum):
    """Who waits for whom: records go first and alone, live telemetry before what drains."""

    RECORDS = "records"
    LIVE = "live"
    BACKLOG = "backlog"


class Bell:
    """Rings once, for one thread that waits for bodies of some lanes."""

    __slots__ = ("_silent", "lanes")

    def __init__(self, lanes: Collection[Lane]) -> None:
        self.lanes = frozenset(lanes)
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Wake the one who waits, or whoever will; once."""
        self._silent.release()

    def wait(self, seconds: float) -> None:
        """Until it rings, or `seconds` have passed."""
        self._silent.acquire(timeout=max(seconds, 0.0))


class Bells:
    """The bells of all threads that wait; whoever uses it holds the spool's lock."""

    def __init__(self) -> None:
        self._hanging: list[Bell] = []

    def hang(self, lanes: Collection[Lane]) -> Bell:
        """A bell for somebody who is about to wait for a body of these lanes."""
        bell = Bell(lanes)
        self._hanging.append(bell)
        return bell

    def take_down(self, bell: Bell) -> None:
        """Nobody waits for this bell any more."""
        if bell in self._hanging:
            self._hanging.remove(bell)

    def ring(self, lane: Lane) -> None:
        """Wake one who waits for a body of this lane: whoever waits for the fewest others beside."""
        waiting = [bell for bell in self._hanging if lane in bell.lanes]
        if waiting:
            bell = min(waiting, key=lambda it: len(it.lanes))
            self._hanging.remove(bell)
            bell.ring()

    def ring_all(self) -> None:
        """Wake everybody."""
        for bell in self._hanging:
            bell.ring()
        self._hanging.clear()
