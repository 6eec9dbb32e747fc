"""Clock skew between each node and the hub, estimated from when bodies were sent and received."""

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from gpuvigil.log import Log

from ..bodies.deduplication import Identity

_LOG = Log("hub")

# The new offset of a clock that was set is known after this many bodies.
_BODIES = 5
# Transit time looks like a clock that is behind; the quickest of this many bodies had hardly any.
_FEWEST = 3
# No transit takes this long: senders give up sooner.
_NO_WAY = timedelta(minutes=1)
# A smaller offset cannot be told from transit time.
_LEAST = timedelta(seconds=0.5)
# Limit of known clocks, against nodes that went away for good.
_MOST_NODES = 50_000

Node = tuple[str, str]


class ClockState(str, Enum):
    """How the times of a node's lines are treated."""

    RIGHT = "right"  # they are kept as they are
    CORRECTED = "corrected"  # the offset is subtracted
    WRONG = "wrong"  # each body's lines are timed from its arrival


@dataclass(slots=True)
class _Clock:
    ahead: deque[timedelta] = field(default_factory=lambda: deque(maxlen=_BODIES))
    state: ClockState = ClockState.RIGHT


class Clocks:
    """The clocks of all nodes; any thread may observe and look."""

    def __init__(self, wrong: timedelta) -> None:
        """A clock that is off by more than `wrong` cannot be trusted to be off by a constant."""
        self._wrong = wrong
        self._clocks: dict[Node, _Clock] = {}
        self._observing = threading.Lock()

    def shift(self, who: Identity | None, received_at: datetime, prompt: bool = True) -> timedelta:
        """Return what is to be added to the times of a body's lines.

        Each live body also updates the estimate, unless it may not have been seen promptly; a body
        of the backlog says nothing new, since its sender may have been asked to wait.
        """
        if who is None or who.sent_at is None:
            return timedelta()
        node = (who.lane.cluster, who.lane.node)
        ahead = who.sent_at - received_at
        if who.lane.lane == "live":
            self.update(node, ahead, prompt)
        clock = self._clocks.get(node)
        if clock is None or clock.state is ClockState.RIGHT:
            return timedelta()
        return -(offset_of(clock.ahead) if clock.state is ClockState.CORRECTED else ahead)

    def update(self, node: Node, ahead: timedelta, prompt: bool = True) -> None:
        """Update the estimate of a node's clock: it sent something `ahead` of when it was received."""
        # Waiting only makes a clock look less ahead than it is.
        if not prompt and ahead <= timedelta():
            return
        with self._observing:
            clock = self._clocks.get(node)
            if clock is None:
                if len(self._clocks) >= _MOST_NODES:
                    self._clocks.pop(next(iter(self._clocks)))
                clock = self._clocks[node] = _Clock()
            clock.ahead.append(ahead)
            before, clock.state = clock.state, self._judged(clock.ahead)
            if clock.state is not before and ClockState.WRONG in {clock.state, before}:
                said = _LOG.warning if clock.state is ClockState.WRONG else _LOG.info
                seconds = round(offset_of(clock.ahead).total_seconds(), 3)
                said(
                    f"clock {clock.state.value}",
                    cluster=node[0],
                    node=node[1],
                    ahead_seconds=seconds,
                )

    def wrong(self) -> dict[Node, timedelta]:
        """Return how far ahead each wrong clock is."""
        with self._observing:
            return {
                node: offset_of(clock.ahead)
                for node, clock in self._clocks.items()
                if clock.state is ClockState.WRONG
            }

    def offset(self, node: Node) -> timedelta | None:
        """Return how far a node's clock is ahead; None before it has sent anything live."""
        clock = self._clocks.get(node)
        return None if clock is None else offset_of(clock.ahead)

    def state(self, node: Node) -> ClockState | None:
        clock = self._clocks.get(node)
        return None if clock is None else clock.state

    def count(self, state: ClockState) -> int:
        return sum(clock.state is state for clock in list(self._clocks.values()))

    def _judged(self, ahead: deque[timedelta]) -> ClockState:
        offset = offset_of(ahead)
        # A clock that is ahead is certain at once: nothing arrives before it was sent.
        if abs(offset) < _LEAST:
            return ClockState.RIGHT
        if -_NO_WAY < offset < timedelta() and len(ahead) < _FEWEST:
            return ClockState.RIGHT
        return ClockState.WRONG if abs(offset) > self._wrong else ClockState.CORRECTED


def offset_of(ahead: Iterable[timedelta]) -> timedelta:
    """Return the offset, from how far ahead of its arrival each body was sent.

    Sent minus received is the offset minus the transit time, so the maximum is the closest: never
    more than the offset, and less by the shortest transit time.
    """
    return max(ahead)
