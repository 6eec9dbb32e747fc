"""A network link that is up but slower than before, or than the same link of most other nodes.

Also a port whose card gets less through its PCIe link than the port brings.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Evidence, Finding, Incident, Severity, Subject
from gpuvigil.numbers_in_words import natural, speed
from gpuvigil.store import Aggregate, Function

from ..evidence import fabric_links
from ..evidence.fabric_links import CableTrouble
from ..evidence.nic_links import PcieLimitedPort, pcie_limited_ports
from ..evidence.port_drops import role_of
from ..window.columns import Floats, combined_codes, group_count, per_group, port_kinds, rails
from ..window.holdings import name
from ..window.rows import Row, Rows
from ..window.subject_names import gpus
from ..window.window import Need, Span, Window
from . import Detector

_SPEED, _LANES, _UP = (
    Aggregate(function=Function.MAX, field=name)
    for name in ("speed_bits_per_second", "width_lanes", "up")
)
_LEAST = Aggregate(function=Function.MIN, field="speed_bits_per_second")
_ALWAYS_UP = Aggregate(function=Function.MIN, field="up")
NEEDS = (
    Need(measurement="port", span=Span.NOW, fields=("up", "speed_bits_per_second", "width_lanes")),
    Need(measurement="port", span=Span.RECENT, aggregates=(_SPEED, _UP, _LEAST, _ALWAYS_UP)),
    Need(measurement="port", span=Span.TREND, aggregates=(_SPEED, _LANES)),
)

_FAULT, _STARVED = FAULTS["port_degraded"], CONDITIONS["pcie_starved"]
# More than this many nodes must have the port, and this share of them the usual speed.
_PEERS, _MOST = 3.0, 0.8
_SAMPLES = 2
_NAME = "speed"  # the evidence that gives the speed


def degraded_ports(window: Window) -> list[Finding]:
    """Return one finding per port or cable that is up at less than it had, or than its peers have.

    Of the other ports, each one that its card's PCIe link starves gets a finding.
    """
    slow = _of_hosts(window)
    told = {finding.subject for finding in slow}
    by_card = (
        it for it in pcie_limited_ports(window, partial(_brings, window)) if it.port not in told
    )
    cables = map(_of_cable, fabric_links.slow_cables(window))
    return [*slow, *(_of_card(window, it) for it in by_card), *cables]


def _of_hosts(window: Window) -> list[Finding]:
    rows = window.get("port", Span.RECENT)
    if not len(rows):
        return []
    now = rows.values(_SPEED.column)
    steady = (rows.values("samples") >= _SAMPLES) & (now == rows.values(_LEAST.column))
    up = (window.get("port", Span.NOW).beside(rows, "up") == 1) & (rows.values(_UP.column) == 1)
    was = window.get("port", Span.TREND).beside(rows, _SPEED.column)
    usual = window.once(_usual, None)
    best = np.fmax(was, usual)
    slow = steady & up & (now > 0.0) & (now < best)
    return [
        _finding(window, rows, number, float(best[number]), float(usual[number]))
        for number in np.flatnonzero(slow).tolist()
    ]


def _brings(window: Window, port: Subject) -> float:
    """Return the speed in bits per second of a port that was up all the last minute; 0 for any other."""
    rows = window.get("port", Span.RECENT)
    number = rows.index.number(port) if len(rows) else None
    return 0.0 if number is None else float(window.once(_speeds, None)[number])


def _speeds(window: Window, _: None) -> Floats:
    """Return the speed of each port in bits per second; 0 for those that were not up all the last minute."""
    rows = window.get("port", Span.RECENT)
    up = (window.get("port", Span.NOW).beside(rows, "up") == 1) & (
        rows.values(_ALWAYS_UP.column) == 1
    )
    up &= rows.values("samples") >= _SAMPLES
    found: Floats = np.where(up, np.nan_to_num(rows.values(_SPEED.column)), 0.0)
    return found


def _of_card(window: Window, found: PcieLimitedPort) -> Finding:
    port, nic = found.port, found.nic
    inventory = window.inventories[port.of_node().key]
    leaves = speed(round(nic.link.bits_per_second, -9))
    rate = speed(_brings(window, port))
    near = f"{gpus(window, found.gpus)} behind the same {nic.beside.value}" if nic.beside else ""
    jobs = sorted({name(held) for gpu in found.gpus for held in window.held(gpu)}, key=natural)
    told = [
        Evidence(name="PCIe link", value=nic.link.words, limit=nic.best.words, peers=found.peers),
        Evidence(name="PCIe leaves", value=f"{leaves} for a port of {rate}"),
        Evidence(name="card", value=f"{nic.address} ({nic.model})", detail=True),
        Evidence(name="GPUs beside it", value=near if found.gpus else "not known"),
    ]
    if found.gpus:
        told.append(Evidence(name="their jobs", value=", ".join(jobs) or "none"))
    severity = Severity.INFO if role_of(inventory, port) == "management" else _STARVED.severity
    one = _finding_on(port, severity, inventory.at, tuple(told))
    return replace(
        one,
        title=_STARVED.title,
        condition=_STARVED.key,
        action=_STARVED.action,
        source=_STARVED.source,
        own_limit=_STARVED.own_limit,
        members=found.gpus,
    )


def _usual(window: Window, _: None) -> Floats:
    """Return for each row the speed that nearly all ports of the same name, kind and role have; NaN
    where there is none.
    """
    rows = window.get("port", Span.RECENT)
    now = rows.values(_SPEED.column)
    alike = combined_codes(rails(rows), port_kinds(window, rows))
    median, count = per_group(alike, now)
    same = group_count(alike, now == median)
    found: Floats = np.where((count > _PEERS) & (same >= _MOST * count), median, np.nan)
    return found


def would_show(window: Window, incident: Incident) -> bool:
    """Return whether the port's speed would show the fault now: it has peers, or its speed differed lately."""
    rows = window.get("port", Span.RECENT)
    number = rows.index.number(incident.subject) if len(rows) else None
    if number is None:
        return False
    if incident.condition == _STARVED.key:
        return _brings(window, incident.subject) > 0.0 and _reports_card(window, incident.subject)
    if not np.isnan(window.once(_usual, None)[number]):
        return True
    was = window.get("port", Span.TREND).get(incident.subject)
    lately = Row(rows, number)[_LEAST.column]
    return was is not None and was[_SPEED.column] == lately and _has_risen(incident, lately)


def _reports_card(window: Window, port: Subject) -> bool:
    """Return whether the node reports the PCIe link of the port's card."""
    inventory = window.inventories.get(port.of_node().key)
    return inventory is not None and any(port.device in nic.devices for nic in inventory.nics)


def _has_risen(incident: Incident, bits_per_second: float) -> bool:
    """Return whether the link's speed differs from the one in the incident's evidence."""
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
    return _finding_on(port, severity, row["first_at"], (told, *_lanes(window, port)))


def _of_cable(trouble: CableTrouble) -> Finding:
    """Build the finding on a cable between two switches, or to a host without a collector."""
    return _finding_on(trouble.subject, _FAULT.severity, trouble.since, trouble.evidence)


def _finding_on(
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
    sentence="A network link that is up and slower than it was, or than those of other nodes, or that its card's PCIe link starves.",
    source="the port's own past, and the same port of other nodes; PCIe link speed and width from sysfs",
    would_show=would_show,
)
