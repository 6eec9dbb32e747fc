"""A GPU that somebody holds and nobody uses."""

from datetime import timedelta

import pyarrow.compute as pc

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS
from gpuvigil.model import Allocation, Evidence, Finding, Subject
from gpuvigil.store import Aggregate, Function

from ..rows import Row
from ..window import Need, Span, Window

NEEDS = (
    Need(measurement="gpu", span=Span.NOW, fields=("up", "memory_used_bytes")),
    Need(
        measurement="gpu",
        span=Span.IDLE,
        aggregates=(
            Aggregate(function=Function.COUNT, field="utilization_percent"),
            Aggregate(function=Function.MAX, field="utilization_percent"),
            Aggregate(function=Function.MAX, field="memory_utilization_percent"),
            Aggregate(function=Function.MIN, field="compute_processes"),
            Aggregate(function=Function.LAST, field="clock_event_reasons"),
        ),
    ),
)

_FAULT = FAULTS["gpu_idle_held"]
# Less than this share of the expected samples says too little about the whole span.
_COVERAGE = 0.8
# nvmlClocksEventReasonGpuIdle: the driver itself says that there is no work.
_CLOCKS_IDLE = 0x1


def idle_held_gpus(window: Window) -> list[Finding]:
    """GPUs that were held and at 0 % at every sample of the idle span, and still answer.

    A GPU of which too little of the span was measured is not idle but unknown, and is left out.
    """
    rows = window.get("gpu", Span.IDLE)
    if not len(rows):
        return []
    limit = window.settings.idle_below_percent
    still = pc.and_(
        pc.less(rows["utilization_percent_max"], limit),
        pc.less(rows["memory_utilization_percent_max"], limit),
    )
    candidates = sorted(rows.where(still), key=lambda found: found[0].key)
    found = (_finding(window, subject, row) for subject, row in candidates)
    return [finding for finding in found if finding is not None]


def _finding(window: Window, subject: Subject, row: Row) -> Finding | None:
    newest = window.newest(subject)
    if newest is None or newest.get("up") != 1 or not _covered(window, subject, row):
        return None
    start = window.now - timedelta(seconds=window.settings.idle_after_seconds)
    held = window.held(subject)
    processes = row["compute_processes_min"]
    if not (processes is not None and processes >= 1) and not any(
        allocation.started_at <= start for allocation in held
    ):
        return None
    return Finding(
        fault="gpu_idle_held",
        subject=subject,
        severity=_FAULT.severity,
        since=start,
        evidence=_evidence(window, row, newest, held),
        detector="gpu_idle_held",
        action=_action(held),
        source=_FAULT.source,
    )


def _covered(window: Window, subject: Subject, row: Row) -> bool:
    """Whether the samples stand for the whole span."""
    span = window.settings.idle_after_seconds
    expected = max(span / window.tick_seconds(subject.of_node()), 1.0)
    missing = row["first_at"] - (window.now - timedelta(seconds=span))
    return bool(
        row["utilization_percent_count"] >= _COVERAGE * expected
        and missing.total_seconds() <= (1.0 - _COVERAGE) * span
    )


def _evidence(
    window: Window, row: Row, newest: Row, held: tuple[Allocation, ...]
) -> tuple[Evidence, ...]:
    minutes = window.settings.idle_after_seconds / 60.0
    evidence = [
        Evidence(
            name="utilisation",
            value=f"{row['utilization_percent_max']:.0f} % at most in {minutes:g} min",
            limit=f"under {window.settings.idle_below_percent:g} %",
        )
    ]
    memory = newest.get("memory_used_bytes")
    if memory is not None:
        evidence.append(Evidence(name="memory held", value=f"{memory / 1024**3:.1f} GiB"))
    if (row["clock_event_reasons_last"] or 0) & _CLOCKS_IDLE:
        evidence.append(Evidence(name="clocks", value="idle, as the driver says"))
    for allocation in held:
        since = f"{_who(allocation)}, since {moment(allocation.started_at)}"
        evidence.append(Evidence(name="held by", value=since))
    return tuple(evidence)


def _action(held: tuple[Allocation, ...]) -> str:
    if not held:
        return "Find the process that holds the GPU (nvidia-smi) and ask whether it still needs it."
    names = ", ".join(sorted({allocation.user or allocation.holder for allocation in held}))
    what = "; ".join(sorted({_who(allocation) for allocation in held}))
    return f"Ask {names} whether the GPU is still needed ({what})."


def _who(allocation: Allocation) -> str:
    user = f" of {allocation.user}" if allocation.user else ""
    command = f": {allocation.command}" if allocation.command else ""
    return f"{allocation.holder}{user}{command}"
