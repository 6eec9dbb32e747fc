"""A GPU that somebody holds for hours and uses little of.

`accounting.efficiency.efficiency` defines what little is, as it does for reports. Nobody is blamed for time
that a fault took, for a start, or for a server that waits for requests; nobody is blamed for a shared GPU.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

import numpy as np

from accounting.efficiency.efficiency import (
    BUSY_PERCENT,
    HARDLY_PERCENT,
    LITTLE_SM_PERCENT,
    SMALL_SM_PERCENT,
    Advice,
    EfficiencyAdvice,
    Work,
    judge,
)
from accounting.efficiency.efficiency_query import ASKED, COUNTED, work
from accounting.efficiency.idle_reason import gpus_idle_since
from accounting.efficiency.on_call import is_on_call
from gpuvigil.clock import duration, micros
from gpuvigil.config.routing import is_standby
from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Allocation, Evidence, Finding, Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence.held_up import HeldUp, gpus_of
from ..evidence.holders import holder_evidence, holder_with_command
from ..evidence.spread import Part, stands_for
from ..window.columns import Mask
from ..window.holdings import name
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector
from .gpu_idle_held import NEEDS as OF_IDLE
from .gpu_idle_held import used

_SERVED = Aggregate(function=Function.COUNT, field="requests_running")
NEEDS = (
    *OF_IDLE,
    Need(measurement="gpu", span=Span.UNDERUSED, aggregates=ASKED),
    Need(measurement="inference", span=Span.UNDERUSED, aggregates=(_SERVED,)),
)

_COLUMNS = tuple(it.column for it in ASKED)
_FAULT = FAULTS["gpu_underused"]
_REMEMBERED = 65_536
# An open incident continues around a limit: a mean over hours moves slowly across it, and back.
_EASED_LESS, _EASED_MORE = 0.8, 1.25
_TO_DO: Mapping[Advice, str] = {
    Advice.GATHER: "gather the work into fewer hours, or share one GPU (MIG, MPS)",
    Advice.FEED: "load data faster (more workers, local copies), or take a slice (MIG) or fewer GPUs",
    Advice.SMALLER: "take a smaller GPU or a slice of one (MIG)",
    Advice.BATCH: "make the batch larger, or take a smaller GPU",
    Advice.LITTLE: "look at the kernels (small ones, many of them), or take a smaller GPU",
}


def underused_gpus(window: Window) -> list[Finding]:
    """Return GPUs of which their only holder used little over hours, not counting its start.

    Several GPUs of one holder on a node also get a joint finding, which hides their own.
    """
    rows = window.get("gpu", Span.UNDERUSED)
    some = _little(rows) & _is_judged(window, rows) & _covered(window, rows)
    if not some.any():
        return []
    blame = window.once(_blame, None)
    found = []
    told = zip(rows.where(some), rows.cells(some, _COLUMNS), strict=True)
    for (gpu, row), cells in sorted(told, key=lambda one: one[0][0].key):
        (held,) = window.held(gpu)
        judged = _judged(work(cells))
        if judged is not None and not blame.is_excused(gpu, held):
            found.append(_finding(gpu, row, held, judged))
    return [*found, *_together(window, found)]


def would_show_underuse(window: Window, incident: Incident) -> bool:
    """Return whether the incident can be seen to be over.

    Each of its GPUs that its node still has must be used clearly more, or not be judged any more.
    """
    members = map(Subject.parse, incident.members or (incident.subject.key,))
    gpus = [member for member in members if member.kind == "gpu" and window.has(member)]
    blame = window.once(_blame, None)
    return all(_is_conclusive(window, gpu, blame) for gpu in gpus)


def lapsed(window: Window, incident: Incident) -> datetime | None:
    """Return now where the hours say that it is over, even of a node heard too late to be seen now; else None."""
    return window.now if would_show_underuse(window, incident) else None


def _is_conclusive(window: Window, gpu: Subject, blame: "_Blame") -> bool:
    rows = window.get("gpu", Span.UNDERUSED).of_subject(gpu)
    row = rows.get(gpu)
    if row is None or window.get("gpu", Span.IDLE).get(gpu) is None:
        return False
    if not _is_judged(window, rows).all() or blame.is_excused(gpu, *window.held(gpu)):
        return True
    it = work({column: row[column] for column in _COLUMNS})
    less, sm = it.utilization_percent, it.sm_percent
    eased = replace(it, sm_percent=None if sm is None else _EASED_LESS * sm)
    ways = [
        replace(eased, utilization_percent=None if less is None else factor * less)
        for factor in (_EASED_LESS, _EASED_MORE)
    ]
    return bool(_covered(window, rows).all()) and not any(map(_judged, ways))


def _little(rows: Rows) -> Mask:
    """Return for each row whether it needs a closer look: most GPUs are used enough."""
    names = {it.field: it.column for it in ASKED if it.function is Function.MEAN}
    busy, sm = (rows.values(names[it]) for it in ("utilization_percent", "sm_activity_percent"))
    found: Mask = (busy < HARDLY_PERCENT) | (sm < SMALL_SM_PERCENT)
    found |= (busy >= BUSY_PERCENT) & (sm < LITTLE_SM_PERCENT)
    return found


@lru_cache(maxsize=_REMEMBERED)
def _judged(it: Work) -> EfficiencyAdvice | None:
    return judge([it])


def _is_judged(window: Window, rows: Rows) -> Mask:
    """Return for each row whether somebody may be to blame; a GPU that is idle by now is reported as such."""
    lately = used(window, window.get("gpu", Span.IDLE), rows)
    return _held(window, rows) & ~_served(window, rows) & lately


def _held(window: Window, rows: Rows) -> Mask:
    """Return for each row whether one holder had the GPU alone over the span, and over its start before that.

    A result over hours may be minutes old, and so begin before the span does.
    """
    settings = window.settings
    span = micros(window.now) - settings.underused_after_seconds * 1e6
    begun = np.minimum(rows.values("first_at"), span) - settings.idle_after_seconds * 1e6
    found: Mask = window.of_allocations(rows, _alone_since) <= begun
    return found


def _alone_since(_: Subject, allocations: tuple[Allocation, ...] | None) -> float:
    """Return since when one allocation holds the whole GPU, in microseconds.

    NaN where several hold it, where one holds a part of it, or where the holder is on call.
    """
    held = [one for one in allocations or () if one.ended_at is None]
    if len(held) != 1 or held[0].part is not None or is_on_call(held[0]):
        return np.nan
    return micros(held[0].started_at)


def _covered(window: Window, rows: Rows) -> Mask:
    settings, idle = window.settings, window.get("gpu", Span.IDLE)
    return stands_for(
        window,
        rows,
        Part(counted=rows.values(COUNTED.column), seconds=settings.underused_after_seconds),
        Part(counted=idle.beside(rows, COUNTED.column), seconds=settings.idle_after_seconds),
    )


def _served(window: Window, rows: Rows) -> Mask:
    """Return for each row whether requests to a server on the GPU are counted: it waits for requests."""
    servers = window.get("inference", Span.UNDERUSED)
    found: Mask = servers.beside(rows, "samples") > 0
    return found


@dataclass(slots=True, kw_only=True)
class _Blame:
    """Which holders are not to be blamed."""

    window: Window
    held_up: HeldUp
    idle: frozenset[str]

    def is_excused(self, gpu: Subject, held: Allocation) -> bool:
        """Return whether a fault held the holder up, it waits on purpose, or the GPU was already reported as idle."""
        if gpu.key in self.idle or self.held_up.has(held):
            return True
        declared = self.window.declared
        return bool(declared) and is_standby(declared, _labels(held, gpus_of(self.window, held)))


def _blame(window: Window, _: None) -> _Blame:
    """Return who is excused, also for checking open incidents."""
    settings = window.settings
    span = settings.underused_after_seconds + settings.idle_after_seconds
    since = window.now - timedelta(seconds=span)
    lately = [
        one for one in window.recent_incidents if one.resolved_at is None or one.resolved_at > since
    ]
    return _Blame(
        window=window,
        held_up=HeldUp.over(window, span, lambda: _measured(window)),
        idle=frozenset(gpus_idle_since(lately)),
    )


def _measured(window: Window) -> set[str]:
    """Return the keys of nodes with a GPU that was measured over the span."""
    rows = window.get("gpu", Span.UNDERUSED)
    return {gpu.of_node().key for gpu, _ in rows.where(_covered(window, rows))}


def _labels(held: Allocation, gpus: Sequence[Subject]) -> dict[str, tuple[str, ...]]:
    """Return the labels that a declaration of the site is matched against."""
    found = {
        "cluster": (held.subject.cluster,),
        "node": tuple(dict.fromkeys(gpu.node for gpu in gpus)),
        "owner": (held.user or "",),
        "holder": (str(held.holder),),
        "account": (held.account or "",),
        "partition": (held.partition or "",),
    }
    return {label: values for label, values in found.items() if any(values)}


def _finding(gpu: Subject, row: Row, held: Allocation, judged: EfficiencyAdvice) -> Finding:
    over = duration(row["last_at"] - row["first_at"])
    return Finding(
        fault="gpu_underused",
        subject=gpu,
        severity=_FAULT.severity,
        since=row["first_at"],
        evidence=(
            Evidence(name=judged.advice.value, value=f"{judged.text}, over {over}"),
            holder_evidence(held),
        ),
        detector="gpu_underused",
        action=_action(held, judged.advice),
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


def _action(held: Allocation, advice: Advice) -> str:
    return f"Ask {held.user or held.holder} to {_TO_DO[advice]} ({holder_with_command(held)})."


def _together(window: Window, findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding per node and holder with several of these GPUs, worded by the first of them."""
    groups: dict[tuple[Subject, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        (held,) = window.held(finding.subject)
        groups[finding.subject.of_node(), str(held.holder)].append(finding)
    return [
        _joined(window, node, holder, group)
        for (node, holder), group in groups.items()
        if len(group) > 1
    ]


def _joined(window: Window, node: Subject, holder: str, group: Sequence[Finding]) -> Finding:
    first, *_ = group
    (held,) = window.held(first.subject)
    of_first, *others = first.evidence
    return replace(
        first,
        subject=node,
        members=tuple(finding.subject for finding in group),
        holder=holder,
        since=min(finding.since for finding in group),
        title=f"{len(group)} GPUs allocated to {name(held)} for hours, and little of them used",
        condition="several_gpus",
        evidence=(replace(of_first, value=f"the first of them {of_first.value}"), *others),
    )


DETECTOR = Detector(
    name="gpu_underused",
    find=underused_gpus,
    faults=found_by("gpu_underused"),
    needs=NEEDS,
    sentence="A GPU that was allocated for hours but hardly used.",
    source="what is little of a GPU's time and of its multiprocessors, as reports have it",
    needs_holders=True,
    would_show=would_show_underuse,
    lapsed=lapsed,
)
