"""A host with fewer rails than nearly all others of its pod, as when a card does not come back after a boot."""

from datetime import timedelta

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Incident, Inventory, Subject
from gpuvigil.store import Aggregate, Function
from gpuvigil.topology import Doubt, Question

from ..evidence.cabling import contradicting, port_of
from ..evidence.port_drops import fabric_ports
from ..window.fault_kinds import WITHOUT_LINK
from ..window.window import Need, Span, Window
from . import Detector

_UP = Aggregate(function=Function.MIN, field="up")
NEEDS = (Need(measurement="port", span=Span.TREND, aggregates=(_UP,)),)

_FAULT = FAULTS["rail_missing"]
# The host's other rails were up for most of the trend span, and for this long when the inventory was written:
# links come up one after the other.
_COVERAGE, _SETTLED = 0.5, timedelta(minutes=2)


def hosts_without_a_rail(window: Window) -> list[Finding]:
    """Return one finding per host; none where several hosts lack the same rail, which may be intended."""
    return [
        _finding(inventory, doubt)
        for cluster, found in contradicting(window).items()
        for doubt in found.doubts
        if doubt.question is Question.RAIL_MISSING
        and doubt.certain
        and (inventory := window.inventories.get(_node(cluster, doubt).key)) is not None
        and _is_settled(window, inventory)
        and not _is_reported(window, cluster, doubt)
    ]


def _node(cluster: str, doubt: Doubt) -> Subject:
    (node, _), *_ = doubt.ports
    return Subject(cluster=cluster, node=node)


def _is_settled(window: Window, inventory: Inventory) -> bool:
    """Return whether the host's present rails were up all the time, as far as they are measured."""
    told, least = window.get("port", Span.TREND), _COVERAGE * window.settings.trend_seconds
    rows = [row for it in fabric_ports(window, inventory.subject) if (row := told.get(it))]
    steady = all(
        row[_UP.column] == 1 and (row["last_at"] - row["first_at"]).total_seconds() >= least
        for row in rows
    )
    since = max((row["first_at"] for row in rows), default=inventory.at)
    return steady and inventory.at >= since + _SETTLED


def _is_reported(window: Window, cluster: str, doubt: Doubt) -> bool:
    """Return whether one of these ports has an open incident which says that it was up until lately."""
    keys = {port_of(cluster, *it).key for it in doubt.ports}
    return any(
        not WITHOUT_LINK.isdisjoint({it.fault, it.condition})
        and not keys.isdisjoint({it.subject.key, *it.members})
        for it in window.active_incidents
    )


def _finding(inventory: Inventory, doubt: Doubt) -> Finding:
    return Finding(
        fault="rail_missing",
        subject=inventory.subject,
        severity=_FAULT.severity,
        since=inventory.at,
        evidence=(
            Evidence(name="missing", value=doubt.details),
            Evidence(name="complete", value=doubt.basis),
        ),
        detector="rail_missing",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


def would_show(window: Window, incident: Incident) -> bool:
    """Return whether the host can still be compared with others."""
    found = contradicting(window).get(incident.subject.cluster)
    return found is not None and incident.subject.node in found.hosts


DETECTOR = Detector(
    name="rail_missing",
    find=hosts_without_a_rail,
    faults=found_by("rail_missing"),
    needs=NEEDS,
    sentence="A host with fewer rails than nearly all hosts of its pod that are built alike.",
    source="the fabric ports in its inventory, and those of the other hosts",
    would_show=would_show,
)
