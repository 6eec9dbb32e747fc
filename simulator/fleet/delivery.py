"""What happens to bodies on their way: lost, doubled, late, or dated by a wrong clock.

A body holds all rows of a node and a tick, so all of these share one fate.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .chance import Bits, Floats, lane, mix
from .changes import Change, Quantity, within
from .topology import Index, Topology

MICRO = 1_000_000
_WAY_SECONDS = 0.4  # from the sensor to the hub when all is well [chosen]
_DRAIN_SECONDS = 20.0  # in which a backlog reaches the hub, once the hub can be reached
_LOST = 2e-5  # shares of bodies lost or doubled although nothing is wrong [chosen]
_DOUBLED = 1e-4
# In the world settings: how long a scraper is busy at a time, and how long a collector keeps what it sends
# at once; different for each node [chosen: gaps of minutes are common on shared clusters].
_GAP_SECONDS = (60.0, 180.0)
_BURST_SECONDS = (60.0, 180.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The delivery of each body [ticks x nodes]: number of copies, arrival time, and its clock's error."""

    copies: Index
    arrival: Index  # microseconds since the fleet's start, by the hub's clock
    clock: Index  # microseconds that the node's clock is ahead
    phase: Index  # per node: microseconds between the tick and the reading


class Delivery:
    """The delivery of all bodies; a pure function of time."""

    def __init__(self, topology: Topology, missing: float, life: bool) -> None:
        self._nodes = nodes = topology.node_keys
        self._lost = missing + (_LOST if life else 0.0)
        self._doubled = _DOUBLED if life else 0.0
        self._phase = (lane(mix(nodes, 5), 0) * 0.9 * MICRO).astype(np.int64)
        # In 65,536ths: whole numbers, so that no tick depends on rounding.
        self._read_of = np.floor(topology.read_share * 65_536.0 + 0.5).astype(np.int64)
        self._gap_share = topology.gap_share
        self._uneven = topology.world is not None
        lots = mix(nodes, 79)
        self._gap_seconds = _between(_GAP_SECONDS, lane(lots, 0))
        self._burst: Index | None = None
        if topology.world is not None and topology.world.bursty > 0.0:
            bursty = topology.nodes_with(topology.world.bursty, "bursty")
            seconds = np.where(bursty, _between(_BURST_SECONDS, lane(lots, 1)), 0.0)
            self._burst = np.floor(seconds).astype(np.int64) * MICRO

    def of(self, seconds: Floats, ticks: Index, chance: Bits, changes: list[Change]) -> Delivered:
        shape = (len(seconds), len(self._nodes))
        lost = lane(chance, 2) + lane(mix(chance, 3), 0) / 65536.0 < self._lost
        doubled = lane(mix(chance, 4), 1) < self._doubled
        copies = np.where(lost, 0, np.where(doubled, 2, 1)).astype(np.int64)
        if self._uneven:
            copies *= self._read(seconds, ticks)
        at = np.floor(seconds * MICRO + 0.5).astype(np.int64)[:, None] + self._phase
        arrival = at + int(_WAY_SECONDS * MICRO) + (lane(chance, 3) * 0.3 * MICRO).astype(np.int64)
        if self._burst is not None:
            # All at once at the next whole burst; a node without bursts sends after reading.
            burst = np.maximum(self._burst, 1)
            arrival = np.where(self._burst > 0, -(-arrival // burst) * burst, arrival)
        clock = np.zeros(shape, dtype=np.int64)
        mine = [c for c in changes if c.on is Quantity.DELIVERY]
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

    def _read(self, seconds: Floats, ticks: Index) -> NDArray[np.bool_]:
        """Return [ticks x nodes]: whether a node is read: evenly over time, but not in its gaps."""
        turn = (self._nodes >> np.uint64(9)).astype(np.int64)
        asked = (ticks[:, None] + turn % 65_536) * self._read_of
        due = (asked + self._read_of) // 65_536 != asked // 65_536
        slot = np.floor(seconds[:, None] / self._gap_seconds).astype(np.int64).astype(np.uint64)
        read: NDArray[np.bool_] = due & (lane(mix(slot ^ self._nodes, 83), 0) >= self._gap_share)
        return read


def _between(ends: tuple[float, float], lots: Floats) -> Floats:
    low, high = ends
    between: Floats = low + (high - low) * lots
    return between


def arrives(at: float, changes: list[Change]) -> float | None:
    """Return when an event of that moment reaches the hub; None when nobody reports it.

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
