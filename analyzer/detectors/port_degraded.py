"""A network link that is up and slower than it was, or than the same link of most other nodes."""

from collections.abc import Iterator
from datetime import datetime

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Incident, Severity, Subject
from gpuvigil.numbers_in_words import speed
from gpuvigil.store import Aggregate, Function

from ..evidence import fabric_links
from ..evidence.fabric_links import Trouble
from ..evidence.port_drops import role_of
from ..window.columns import Floats, counted, per_group, port_kinds, rails, together
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

_SPEED, _LANES, _UP = (
    Aggregate(function=Function.MAX, field=name)
    for name in ("speed_bits_per_second", "width_lanes", "up")
)
_LEAST = Aggregate(function=Function.MIN, field="speed_bits_per_second")
NEEDS = (
    Need(measurement="port", span=Span.NOW, fields=("up", "speed_bits_per_second", "width_lanes")),
    Need(measurement="port", span=Span.RECENT, aggregates=(_SPEED, _UP, _LEAST)),
    Need(measurement="port", span=Span.TREND, aggregates=(_SPEED, _LANES)),
)

_FAULT = FAULTS["port_degraded"]
# Of the same port of other nodes so many, and so many of these, must have the higher speed.
_PEERS, _MOST = 3.0, 0.8
_SAMPLES = 2
_NAME = "speed"  # of the evidence


def degraded_ports(window: Window) -> list[Finding]:
    """One finding per port or cable that is up at less than it had, or than its peers have."""
    return [*_of_hosts(window), *map(_of_cable, fabric_links.degraded(window))]


def _of_hosts(window: Window) -> list[Finding]:
    rows = window.get("port", Span.RECENT)
    if not len(rows):
        return []
    now = rows.values(_SPEED.column)
    steady = (rows.values("samples") >= _SAMPLES) & (now == rows.values(_LEAST.column))
    up = (window.get("port", Span.NOW).beside(rows, "up") == 1) & (rows.values(_UP.column) == 1)
    was = window.get("port", Span.TREND).beside(rows, _SPEED.column)
    usual = _usual(window, rows)
    best = np.fmax(was, usual)
    slow = steady & up & (now > 0.0) & (now < best)
    return [
        _finding(window, rows, number, float(best[number]), float(usual[number]))
        for number in np.flatnonzero(slow).tolist()
    ]


def _usual(window: Window, rows: Rows) -> Floats:
    """The speed that nearly all ports of the same name, kind and role have; NaN where none is."""
    now = rows.values(_SPEED.column)
    alike = together(rails(rows), port_kinds(window, rows))
    median, count = per_group(alike, now)
    same = counted(alike, now == median)
    found: Floats = np.where((count > _PEERS) & (same >= _MOST * count), median, np.nan)
    return found


def would_show(window: Window, incident: Incident) -> bool:
    """Whether its speed would tell now: it has peers, or was another one lately."""
    rows = window.get("port", Span.RECENT)
    number = rows.index.number(incident.subject) if len(rows) else None
    if number is None:
        return False
    if not np.isnan(_usual(window, rows)[number]):
        return True
    was = window.get("port", Span.TREND).get(incident.subject)
    lately = Row(rows, number)[_LEAST.column]
    return was is not None and was[_SPEED.column] == lately and _has_risen(incident, lately)


def _has_risen(incident: Incident, bits_per_second: float) -> bool:
    """Whether the link is faster than it was told."""
    told = next((it.value for it in incident.evidence if it.name == _NAME), "")
    return speed(bits_per_second) != told


def _finding(window: Window, rows: Rows, number: int, best: float, usual: float) -> Finding:
    port, row = rows.subjects[number], Row(rows, number)
    role = role_of(window.inventories.get(port.of_node().key), port)
    severity = Severity.INFO if role == "management" else _FAULT.severity
    told = Evidence(
        name=_NAME,
        value=speed(row[_SPEED.column]),
        limit=speed(best),
        peers=None if np.isnan(usual) else speed(usual),
    )
    return _told(port, severity, row["first_at"], (told, *_lanes(window, port)))


def _of_cable(trouble: Trouble) -> Finding:
    """Between two switches, or to a host without a collector."""
    return _told(trouble.subject, _FAULT.severity, trouble.since, trouble.evidence)


def _told(
    port: Subject, severity: Severity, since: datetime, evidence: tuple[Evidence, ...]
) -> Finding:
    return Finding(
        fault="port_degraded",
        subject=port,
        severity=severity,
        since=since,
        evidence=evidence,
        detector="port_degraded",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


def _lanes(window: Window, port: Subject) -> Iterator[Evidence]:
    now, was = window.newest(port), window.get("port", Span.TREND).get(port)
    lanes = None if now is None else now.get("width_lanes")
    had = None if was is None else was[_LANES.column]
    if lanes is not None:
        yield Evidence(name="lanes", value=f"{lanes:g}", limit=None if had is None else f"{had:g}")


DETECTOR = Detector(
    name="port_degraded",
    find=degraded_ports,
    faults=found_by("port_degraded"),
    needs=NEEDS,
    sentence="A network link that is up and slower than it was, or than those of other nodes.",
    source="the port's own past, and the same port of other nodes",
    would_show=would_show,
)
