"""The reports of a reader of the fleet's switches: scan after scan, by the code that reads real ones.

A switch's end of a host's cable follows what happens to the host's port; changes to a cable between
switches affect both ends. Scans without any difference are played only where they are reported: a reader
of a fabric reports every five minutes that it is still there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from gpuvigil.model import Switch

from ..fabric.cabling import LANES, Cabling, PortDeviation
from ..fabric.reader import Reader
from .chance import Floats, keys, lane
from .changes import Change, Operation, Quantity, apply, within
from .life import AWAY
from .model import FleetSettings
from .plan import Plan
from .site import REBOOT_SECONDS, Site
from .topology import Topology

LOOK_SECONDS = 60.0
# What may change at a switch port: its link, and its counters.
_LINK = {"up": 1.0, "disabled": 0.0, "speed": 1.0, "lanes": float(LANES)}
_COUNTED = ("symbol_errors", "receive_errors", "link_recoveries", "local_integrity_errors",
            "transmit_discards", "pause_frames_received", "pause_frames_sent")  # fmt: skip
PORT_FIELDS = (*_LINK, *_COUNTED)
# A pause lasts 65,535 times 512 bits at most (IEEE 802.3, annex 31B): 84 microseconds at 400 Gb/s.
_FRAMES_PER_MICROSECOND = 1.0 / 84.0
# How a change of a host's port shows at its switch's end, and how much of it. Both ends of a bad cable
# count errors, the switch's half as many [chosen].
_AT_THE_SWITCH: Mapping[str, tuple[str, float]] = {
    "up": ("up", 1.0),
    "speed_bits_per_second": ("speed", 1.0),
    "width_lanes": ("lanes", 1.0),
    "symbol_errors": ("symbol_errors", 0.5),
    "receive_errors": ("receive_errors", 0.5),
    "link_recoveries": ("link_recoveries", 1.0),
    "local_integrity_errors": ("local_integrity_errors", 0.5),
    "transmit_pause_microseconds": ("pause_frames_received", _FRAMES_PER_MICROSECOND),
    "receive_pause_microseconds": ("pause_frames_sent", _FRAMES_PER_MICROSECOND),
}
# The share of healthy ports with an occasional symbol error, and the most per hour [chosen].
_WITH_ERRORS, _MOST_PER_HOUR = 0.03, 4.0
# A reader reports each scan for this long after a change, and otherwise this often.
_YOUNG_SECONDS, _TOLD_SECONDS = 600.0, 300.0


@dataclass(frozen=True, slots=True)
class _State:
    """Everything that a scan may see."""

    fields: Mapping[str, Any]
    lost: frozenset[int]

    def is_as(self, other: "_State | None") -> bool:
        return (
            other is not None
            and self.lost == other.lost
            and all(np.array_equal(it, other.fields[name]) for name, it in self.fields.items())
        )


class SwitchLooks:
    """The scans of one run through the plan, in order."""

    def __init__(
        self, settings: FleetSettings, plan: Plan, cabling: Cabling, file: Path | None = None
    ) -> None:
        self._settings = settings
        self._cabling = cabling
        self._topology = plan.topology
        self.use_changes(plan.changes)
        self._off = _off(plan)
        self._reader = Reader(settings.cluster, file)
        lots = keys(len(cabling.ports), settings.seed, "switch port")
        some = lane(lots, 0) < _WITH_ERRORS
        self._error_rate = np.where(some, lane(lots, 1) * _MOST_PER_HOUR / 3600.0, 0.0)
        self._begun = lane(lots, 2)
        self._next = float(round(float(lane(lots, 3)[0]) * LOOK_SECONDS))
        self._last: _State | None = None
        self._changed_at = self._told_at = 0.0

    @staticmethod
    def of(
        settings: FleetSettings, plan: Plan, file: Path | None = None
    ) -> "SwitchLooks | NobodyLooks":
        """Return the scans of a fleet; `NobodyLooks` where nobody reads its switches.

        What the reader knows is kept in `file`, if there is one.
        """
        cabling = plan.topology.cabling
        return NobodyLooks() if cabling is None else SwitchLooks(settings, plan, cabling, file)

    def use_changes(self, changes: Sequence[Change]) -> None:
        """Replace the earlier changes by these."""
        own = [c for c in changes if c.on in {Quantity.SWITCH_PORT, Quantity.SWITCH}]
        self._changes = [*own, *_mirrored(changes, self._topology, self._cabling)]

    def until(self, end: float) -> tuple[Switch, ...]:
        """Return the reports of the scans before `end`."""
        found: list[Switch] = []
        while self._next < end:
            found += self.look(self._next)
            self._next += LOOK_SECONDS
        return tuple(found)

    def look(self, seconds: float) -> Sequence[Switch]:
        """Return the report of one scan; empty where the reader gets no answer."""
        changes = within(self._changes, seconds, seconds + 1e-9)
        if any(c.name == "unread" for c in changes):
            return ()
        state = self._state(seconds, changes)
        if not state.is_as(self._last):
            self._last, self._changed_at = state, seconds
        elif (
            seconds - self._changed_at > _YOUNG_SECONDS and seconds - self._told_at < _TOLD_SECONDS
        ):
            return ()
        self._told_at = seconds
        at = self._settings.start + timedelta(seconds=seconds)
        return self._reader.look(self._cabling.seen(dict(_odd(state)), state.lost), at)

    def _state(self, seconds: float, changes: Sequence[Change]) -> _State:
        count = len(self._cabling.ports)
        fields = {name: np.full((1, count), usual) for name, usual in _LINK.items()}
        fields |= {name: np.zeros((1, count)) for name in _COUNTED}
        fields["symbol_errors"] += np.floor(seconds * self._error_rate + self._begun)
        fields["symbol_errors"][:, self._error_rate == 0.0] = 0.0
        at: Floats = np.array([seconds])
        for change in changes:
            if change.on is Quantity.SWITCH_PORT:
                apply(change, fields[change.name], at)
        for start, end, places in self._off:
            if start <= seconds < end:
                fields["up"][0, places] = 0.0
        lost = (c.targets for c in changes if c.name == "lost" and c.start <= seconds < c.end)
        return _State(fields, frozenset(it for them in lost for it in them))


class NobodyLooks:
    """A fleet whose switches nobody reads."""

    def use_changes(self, changes: Sequence[Change]) -> None:
        """Ignore the changes."""

    def until(self, end: float) -> tuple[Switch, ...]:
        return ()

    def look(self, seconds: float) -> Sequence[Switch]:
        return ()


def _odd(state: _State) -> Iterator[tuple[int, PortDeviation]]:
    """Yield the ports that differ from a healthy one."""
    usual = {name: _LINK.get(name, 0.0) for name in PORT_FIELDS}
    differs = np.logical_or.reduce([state.fields[it][0] != usual[it] for it in PORT_FIELDS])
    for place in np.flatnonzero(differs).tolist():
        of = {name: float(state.fields[name][0, place]) for name in PORT_FIELDS}
        yield (
            place,
            PortDeviation(
                up=of["up"] > 0.0,
                disabled=of["disabled"] > 0.0,
                speed=of["speed"],
                lanes=max(round(of["lanes"]), 1),
                counted={name: int(of[name]) for name in _COUNTED if of[name]},
            ),
        )


def _mirrored(changes: Sequence[Change], topology: Topology, cabling: Cabling) -> Iterator[Change]:
    """Yield the changes of hosts' fabric ports, at the other ends of their cables."""
    per_node = topology.ports_per_node
    for change in changes:
        if change.on is not Quantity.PORT or change.name not in _AT_THE_SWITCH:
            continue
        places = tuple(
            cabling.downlink(port // per_node, port % per_node)
            for port in change.targets
            if port % per_node < topology.per_node
        )
        name, share = _AT_THE_SWITCH[change.name]
        value = change.value
        if change.how is Operation.COUNT:
            value *= share
        elif change.how is Operation.STEP and share < 1.0:
            value = float(np.floor(value * share))
        if places:
            yield replace(change, on=Quantity.SWITCH_PORT, name=name, targets=places, value=value)


def _off(plan: Plan) -> list[tuple[float, float, list[int]]]:
    """Return when machines have no power or restart, and the switch ports without a link then."""
    topology = plan.topology
    cabling = topology.cabling
    assert cabling is not None
    spans = [
        (turn.subject[1], turn.start, turn.end)
        for turn in plan.life.life_events
        if turn.kind in AWAY
    ]
    for kind, site in plan.sites:
        spans += _of_site(kind.key, site)
    return [
        (start, end, [cabling.downlink(node, rail) for rail in range(topology.per_node)])
        for node, start, end in spans
    ]


def _of_site(kind: str, site: Site) -> Iterator[tuple[int, float, float]]:
    if kind == "dead node":
        yield site.node, site.start, site.end
    for at in site.boots:
        yield site.node, at - REBOOT_SECONDS, at
