"""A GPU whose memory is still held although the scheduler has ended its job."""

from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS
from gpuvigil.model import Evidence, Finding, Subject
from gpuvigil.store import Aggregate, Function

from ..rows import Row
from ..window import Need, Span, Window

_USED = Aggregate(function=Function.MIN, field="memory_used_bytes")
NEEDS = (Need(measurement="gpu", span=Span.RECENT, aggregates=(_USED,)),)

_FAULT = FAULTS["gpu_memory_held"]
# Without a client a driver holds far less.
_HELD_BYTES = 1024**3
# A scheduler kills what is left of a job within minutes (Slurm's KillWait, UnkillableStepTimeout).
_PATIENCE = timedelta(minutes=5)


def held_memory(window: Window) -> list[Finding]:
    """GPUs of a scheduler that nobody holds by its account, and whose memory is in use."""
    rows = window.get("gpu", Span.RECENT)
    used = rows.where(rows.values(_USED.column) >= _HELD_BYTES)
    found = [_finding(window, subject, row) for subject, row in used]
    return sorted((f for f in found if f is not None), key=lambda f: f.subject)


def _finding(window: Window, subject: Subject, row: Row) -> Finding | None:
    allocations = window.allocations.get(subject.key, ())
    if any(a.ended_at is None for a in allocations):
        return None
    jobs = [a for a in allocations if a.holder.startswith("job ") and a.ended_at is not None]
    if not jobs:
        return None
    last = max(jobs, key=lambda a: a.ended_at or a.started_at)
    ended: datetime = last.ended_at or last.started_at
    if window.now - ended < _PATIENCE or row["first_at"] < ended:
        return None
    return Finding(
        fault="gpu_memory_held",
        subject=subject,
        severity=_FAULT.severity,
        since=ended,
        evidence=(
            Evidence(name="memory", value=f"{row[_USED.column] / 1024**3:.1f} GiB in use"),
            Evidence(name="last held by", value=f"{last.holder}, ended {moment(ended)}"),
        ),
        detector="gpu_memory_held",
        action=_FAULT.action,
        source=_FAULT.source,
    )
