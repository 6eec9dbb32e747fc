"""What becomes of bodies on their way: lost, doubled, late, or dated by a wrong clock.

A body is all rows of a node and a tick, so that all of it shares one fate.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .chance import Bits, Floats, lane, mix
from .changes import Change, On, within
from .topology import Index

MICRO = 1_000_000
_WAY_SECONDS = 0.4  # from the sensor to the hub when all is well [chosen]
_DRAIN_SECONDS = 20.0  # in which a backlog reaches the hub
_LOST = 2e-5  # shares of bodies that get lost or come twice although nothing is wrong [chosen]
_DOUBLED = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """[ticks x nodes]: how often each body is in the tables, when it came, and its clock's error."""

    copies: Index
    arrival: Index  # microseconds since the fleet's start, by the hub's clock
    clock: Index  # microseconds that the node's clock is ahead
    phase: Index  # per node: microseconds after the tick at which it is read


class Delivery:
    """The ways of all bodies; a pure function of time."""

    def __init__(self, nodes: Bits, missing: float, life: bool) -> None:
        self._nodes = nodes
        self._lost = missing + (_LOST if life else 0.0)
        self._doubled = _DOUBLED if life else 0.0
        self._phase = (lane(mix(nodes, 5), 0) * 0.9 * MICRO).astype(np.int64)

    def of(self, seconds: Floats, chance: Bits, changes: list[Change]) -> Delivered:
        shape = (len(seconds), len(self._nodes))
        lost = lane(chance, 2) + lane(mix(chance, 3), 0) / 65536.0 < self._lost
        doubled = lane(mix(chance, 4), 1) < self._doubled
        copies = np.where(lost, 0, np.where(doubled, 2, 1)).astype(np.int64)
        at = np.floor(seconds * MICRO + 0.5).astype(np.int64)[:, None] + self._phase
        arrival = at + int(_WAY_SECONDS * MICRO) + (lane(chance, 3) * 0.3 * MICRO).astype(np.int64)
        clock = np.zeros(shape, dtype=np.int64)
        mine = [c for c in changes if c.on is On.DELIVERY]
        for change in within(mine, seconds[0], seconds[-1] + 1e-9):
            first = int(np.searchsorted(seconds, change.start))
            last = int(np.searchsorted(seconds, change.end))
            part = np.ix_(np.arange(first, last), np.array(change.targets, dtype=np.int64))
            if change.name == "silent":
                copies[part] = 0
            elif change.name == "lost":
                copies[part] = np.where(lane(chance[part], 0) < change.value, 0, copies[part])
            elif change.name == "late":
                back = int((change.end + 1.0) * MICRO)
                drain = (lane(chance[part], 1) * _DRAIN_SECONDS * MICRO).astype(np.int64)
                arrival[part] = np.maximum(arrival[part], back + drain)
            elif change.name == "step":
                clock[part] += int(change.value * MICRO)
        return Delivered(copies=copies, arrival=arrival, clock=clock, phase=self._phase)


def arrives(at: float, changes: list[Change]) -> float | None:
    """When an event of that moment reaches the hub; None when nobody tells it.

    `changes` are those of the node's delivery.
    """
    arrival = at + _WAY_SECONDS
    for change in changes:
        if change.start <= at < change.end:
            if change.name == "silent":
                return None
            if change.name == "late":
                arrival = max(arrival, change.end + 1.0)
    return arrival


def kept(copies: NDArray[np.int64]) -> Index | None:
    """Rows to take so that each is there as often as it should; None when all are, once."""
    if bool((copies == 1).all()):
        return None
    return np.repeat(np.arange(copies.size, dtype=np.int64), copies.ravel())
