"""How a job's GPUs change apart from each other: each beside the others, and beside its own past.

For every GPU that one job has had all the time: its power at its clock, the clock itself and the
pace of its job, as natural logarithms of ratios against the span before. `detectors/gpu_slow.py`
concludes from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuvigil.clock import micros
from gpuvigil.model import Allocation, HolderKind, Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import (
    Codes,
    Floats,
    Mask,
    combined_codes,
    divided,
    group_count,
    group_maximum,
    means_before,
    models,
    nodes,
    number,
    per_group,
    seconds,
    whole_numbers,
)
from ..window.holdings import holder_key
from ..window.rows import Rows
from ..window.window import Need, Span, Window
from .few_gpus import (
    RESTED_PERCENT,
    SWINGS,
    beside_other,
    far_of_few,
    far_of_two,
    slower_of_two,
)
from .read_alike import groups_of, parted, read_alike

_WATTS = Aggregate(function=Function.MEAN, field="power_watts")
_CLOCK = Aggregate(function=Function.MEAN, field="sm_clock_hertz")
_ACTIVE = Aggregate(function=Function.MEAN, field="sm_activity_percent")
_MOVED = Aggregate(function=Function.INCREASE, field="nvlink_receive_bytes")
_BUSY = Aggregate(function=Function.MIN, field="utilization_percent")
_USED = Aggregate(function=Function.MEAN, field="utilization_percent")
_STEP = Aggregate(function=Function.MEAN, field="step_seconds")
_OF_LAST_MINUTE = (_BUSY, *sum(SWINGS, ()))
_MEANS = (_WATTS, _CLOCK, _ACTIVE, _USED, _STEP)
_ASKED = (*_MEANS, _MOVED)
NEEDS = (
    Need(measurement="gpu", span=Span.RECENT, aggregates=(*_ASKED, *_OF_LAST_MINUTE)),
    Need(measurement="gpu", span=Span.STEADY, aggregates=_ASKED),
    Need(measurement="gpu", span=Span.TREND, aggregates=_ASKED),
)

# What more than a third of a job's GPUs do is no fault of one: it comes from roles, or from how the
# work is divided.
_MOST_SHARE = 1.0 / 3.0
# A slow GPU stands out: it is this many times as far from the median as any other of the job. When
# work is divided anew, or nodes are read at other moments, some GPUs differ on both sides.
_STANDS_OUT = 1.7
# A slow GPU is slow all the time: in the last minute the job's pace is neither back nor this many
# times further down, as it is in a job that stops and goes.
_BACK, _DOWN = 0.5, 2.0
# How far a slow GPU is from the median in deviations of the job's other GPUs; and, as the natural
# logarithm of a ratio, how far at most: beyond that it does something else than its peers, or
# nothing.
_DEVIATIONS, _FARTHEST = 5.0, 0.35
# With few GPUs the deviation itself is a guess: for four it is taken 2.5 times, for 32 hardly more than once.
_FEW = 6.0
_DEVIATION_OF_MEDIAN = 1.4826  # a normal distribution's, of the median of the distances
# The largest loss of the job's pace that one GPU causes: an evaluation is slower than any fault.
MOST_LOSS = 0.4
# A larger loss counts, down to a third of the pace, if the GPU draws less than its job's others by
# a quarter of the loss: half of its multiprocessors may be gone, and a GPU that waits half of the
# time draws a quarter less [ours].
_GREAT_LOSS, _OF_GREAT_LOSS, _FARTHEST_OF_LOSS = 1.1, 0.25, 0.6
# A GPU that waits for another one spins, and is used as before. A job whose median GPU lost this
# share of the lost pace in utilisation waits for something else, such as its input.
_IDLES = 0.5
# GPUs that wait for a share of the time draw more than at rest, by at least a fifth of that share:
# a slow GPU must be at least that far below them.
_LEAST_OF_LOSS = 0.2
# Power is proportional to the clock times the square of the voltage, which follows the clock in part.
_POWER_OF_CLOCK = 2.0
# The least utilisation that shows a kernel at nearly every sample; and bytes per second that are
# work and no heartbeat.
_BUSY_PERCENT, NVLINK_BYTES, _ACTIVE_PERCENT = 10.0, 1e6, 2.0
_COVERAGE, _LINES = 0.8, 5.0
_NO_CLOCK = 1.0  # in hertz: no GPU has it
# Of few GPUs it must be this many times as far as any other one [ours].
_FEW_STAND_OUT = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timescale:
    """A span compared with the time before it, and the least differences that count over it."""

    now: Span
    long: Span  # which ends with `now`
    least: float  # of power at its clock
    least_clock: float
    least_loss: float  # of the job's pace
    peers: int  # from how many GPUs on the job's own scatter says what is far


# Over a minute, few GPUs scatter as much as a fault shows: below `peers` the limits of a few apply.
TIMESCALES = (
    Timescale(
        now=Span.STEADY, long=Span.TREND, least=0.015, least_clock=0.02, least_loss=0.03, peers=4
    ),
    Timescale(
        now=Span.RECENT, long=Span.STEADY, least=0.03, least_clock=0.04, least_loss=0.07, peers=8
    ),
)
PEERS = TIMESCALES[0].peers
_TWO = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """How each GPU stands beside its job's others now, whatever it was before."""

    rows: Rows
    begun: Floats  # its job, in microseconds since 1970
    alike: Mask


def beside_of(window: Window, scale: Timescale) -> Beside | None:
    """Return how every GPU stands beside its job's others now; None where nothing was measured."""
    rows, long = window.get("gpu", scale.now), window.get("gpu", scale.long)
    if not len(rows) or not len(long):
        return None
    job = combined_codes(jobs(window, rows), models(window, rows))
    group, known = _comparable(window, scale, job, rows, long)
    _, now, _ = _spans(rows, long, rows)
    one = {name: np.ones(len(rows)) for name in now}
    stands = np.stack([_draws(now, one), _ratio(now, one, _CLOCK.column)])
    least = np.array([[scale.least], [scale.least_clock]])
    (draws, clock), _, (peers, _) = _apart(group, np.where(known, stands, np.nan), least)
    return Beside(
        rows=rows,
        begun=window.of_allocations(rows, held_since),
        alike=(peers >= PEERS) & (draws >= -scale.least) & (clock >= -scale.least_clock),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Changes per GPU of a job that has had it all the time, since before the span."""

    rows: Rows
    job: Codes
    draws: Floats  # power at its clock, as the logarithm of a ratio, apart from the job's others, or the other one
    clock: Floats
    pace: Floats  # of the job
    peers: Floats
    slow: Mask
    back: Mask
    watts: Floats
    hertz: Floats
    part: Floats  # the share of the span for which it was so, by the mean beside the last minute


def change_of(window: Window, scale: Timescale) -> Change | None:
    """Return how every GPU changed beside its job's others.

    None if nothing was measured, or no job that had its GPUs all the time changed its pace.
    """
    rows, long = window.get("gpu", scale.now), window.get("gpu", scale.long)
    recent = window.get("gpu", Span.RECENT)
    if not len(rows) or not len(long) or not len(recent):
        return None
    job = combined_codes(jobs(window, rows), models(window, rows))
    group, known = _comparable(window, scale, job, rows, long)
    if not known.any():
        return None
    before, now, lately = _spans(rows, long, recent)
    pace, _ = per_group(group, np.where(known, pace_between(now, before), np.nan))
    # Nobody asks about jobs that go on as before.
    some = np.flatnonzero(known & (np.abs(pace) >= scale.least_loss))
    if not len(some):
        return None
    one = group[some]
    one.flags.writeable = False
    them = _Changed(
        job=one,
        lost=-pace[some],
        two=_of_two(scale, job)[some],
        before=_picked(before, some),
        now=_picked(now, some),
        lately=_picked({**lately, **_last_minute(rows, recent)}, some),
    )
    off = _off(scale, them)
    slow, back = _slow(scale, them, off), _back(scale, them, off)
    draws, clock, *late = off.apart
    part = np.where(clock <= -scale.least_clock, _share(clock, late[1]), _share(draws, late[0]))
    watts, hertz = them.now[_WATTS.column], them.now[_CLOCK.column]
    hertz = np.where(hertz == _NO_CLOCK, np.nan, hertz)
    told = [draws, clock, off.peers, watts, hertz, slow, back, part]
    draws, clock, peers, watts, hertz, slow, back, part = _of_all(told, some, len(rows))
    return Change(
        rows=rows,
        job=job,
        draws=draws,
        clock=clock,
        pace=pace,
        peers=peers,
        slow=slow == 1.0,
        back=back == 1.0,
        watts=watts,
        hertz=hertz,
        part=part,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changed:
    """The GPUs whose jobs changed their pace, and their means before the span, over it and in the last minute."""

    job: Codes  # or the part of it that is compared
    lost: Floats  # of the job's pace
    two: Mask  # whether the job has two GPUs, and the span is long enough for them
    before: "Numbers"
    now: "Numbers"
    lately: "Numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Off:
    """How far GPUs are from their job's median by power at its clock and by clock, each then in the last minute too.

    Of a job of two each is beside the other one.
    """

    changes: Floats
    apart: Floats
    limits: Floats
    peers: Floats
    few: Mask  # whether the job has too few GPUs for its own scatter to say what is far
    two: Mask


def _of_two(scale: Timescale, job: Codes) -> Mask:
    """Tell which GPUs are of a job of two: the longer timescale alone tells which one of them is slow."""
    size = group_count(job, np.ones(len(job), dtype=bool))
    found: Mask = (size == _TWO) & (scale.now is Span.STEADY)
    return found


def _off(scale: Timescale, them: _Changed) -> _Off:
    changes = _changes(them.before, them.now, them.lately)
    apart, limits, (peers, *_) = _apart(them.job, changes, _least(scale))
    if (few := peers < scale.peers).any():
        limits[:2] = np.where(few, far_of_few(them.job, them.lately, _POWER_OF_CLOCK), limits[:2])
    limits[0] = np.fmax(limits[0], _LEAST_OF_LOSS * them.lost)
    if (two := them.two & (peers == _TWO)).any():
        apart = np.where(two, beside_other(them.job, changes), apart)
        limits = np.where(two, far_of_two(them.lost), limits)
    return _Off(changes=changes, apart=apart, limits=limits, peers=peers, few=few, two=two)


def _slow(scale: Timescale, them: _Changed, off: _Off) -> Mask:
    """Tell which GPUs became slow while their job lost pace, and went on without a pause."""
    works = _goes_on(them.job, them.lost, pace_between(them.lately, them.before))
    works &= ~_pauses(them.job, them.lost, them.now, them.before)
    may_be = works & (off.peers >= PEERS) & _is_lost_by_one(scale, them.lost, off.apart[0])
    works &= them.lately[_BUSY.column] >= _BUSY_PERCENT
    slow = _slower(them, off, may_be) & works & ~(off.few & _rests(them.job, them.now))
    slow &= group_count(them.job, slow) <= _MOST_SHARE * off.peers
    if off.two.any():
        used, moved = them.now[_USED.column], them.now[_MOVED.column]
        draws = off.changes[::2]
        slow |= off.two & works & slower_of_two(them.job, them.lost, draws, used, moved)
    return slow


def _back(scale: Timescale, them: _Changed, off: _Off) -> Mask:
    """Tell which GPUs came back to their job's others while it gained pace."""
    found: Mask = (off.apart[:2] >= off.limits[:2]).any(axis=0) & (them.lost <= -scale.least_loss)
    found &= off.two | (off.peers >= PEERS)
    return found


def _slower(them: _Changed, off: _Off, may_be: Mask) -> Mask:
    """Tell which GPUs draw less at their clock than the others of their job, or run at a lower clock."""
    draws, clock, draws_lately, clock_lately = off.apart
    far, far_clock = off.limits[:2]
    below = (draws <= -far) & ~_is_no_rank(them.lost, draws) & (draws_lately <= draws / 2.0)
    lower = (clock <= -far_clock) & (clock >= -_FARTHEST) & (clock_lately <= clock / 2.0)
    times = np.where(off.few, _FEW_STAND_OUT, _STANDS_OUT)
    # One that rested before, and does not now, only seems to draw more.
    by_power = np.where(_rests(them.job, them.before) & (draws > 0.0), 0.0, draws)
    slow = (below | lower) & may_be
    found: Mask = below & stands_out(them.job, by_power, slow, times)
    found |= lower & stands_out(them.job, clock, slow, times)
    found &= slow
    return found


def _changes(before: "Numbers", now: "Numbers", lately: "Numbers") -> Floats:
    """Return the changes of power at its clock and of the clock, over the span and in the last minute."""
    return np.stack(
        [
            change
            for then in (now, lately)
            for change in (_draws(then, before), _ratio(then, before, _CLOCK.column))
        ]
    )


def _least(scale: Timescale) -> Floats:
    return np.array([[scale.least], [scale.least_clock]] * 2)


def _is_no_rank(lost: Floats, draws: Floats) -> Mask:
    """Tell whether a GPU draws so little that it does something else, or nothing."""
    found: Mask = draws < -np.fmax(_FARTHEST, _FARTHEST_OF_LOSS * lost)
    return found


def _is_lost_by_one(scale: Timescale, lost: Floats, draws: Floats) -> Mask:
    """Tell whether one GPU that draws this much less than the others may cost this much of the pace."""
    great: Mask = (lost <= _GREAT_LOSS) & (draws <= -_OF_GREAT_LOSS * lost)
    found: Mask = (lost >= scale.least_loss) & (great | (lost <= MOST_LOSS))
    return found


def _share(mean: Floats, lately: Floats) -> Floats:
    """Return for what share of a span its values were as in the last minute, by the span's mean."""
    found: Floats = np.clip(divided(-mean, -lately), 0.0, 1.0)
    return np.where(np.isnan(found), 1.0, found)


def _picked(them: "Numbers", some: Codes) -> "Numbers":
    return {name: it[some] for name, it in them.items()}


def _of_all(told: Sequence[Floats], some: Codes, number: int) -> Floats:
    """Spread values of some rows over all `number` rows, with NaN for the others."""
    found: Floats = np.full((len(told), number), np.nan)
    found[:, some] = told
    return found


def _comparable(
    window: Window, scale: Timescale, job: Codes, rows: Rows, long: Rows
) -> tuple[Codes, Mask]:
    """Return in which groups GPUs are compared, and which can be: those that one job had all the time.

    All of a group were read at the same moments in both spans, and all or none report a clock.
    """
    lengths = {
        Span.RECENT: window.settings.window_seconds,
        Span.STEADY: window.settings.steady_seconds,
        Span.TREND: window.settings.trend_seconds,
    }
    tick = window.ticks(rows)
    known = seconds(rows) >= _COVERAGE * lengths[scale.now] - tick
    spanned = seconds(long, rows)
    known &= spanned >= _COVERAGE * lengths[scale.long]
    begun = micros(window.now) - lengths[scale.long] * 1e6
    known &= window.of_allocations(rows, held_since) <= begun
    late = rows.values("samples")
    lines = (late, long.beside(rows, "samples") - late)
    known &= np.minimum(*lines) >= _LINES
    untold = np.isnan(rows.values(_CLOCK.column))
    group = parted(groups_of(job, nodes(rows), known, lines), untold)
    return group, read_alike(group, known, lines)


Numbers = Mapping[str, Floats]


def _spans(rows: Rows, long: Rows, recent: Rows) -> Sequence[Numbers]:
    """Return the means before the span, over it, and in the last minute.

    Without clocks all get the same one: power alone is compared, as a lower clock is slow, too.
    """
    untold = np.isnan(rows.values(_CLOCK.column))
    return [
        {**it, _CLOCK.column: np.where(untold, _NO_CLOCK, it[_CLOCK.column])}
        for it in (means_earlier(rows, long), means_of(rows, rows), means_of(rows, recent))
    ]


def means_of(rows: Rows, of: Rows) -> Numbers:
    """Return a span's means in the order of `rows`, with bytes per second."""
    found = {it.column: of.beside(rows, it.column) for it in _MEANS}
    found[_MOVED.column] = divided(of.beside(rows, _MOVED.column), seconds(of, rows))
    return found


def _last_minute(rows: Rows, recent: Rows) -> Numbers:
    """Return what is asked of the last minute alone."""
    return {it.column: recent.beside(rows, it.column) for it in _OF_LAST_MINUTE}


def means_earlier(rows: Rows, long: Rows) -> Numbers:
    """Return the means of the long span without its end, which `rows` cover."""
    found = means_before(rows, long, (it.column for it in _MEANS))
    length = seconds(long, rows)
    moved = long.beside(rows, _MOVED.column) - rows.values(_MOVED.column)
    found[_MOVED.column] = divided(moved, length - seconds(rows))
    return found


def _draws(now: Numbers, before: Numbers) -> Floats:
    clock = _ratio(now, before, _CLOCK.column)
    found: Floats = _ratio(now, before, _WATTS.column) - _POWER_OF_CLOCK * clock
    return found


def pace_between(now: Numbers, before: Numbers) -> Floats:
    """Return the change of pace as a logarithm: the lesser one of traffic and steps.

    Traffic is what a GPU moves over NVLink or, if it moves nothing, what its multiprocessors do.
    The length of the job's steps does not change with a pause.
    """
    steps = _ratio(before, now, _STEP.column)
    moved = _ratio(now, before, _MOVED.column, NVLINK_BYTES)
    active = _ratio(now, before, _ACTIVE.column, _ACTIVE_PERCENT)
    worked = active + _ratio(now, before, _CLOCK.column)
    found: Floats = np.fmin(np.where(np.isnan(moved), worked, moved), steps)
    return found


def _ratio(now: Numbers, before: Numbers, column: str, least: float = 0.0) -> Floats:
    """Return the logarithm of a ratio; NaN where either value is at most `least`, or not measured."""
    first, last = before[column], now[column]
    there = (first > least) & (last > least)
    return np.log(np.where(there, last, np.nan) / np.where(there, first, np.nan))


def _apart(job: Codes, change: Floats, least: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the distance from the job's median, the distance that is too far, and the GPUs known."""
    usual, count = per_group(job, change)
    apart = change - usual
    spread, _ = per_group(job, np.abs(apart))
    deviation = _DEVIATION_OF_MEDIAN * spread * (1.0 + _FEW / np.fmax(count, 1.0))
    return apart, np.fmax(least, _DEVIATIONS * deviation), count


def _goes_on(job: Codes, lost: Floats, pace: Floats) -> Mask:
    """Tell for each GPU whether its job lost about as much pace in the last minute as in the mean."""
    lately = -per_group(job, pace)[0]
    found: Mask = (lately >= _BACK * lost) & (lately <= _DOWN * lost)
    return found


def _pauses(job: Codes, lost: Floats, now: Numbers, before: Numbers) -> Mask:
    """Tell for each GPU whether its job's utilisation fell by a good part of the lost pace."""
    used, _ = per_group(job, _ratio(now, before, _USED.column))
    found: Mask = used <= -_IDLES * lost
    return found


def stands_out(job: Codes, apart: Floats, slow: Mask, times: Floats | float = _STANDS_OUT) -> Mask:
    """Tell whether each is much further below its job's median than any not slow one is off it."""
    others = group_maximum(job, np.where(slow, 0.0, np.abs(np.nan_to_num(apart))))
    found: Mask = -apart >= times * others
    return found


def _rests(job: Codes, of: "Numbers") -> Mask:
    """Tell which GPUs were used less than their job's others, as one that saves for them is."""
    used = of[_USED.column]
    found: Mask = used - per_group(job, used)[0] <= -RESTED_PERCENT
    return found


def jobs(window: Window, rows: Rows) -> Codes:
    """Return a code per GPU's row, the same for GPUs that one job has to itself; others 0."""
    return whole_numbers(window.of_allocations(rows, _job))


def _job(_: Subject, allocations: tuple[Allocation, ...] | None) -> float:
    held = held_alone(allocations)
    return np.nan if held is None else float(number(holder_key(held)))


def held_since(_: Subject, allocations: tuple[Allocation, ...] | None) -> float:
    held = held_alone(allocations)
    return np.nan if held is None else micros(held.started_at)


def held_alone(allocations: tuple[Allocation, ...] | None) -> Allocation | None:
    """Return the allocation of the job that has a GPU to itself, None without one."""
    held = [a for a in allocations or () if a.ended_at is None]
    one = held[0] if len(held) == 1 else None
    if one is None or one.part is not None or one.holder.kind is not HolderKind.JOB:
        return None
    return one
