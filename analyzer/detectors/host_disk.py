"""A node whose collector cannot store its measurements, since its disk is full or fails."""

from datetime import datetime

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence.host_readings import lasting, would_show
from ..window.window import Need, Span, Window
from . import Detector

DROPPED = Aggregate(function=Function.INCREASE, field="dropped_bodies")
_WRITABLE = Aggregate(function=Function.MAX, field="spool_writable")
NEEDS = (
    Need(measurement="node", span=Span.STEADY, aggregates=(DROPPED,)),
    Need(measurement="node", span=Span.RECENT, aggregates=(_WRITABLE,)),
)

_FAULT = FAULTS["host_disk"]
# A torn file after a power cut, or one body that the hub refused, is no full disk.
_BODIES = 3


def full_disks(window: Window) -> list[Finding]:
    """Return one finding per node that cannot store what it measured.

    Either the spool's disk refused every write of the recent span, or the collector dropped several bodies over
    the steady span.
    """
    found = {}
    rows = window.get("node", Span.STEADY)
    minutes = window.settings.steady_seconds / 60.0
    for node, row in rows.where(rows.values(DROPPED.column) >= _BODIES):
        evidence = Evidence(
            name="dropped bodies",
            value=f"{row[DROPPED.column]} in {minutes:g} min",
            limit=f"fewer than {_BODIES}",
        )
        found[node] = _finding(node, row["first_at"], [evidence])
    rows = window.get("node", Span.RECENT)
    refused = rows.values(_WRITABLE.column) == 0
    for node, row in rows.where(lasting(window, rows) & refused):
        before = found[node].evidence if node in found else ()
        evidence = Evidence(name="writes to the spool", value="refused", limit="taken")
        found[node] = _finding(node, row["first_at"], [evidence, *before])
    return list(found.values())


def _finding(node: Subject, since: datetime, evidence: list[Evidence]) -> Finding:
    return Finding(
        fault="host_disk",
        subject=node,
        severity=_FAULT.severity,
        since=since,
        evidence=tuple(evidence),
        detector="host_disk",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


DETECTOR = Detector(
    name="host_disk",
    find=full_disks,
    faults=found_by("host_disk"),
    needs=NEEDS,
    sentence="A node whose collector cannot write its spool, or has to give up what it measured.",
    source="writes that the spool's disk refused, and bodies given up",
    would_show=would_show,
)
