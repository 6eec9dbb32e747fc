"""Readings of network ports by a healthy collector: state, traffic, waits and errors.

An InfiniBand port counts the time in which it had no credit to send; a RoCE port counts the time for
which priority pauses held it up, and the packets that congestion control marked. Both count what their
host could not take, and what had to be retransmitted.
"""

from typing import Any

import numpy as np

from ..fabric.cabling import FABRIC_BITS_PER_SECOND
from .chance import Floats, lane, mix
from .holding import RequestedLoad
from .physics import PhysicsResult
from .sensors import Counters, Moment, Numbers, sixth, whole
from .topology import MANAGEMENT_BITS_PER_SECOND, Topology

# The length of a ConnectX tick without credit is not published [chosen].
TICKS_PER_SECOND = 45_000_000.0
_MICRO = 1_000_000.0
# Traffic of subnet management and mounts on a fabric port without jobs [chosen].
_TRICKLE = 90_000.0
# Symbol errors of the worst healthy port per hour, and packets it drops [chosen; NVSentinel calls
# 120 an hour a fault].
_MOST_SYMBOLS_PER_HOUR, _MOST_DISCARDS_PER_HOUR = 12.0, 3.0
# Packets of the worst healthy port per hour that are retransmitted, and that its host had no buffer
# for [chosen].
_MOST_RESENT_PER_HOUR, _MOST_UNBUFFERED_PER_HOUR = 30.0, 10.0
# Share of time that senders wait at full load, in an even and in an uneven job [chosen].
_LEAST_WAIT, _MOST_WAIT = 0.004, 0.04
_LANES = 4
# A module in cool and in warm air, and what load adds, in degrees [chosen: 45 to 65 is usual].
_COOLEST, _WARMEST, _OF_LOAD = 42.0, 58.0, 6.0
# Share of nodes whose wait counter reached its 32 bits long ago and stays there [chosen].
_FULL_COUNTERS = 0.25


class PortSensors:
    """The sensors of all ports; fabric traffic follows the work of the GPU on the same rail."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._counters = Counters(topology.ports, ("receive", "transmit", "waits", "marks"))
        slot = np.tile(np.arange(topology.ports_per_node), topology.nodes)
        self._fabric = slot < topology.per_node
        self._unplugged = slot == topology.ports_per_node - 1
        lots, more = mix(topology.port_keys, 53), mix(topology.port_keys, 79)
        plugged = self._fabric.astype(np.float64) / 3600.0
        self._symbol_rate = sixth(lane(lots, 0)) * _MOST_SYMBOLS_PER_HOUR * plugged
        self._discard_rate = sixth(lane(lots, 1)) * _MOST_DISCARDS_PER_HOUR * plugged
        self._resent_rate = sixth(lane(more, 0)) * _MOST_RESENT_PER_HOUR * plugged
        self._unbuffered_rate = sixth(lane(more, 1)) * _MOST_UNBUFFERED_PER_HOUR * plugged
        self._waits = _LEAST_WAIT + (_MOST_WAIT - _LEAST_WAIT) * sixth(lane(more, 2))
        self._module = _COOLEST + (_WARMEST - _COOLEST) * lane(more, 3)
        self._begun = lane(lots, 2)
        self._speed = np.where(self._fabric, FABRIC_BITS_PER_SECOND, MANAGEMENT_BITS_PER_SECOND)
        self._full = topology.nodes_with(
            0.0 if topology.world is None else _FULL_COUNTERS, "full wait counters"
        )[topology.port_node]

    def read(
        self, asked: RequestedLoad, played: PhysicsResult, throughput: Any, moment: Moment
    ) -> Numbers:
        """Return every field of every port; `throughput` is the share that faults leave."""
        rates = np.full((len(moment.seconds), self._topology.ports), _TRICKLE)
        rates[:, ~self._fabric] = 310_000.0
        rates[:, self._unplugged] = 0.0
        load = np.zeros(rates.shape)
        load[:, self._topology.fabric_ports] = asked.fabric * played.rate
        rates += load * (FABRIC_BITS_PER_SECOND / 8.0)
        moved = whole(rates * throughput * moment.tick_seconds)
        return {
            "up": np.where(self._unplugged, 0, 1),
            "physical_state": np.where(self._fabric, 5.0, np.nan),
            "speed_bits_per_second": np.where(self._unplugged, np.nan, self._speed),
            "receive_bytes": self._counters.add("receive", moved),
            "transmit_bytes": self._counters.add("transmit", moved),
            "receive_errors": 0,
            "transmit_discards": self._now_and_then(self._discard_rate, moment),
            "link_downed": 0,
            "symbol_errors": self._of_fabric(self._now_and_then(self._symbol_rate, moment)),
            **({} if self._topology.world is None else {"enabled": 1}),
            **self._link(load),
            **self._waiting(load, moment),
        }

    def _now_and_then(self, rate: Floats, moment: Moment) -> Any:
        counts = np.floor(moment.seconds[:, None] * rate + self._begun)
        return counts.astype(np.int64)

    def _of_fabric(self, values: Any) -> Any:
        return np.where(self._fabric, values, np.nan)

    def _link(self, load: Floats) -> Numbers:
        """Return the fields of the link, its module and its error counters."""
        return {
            "width_lanes": self._of_fabric(_LANES),
            "link_recoveries": self._of_fabric(0),
            "local_integrity_errors": self._of_fabric(0),
            "module_celsius": self._of_fabric(np.floor(self._module + _OF_LOAD * load)),
        }

    def _waiting(self, load: Floats, moment: Moment) -> Numbers:
        """Return the fields on waits of senders, retransmits, and what receivers cannot take."""
        resent = self._now_and_then(self._resent_rate, moment)
        unbuffered = self._now_and_then(self._unbuffered_rate, moment)
        found: Numbers = {
            "retransmits": self._of_fabric(resent),
            "out_of_sequence": self._of_fabric(2 * resent),
            "out_of_buffer": self._of_fabric(unbuffered),
        }
        waited = load * self._waits * moment.tick_seconds
        if not self._topology.is_roce:
            ticks = self._counters.add("waits", whole(waited * TICKS_PER_SECOND))
            found["transmit_wait_ticks"] = np.where(self._full | ~self._fabric, np.nan, ticks)
            return found
        paused = self._counters.add("waits", whole(waited * _MICRO))
        marks = self._counters.add("marks", whole(waited * 2000.0))
        found["receive_pause_microseconds"] = self._of_fabric(paused)
        found["transmit_pause_microseconds"] = self._of_fabric(paused // 4)
        found["ecn_marked_packets"] = self._of_fabric(marks)
        found["cnp_sent"] = self._of_fabric(marks)
        found["cnp_handled"] = self._of_fabric(marks)
        found["receive_discards"] = self._of_fabric(0)
        found["pause_storms"] = self._of_fabric(0)
        return found
