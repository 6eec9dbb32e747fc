"""A GPU that slows its job down: apart from the job's other GPUs, and from what it was beside them.

In synchronous work all ranks wait for the slowest one, so its job moves less, on every GPU. Those
that wait spin in a collective and draw power for it; the one that they wait for does not: it draws
less at its clock than they do, or its clock itself gave way. How a GPU stands beside its job's
others differs by chip, slot and role; that it begins to stand otherwise while its job slows down is
what tells. Where many GPUs of a job change apart, or some on many nodes, work was dealt unevenly,
and none is to blame; where several of one node do, it is the node.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.clock import EPOCH, micros
from gpuvigil.faults import FAULTS
from gpuvigil.model import Allocation, Evidence, Finding, Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..columns import Codes, Floats, Mask, models, number, per_group, seconds, together
from ..holdings import holder_key
from ..rows import Rows
from ..window import Need, Span, Window

_WATTS = Aggregate(function=Function.MEAN, field="power_watts")
_CLOCK = Aggregate(function=Function.MEAN, field="sm_clock_hertz")
_ACTIVE = Aggregate(function=Function.MEAN, field="sm_activity_percent")
_MOVED = Aggregate(function=Function.INCREASE, field="nvlink_receive_bytes")
_BUSY = Aggregate(function=Function.MIN, field="utilization_percent")
_ASKED = (_WATTS, _CLOCK, _ACTIVE, _MOVED)
NEEDS = (
    Need(measurement="gpu", span=Span.RECENT, aggregates=(*_ASKED, _BUSY)),
    Need(measurement="gpu", span=Span.STEADY, aggregates=_ASKED),
    Need(measurement="gpu", span=Span.TREND, aggregates=_ASKED),
)

_FAULT = FAULTS["gpu_slow"]
# A comparison takes four GPUs; what more than a third of them do, or some on more than two nodes,
# is no matter of one: roles, or how the work was dealt.
_PEERS, _MOST_SHARE, _MOST_NODES = 4, 1.0 / 3.0, 2
# How far apart, as natural logarithms of ratios: so much at least, and so many deviations of the
# job's other GPUs; beyond the last one does something else than its peers, or nothing.
_DEVIATIONS, _FARTHEST = 5.0, 0.35
# Of few GPUs the deviation itself is a guess: for four it is taken 2.5 times, for 32 hardly more.
_FEW = 6.0
_DEVIATION_OF_MEDIAN = 1.4826  # a normal distribution's, of the median of the distances
# Of the job's pace, what may be gone at most: an evaluation is slower than any fault.
_MOST_LOSS = 0.4
# Who waits for a share of the time draws more than it would at rest, by a fifth of that share at least.
_LEAST_OF_LOSS = 0.2
# Power goes with the clock times the square of the voltage, which follows it in part.
_POWER_OF_CLOCK = 2.0
# So long after it was last seen, with no job that could show it, it is nobody's knowledge any more.
_LAPSE = timedelta(hours=24)
# A kernel at nearly every sample; bytes a second that are work and no heartbeat.
_BUSY_PERCENT, _NVLINK_BYTES, _ACTIVE_PERCENT = 10.0, 1e6, 2.0
_COVERAGE, _LINES = 0.8, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """A span held against what was before it, and how little is told over so short a one."""

    now: Span
    long: Span  # which ends with `now`
    least: float  # of power at its clock
    least_clock: float
    least_loss: float  # of the job's pace


_LOOKS = (
    _Look(now=Span.STEADY, long=Span.TREND, least=0.015, least_clock=0.02, least_loss=0.02),
    _Look(now=Span.RECENT, long=Span.STEADY, least=0.03, least_clock=0.04, least_loss=0.05),
)


def slow_gpus(window: Window) -> list[Finding]:
    """One finding per GPU, or per node of which several are slow; the longer look speaks first."""
    found: dict[Subject, Finding] = {}
    for look in _LOOKS:
        for finding in _seen(window, look):
            found.setdefault(finding.subject, finding)
    joined = {gpu for finding in found.values() for gpu in finding.members}
    return [found[subject] for subject in sorted(found.keys() - joined)]


def says_whether_slow(window: Window, incident: Incident) -> bool:
    """Whether a standing incident would show: only where each of its GPUs came back to its peers,
    or stands beside those of a later job in power and in clock.

    What is slow for longer than the spans look back shows no change any more, and is not over.
    """
    gpus = _gpus_of(incident)
    return bool(gpus) and all(
        _came_back(window, gpu) or _is_as_its_peers(window, incident, gpu) for gpu in gpus
    )


def lapsed(window: Window, incident: Incident) -> datetime | None:
    """When a standing incident was last seen, where that is long ago and no job can show it now."""
    told = [a for gpu in _gpus_of(incident) for a in window.allocations.get(gpu.key, ())]
    if any(a.ended_at is None and _can_show(window, a) for a in told):
        return None
    # A job that had it all the time may have been slow to its end.
    ends = [a.ended_at for a in told if a.ended_at is not None and a.started_at < incident.since]
    last = max([incident.updated_at, *ends])
    return last if window.now - last >= _LAPSE else None


def _can_show(window: Window, held: Allocation) -> bool:
    holding = window.holdings.get(holder_key(held))
    return held.holder.startswith("job ") and holding is not None and len(holding.gpus) >= _PEERS


def _gpus_of(incident: Incident) -> list[Subject]:
    if incident.subject.kind == "gpu":
        return [incident.subject]
    return [one for one in map(Subject.parse, incident.members) if one.kind == "gpu"]


def _came_back(window: Window, gpu: Subject) -> bool:
    for look in _LOOKS:
        change = window.once(_change, look)
        place = None if change is None else change.rows.index.number(gpu)
        if change is not None and place is not None and bool(change.back[place]):
            return True
    return False


def _is_as_its_peers(window: Window, incident: Incident, gpu: Subject) -> bool:
    """Whether a job that began after the incident has its GPU, no further below the job's others
    than would be told of if it were a change.
    """
    beside = window.once(_beside, _LOOKS[0])
    place = None if beside is None else beside.rows.index.number(gpu)
    if beside is None or place is None or beside.begun[place] <= micros(incident.since):
        return False
    return bool(beside.alike[place])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """Per GPU how it stands beside its job's others, whatever it was before."""

    rows: Rows
    begun: Floats  # its job, in microseconds since 1970
    alike: Mask


def _beside(window: Window, look: _Look) -> _Beside | None:
    rows, long = window.get("gpu", look.now), window.get("gpu", look.long)
    if not len(rows) or not len(long):
        return None
    known = _known(window, look, rows, long)
    job = together(_jobs(window, rows), models(window, rows))
    now = _now(rows, rows)
    one = {name: np.ones(len(rows)) for name in now}
    draws, _, peers = _apart(job, _draws(now, one), known, look.least)
    clock, _, _ = _apart(job, _ratio(now, one, _CLOCK.column), known, look.least_clock)
    return _Beside(
        rows=rows,
        begun=window.of_allocations(rows, _held_since),
        alike=(peers >= _PEERS) & (draws >= -look.least) & (clock >= -look.least_clock),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """Per GPU of a job that has had it all the time, since before the look."""

    rows: Rows
    job: Codes
    draws: Floats  # power at its clock, as the logarithm of a ratio, apart from the job's others
    clock: Floats
    pace: Floats  # of the job
    peers: Floats
    slow: Mask
    back: Mask
    watts: Floats
    hertz: Floats


def _seen(window: Window, look: _Look) -> list[Finding]:
    change = window.once(_change, look)
    if change is None or not change.slow.any():
        return []
    jobs: dict[int, dict[Subject, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in np.flatnonzero(change.slow).tolist():
        jobs[int(change.job[row])][change.rows.subjects[row].of_node()].append(row)
    return [
        _of_node(window, look, change, node, rows)
        if len(rows) > 1
        else _finding(window, look, change, rows[0])
        for nodes in jobs.values()
        if len(nodes) <= _MOST_NODES
        for node, rows in nodes.items()
    ]


def _change(window: Window, look: _Look) -> _Change | None:
    rows, long = window.get("gpu", look.now), window.get("gpu", look.long)
    recent = window.get("gpu", Span.RECENT)
    if not len(rows) or not len(long) or not len(recent):
        return None
    known = _known(window, look, rows, long)
    if not known.any():
        return None
    job = together(_jobs(window, rows), models(window, rows))
    before = _before(rows, long)
    now, lately = _now(rows, rows), _now(rows, recent)
    draws, far, peers = _apart(job, _draws(now, before), known, look.least)
    clock, far_clock, _ = _apart(job, _ratio(now, before, _CLOCK.column), known, look.least_clock)
    draws_lately, _, _ = _apart(job, _draws(lately, before), known, look.least)
    clock_lately, _, _ = _apart(job, _ratio(lately, before, _CLOCK.column), known, look.least_clock)
    pace, _ = per_group(job, np.where(known, _pace(now, before), np.nan))
    lost = -pace
    far = np.fmax(far, _LEAST_OF_LOSS * np.nan_to_num(lost))
    below = (draws <= -far) & (draws >= -_FARTHEST) & (draws_lately <= draws / 2.0)
    slower = (clock <= -far_clock) & (clock >= -_FARTHEST) & (clock_lately <= clock / 2.0)
    slow = (below | slower) & (peers >= _PEERS)
    slow &= (lost >= look.least_loss) & (lost <= _MOST_LOSS)
    slow &= recent.beside(rows, _BUSY.column) >= _BUSY_PERCENT
    slow &= _count(job, slow) <= _MOST_SHARE * peers
    back = ((draws >= far) | (clock >= far_clock)) & (peers >= _PEERS) & (pace >= look.least_loss)
    return _Change(
        rows=rows,
        job=job,
        draws=draws,
        clock=clock,
        pace=pace,
        peers=peers,
        slow=slow,
        back=back,
        watts=np.where(known, now[_WATTS.column], np.nan),
        hertz=np.where(known, now[_CLOCK.column], np.nan),
    )


def _known(window: Window, look: _Look, rows: Rows, long: Rows) -> Mask:
    """Of which GPUs both spans tell, while one job had each of them all the time."""
    lengths = {
        Span.RECENT: window.settings.window_seconds,
        Span.STEADY: window.settings.steady_seconds,
        Span.TREND: window.settings.trend_seconds,
    }
    tick = window.ticks(rows)
    known = seconds(rows) >= _COVERAGE * lengths[look.now] - tick
    spanned = (long.beside(rows, "last_at") - long.beside(rows, "first_at")) / 1e6
    known &= spanned >= _COVERAGE * lengths[look.long]
    known &= long.beside(rows, "samples") - rows.values("samples") >= _LINES
    begun = micros(window.now) - lengths[look.long] * 1e6
    found: Mask = known & (window.of_allocations(rows, _held_since) <= begun)
    return found


Numbers = Mapping[str, Floats]


def _now(rows: Rows, of: Rows) -> Numbers:
    """The means of a span in the order of `rows`, and bytes per second."""
    found = {it.column: of.beside(rows, it.column) for it in (_WATTS, _CLOCK, _ACTIVE)}
    length = (of.beside(rows, "last_at") - of.beside(rows, "first_at")) / 1e6
    found[_MOVED.column] = _divided(of.beside(rows, _MOVED.column), length)
    return found


def _before(rows: Rows, long: Rows) -> Numbers:
    """What the long span has beyond the one of `rows`, which it ends with."""
    every, late = long.beside(rows, "samples"), rows.values("samples")
    found = {
        it.column: _divided(
            every * long.beside(rows, it.column) - late * rows.values(it.column), every - late
        )
        for it in (_WATTS, _CLOCK, _ACTIVE)
    }
    length = (long.beside(rows, "last_at") - long.beside(rows, "first_at")) / 1e6
    moved = long.beside(rows, _MOVED.column) - rows.values(_MOVED.column)
    found[_MOVED.column] = _divided(moved, length - seconds(rows))
    return found


def _draws(now: Numbers, before: Numbers) -> Floats:
    clock = _ratio(now, before, _CLOCK.column)
    found: Floats = _ratio(now, before, _WATTS.column) - _POWER_OF_CLOCK * clock
    return found


def _pace(now: Numbers, before: Numbers) -> Floats:
    """By what a GPU moves over NVLink; where it moves nothing, by what its multiprocessors do."""
    moved = _ratio(now, before, _MOVED.column, _NVLINK_BYTES)
    active = _ratio(now, before, _ACTIVE.column, _ACTIVE_PERCENT)
    worked = active + _ratio(now, before, _CLOCK.column)
    found: Floats = np.where(np.isnan(moved), worked, moved)
    return found


def _ratio(now: Numbers, before: Numbers, column: str, least: float = 0.0) -> Floats:
    """The logarithm of a ratio; NaN where one of both is no more than `least`, or not measured."""
    first, last = before[column], now[column]
    there = (first > least) & (last > least)
    return np.log(np.where(there, last, np.nan) / np.where(there, first, np.nan))


def _divided(values: Floats, by: Floats) -> Floats:
    found: Floats = values / np.where(by > 0.0, by, np.nan)
    return found


def _apart(job: Codes, change: Floats, known: Mask, least: float) -> tuple[Floats, Floats, Floats]:
    """How far from its job's middle, how far would be too far, and how many GPUs tell."""
    change = np.where(known, change, np.nan)
    usual, count = per_group(job, change)
    apart = change - usual
    spread, _ = per_group(job, np.abs(apart))
    deviation = _DEVIATION_OF_MEDIAN * spread * (1.0 + _FEW / np.fmax(count, 1.0))
    return apart, np.fmax(least, _DEVIATIONS * deviation), count


def _count(job: Codes, mask: Mask) -> Floats:
    _, place = np.unique(job, return_inverse=True)
    counts = np.bincount(place, weights=mask.astype(np.float64)).astype(np.float64)
    found: Floats = counts[place]
    return found


def _jobs(window: Window, rows: Rows) -> Codes:
    return np.nan_to_num(window.of_allocations(rows, _job)).astype(np.int64)


def _job(_: Subject, allocations: tuple[Allocation, ...] | None) -> float:
    held = _alone(allocations)
    return np.nan if held is None else float(number(holder_key(held)))


def _held_since(_: Subject, allocations: tuple[Allocation, ...] | None) -> float:
    held = _alone(allocations)
    return np.nan if held is None else micros(held.started_at)


def _alone(allocations: tuple[Allocation, ...] | None) -> Allocation | None:
    """The job that has a GPU to itself."""
    held = [a for a in allocations or () if a.ended_at is None]
    one = held[0] if len(held) == 1 else None
    return one if one is not None and one.part is None and one.holder.startswith("job ") else None


def _of_node(
    window: Window, look: _Look, change: _Change, node: Subject, rows: Sequence[int]
) -> Finding:
    """In the words of the GPU that is furthest away."""
    worst = min(rows, key=lambda row: float(np.fmin(change.draws[row], change.clock[row])))
    one = _finding(window, look, change, worst)
    gpus = tuple(sorted(change.rows.subjects[row] for row in rows))
    return replace(
        one,
        subject=node,
        evidence=(Evidence(name="GPUs", value=f"{len(gpus)} of the node at once"), *one.evidence),
        action="Look at the node (storage, CPUs, network, power) before its GPUs; keep it out of"
        " large jobs.",
        title="Node slows its job down",
        members=gpus,
    )


def _usual(window: Window, look: _Look) -> tuple[Floats, Floats]:
    """Watts and hertz in the middle of each GPU's job."""
    change = window.once(_change, look)
    if change is None:
        return np.empty(0), np.empty(0)
    return per_group(change.job, change.watts)[0], per_group(change.job, change.hertz)[0]


def _finding(window: Window, look: _Look, change: _Change, row: int) -> Finding:
    subject = change.rows.subjects[row]
    minutes, before = _minutes(window, look)
    (held,) = window.held(subject)
    lost = 100.0 * (1.0 - np.exp(change.pace[row]))
    by_clock = bool(change.clock[row] <= -look.least_clock)
    name, apart = ("SM clock", change.clock) if by_clock else ("power at its clock", change.draws)
    others = int(change.peers[row]) - 1
    watts, hertz = window.once(_usual, look)
    return Finding(
        fault="gpu_slow",
        subject=subject,
        severity=_FAULT.severity,
        since=EPOCH + timedelta(microseconds=float(change.rows.values("first_at")[row])),
        evidence=(
            Evidence(
                name="its job",
                value=f"{held.holder} gets {lost:.0f} % less done than in the {before:g} min before",
                limit=f"{100.0 * look.least_loss:.0f} %",
            ),
            Evidence(
                name=name,
                value=f"{100.0 * (np.exp(apart[row]) - 1.0):+.1f} % in {minutes:g} min,"
                " beside what it was",
                limit=f"-{100.0 * (look.least_clock if by_clock else look.least):g} %",
                peers=f"{others} other GPUs of the job",
            ),
            Evidence(
                name="power",
                value=f"{change.watts[row]:.0f} W at {change.hertz[row] / 1e6:.0f} MHz",
                peers=f"{watts[row]:.0f} W at {hertz[row] / 1e6:.0f} MHz",
            ),
        ),
        detector="gpu_slow",
        action=_FAULT.action,
        source=_FAULT.source,
    )


def _minutes(window: Window, look: _Look) -> tuple[float, float]:
    settings = window.settings
    if look.now is Span.STEADY:
        return settings.steady_seconds / 60.0, (
            settings.trend_seconds - settings.steady_seconds
        ) / 60.0
    return settings.window_seconds / 60.0, (
        settings.steady_seconds - settings.window_seconds
    ) / 60.0
