"""A job that makes no progress, by its own step reports or because its kernels spin.

GPUs whose kernels spin are fully used at the power of idle ones, and move nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Incident, Severity, Subject
from gpuvigil.numbers_in_words import counted
from gpuvigil.store import Aggregate, Function

from ..evidence import idle_ranks, job_steps, ranks
from ..evidence.job_steps import AGE, Holders, goes_on, gpus_of_same_holders, holders
from ..evidence.known_node import known_node
from ..evidence.power import limits
from ..window.columns import Floats, Mask, seconds
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

_BUSY = Aggregate(function=Function.MIN, field="utilization_percent")
_MOST_BUSY = Aggregate(function=Function.MAX, field="utilization_percent")
_WATTS = Aggregate(function=Function.MAX, field="power_watts")
_LIMIT = Aggregate(function=Function.MAX, field="power_limit_watts")
_MEMORY = Aggregate(function=Function.MAX, field="memory_utilization_percent")
_MOVED = Aggregate(function=Function.INCREASE, field="nvlink_receive_bytes")
_COPIED = Aggregate(function=Function.MAX, field="pcie_receive_bytes_per_second")
_WRITTEN = tuple(
    Aggregate(function=Function.INCREASE, field=name)
    for name in ("disk_write_bytes", "shared_write_bytes")
)
_ASKED = (_BUSY, _WATTS, _LIMIT, _MEMORY, _MOVED, _COPIED)
RECENT = Need(measurement="gpu", span=Span.RECENT, aggregates=(*_ASKED, _MOST_BUSY))
_LEAST_WATTS = Aggregate(function=Function.MIN, field="power_watts")
TREND = Need(measurement="gpu", span=Span.TREND, aggregates=(_WATTS, _LEAST_WATTS))
_SPIN, _LONGEST = "spin_seconds", "longest_spin_seconds"
_NOW = Need(measurement="gpu", span=Span.NOW, fields=(_SPIN, _LONGEST))
NEEDS = (
    RECENT,
    _NOW,
    *job_steps.NEEDS,
    *idle_ranks.NEEDS,
    Need(measurement="gpu", span=Span.STEADY, aggregates=(*_ASKED, _LEAST_WATTS)),
    TREND,
    Need(measurement="node", span=Span.RECENT, aggregates=_WRITTEN),
)

_FAULT = FAULTS["gpu_hung"]
_BUSY_PERCENT, _POWER_SHARE = job_steps.BUSY_PERCENT, job_steps.POWER_SHARE
# Waiting kernels poll a flag and leave the memory alone; those of a light program are just as busy and draw
# no more power, but move a few percent [own].
_MEMORY_PERCENT = 2
# Bytes per second; heartbeats and polling move a little.
_NVLINK_BYTES, _PCIE_BYTES = 1e6, 50e6
_COVERAGE = 0.8
# Share of the power limit, where memory utilisation is not read: a model that generates its answers token by
# token is fully used at 30 to 40 %. The larger share counts while the power varies by less than `_VARIES`, since
# that of a program with work to do varies more. Ours.
_SHARE_WITHOUT_MEMORY, _SHARE_IF_FLAT, _VARIES = 0.25, 0.3, 0.05
# A GPU whose limit is unknown still spins while it draws no more than this many times its minimum of the last
# half hour; one at work draws four times that. Ours.
_NO_MORE = 1.5
# For a job that reports no steps: how long it must spin, and how many times its longest earlier spin.
_SPIN_SECONDS, _SPIN_TIMES = 300.0, 3.0
# A node that writes this many bytes a second may be at a checkpoint, which takes minutes: a rank's share of a
# model's state is tens of GB, over the network at some hundred MB a second. Other work writes as much, too,
# so this delays the report of a hang by no more than five minutes [own].
_CHECKPOINT_BYTES, _CHECKPOINT_SECONDS = 50e6, 600.0


def hung_jobs(window: Window) -> list[Finding]:
    """Return one finding per holder, never critical: whether to end a job is its owner's decision.

    A job that reports its steps is judged by them alone. Without step reports nobody knows whether a program is
    meant to spin. A hang is then suspected after the recent span if every GPU of the job spins. It becomes a
    warning after five minutes and three times the longest earlier spin of any of them, as the collectors count
    it, or after the steady span where no collector counts.
    """
    gone = job_steps.jobs_with_gone_ranks(window)
    stopped = {
        key: late
        for key, late in job_steps.stopped_jobs(window).items()
        if key not in gone and not _may_pause(window, late)
    }
    steady = dict(_spinning(window, Span.STEADY, window.settings.steady_seconds, by_power=True))
    recent = dict(_spinning(window, Span.RECENT, window.settings.window_seconds, by_power=False))
    spun: dict[Holders, list[Subject]] = defaultdict(list)
    for gpu, row in sorted({**steady, **recent}.items(), key=lambda it: it[0]):
        if not _is_of_what_ended(window, gpu, row):
            spun[_whose(window, gpu)].append(gpu)
    lasting = {
        gpu: row
        for gpus in spun.values()
        for gpu, row in _lasting(window, gpus, recent, steady).items()
    }
    found = [_without_steps(window, gpus) for gpus in stopped.values()]
    found += [
        _with_idle(window, _finding(window, gpus, recent, lasting), gpus)
        for names, gpus in sorted(spun.items())
        if names not in stopped
        and names not in gone
        and not goes_on(window, gpus)
        and not _writes(window, gpus)
        and (any(gpu in lasting for gpu in gpus) or not _waits_for_its_own(window, gpus, recent))
        and not _waits_for_one_at_work(window, gpus, [gpu for gpu in gpus if gpu in lasting])
    ]
    found = [_with_ranks(window, finding) for finding in found]
    found += [_with_a_rank_gone(window, them) for them in gone.values()]
    return sorted(found, key=lambda finding: finding.subject)


def _whose(window: Window, gpu: Subject) -> Holders:
    """Return a GPU's holders; the GPUs of a node without a known holder count as one program's."""
    return holders(window, gpu) if window.held(gpu) else (gpu.cluster, gpu.of_node().key)


def _may_pause(window: Window, late: Sequence[tuple[Subject, Row]]) -> bool:
    """Return whether a job that reports its steps but no pauses may be pausing.

    It may if its GPUs work, as in an evaluation, or if one of its nodes writes, as at a checkpoint.
    """
    if job_steps.reports_phases(late):
        return False
    gpus, age = [gpu for gpu, _ in late], min(float(row[AGE]) for _, row in late)
    if age < _CHECKPOINT_SECONDS and _writes(window, gpus):
        return True
    if job_steps.ranks_waited_for(late):
        # The other ranks spin; the power they drew within the last minute was from before that.
        return False
    works = not gpus_of_same_holders(window, gpus).isdisjoint(window.once(_working, None))
    return works and age < job_steps.PAUSE_SECONDS


def _is_of_what_ended(window: Window, gpu: Subject, row: Row) -> bool:
    """Return whether all jobs have released the GPU, one of them since the row's first sample, so that only they
    may have spun.
    """
    known = window.allocations.get(gpu.key, ())
    ends = [it.ended_at for it in known if it.ended_at is not None]
    return len(ends) == len(known) and any(at > row["first_at"] for at in ends)


def _with_ranks(window: Window, finding: Finding) -> Finding:
    """Add what the job's own NCCL and PyTorch say about which ranks hold the others up, where they were asked."""
    gpus = finding.members or (finding.subject,)
    found = ranks.collective_state(window, gpus, _stalled_seconds(window, finding, gpus))
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


def _holder(window: Window, gpus: Sequence[Subject]) -> str:
    """Return the holders' names where the finding covers several GPUs, and an empty string for one GPU.

    Several jobs may hang on one node and must be told apart; a single GPU identifies itself.
    """
    first, *others = gpus
    _, *names = holders(window, first)
    return "|".join(names) if others else ""


def _with_idle(window: Window, finding: Finding, gpus: Sequence[Subject]) -> Finding:
    """Add which of a job's GPUs are idle while these spin, once the hang is a warning."""
    active = [it for it in window.active_incidents if it.fault == _FAULT.key]
    idle = (
        idle_ranks.idle_ranks(window, gpus, active)
        if finding.severity is Severity.WARNING
        else None
    )
    if idle is None:
        return finding
    if not idle.are_waited_for:
        return replace(finding, evidence=(*finding.evidence, idle.evidence))
    first, *others = idle.gpus
    return replace(
        finding,
        subject=first.of_node() if others else first,
        members=tuple(sorted((*gpus, *idle.gpus))) if others else (),
        holder=_holder(window, idle.gpus),
        evidence=(idle.evidence, *finding.evidence),
        title=f"Job waits for {'ranks whose GPUs are' if others else 'a rank whose GPU is'} idle",
        condition=idle_ranks.CONDITION,
        action="See what the process on the idle GPU does (its log, py-spy dump), then look at its node; end the job if"
        " it does not come back.",
    )


def _without_steps(window: Window, gpus: list[tuple[Subject, Row]]) -> Finding:
    subjects = sorted(subject for subject, _ in gpus)
    nodes = sorted({subject.of_node() for subject in subjects})
    blamed = sorted(gpu.of_node() for gpu, _ in job_steps.ranks_waited_for(gpus))
    # The rank that stopped last says how long the job has stood still.
    _, last = min(gpus, key=lambda found: (found[1][AGE], found[0]))
    held = window.held(subjects[0])
    name = str(held[0].holder) if held else "a process"
    return Finding(
        fault="gpu_hung",
        subject=subjects[0] if len(subjects) == 1 else [*blamed, *nodes][0],
        severity=Severity.WARNING,
        since=last["at"] - timedelta(seconds=last[AGE]),
        # All of its ranks have said so for that long; another look would say the same.
        certain=bool(blamed),
        evidence=(
            Evidence(
                name="its steps",
                value=f"none for {last[AGE]:.0f} s",
                limit=_limit(last, job_steps.patience_with(window, gpus)),
            ),
            *job_steps.culprits(window, gpus),
            Evidence(
                name="GPUs",
                value=f"{len(subjects)} on {counted(len(nodes), 'node')}, allocated to {name}",
            ),
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


def _limit(row: Row, patience: job_steps.StepPatience) -> str:
    if not patience.times:
        return f"{patience.seconds:.0f} s for a rank that a signal keeps stopped"
    limit = job_steps.step_limit(row, patience)
    return f"{limit:.0f} s: {patience.times:g} times its longest steps, {patience.seconds:.0f} s at least"


def _with_a_rank_gone(window: Window, gone: job_steps.GoneRanks) -> Finding:
    """Build the finding about the dead rank's GPU, or about the first node where several ranks died."""
    first, *others = gone.gpus
    return Finding(
        fault="gpu_hung",
        subject=first.of_node() if others else first,
        severity=Severity.WARNING,
        since=gone.since,
        certain=gone.is_sure,
        evidence=gone.evidence,
        detector="gpu_hung",
        title="A rank of the job has died, and the others wait for it"
        if gone.waits
        else "A rank of the job has died, and the others will wait for it",
        condition="rank_gone",
        action="End the job, or have it start again from its last checkpoint; read the rank's own"
        " log and the kernel's for why it died (out of memory, a signal).",
        source="ours: the process has ended and left its step file behind",
        own_limit=True,
        members=gone.gpus if others else (),
        holder=_holder(window, gone.gpus),
    )


def _spinning(
    window: Window, span: Span, length: float, *, by_power: bool
) -> Iterator[tuple[Subject, Row]]:
    """Yield the GPUs that spun over the whole span, with their rows.

    `by_power` also includes GPUs whose memory utilisation is not read, if they draw far less than before.
    """
    rows = window.get("gpu", span)
    spins = seconds(rows) >= _COVERAGE * length
    spins &= rows.values(_BUSY.column) >= _BUSY_PERCENT
    spins &= rows.values(_WATTS.column) < _POWER_SHARE * _limits(window, rows)
    light = rows.values(_MEMORY.column) < _MEMORY_PERCENT
    spins &= light | _fell_idle(window, rows, span) if by_power else light
    # Links that are not measured do not speak against spinning.
    spins &= np.nan_to_num(rows.values(_MOVED.column)) < _NVLINK_BYTES * length
    spins &= np.nan_to_num(rows.values(_COPIED.column)) < _PCIE_BYTES
    yield from rows.where(spins)


def _limits(window: Window, rows: Rows) -> Floats:
    """Return each row's power limit in watts; where none is known, the most it drew within the trend span.

    That is never more than the limit. A GPU in use does not draw under a quarter of a maximum that was itself
    below a third of its limit: even at rest with a context it draws more than that.
    """
    known = limits(window, rows, _LIMIT.column)
    drew = window.get("gpu", Span.TREND).beside(rows, _WATTS.column)
    found: Floats = np.where(np.isnan(known), drew, known)
    return found


def _fell_idle(window: Window, rows: Rows, span: Span) -> Mask:
    """Return for each row whether its GPU, quiet now, drew as much as one at work within the trend span."""
    before = window.get("gpu", Span.TREND).beside(rows, _WATTS.column)
    worked: Mask = before >= _POWER_SHARE * _limits(window, rows)
    if span is not Span.STEADY:
        return worked & _is_quiet(window, rows, _SHARE_WITHOUT_MEMORY)
    flat = rows.values(_LEAST_WATTS.column) >= (1.0 - _VARIES) * rows.values(_WATTS.column)
    share = np.where(flat, _SHARE_IF_FLAT, _SHARE_WITHOUT_MEMORY)
    return worked & _is_quiet(window, rows, share)


def _is_quiet(window: Window, rows: Rows, share: Floats | float) -> Mask:
    """Return which GPUs seem to spin by utilisation and power alone: memory utilisation is not read."""
    quiet: Mask = np.isnan(rows.values(_MEMORY.column))
    quiet &= rows.values(_BUSY.column) >= _BUSY_PERCENT
    quiet &= rows.values(_WATTS.column) < share * _limits(window, rows)
    return quiet


def _goes_on(window: Window, rows: Rows) -> Mask:
    """Return for each row whether a GPU without a known limit is used as if it spun, and draws no more than before."""
    least = window.get("gpu", Span.TREND).beside(rows, _LEAST_WATTS.column)
    going: Mask = np.isnan(limits(window, rows, _LIMIT.column))
    going &= rows.values(_BUSY.column) >= _BUSY_PERCENT
    going &= ~(rows.values(_MEMORY.column) >= _MEMORY_PERCENT)
    going &= rows.values(_WATTS.column) <= _NO_MORE * least
    return going


def would_show_hang(window: Window, incident: Incident) -> bool | None:
    """Return False while GPUs of the incident seem to spin on; otherwise None.

    After a long spin no span shows any more how they worked before.
    """
    rows = window.get("gpu", Span.RECENT)
    them = {incident.subject.key, *incident.members}
    quiet = rows.where(_is_quiet(window, rows, _SHARE_IF_FLAT) | _goes_on(window, rows))
    return False if any(gpu.key in them for gpu, _ in quiet) else None


def _lasting(
    window: Window,
    gpus: Iterable[Subject],
    recent: Mapping[Subject, Row],
    steady: Mapping[Subject, Row],
) -> dict[Subject, Row]:
    """Return the holder's GPUs that have spun long enough for a warning, each with its row."""
    rows = window.get("gpu", Span.NOW)
    told = [
        row[_LONGEST]
        for row in map(rows.get, gpus_of_same_holders(window, gpus))
        if row is not None
    ]
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
    """Return whether another GPU of the same holder does not spin.

    A job's other ranks wait in a barrier while one writes a checkpoint, for a minute or two of every hour.
    """
    rows = window.get("gpu", Span.RECENT)
    if any(
        gpu not in recent and rows.get(gpu) is not None
        for gpu in gpus_of_same_holders(window, gpus)
    ):
        return True
    return not window.held(gpus[0]) and _rests(window, gpus[0].of_node())


def _waits_for_one_at_work(
    window: Window, gpus: Iterable[Subject], lasting: Iterable[Subject]
) -> bool:
    """Return whether one other GPU of the holder works, as one that evaluates for all, and those that spin for long
    worked within the trend span.
    """
    others = gpus_of_same_holders(window, gpus).difference(gpus)
    if len(others & window.once(_working, None)) != 1:
        return False
    rows = window.get("gpu", Span.RECENT)
    drew = window.get("gpu", Span.TREND).beside(rows, _WATTS.column)
    worked = {gpu for gpu, _ in rows.where(drew >= _POWER_SHARE * _limits(window, rows))}
    return worked.issuperset(lasting)


def _rests(window: Window, node: Subject) -> bool:
    """Return whether a GPU of the node without a known holder worked lately and is idle now."""
    rows = window.get("gpu", Span.RECENT).of_node(node)
    drew = window.get("gpu", Span.TREND).beside(rows, _WATTS.column)
    rests = drew >= _POWER_SHARE * _limits(window, rows)
    rests &= rows.values(_MOST_BUSY.column) <= job_steps.IDLE_PERCENT
    return any(not window.held(gpu) for gpu, _ in rows.where(rests))


def _writes(window: Window, gpus: Iterable[Subject]) -> bool:
    """Return whether one of the job's nodes may be writing a checkpoint, for no longer than one takes."""
    nodes, spun = window.get("node", Span.RECENT), window.get("gpu", Span.NOW)
    told = [row[_SPIN] for row in map(spun.get, gpus) if row is not None]
    if any(seconds is not None and seconds >= _CHECKPOINT_SECONDS for seconds in told):
        return False
    rows = map(nodes.get, {gpu.of_node() for gpu in gpus_of_same_holders(window, gpus)})
    return any(_written(row) >= _CHECKPOINT_BYTES for row in rows if row is not None)


def _written(row: Row) -> float:
    """Return how many bytes a second a node wrote."""
    seconds = (row["last_at"] - row["first_at"]).total_seconds()
    return sum(row[it.column] or 0.0 for it in _WRITTEN) / seconds if seconds else 0.0


def spinning(window: Window) -> frozenset[Subject]:
    """Return the GPUs that have spun over the recent span."""
    found = _spinning(window, Span.RECENT, window.settings.window_seconds, by_power=True)
    return frozenset(gpu for gpu, _ in found)


def _working(window: Window, _asked: None = None) -> frozenset[Subject]:
    """Return the GPUs that work, or that never spun or idled throughout, as in a light evaluation."""
    rows = window.get("gpu", Span.RECENT)
    least = rows.values(_BUSY.column)
    light = (least > job_steps.IDLE_PERCENT) & (least < _BUSY_PERCENT)
    return working(window) | frozenset(gpu for gpu, _ in rows.where(light))


def working(window: Window) -> frozenset[Subject]:
    """Return the GPUs that drew more power within the recent span than spinning ones do."""
    rows = window.get("gpu", Span.RECENT)
    drew = rows.values(_WATTS.column) >= _POWER_SHARE * limits(window, rows, _LIMIT.column)
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
    first = window.get("gpu", Span.STEADY).of_subject(gpus[0])
    (limit,) = _limits(window, first).tolist()
    held = sorted({str(a.holder) for a in window.held(gpus[0])})
    name, holder = held[0] if held else "a process", _holder(window, gpus)
    return Finding(
        fault="gpu_hung",
        subject=known_node(window, _FAULT.key, gpus, holder) if holder else gpus[0],
        severity=Severity.WARNING if lasts else Severity.INFO,
        since=min(row["first_at"] for row in rows),
        evidence=(
            Evidence(name="utilisation", value=f"{_BUSY_PERCENT} % or more at every sample"),
            Evidence(
                name="power",
                value=f"{watts:.0f} W at most in {seconds / 60.0:g} min",
                limit=f"over {_POWER_SHARE * limit:.0f} W for a GPU at work",
            ),
            Evidence(
                name="GPUs",
                value=f"{len(gpus)} on {counted(len(nodes), 'node')}, allocated to {name}",
            ),
        ),
        detector="gpu_hung",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        members=() if len(gpus) == 1 else tuple(gpus),
        holder=holder,
    )


DETECTOR = Detector(
    name="gpu_hung",
    find=hung_jobs,
    faults=found_by("gpu_hung"),
    needs=NEEDS,
    sentence="A job whose GPUs are fully used at low power and move nothing.",
    source="what kernels do that spin in a collective",
    would_show=would_show_hang,
)
