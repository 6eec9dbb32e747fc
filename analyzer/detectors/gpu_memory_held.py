"""A GPU whose memory is still held although the scheduler has ended its job."""

import math
from collections.abc import Iterable
from datetime import timedelta

from gpuvigil.clock import micros, moment
from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Allocation, Evidence, Finding, HolderKind, Subject
from gpuvigil.store import Aggregate, Function

from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

_USED = Aggregate(function=Function.MIN, field="memory_used_bytes")
NEEDS = (Need(measurement="gpu", span=Span.RECENT, aggregates=(_USED,)),)

_FAULT = FAULTS["gpu_memory_held"]
# Without a client, the driver holds far less.
_HELD_BYTES = 1024**3
# A scheduler kills what is left of a job within minutes (Slurm's KillWait, UnkillableStepTimeout).
_PATIENCE = timedelta(minutes=5)


def held_memory(window: Window) -> list[Finding]:
    """Return GPUs that no allocation holds any more after a scheduler's job, but whose memory is still in use."""
    rows = window.get("gpu", Span.RECENT)
    left = window.of_allocations(rows, _left_at)
    held = (
        (rows.values(_USED.column) >= _HELD_BYTES)
        & (left <= micros(window.now - _PATIENCE))
        & (left <= rows.values("first_at"))
    )
    found = (_finding(window, subject, row) for subject, row in rows.where(held))
    return sorted((f for f in found if f is not None), key=lambda f: f.subject)


def _left_at(_: Subject, allocations: tuple[Allocation, ...] | None) -> float:
    """Return when the GPU's last job ended, in microseconds; NaN while somebody holds it, or without a job."""
    if any(a.ended_at is None for a in allocations or ()):
        return math.nan
    last = _last_job(allocations or ())
    return math.nan if last is None or last.ended_at is None else micros(last.ended_at)


def _last_job(allocations: Iterable[Allocation]) -> Allocation | None:
    jobs = [a for a in allocations if a.holder.kind is HolderKind.JOB and a.ended_at is not None]
    return max(jobs, key=lambda a: a.ended_at or a.started_at, default=None)


def _finding(window: Window, subject: Subject, row: Row) -> Finding | None:
    last = _last_job(window.allocations.get(subject.key, ()))
    if last is None or last.ended_at is None:
        return None
    ended = last.ended_at
    return Finding(
        fault="gpu_memory_held",
        subject=subject,
        severity=_FAULT.severity,
        since=ended,
        evidence=(
            Evidence(name="memory", value=f"{row[_USED.column] / 1024**3:.1f} GiB in use"),
            Evidence(name="last allocated to", value=f"{last.holder}, ended {moment(ended)}"),
        ),
        detector="gpu_memory_held",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


DETECTOR = Detector(
    name="gpu_memory_held",
    find=held_memory,
    faults=found_by("gpu_memory_held"),
    needs=NEEDS,
    sentence="A GPU whose memory is in use although the scheduler has ended its job.",
    source="memory in use, and no allocation for five minutes",
    needs_holders=True,
)
