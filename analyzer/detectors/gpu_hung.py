"""A job that makes no progress: its steps do not end any more, as it says itself, or its kernels
spin: its GPUs are fully used at the power of idle ones, and move nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Severity, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence import ranks
from ..window.columns import seconds
from ..window.holdings import holder_key
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

_BUSY = Aggregate(function=Function.MIN, field="utilization_percent")
_WATTS = Aggregate(function=Function.MAX, field="power_watts")
_LIMIT = Aggregate(function=Function.MAX, field="power_limit_watts")
_MEMORY = Aggregate(function=Function.MAX, field="memory_utilization_percent")
_MOVED = Aggregate(function=Function.INCREASE, field="nvlink_receive_bytes")
_COPIED = Aggregate(function=Function.MAX, field="pcie_receive_bytes_per_second")
_ASKED = (_BUSY, _WATTS, _LIMIT, _MEMORY, _MOVED, _COPIED)
RECENT = Need(measurement="gpu", span=Span.RECENT, aggregates=_ASKED)
_AGE, _P99 = "step_age_seconds", "step_p99_seconds"
_SPIN, _LONGEST = "spin_seconds", "longest_spin_seconds"
_NOW = Need(measurement="gpu", span=Span.NOW, fields=(_AGE, _P99, _SPIN, _LONGEST))
NEEDS = (
    RECENT,
    _NOW,
    Need(measurement="gpu", span=Span.STEADY, aggregates=_ASKED),
)

_FAULT = FAULTS["gpu_hung"]
_BUSY_PERCENT, _MEMORY_PERCENT = 98, 5
# A GPU that waits in a collective draws little more than one with an open context.
_POWER_SHARE = 0.4
# Per second; heartbeats and polling move a little.
_NVLINK_BYTES, _PCIE_BYTES = 1e6, 50e6
_COVERAGE = 0.8
# Without a step for so long, and for so many of the longest hundredth of its own steps.
_STEP_SECONDS, _STEP_TIMES = 60.0, 5.0
# Of a job that tells of no steps: spun for so long, and for so many of its longest earlier times.
_SPIN_SECONDS, _SPIN_TIMES = 300.0, 3.0


def hung_jobs(window: Window) -> list[Finding]:
    """One finding per holder, never critical: whether to end a job is its owner's to say.

    A job that tells of its steps is judged by them alone. Without them nobody knows whether a program
    is meant to spin: suspected after the recent span if every GPU of the job does; a warning after five
    minutes and three times the longest that any of them spun before, as the collectors count it, or
    after the steady span where nobody counts.
    """
    stopped = _stopped(window)
    steady = dict(_spinning(window, Span.STEADY, window.settings.steady_seconds))
    recent = dict(_spinning(window, Span.RECENT, window.settings.window_seconds))
    holders: dict[_Holders, list[Subject]] = defaultdict(list)
    for gpu in sorted({**recent, **steady}):
        holders[_holders(window, gpu)].append(gpu)
    lasting = {
        gpu: row
        for gpus in holders.values()
        for gpu, row in _lasting(window, gpus, recent, steady).items()
    }
    found = [_without_steps(window, gpus) for gpus in stopped.values()]
    found += [
        _finding(window, gpus, recent, lasting)
        for names, gpus in sorted(holders.items())
        if names not in stopped
        and not _goes_on(window, gpus)
        and (any(gpu in lasting for gpu in gpus) or not _waits_for_its_own(window, gpus, recent))
    ]
    found = [_with_ranks(window, finding) for finding in found]
    return sorted(found, key=lambda finding: finding.subject)


def _with_ranks(window: Window, finding: Finding) -> Finding:
    """What the job's own NCCL and PyTorch say of who holds the others up, where they were asked."""
    gpus = finding.members or (finding.subject,)
    found = ranks.standing(window, gpus, _stalled_seconds(window, finding, gpus))
    if found is None:
        return finding
    said = replace(
        finding,
        evidence=(ranks.evidence(window, found), *finding.evidence),
        severity=ranks.severity(found, finding.severity),
        certain=found.names,
        action=ranks.action(window, found, finding.action),
    )
    if not found.names:
        return said
    return replace(said, title="Job hangs: some of its ranks hold the others up", condition="ranks")


def _stalled_seconds(window: Window, finding: Finding, gpus: Iterable[Subject]) -> float:
    rows = window.get("gpu", Span.NOW)
    spun = [float(row[_SPIN] or 0.0) for row in map(rows.get, gpus) if row is not None]
    return max([(window.now - finding.since).total_seconds(), *spun])


# The cluster and who holds a GPU; the GPU itself where nobody does.
_Holders = tuple[str, ...]


def _holders(window: Window, gpu: Subject) -> _Holders:
    held = sorted({holder_key(a) for a in window.held(gpu)})
    return (gpu.cluster, *(held or (gpu.key,)))


def _holder(window: Window, gpus: Sequence[Subject]) -> str:
    """Several jobs may hang on one node, each a matter of its own; a GPU names itself."""
    first, *others = gpus
    _, *names = _holders(window, first)
    return "|".join(names) if others else ""


def _whole(window: Window, gpus: Iterable[Subject]) -> frozenset[Subject]:
    """These, and all other GPUs of their holders."""
    them = frozenset(gpus)
    keys = {holder_key(a) for gpu in them for a in window.held(gpu)}
    return them.union(*(window.holdings[key].gpus for key in keys if key in window.holdings))


def _stopped(window: Window) -> dict[_Holders, list[tuple[Subject, Row]]]:
    """By holder the GPUs whose steps have stopped, where they have on all that tell of steps."""
    rows = window.get("gpu", Span.NOW)
    # Which of them are within what their own steps take is asked of these few.
    late = (rows.values(_AGE) >= _STEP_SECONDS) & ~np.isnan(rows.values(_P99))
    found: dict[_Holders, list[tuple[Subject, Row]]] = defaultdict(list)
    for subject, row in rows.where(late):
        found[_holders(window, subject)].append((subject, row))
    return {
        key: them for key, them in found.items() if not _goes_on(window, [gpu for gpu, _ in them])
    }


def _goes_on(window: Window, gpus: Iterable[Subject]) -> bool:
    """Whether their job says of one of its GPUs that its steps go on."""
    rows = window.get("gpu", Span.NOW)
    said = (rows.get(gpu) for gpu in _whole(window, gpus))
    return any(
        row is not None
        and row[_AGE] is not None
        and row[_P99] is not None
        and row[_AGE] < _step_limit(row)
        for row in said
    )


def _step_limit(row: Row) -> float:
    return max(_STEP_SECONDS, _STEP_TIMES * float(row[_P99]))


def _without_steps(window: Window, gpus: list[tuple[Subject, Row]]) -> Finding:
    subjects = sorted(subject for subject, _ in gpus)
    nodes = sorted({subject.of_node() for subject in subjects})
    # The last of them to stop says how long the job has stood.
    _, last = min(gpus, key=lambda found: (found[1][_AGE], found[0]))
    held = window.held(subjects[0])
    name = str(held[0].holder) if held else "a process"
    return Finding(
        fault="gpu_hung",
        subject=subjects[0] if len(subjects) == 1 else nodes[0],
        severity=Severity.WARNING,
        since=last["at"] - timedelta(seconds=last[_AGE]),
        evidence=(
            Evidence(
                name="its steps",
                value=f"none for {last[_AGE]:.0f} s",
                limit=f"{_step_limit(last):.0f} s: {_STEP_TIMES:g} times its longest steps,"
                f" {_STEP_SECONDS:.0f} s at least",
            ),
            Evidence(name="GPUs", value=f"{len(subjects)} on {len(nodes)} nodes, held by {name}"),
        ),
        detector="gpu_hung",
        title="Job says that it makes no steps any more",
        condition="no_steps",
        action=_FAULT.action,
        source="ours: the job's own step reports",
        own_limit=True,
        members=() if len(subjects) == 1 else tuple(subjects),
        holder=_holder(window, subjects),
    )


def _spinning(window: Window, span: Span, length: float) -> Iterator[tuple[Subject, Row]]:
    rows = window.get("gpu", span)
    spins = seconds(rows) >= _COVERAGE * length
    spins &= rows.values(_BUSY.column) >= _BUSY_PERCENT
    spins &= rows.values(_WATTS.column) < _POWER_SHARE * rows.values(_LIMIT.column)
    spins &= rows.values(_MEMORY.column) < _MEMORY_PERCENT
    # Where links are not measured they say nothing against it.
    spins &= np.nan_to_num(rows.values(_MOVED.column)) < _NVLINK_BYTES * length
    spins &= np.nan_to_num(rows.values(_COPIED.column)) < _PCIE_BYTES
    yield from rows.where(spins)


def _lasting(
    window: Window,
    gpus: Iterable[Subject],
    recent: Mapping[Subject, Row],
    steady: Mapping[Subject, Row],
) -> dict[Subject, Row]:
    """Of a holder's GPUs those that have spun for long enough to warn of, with what they did."""
    rows = window.get("gpu", Span.NOW)
    told = [row[_LONGEST] for row in map(rows.get, _whole(window, gpus)) if row is not None]
    longest = [seconds for seconds in told if seconds is not None]
    if not longest:
        return {gpu: steady[gpu] for gpu in gpus if gpu in steady}
    limit = max(_SPIN_SECONDS, _SPIN_TIMES * max(longest))
    spins = {gpu: rows.get(gpu) for gpu in gpus}
    return {
        gpu: steady.get(gpu) or recent[gpu]
        for gpu, row in spins.items()
        if row is not None and row[_SPIN] is not None and row[_SPIN] >= limit
    }


def _waits_for_its_own(window: Window, gpus: list[Subject], recent: Mapping[Subject, Row]) -> bool:
    """Whether another GPU of the same holder does not spin: the others of a job wait in a barrier
    while one rank writes a checkpoint, for a minute or two of every hour.
    """
    rows = window.get("gpu", Span.RECENT)
    return any(gpu not in recent and rows.get(gpu) is not None for gpu in _whole(window, gpus))


def spinning(window: Window) -> frozenset[Subject]:
    """The GPUs that have spun over the recent span."""
    seconds_long = window.settings.window_seconds
    return frozenset(gpu for gpu, _ in _spinning(window, Span.RECENT, seconds_long))


def working(window: Window) -> frozenset[Subject]:
    """The GPUs that within the recent span drew more than those that spin."""
    rows = window.get("gpu", Span.RECENT)
    drew = rows.values(_WATTS.column) >= _POWER_SHARE * rows.values(_LIMIT.column)
    return frozenset(gpu for gpu, _ in rows.where(drew))


def _finding(
    window: Window,
    gpus: list[Subject],
    recent: Mapping[Subject, Row],
    lasting: Mapping[Subject, Row],
) -> Finding:
    nodes = sorted({gpu.of_node() for gpu in gpus})
    rows = [lasting.get(gpu) or recent[gpu] for gpu in gpus]
    lasts = any(gpu in lasting for gpu in gpus)
    seconds = window.settings.steady_seconds if lasts else window.settings.window_seconds
    watts = max(row[_WATTS.column] for row in rows)
    held = sorted({str(a.holder) for a in window.held(gpus[0])})
    name = held[0] if held else "a process"
    return Finding(
        fault="gpu_hung",
        subject=gpus[0] if len(gpus) == 1 else nodes[0],
        severity=Severity.WARNING if lasts else Severity.INFO,
        since=min(row["first_at"] for row in rows),
        evidence=(
            Evidence(name="utilisation", value=f"{_BUSY_PERCENT} % or more at every sample"),
            Evidence(
                name="power",
                value=f"{watts:.0f} W at most in {seconds / 60.0:g} min",
                limit=f"over {_POWER_SHARE * rows[0][_LIMIT.column]:.0f} W for a GPU at work",
            ),
            Evidence(name="GPUs", value=f"{len(gpus)} on {len(nodes)} nodes, held by {name}"),
        ),
        detector="gpu_hung",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        members=() if len(gpus) == 1 else tuple(gpus),
        holder=_holder(window, gpus),
    )


DETECTOR = Detector(
    name="gpu_hung",
    find=hung_jobs,
    faults=found_by("gpu_hung"),
    needs=NEEDS,
    sentence="A job whose GPUs are fully used at low power and move nothing.",
    source="what kernels do that spin in a collective",
)
