"""How long each rank of a job works by itself in a step, beside the others, and beside what it did at first.

All ranks end a step together, so its length tells of none of them; what each does before it first
waits for the others does, and the one that they wait for waits least. A lower clock than theirs is
its GPU, where it explains what its rank takes longer. Without one, a rank that took no longer at first
has other data, or its node gives it less: nobody can tell which. One that did from the beginning has
more to do, as the model is cut, and its GPU works the more for it; where that draws less than the
others, it is the rank that is slow. Where it is another one each time it is data that differ.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.clock import EPOCH, micros
from gpuvigil.model import Evidence
from gpuvigil.store import Aggregate, Function

from ..window.columns import (
    Codes,
    Floats,
    Mask,
    counted,
    divided,
    models,
    most,
    per_group,
    seconds,
    together,
)
from ..window.rows import Rows
from ..window.window import Need, Span, Window
from . import job_steps
from .job_pace import held_since, jobs

OWN, FIRST, INPUT, STEP = (
    "step_own_seconds",
    "step_own_first_seconds",
    "step_input_seconds",
    "step_seconds",
)
_MEAN, _COUNT = (
    Aggregate(function=function, field=OWN) for function in (Function.MEAN, Function.COUNT)
)
_LEAST_OWN, _MOST_OWN = (
    Aggregate(function=function, field=OWN) for function in (Function.MIN, Function.MAX)
)
OWN_LATELY = _MEAN.column
CLOCK = Aggregate(function=Function.MEAN, field="sm_clock_hertz")
_WATTS = Aggregate(function=Function.MEAN, field="power_watts")
_PAUSED = Aggregate(function=Function.MAX, field=job_steps.PHASE)
_STEPS = Aggregate(function=Function.INCREASE, field="step")
_ASKED = (_MEAN, _COUNT, _LEAST_OWN, _MOST_OWN, CLOCK, _WATTS, _STEPS)
NEEDS = (
    Need(
        measurement="gpu",
        span=Span.NOW,
        fields=(OWN, FIRST, INPUT, STEP, "rank", job_steps.AGE, job_steps.P99),
    ),
    Need(measurement="gpu", span=Span.RECENT, aggregates=_ASKED),
    Need(measurement="gpu", span=Span.STEADY, aggregates=(*_ASKED, _PAUSED)),
    Need(measurement="gpu", span=Span.TREND, aggregates=(_MEAN, _COUNT)),
)

# Who is slow works so much longer than the middle of its job: MegaScale (NSDI 24) found about one
# machine in 200 some 10 % slow. What a rank took longer than at first, beside the others, is its own
# from half of that. And so many deviations of the others, more for few of them.
LEAST, LEAST_CHANGE = 0.1, 0.05
_DEVIATIONS, _DEVIATION_OF_MEDIAN, _FEW = 5.0, 1.4826, 6.0
# What one reading is off by is known from how far those of a span lie apart, of the job's middle rank: a
# normal distribution's range in deviations, by the number of readings (d2 of control charts,
# ASTM E2587, and Tippett, Biometrika 17, beyond 25).
# What a rank took at first is one reading. Where the last ten minutes have so many, and none is off by what is
# told of a rank, few ranks are less of a guess; where data differ they are as much.
_READINGS = (2.0, 3.0, 6.0, 12.0, 25.0, 60.0, 600.0)
_RANGES = (1.13, 1.69, 2.53, 3.26, 3.93, 4.64, 6.17)
_READING_DEVIATIONS, _ENOUGH, _LEAST_SCATTER, _FEW_KNOWN = 4.0, 12.0, 0.5, 2.0
# A reading is of five steps (`gpuvigil.steps`): those of fewer new ones are not so many, and of under two no range is
# known. What a rank took at first scatters as much: of a difference of two, both count.
_STEPS_OF_ONE, _LEAST_READINGS, _OF_TWO = 5.0, 2.0, 2.0**0.5
# So much of the least change comes at once.
_AT_ONCE = 0.75
# It does so now, by its last steps, and has for half of the recent span: data make another one slow.
_LASTS = 0.5
# What it was at first is how the work was cut, where that was half as far from the others and more.
_WAS_SO = 0.5
# Ranks of one stage scatter around the limit: with one that is beyond it are those that nearly are.
_NEARLY = 0.8
# Of its last steps alone no more is believed than twice what they were over the span.
_MOST_NOW = 2.0
# Of those that wait, a GPU draws so much more at its clock, and more than chips differ: two deviations.
LESS_POWER, _POWER_DEVIATIONS, _POWER_OF_CLOCK = 0.03, 2.0, 2.0
# A clock that is so much lower is no chance: what a short look at clocks takes for it.
LOWER_CLOCK = 0.04
# Of who was so from the beginning it is to blame where it explains half: who has more to do draws more, and runs lower
# for it at its power limit [ours].
EXPLAINED = 0.5
PEERS, _LINES = 4, 3.0
# What more of a job's ranks do together is how the work was dealt.
_MOST_SHARE = 1.0 / 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSteps:
    """Per GPU of a job whose ranks tell their own work."""

    rows: Rows  # the newest
    job: Codes
    apart: Floats  # from the middle of its job, as the logarithm of a ratio
    usual: Floats  # seconds in the middle of its job
    clock: Floats  # apart, as a logarithm
    peers: Floats
    sick: Mask  # the GPU
    turned: Mask  # the rank, whyever
    begun: Mask  # of these, those that were so from the beginning
    lasts: Mask  # for half of a steady span
    seconds: Floats  # for how long, of the recent span
    uneven: Mask  # how the work was cut
    alike: Mask
    as_first: Mask  # as the work was cut, and no slower since


def own_steps(window: Window, _asked: None = None) -> OwnSteps | None:
    """None where no rank tells its own work."""
    rows, recent = window.get("gpu", Span.NOW), window.get("gpu", Span.RECENT)
    if not len(rows) or np.isnan(rows.values(OWN)).all():
        return None
    job = together(jobs(window, rows), models(window, rows))
    known = (
        (jobs(window, rows) != 0) & (recent.beside(rows, _COUNT.column) >= _LINES) & _goes_on(rows)
    )
    own = np.where(known & (rows.values(OWN) > 0.0), rows.values(OWN), np.nan)
    now = np.log(own)
    mean = np.log(np.where(np.isnan(own), np.nan, recent.beside(rows, _MEAN.column)))
    first = np.log(np.where(rows.values(FIRST) > 0.0, rows.values(FIRST), np.nan))
    clock = np.log(np.where(np.isnan(own), np.nan, recent.beside(rows, CLOCK.column)))
    all_of = np.stack([now, mean, first, clock])
    usual, count = per_group(job, all_of)
    apart, lately, at_first, slower = all_of - usual
    scatter, few = _scatter(window, rows, job, ~np.isnan(own))
    lower = runs_lower(job, slower, count[0])
    limits = _Limits(
        job=job, count=count[0], few=few, scatter=scatter, by_clock=_by_clock(slower, lower)
    )
    waits = (count[0] >= PEERS) & _waits_least(job, rows, own)
    slow, near = waits & _far_off(limits, np.stack([apart, lately]))
    turned, as_before = _turned(
        replace(limits, scatter=_OF_TWO * scatter), np.stack([now - first, mean - first])
    )
    turned = _turned_lately(window, rows, limits, np.stack([now, mean, first]), turned)
    turned &= waits & (apart > 0.0)
    lower &= turned | (-slower >= EXPLAINED * np.fmin(apart, lately))
    was_so = ~turned & ~lower & (at_first >= _WAS_SO * apart)
    begun, draws = slow & was_so, _draws(window, rows, job, ~np.isnan(own))
    odd = (apart >= np.fmax(np.log1p(LEAST), scatter)) & (lately >= _LASTS * apart) & waits
    weak = (begun & draws_less(job, draws)) | (odd & was_so & _draws_least(job, draws))
    stands_out = turned | weak | (slow & lower)
    # Of others that were so from the beginning nothing more is known than that; of one that is, its stage is.
    uneven = near & was_so & ~weak
    uneven &= counted(job, uneven & slow) > 0
    stands_out &= counted(job, stands_out) <= _MOST_SHARE * count[0]
    return OwnSteps(
        rows=rows,
        job=job,
        apart=apart,
        usual=np.exp(usual[0]),
        clock=slower,
        peers=count[0],
        sick=stands_out & lower,
        turned=stands_out & ~lower,
        begun=weak,
        lasts=_lasts(window, rows, job, apart, np.where(weak, 0.0, _dealt(at_first, scatter))),
        # By how much of what it is now the mean has become; a rank that was always so fills the span.
        seconds=window.settings.window_seconds * _share(lately, apart),
        uneven=uneven,
        # As near as of any job is told; further away the others only differ more, as while its pace changes.
        alike=(count[0] >= PEERS)
        & (np.fmax(apart, lately) < _LASTS * np.log1p(LEAST))
        & as_before
        & ~(weak & stands_out),
        as_first=(count[0] >= PEERS) & as_before & was_so,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """By what it is judged how far a rank is from the middle of its job."""

    job: Codes
    count: Floats
    few: Floats
    scatter: Floats
    by_clock: Floats  # what a clock makes of it that is lower, and not as low as one that is told


def _turned_lately(window: Window, rows: Rows, by: _Limits, told: Floats, turned: Mask) -> Mask:
    """Who turned slow since its first steps, and did so at once, or beside what it took a while ago: in the last
    minute, or in the last ten, which hardly scatter; `told` is what each takes now, took in that minute, and at first.

    Who came back to what it took at first has not turned slow, nor is one known to that has not told it yet.
    """
    (now, mean, first), found = told, turned.copy()
    steady = np.log(
        np.where(np.isnan(now), np.nan, window.get("gpu", Span.STEADY).beside(rows, _MEAN.column))
    )
    for late, long, lately in ((Span.RECENT, Span.STEADY, mean), (Span.STEADY, Span.TREND, steady)):
        before = np.log(_before(window, rows, late, long))
        if late is Span.RECENT:
            found &= np.isnan(before) | _changed_once(by.job, now - before, before - first)
        newly = _turned(by, np.stack([now - before, lately - before]))[0]
        since_first = now if late is Span.RECENT else lately
        found |= newly & (_apart(by.job, since_first - first) >= _AT_ONCE * np.log1p(LEAST_CHANGE))
    return found


def _before(window: Window, rows: Rows, late: Span, long: Span) -> Floats:
    """What each rank took in the long span before the late one; NaN where that has few readings.

    A trend reaches back to other jobs of the GPU, of which a rank in the same place has other work.
    """
    lines, every = (window.get("gpu", it).beside(rows, _COUNT.column) for it in (late, long))
    part, whole = (window.get("gpu", it).beside(rows, _MEAN.column) for it in (late, long))
    left = every * whole - lines * part
    known = (every - lines >= _ENOUGH) & (left > 0.0)
    if long is Span.TREND:
        begin = micros(window.now) - window.settings.trend_seconds * 1e6
        known &= window.of_allocations(rows, held_since) <= begin
    found: Floats = np.where(known, left, np.nan) / np.fmax(every - lines, 1.0)
    return found


def _changed_once(job: Codes, lately: Floats, before: Floats) -> Mask:
    """Whether most of the least change came in the last minute, or before: what a rank took at first is
    one reading, and what half of it says is no more than how far that was off.
    """
    found: Mask = np.fmax(_apart(job, lately), _apart(job, before)) >= _AT_ONCE * np.log1p(
        LEAST_CHANGE
    )
    return found


def _apart(job: Codes, values: Floats) -> Floats:
    found: Floats = values - per_group(job, values)[0]
    return found


def _share(part: Floats, whole: Floats) -> Floats:
    found = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0.0)
    share: Floats = np.clip(np.nan_to_num(found), 0.0, 1.0)
    return share


def runs_lower(job: Codes, slower: Floats, count: Floats) -> Mask:
    """Whose clock is lower than its job's; where many run half as low, so are nodes of another kind or heat."""
    many = counted(job, slower <= np.log1p(-_LASTS * LOWER_CLOCK)) > _MOST_SHARE * count
    found: Mask = (slower <= np.log1p(-LOWER_CLOCK)) & ~many
    return found


def told_at(told: OwnSteps, row: int) -> datetime:
    """Since when it is so, as far back as its mean over the recent span tells."""
    at = EPOCH + timedelta(microseconds=float(told.rows.values("at")[row]))
    return at - timedelta(seconds=float(told.seconds[row]))


def own_work(told: OwnSteps, row: int, least: float) -> Evidence:
    rank = told.rows.values("rank")[row]
    of = "" if np.isnan(rank) else f"rank {rank:.0f}: "
    return Evidence(
        name="own work in a step",
        value=f"{of}{told.rows.values(OWN)[row]:.3g} s",
        limit=f"{100.0 * least:g} % more than the others",
        peers=f"{told.usual[row]:.3g} s in {told.peers[row] - 1:.0f} other ranks of the job",
    )


def of_clock(slower: float) -> tuple[Evidence, ...]:
    """In words how its clock stands beside its job's, where it is told."""
    if np.isnan(slower):
        return ()
    value = f"{100.0 * np.expm1(slower):+.1f} % beside the job's other GPUs"
    return (Evidence(name="SM clock", value=value, limit=f"-{100.0 * LOWER_CLOCK:g} %"),)


def of_clocks(slower: Floats) -> str:
    """In words what the clocks of ranks are that had more to do from the beginning."""
    is_lower = (slower <= np.log1p(-LOWER_CLOCK)).any()
    return "explain less than half of it" if is_lower else "are as the others'"


def _scatter(window: Window, rows: Rows, job: Codes, known: Mask) -> tuple[Floats, Floats]:
    """By how much one reading of a rank of the job is off, as a logarithm, and for how few a middle is a guess.

    Of the last minute, for a job that turns slower altogether scatters no more for it; of that minute no less
    is believed than half of the steady span, and all of that where the minute is of too few steps.
    """
    steady, recent = window.get("gpu", Span.STEADY), window.get("gpu", Span.RECENT)
    lately = _reading(recent, rows, job, known)
    few = per_group(job, _readings(recent, rows))[0] < _LEAST_READINGS
    usual = np.where(few, 1.0, _LEAST_SCATTER) * _reading(steady, rows, job, known)
    readings, _ = per_group(job, steady.beside(rows, _COUNT.column))
    scatter = _READING_DEVIATIONS * np.fmax(lately, usual)
    is_known = (readings >= _ENOUGH) & (lately >= usual) & (scatter <= np.log1p(LEAST))
    return scatter, np.where(is_known, _FEW_KNOWN, _FEW)


def _readings(of: Rows, rows: Rows) -> Floats:
    """How many readings a span has that are of other steps: in a pause all are one and the same, and of
    long steps most are of the same ones. All of them where no steps are counted.
    """
    count, steps = (of.beside(rows, it.column) for it in (_COUNT, _STEPS))
    works = divided(steps * rows.values(STEP), seconds(of, rows))
    found: Floats = np.fmax(np.fmin(np.fmin(count, count * works), steps / _STEPS_OF_ONE), 1.0)
    return found


def _reading(of: Rows, rows: Rows, job: Codes, known: Mask) -> Floats:
    least, most = (of.beside(rows, it.column) for it in (_LEAST_OWN, _MOST_OWN))
    there = known & (least > 0.0)
    apart = np.log(np.where(there, most, np.nan)) - np.log(np.where(there, least, np.nan))
    times = np.interp(np.log(_readings(of, rows)), np.log(_READINGS), _RANGES)
    middle, _ = per_group(job, apart / times)
    found: Floats = np.nan_to_num(middle)
    return found


def _far(job: Codes, apart: Floats, count: Floats, least: float, few: Floats) -> Floats:
    """How far from the middle of its job would be too far."""
    spread, _ = per_group(job, np.abs(apart))
    deviation = _DEVIATION_OF_MEDIAN * spread * (1.0 + few / np.fmax(count, 1.0))
    found: Floats = np.fmax(np.log1p(least), _DEVIATIONS * deviation)
    return found


def _turned(by: _Limits, changes: Floats) -> tuple[Mask, Mask]:
    """Which ranks take longer than at first while the others do not, and which do not by half as much.

    By the last steps, or by the mean of the recent span, which scatters less. A sound GPU runs at full clocks in
    its first steps, and lower ones once it is at its power limit: what these explain is no change of the rank.
    """
    apart = _apart(by.job, changes)
    far = _limits(by, apart, LEAST_CHANGE)
    apart += by.by_clock
    return _longer(apart, far), ~np.logical_or.reduce(apart >= _LASTS * far)


def _by_clock(slower: Floats, lower: Mask) -> Floats:
    """How much less its own clock lets each do, as a logarithm; nothing of a clock that is told as the GPU's."""
    found: Floats = np.where(lower, 0.0, np.fmin(np.nan_to_num(slower), 0.0))
    return found


def _far_off(by: _Limits, apart: Floats) -> Mask:
    """Who works so much longer than the middle of its job that it is slow, and who nearly does."""
    far = _limits(by, apart, LEAST)
    return np.stack([_longer(apart, far), _longer(apart, _NEARLY * far)])


def _longer(apart: Floats, limits: Floats) -> Mask:
    """Who is too far from the middle of its job, by its last steps or the recent span's mean."""
    (now, lately), (far, far_lately) = apart, limits
    soon = (now >= far) & (lately >= _LASTS * now)
    surely = (lately >= far_lately) & (now >= _LASTS * lately) & (now <= _MOST_NOW * lately)
    found: Mask = soon | surely
    return found


def _limits(by: _Limits, apart: Floats, least: float) -> Floats:
    return np.stack(
        [np.fmax(_far(by.job, it, by.count, least, by.few), by.scatter) for it in apart]
    )


def _draws(window: Window, rows: Rows, job: Codes, known: Mask) -> Floats:
    """What each GPU draws at its clock beside the middle of its job, as a logarithm: now, and for a while.

    Of who saves for the others, which spin meanwhile, that says nothing while the span has a pause.
    """
    found, pauses = [], window.get("gpu", Span.STEADY).beside(rows, _PAUSED.column)
    saves = (rows.values("rank") == job_steps.FIRST_RANK) & (pauses >= min(job_steps.PAUSES))
    known = known & ~saves
    for span in (Span.RECENT, Span.STEADY):
        of = window.get("gpu", span)
        watts, clock = (
            np.log(np.where(known & (it > 0.0), it, np.nan))
            for it in (of.beside(rows, _WATTS.column), of.beside(rows, CLOCK.column))
        )
        # Where nobody tells clocks, a lower one is what is slow, too.
        clocks = np.nan_to_num(_apart(job, clock))
        found.append(_apart(job, watts - _POWER_OF_CLOCK * clocks))
    return np.stack(found)


def draws_less(job: Codes, draws: Floats) -> Mask:
    """Whether each draws less at its clock than its job's others, and than chips differ; now, at least half of that."""
    deviation = _DEVIATION_OF_MEDIAN * per_group(job, np.abs(draws))[0]
    lately, less = draws / np.fmin(np.log1p(-LESS_POWER), -_POWER_DEVIATIONS * deviation)
    found: Mask = (lately >= _LASTS) & (less >= 1.0)
    return found


def _draws_least(job: Codes, draws: Floats) -> Mask:
    """Whether each draws less at its clock than any other of its job, whatever work these were dealt."""
    found: Mask = np.ones(len(job), dtype=bool)
    for one in draws:
        least = one == -most(job, -one)
        others = -most(job, np.where(least, np.nan, -one))
        found &= least & (one - others <= np.log1p(-LESS_POWER))
    return found


def _dealt(at_first: Floats, scatter: Floats) -> Floats:
    """How far from the middle of its job each was at first, by no more than one reading tells."""
    found: Floats = np.nan_to_num(np.sign(at_first) * np.fmax(np.abs(at_first) - scatter, 0.0))
    return found


def _lasts(window: Window, rows: Rows, job: Codes, apart: Floats, dealt: Floats) -> Mask:
    """Whether each was so far apart for half of a steady span, of which a job that is young has less.

    Beyond what it was dealt: who has more to do was as far from the middle of its job before it turned slow, and who
    has less is nearer for it.
    """
    steady, recent = window.get("gpu", Span.STEADY), window.get("gpu", Span.RECENT)
    mean = _apart(job, np.log(steady.beside(rows, _MEAN.column)))
    spans = window.settings.steady_seconds / window.settings.window_seconds
    full = spans * recent.beside(rows, _COUNT.column)
    lines = steady.beside(rows, _COUNT.column)
    longer = np.expm1(mean - dealt) * lines
    found: Mask = longer >= _LASTS * np.expm1(apart - dealt) * full
    return found


def _goes_on(rows: Rows) -> Mask:
    """Whether the rank's steps go on: of one that hangs the others' say."""
    limit = np.fmax(job_steps.STEP_SECONDS, job_steps.STEP_TIMES * rows.values(job_steps.P99))
    found: Mask = rows.values(job_steps.AGE) < limit
    return found


def _waits_least(job: Codes, rows: Rows, own: Floats) -> Mask:
    """Whether each waits for the others no longer than most; where a step's length is not told it may."""
    waits = rows.values(STEP) - own - np.nan_to_num(rows.values(INPUT))
    usual, _ = per_group(job, waits)
    found: Mask = ~(waits > usual)
    return found
