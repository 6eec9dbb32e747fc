"""A GPU that somebody holds and nobody uses."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow.compute as pc

from gpuvigil.clock import duration, moment
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

    Several of one holder on a node are also one finding about all of them, which hides theirs. A GPU of which too little of the span was measured is not idle but unknown, and is left out.
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
    found = [_finding(window, subject, row) for subject, row in candidates]
    findings = [finding for finding in found if finding is not None]
    return [*findings, *_together(window, findings)]


def says_whether_idle(window: Window, gpu: Subject) -> bool:
    """Whether the span tells a GPU that is idle from one that is not: it was used, nobody holds
    it, or enough of the span was measured.
    """
    row = window.get("gpu", Span.IDLE).get(gpu)
    if row is None:
        return False
    limit = window.settings.idle_below_percent
    most = (row["utilization_percent_max"], row["memory_utilization_percent_max"])
    used = any(percent is not None and percent >= limit for percent in most)
    left = not window.held(gpu) and row["compute_processes_min"] == 0
    return used or left or _covered(window, gpu, row)


def _together(window: Window, findings: Iterable[Finding]) -> list[Finding]:
    """One finding per node and holder that has several of these GPUs."""
    groups: dict[tuple[Subject, tuple[str, ...]], list[Finding]] = defaultdict(list)
    for finding in findings:
        holders = tuple(sorted({a.holder for a in window.held(finding.subject)}))
        if holders:
            groups[finding.subject.of_node(), holders].append(finding)
    return [
        _joined(window, node, holders, group)
        for (node, holders), group in groups.items()
        if len(group) > 1
    ]


def _joined(
    window: Window, node: Subject, holders: tuple[str, ...], group: Sequence[Finding]
) -> Finding:
    members = tuple(finding.subject for finding in group)
    held = window.held(members[0])
    names = " and ".join(sorted({_name(allocation) for allocation in held}))
    span = duration(timedelta(seconds=window.settings.idle_after_seconds))
    under = f"under {window.settings.idle_below_percent:g} %"
    return replace(
        group[0],
        subject=node,
        members=members,
        holder="|".join(holders),
        since=min(finding.since for finding in group),
        title=f"{len(members)} GPUs held by {names} and idle",
        evidence=(
            Evidence(name="utilisation", value=f"{under} on each of them in {span}"),
            *(_holding(allocation) for allocation in held),
        ),
        action=_action(held, "GPUs are"),
    )


def _finding(window: Window, subject: Subject, row: Row) -> Finding | None:
    newest = window.newest(subject)
    if newest is None or newest.get("up") != 1 or not _covered(window, subject, row):
        return None
    # Nothing is said of a time before the first sample.
    start = max(_start(window), row["first_at"])
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
    missing = row["first_at"] - _start(window)
    return bool(
        row["utilization_percent_count"] >= _COVERAGE * expected
        and missing.total_seconds() <= (1.0 - _COVERAGE) * span
    )


def _start(window: Window) -> datetime:
    """When the idle span begins."""
    return window.now - timedelta(seconds=window.settings.idle_after_seconds)


def _evidence(
    window: Window, row: Row, newest: Row, held: tuple[Allocation, ...]
) -> tuple[Evidence, ...]:
    span = duration(window.now - max(_start(window), row["first_at"]))
    evidence = [
        Evidence(
            name="utilisation",
            value=f"{row['utilization_percent_max']:.0f} % at most in {span}",
            limit=f"{window.settings.idle_below_percent:g} % or more",
        )
    ]
    memory = newest.get("memory_used_bytes")
    if memory is not None:
        evidence.append(Evidence(name="memory held", value=f"{memory / 1024**3:.1f} GiB"))
    if (row["clock_event_reasons_last"] or 0) & _CLOCKS_IDLE:
        evidence.append(Evidence(name="clocks", value="idle, as the driver says"))
    return (*evidence, *(_holding(allocation) for allocation in held))


def _holding(allocation: Allocation) -> Evidence:
    since = moment(allocation.started_at)
    return Evidence(name="held by", value=f"{_who(allocation)}, since {since}")


def _action(held: tuple[Allocation, ...], what_is: str = "GPU is") -> str:
    if not held:
        return "Find the process that holds the GPU (nvidia-smi) and ask whether it still needs it."
    names = ", ".join(sorted({allocation.user or allocation.holder for allocation in held}))
    what = "; ".join(sorted({_who(allocation) for allocation in held}))
    return f"Ask {names} whether the {what_is} still needed ({what})."


def _who(allocation: Allocation) -> str:
    command = f": {allocation.command}" if allocation.command else ""
    return f"{_name(allocation)}{command}"


def _name(allocation: Allocation) -> str:
    user = f" of {allocation.user}" if allocation.user else ""
    return f"{allocation.holder}{user}"
