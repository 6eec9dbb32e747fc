"""One GPU whose driver calls do not come back, while the driver answers for others."""

import pyarrow.compute as pc

from gpuvigil.faults import FAULTS
from gpuvigil.model import Event, EventKind, Evidence, Finding, Subject, Unmeasured
from gpuvigil.store import Aggregate, Function

from ..cures import cured_at
from ..rows import Row
from ..window import Need, Span, Window

NEEDS = (
    Need(measurement="gpu", span=Span.NOW, fields=("up", "unmeasured_reason")),
    Need(
        measurement="gpu",
        span=Span.RECENT,
        aggregates=(Aggregate(function=Function.COUNT, field="unmeasured_reason"),),
    ),
)

_FAULT = FAULTS["gpu_silent"]
# One slow call is not a hang.
_TICKS = 2


def silent_gpus(window: Window) -> list[Finding]:
    """GPUs that do not answer now and did not in at least one tick before."""
    rows = window.get("gpu", Span.NOW)
    if not len(rows):
        return []
    silent = pc.equal(rows["unmeasured_reason"], int(Unmeasured.DRIVER_NOT_ANSWERING))
    found = sorted(rows.where(silent), key=lambda pair: pair[0].key)
    return [
        _finding(subject, row, _event(window, subject))
        for subject, row in found
        if _lasts(window, subject, row)
    ]


def _lasts(window: Window, subject: Subject, row: Row) -> bool:
    recent = window.get("gpu", Span.RECENT).get(subject)
    back_at = cured_at(window, "gpu_silent", subject)
    return (
        recent is not None
        and recent["unmeasured_reason_count"] >= _TICKS
        and (back_at is None or row["at"] > back_at)
    )


def _event(window: Window, subject: Subject) -> Event | None:
    """The collector's own word on when the GPU fell silent."""
    back_at = cured_at(window, "gpu_silent", subject)
    for event in window.node_events(subject.of_node(), EventKind.DRIVER_SILENT):
        if event.subject == subject and (back_at is None or event.at >= back_at):
            return event
    return None


def _finding(subject: Subject, row: Row, event: Event | None) -> Finding:
    return Finding(
        fault="gpu_silent",
        subject=subject,
        severity=_FAULT.severity,
        since=row["at"] if event is None else event.at,
        evidence=(
            Evidence(
                name="answers",
                value=f"no: {Unmeasured.DRIVER_NOT_ANSWERING.text}",
                limit=f"{_TICKS} ticks",
            ),
        ),
        detector="gpu_silent",
        action=_FAULT.action,
        source=_FAULT.source,
    )
