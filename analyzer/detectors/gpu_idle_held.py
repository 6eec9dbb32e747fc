"""A GPU that somebody holds and nobody uses."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache

import numpy as np

from accounting.efficiency.idle_reason import gpus_idle_since
from gpuvigil.clock import duration, micros
from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Allocation, Evidence, Finding, HolderKind, Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence.held_up import HeldUp
from ..evidence.holders import holder_evidence, holder_with_command
from ..evidence.power import least_at_work, limits
from ..evidence.spread import Part, stands_for
from ..window.columns import Mask
from ..window.holdings import holder_key, name
from ..window.index import Numbers
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

# Either field says whether kernels ran; some exporters and MIG leave one of them out. Memory traffic speaks
# against idleness; where it is not measured it says nothing.
_OF_KERNELS = ("utilization_percent", "sm_activity_percent")
_OF_MEMORY = "memory_utilization_percent"
_MOUNTS = Aggregate(function=Function.MIN, field="mounts_hung")

NEEDS = (
    Need(measurement="gpu", span=Span.NOW, fields=("up", "memory_used_bytes", "step_age_seconds")),
    Need(
        measurement="gpu",
        span=Span.STEADY,
        aggregates=(
            *(Aggregate(function=Function.COUNT, field=field) for field in _OF_KERNELS),
            Aggregate(function=Function.LAST, field="up"),
        ),
    ),
    Need(
        measurement="gpu",
        span=Span.IDLE,
        aggregates=(
            *(Aggregate(function=Function.COUNT, field=field) for field in _OF_KERNELS),
            *(Aggregate(function=Function.MAX, field=field) for field in _OF_KERNELS),
            Aggregate(function=Function.MAX, field=_OF_MEMORY),
            Aggregate(function=Function.MIN, field="compute_processes"),
            Aggregate(function=Function.LAST, field="clock_event_reasons"),
            Aggregate(function=Function.MEAN, field="power_watts"),
            Aggregate(function=Function.LAST, field="power_limit_watts"),
        ),
    ),
    Need(measurement="node", span=Span.STEADY, aggregates=(_MOUNTS,)),
)

_FAULT = FAULTS["gpu_idle_held"]
# nvmlClocksEventReasonGpuIdle: the driver itself says that there is no work.
_CLOCKS_IDLE = 0x1
_REMEMBERED = 4096


def idle_held_gpus(window: Window) -> list[Finding]:
    """Return GPUs that were held and at 0 % at every sample of the idle span, and still answer.

    Of utilisation, SM activity and memory utilisation, those that are not measured are ignored, as long as one
    of the first two is measured.

    Several GPUs of one holder on a node also get a joint finding, which hides their own. Left out are GPUs of
    which too little of the span was measured: they are not idle but unknown. So are those whose holder an
    incident keeps from computing, or did within the span, unless they were called idle before.
    """
    rows = window.get("gpu", Span.IDLE)
    idle = (
        ~used(window, rows, rows)
        & ~_draws(window, rows)
        & _answers(window, rows)
        & _covered(window, rows)
        & _held(window, rows)
    )
    candidates = sorted(rows.where(idle), key=lambda found: found[0].key)
    waits = _waiting(window, [subject for subject, _ in candidates])
    findings = [_finding(window, gpu, row) for gpu, row in candidates if gpu not in waits]
    return [*findings, *_together(window, findings)]


def would_show_idle_held(window: Window, incident: Incident) -> bool:
    """Return whether the span can tell, for each of the incident's GPUs that its node still has, if it is idle."""
    members = map(Subject.parse, incident.members or (incident.subject.key,))
    held = [member for member in members if member.kind == "gpu" and window.has(member)]
    return all(would_show_idleness(window, gpu) for gpu in held)


def would_show_idleness(window: Window, gpu: Subject) -> bool:
    """Return whether the span can tell if a GPU is idle.

    It can if the GPU was used, nobody holds it, or enough of the span was measured.
    """
    rows = window.get("gpu", Span.IDLE).of_subject(gpu)
    row = rows.get(gpu)
    if row is None:
        return False
    was_used = bool((used(window, rows, rows) | _draws(window, rows)).any())
    left = not window.held(gpu) and row["compute_processes_min"] == 0
    return was_used or left or bool(_covered(window, rows).all())


def _waiting(window: Window, gpus: Iterable[Subject]) -> set[Subject]:
    """Return the GPUs whose holders are all held up by an incident, and which were not called idle before."""
    span = window.settings.idle_after_seconds
    held_up = HeldUp.over(window, span, lambda: _measured(window))
    known = gpus_idle_since(window.active_incidents)
    held = {gpu: window.held(gpu) for gpu in gpus if gpu.key not in known}
    return {gpu for gpu, them in held.items() if them and all(map(held_up.has, them))}


def _measured(window: Window) -> set[str]:
    """Return the keys of nodes with a GPU that was measured over the span."""
    rows = window.get("gpu", Span.IDLE)
    return {gpu.of_node().key for gpu, _ in rows.where(_covered(window, rows))}


def _together(window: Window, findings: Iterable[Finding]) -> list[Finding]:
    """Return a joint finding for each node and holder with several of these GPUs."""
    groups: dict[tuple[Subject, tuple[str, ...]], list[Finding]] = defaultdict(list)
    for finding in findings:
        holders = tuple(sorted({str(a.holder) for a in window.held(finding.subject)}))
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
    first, *_ = group
    members = tuple(finding.subject for finding in group)
    held = window.held(first.subject)
    names = " and ".join(sorted({name(allocation) for allocation in held}))
    span = duration(timedelta(seconds=window.settings.idle_after_seconds))
    under = f"under {window.settings.idle_below_percent:g} %"
    return replace(
        first,
        subject=node,
        members=members,
        holder="|".join(holders),
        since=min(finding.since for finding in group),
        title=f"{len(members)} GPUs allocated to {names} and idle",
        condition="several_gpus",
        evidence=(
            Evidence(name="utilisation", value=f"{under} on each of them in {span}"),
            *(holder_evidence(allocation) for allocation in held),
            *_may_wait(window, node),
            *_may_hang(window, held, members),
        ),
        action=_action(held, "GPUs are"),
    )


def _may_hang(
    window: Window, held: Sequence[Allocation], gpus: Sequence[Subject]
) -> Iterator[Evidence]:
    """Yield evidence that a job hanging at 0 % looks the same, if all its GPUs on the node are idle and tell no steps."""
    jobs = [it for it in held if it.holder.kind is HolderKind.JOB]
    holder = window.holdings.get(holder_key(jobs[0])) if len(jobs) == len(held) == 1 else None
    node, steps = gpus[0].of_node(), map(window.newest, gpus)
    if holder is None or any(row and row["step_age_seconds"] is not None for row in steps):
        return
    if {it for it in holder.gpus if it.of_node() == node} <= set(gpus):
        told = "unknown: the job reports no steps"
        yield Evidence(name="idle or hung", value=told, detail=True)


def _may_wait(window: Window, node: Subject) -> Iterator[Evidence]:
    """Yield evidence that a program which waits for storage looks the same, if nothing reads the node's file systems."""
    row = window.get("node", Span.STEADY).get(node)
    if row is None or row[_MOUNTS.column] is None:
        told = "unknown: this node's file systems are not read"
        yield Evidence(name="idle or waiting for storage", value=told, detail=True)


def _finding(window: Window, subject: Subject, row: Row) -> Finding:
    held = window.held(subject)
    # Nothing is known of the time before the first sample.
    since: datetime = max(_start(window), row["first_at"])
    newest = window.newest(subject)
    return Finding(
        fault="gpu_idle_held",
        subject=subject,
        severity=_FAULT.severity,
        since=since,
        evidence=(
            *_evidence(
                max(row[f"{field}_max"] or 0.0 for field in _OF_KERNELS),
                window.settings.idle_below_percent,
                duration(window.now - since),
                None if newest is None else newest.get("memory_used_bytes"),
                bool((row["clock_event_reasons_last"] or 0) & _CLOCKS_IDLE),
                held,
            ),
            *_may_wait(window, subject.of_node()),
        ),
        detector="gpu_idle_held",
        action=_action(held),
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


def _held(window: Window, rows: Rows) -> Numbers:
    """Return for each row whether an allocation or a process held the GPU over all that was measured."""
    begun = np.maximum(rows.values("first_at"), micros(_start(window)))
    held = window.of_allocations(rows, _held_since) <= begun
    return held | (rows.values("compute_processes_min") >= 1)


def _held_since(_: Subject, allocations: tuple[Allocation, ...] | None) -> float:
    """Return when the earliest of the open allocations began, in microseconds; NaN if there is none."""
    open_now = [micros(a.started_at) for a in allocations or () if a.ended_at is None]
    return min(open_now, default=np.nan)


def _answers(window: Window, rows: Rows) -> Mask:
    """Return for each row whether the GPU answers, by its newest line, which may be minutes old where many are missing."""
    newest, steady = window.get("gpu", Span.NOW), window.get("gpu", Span.STEADY)
    is_young = ~np.isnan(newest.beside(rows, "at"))
    found: Mask = np.where(is_young, newest.beside(rows, "up"), steady.beside(rows, "up_last")) == 1
    return found


def _covered(window: Window, rows: Rows) -> Numbers:
    """Return for each row whether its samples stand for the whole span."""
    settings, steady = window.settings, window.get("gpu", Span.STEADY)
    names = [f"{field}_count" for field in _OF_KERNELS]
    whole = np.fmax(*(rows.values(name) for name in names))
    last = np.fmax(*(steady.beside(rows, name) for name in names))
    return stands_for(
        window,
        rows,
        Part(counted=whole, seconds=settings.idle_after_seconds),
        Part(counted=last, seconds=settings.steady_seconds),
    )


def used(window: Window, of: Rows, rows: Rows) -> Mask:
    """Return for each of `rows` whether any sample in `of` says that the GPU did something."""
    limit, found = window.settings.idle_below_percent, np.zeros(len(rows), dtype=bool)
    for field in (*_OF_KERNELS, _OF_MEMORY):
        found |= of.beside(rows, f"{field}_max") >= limit
    return found


def _draws(window: Window, rows: Rows) -> Mask:
    """Return for each row whether its power says that the GPU works: a utilisation counter may be stuck."""
    least = least_at_work(limits(window, rows, "power_limit_watts_last"))
    found: Mask = rows.values("power_watts_mean") >= least
    return found


def _start(window: Window) -> datetime:
    """Return when the idle span begins."""
    return window.now - timedelta(seconds=window.settings.idle_after_seconds)


# A GPU that stays idle is described in the same words at each pass; they depend on nothing else.
@lru_cache(maxsize=_REMEMBERED)
def _evidence(
    most: float,
    limit: float,
    span: str,
    memory: float | None,
    says_idle: bool,
    held: tuple[Allocation, ...],
) -> tuple[Evidence, ...]:
    evidence = [
        Evidence(
            name="utilisation",
            value=f"{most:.0f} % at most in {span}",
            limit=f"{limit:g} % or more",
        )
    ]
    if memory is not None:
        evidence.append(Evidence(name="memory held", value=f"{memory / 1024**3:.1f} GiB"))
    if says_idle:
        evidence.append(Evidence(name="clocks", value="idle, as the driver says"))
    return (*evidence, *(holder_evidence(allocation) for allocation in held))


@lru_cache(maxsize=_REMEMBERED)
def _action(held: tuple[Allocation, ...], what_is: str = "GPU is") -> str:
    if not held:
        return "Find the process that holds the GPU (nvidia-smi) and ask whether it still needs it."
    names = ", ".join(sorted({allocation.user or str(allocation.holder) for allocation in held}))
    what = "; ".join(sorted({holder_with_command(allocation) for allocation in held}))
    return f"Ask {names} whether the {what_is} still needed ({what})."


DETECTOR = Detector(
    name="gpu_idle_held",
    find=idle_held_gpus,
    faults=found_by("gpu_idle_held"),
    needs=NEEDS,
    sentence="A GPU that was allocated and computed nothing over the whole idle span.",
    source="job_defense_shield: 0 % at every sample",
    would_show=would_show_idle_held,
)
