"""How long each rank of a job works by itself in a step, beside the others and beside its first steps.

All ranks end a step together, so its length tells nothing about one of them. What a rank does
before it first waits for the others does, and the rank that they wait for waits least. If its clock
is lower than theirs and explains the delay, its GPU is to blame. Without a lower clock, a rank that
took no longer at first has other data, or its node gives it less: these cannot be told apart. A
rank that took longer from the beginning has more work, as the model is divided, and its GPU draws
more for it; if that draws less than the others, the rank itself is slow. If it is another rank each
time, the data are uneven.
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
    combined_codes,
    divided,
    group_count,
    group_maximum,
    models,
    per_group,
    seconds,
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

# A slow rank works this much longer than its job's median: MegaScale (NSDI 24) found about one
# machine in 200 some 10 % slow. Half of that is enough for a rank's change since its first steps,
# beside the others. It must also be this many deviations of the others, more with few of them.
LEAST, LEAST_CHANGE = 0.1, 0.05
_DEVIATIONS, _DEVIATION_OF_MEDIAN, _FEW = 5.0, 1.4826, 6.0
# The error of one reading follows from the range of a span's readings, of the job's median rank: a
# normal distribution's range in deviations, by the number of readings (d2 of control charts, ASTM
# E2587, and Tippett, Biometrika 17, beyond 25).
# A rank's time in its first steps is one reading. If the last ten minutes have enough readings, and
# none is off by as much as counts for a rank, the median of few ranks is less of a guess; with
# uneven data it is as much.
_READINGS = (2.0, 3.0, 6.0, 12.0, 25.0, 60.0, 600.0)
_RANGES = (1.13, 1.69, 2.53, 3.26, 3.93, 4.64, 6.17)
_READING_DEVIATIONS, _ENOUGH, _LEAST_SCATTER, _FEW_KNOWN = 4.0, 12.0, 0.5, 2.0
# A reading covers five steps (`gpuvigil.steps`): readings with fewer new steps count as fewer, and
# below two no range is known. The first reading scatters as much: in a difference of two readings,
# both errors count.
_STEPS_OF_ONE, _LEAST_READINGS, _OF_TWO = 5.0, 2.0, 2.0**0.5
# The share of the least change that must come at once.
_AT_ONCE = 0.75
# A slow rank is slow in its last steps and has been for half of the recent span: uneven data make
# another one slow.
_LASTS = 0.5
# The difference comes from how work is divided, if it was at least half as large at first.
_WAS_SO = 0.5
# Ranks of one stage scatter around the limit: with one beyond it go those that nearly are.
_NEARLY = 0.8
# The last steps count for at most twice the difference over the span.
_MOST_NOW = 2.0
# A slow rank's GPU draws this much less at its clock than those that wait, and less than chips
# differ: two deviations.
LESS_POWER, _POWER_DEVIATIONS, _POWER_OF_CLOCK = 0.03, 2.0, 2.0
# A clock that is lower by this much is no chance, as in a short look at clocks.
LOWER_CLOCK = 0.04
# The name of evidence that a GPU's clock gave way.
SM_CLOCK = "SM clock"
# A lower clock is to blame for a rank that was slow from the beginning if it explains half: a GPU
# with more work draws more, and runs lower for it at its power limit [ours].
EXPLAINED = 0.5
PEERS, _LINES = 4, 3.0
# What more than this share of a job's ranks do together comes from how work is divided.
_MOST_SHARE = 1.0 / 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSteps:
    """The own work of ranks, per GPU of a job whose ranks report it."""

    rows: Rows  # the newest lines
    job: Codes
    apart: Floats  # distance from its job's median, as the logarithm of a ratio
    usual: Floats  # its job's median, in seconds
    clock: Floats  # distance from its job's median clock, as a logarithm
    peers: Floats
    sick: Mask  # slow by its GPU
    turned: Mask  # slow for another reason
    begun: Mask  # of the turned ones, those that were slow from the beginning
    lasts: Mask  # slow for half of a steady span
    seconds: Floats  # for how long it has been so, within the recent span
    uneven: Mask  # slow by how work is divided
    alike: Mask
    as_first: Mask  # apart only by how work is divided, and no slower since


def own_steps(window: Window, _asked: None = None) -> OwnSteps | None:
    """Return how long ranks work by themselves; None where no rank reports it."""
    rows, recent = window.get("gpu", Span.NOW), window.get("gpu", Span.RECENT)
    if not len(rows) or np.isnan(rows.values(OWN)).all():
        return None
    job = combined_codes(jobs(window, rows), models(window, rows))
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
    # Ranks that nearly were so from the beginning count only beside one of their job that was.
    uneven = near & was_so & ~weak
    uneven &= group_count(job, uneven & slow) > 0
    stands_out &= group_count(job, stands_out) <= _MOST_SHARE * count[0]
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
        # How much of the present distance the mean shows; a rank that was always so fills the span.
        seconds=window.settings.window_seconds * _share(lately, apart),
        uneven=uneven,
        # The same limit for every job: beyond it the others may only differ more, as while the pace
        # changes.
        alike=(count[0] >= PEERS)
        & (np.fmax(apart, lately) < _LASTS * np.log1p(LEAST))
        & as_before
        & ~(weak & stands_out),
        as_first=(count[0] >= PEERS) & as_before & was_so,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """The parameters by which a rank's distance from its job's median is judged."""

    job: Codes
    count: Floats
    few: Floats
    scatter: Floats
    by_clock: Floats  # the effect of a lower clock that is not low enough to be to blame


def _turned_lately(window: Window, rows: Rows, by: _Limits, logs: Floats, turned: Mask) -> Mask:
    """Tell which ranks turned slow since their first steps at once, or beside what they took a while ago.

    A while ago is before the last minute, or before the last ten, which hardly scatter. `logs`: the
    logarithms of what each takes now, in that minute, and at first. A rank back at its first time
    has not turned slow, and one without a first time is not known to have.
    """
    (now, mean, first), found = logs, turned.copy()
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
    """Return what each rank took in the long span before the late one; NaN with few readings.

    A trend may reach back to an earlier job of the GPU, whose rank had other work.
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
    """Tell whether most of the least change came in the last minute, or before it.

    The first time is one reading, and half of a change may be no more than its error.
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
    """Tell whose clock is lower than its job's, unless many run half as low.

    Then it is another kind of node, or heat.
    """
    many = group_count(job, slower <= np.log1p(-_LASTS * LOWER_CLOCK)) > _MOST_SHARE * count
    found: Mask = (slower <= np.log1p(-LOWER_CLOCK)) & ~many
    return found


def slow_since(steps: OwnSteps, row: int) -> datetime:
    """Return since when a rank is slow, as far back as its mean over the recent span shows."""
    at = EPOCH + timedelta(microseconds=float(steps.rows.values("at")[row]))
    return at - timedelta(seconds=float(steps.seconds[row]))


def own_work(steps: OwnSteps, row: int, least: float) -> Evidence:
    rank = steps.rows.values("rank")[row]
    of = "" if np.isnan(rank) else f"rank {rank:.0f}: "
    return Evidence(
        name="own work in a step",
        value=f"{of}{steps.rows.values(OWN)[row]:.3g} s",
        limit=f"{100.0 * least:g} % more than the others",
        peers=f"{steps.usual[row]:.3g} s in {steps.peers[row] - 1:.0f} other ranks of the job",
    )


def of_clock(slower: float) -> tuple[Evidence, ...]:
    """Return evidence of a clock beside its job's, none where it is unknown."""
    if np.isnan(slower):
        return ()
    value = f"{100.0 * np.expm1(slower):+.1f} % beside the job's other GPUs"
    return (Evidence(name=SM_CLOCK, value=value, limit=f"-{100.0 * LOWER_CLOCK:g} %"),)


def of_clocks(slower: Floats) -> str:
    """Return in words how the clocks of ranks compare that had more work from the beginning."""
    is_lower = (slower <= np.log1p(-LOWER_CLOCK)).any()
    return "explain less than half of it" if is_lower else "are as the others'"


def _scatter(window: Window, rows: Rows, job: Codes, known: Mask) -> tuple[Floats, Floats]:
    """Return how far one reading of a job's rank may be off, as a logarithm, and the term for few ranks.

    The error is that of the last minute, as a job that slows down altogether scatters no more for
    it. It is at least half that of the steady span, and all of that if the minute has too few
    steps.
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
    """Return how many readings of different steps a span has; all of them if steps are not counted.

    In a pause all readings are the same one, and with long steps most are of the same steps.
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
    """Return how far from its job's median is too far, as a logarithm."""
    spread, _ = per_group(job, np.abs(apart))
    deviation = _DEVIATION_OF_MEDIAN * spread * (1.0 + few / np.fmax(count, 1.0))
    found: Floats = np.fmax(np.log1p(least), _DEVIATIONS * deviation)
    return found


def _turned(by: _Limits, changes: Floats) -> tuple[Mask, Mask]:
    """Tell which ranks take longer than at first while the others do not, and which do not by half as much.

    This is by the last steps, or by the recent span's mean, which scatters less. A sound GPU runs
    at full clocks in its first steps, and at lower ones once it is at its power limit: their effect
    is no change of the rank.
    """
    apart = _apart(by.job, changes)
    far = _limits(by, apart, LEAST_CHANGE)
    apart += by.by_clock
    return _longer(apart, far), ~np.logical_or.reduce(apart >= _LASTS * far)


def _by_clock(slower: Floats, lower: Mask) -> Floats:
    """Return the effect of a lower clock as a logarithm, 0 for a clock that is itself to blame."""
    found: Floats = np.where(lower, 0.0, np.fmin(np.nan_to_num(slower), 0.0))
    return found


def _far_off(by: _Limits, apart: Floats) -> Mask:
    """Tell which ranks work so much longer than their job's median that they are slow, or nearly are."""
    far = _limits(by, apart, LEAST)
    return np.stack([_longer(apart, far), _longer(apart, _NEARLY * far)])


def _longer(apart: Floats, limits: Floats) -> Mask:
    """Tell which ranks are too far from their job's median, by last steps or the recent span's mean."""
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
    """Return each GPU's power at its clock beside its job's median, as a logarithm, now and for a while.

    For a rank that saves while the others spin, that means nothing if the span has a pause.
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
        # Without clocks, power alone counts: a lower clock is slow, too.
        clocks = np.nan_to_num(_apart(job, clock))
        found.append(_apart(job, watts - _POWER_OF_CLOCK * clocks))
    return np.stack(found)


def draws_less(job: Codes, draws: Floats) -> Mask:
    """Tell which GPUs draw less at their clock than their job's others, by more than chips differ.

    Now it must be at least half of that.
    """
    deviation = _DEVIATION_OF_MEDIAN * per_group(job, np.abs(draws))[0]
    lately, less = draws / np.fmin(np.log1p(-LESS_POWER), -_POWER_DEVIATIONS * deviation)
    found: Mask = (lately >= _LASTS) & (less >= 1.0)
    return found


def _draws_least(job: Codes, draws: Floats) -> Mask:
    """Tell which GPU draws less at its clock than any other of its job, whatever work these have."""
    found: Mask = np.ones(len(job), dtype=bool)
    for one in draws:
        least = one == -group_maximum(job, -one)
        others = -group_maximum(job, np.where(least, np.nan, -one))
        found &= least & (one - others <= np.log1p(-LESS_POWER))
    return found


def _dealt(at_first: Floats, scatter: Floats) -> Floats:
    """Return how far from its job's median each was at first, less the error of one reading."""
    found: Floats = np.nan_to_num(np.sign(at_first) * np.fmax(np.abs(at_first) - scatter, 0.0))
    return found


def _lasts(window: Window, rows: Rows, job: Codes, apart: Floats, dealt: Floats) -> Mask:
    """Tell which ranks were as far apart for half of a steady span, in a young job for half of a full one.

    Their share of work, `dealt`, is subtracted: a rank with more work was off its job's median
    before it turned slow, and one with less is nearer to it.
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
    """Tell whether a rank's steps go on, so that it does not hang."""
    limit = np.fmax(job_steps.STEP_SECONDS, job_steps.STEP_TIMES * rows.values(job_steps.P99))
    found: Mask = rows.values(job_steps.AGE) < limit
    return found


def _waits_least(job: Codes, rows: Rows, own: Floats) -> Mask:
    """Tell which ranks wait for the others no longer than most; any may if step times are unknown."""
    waits = rows.values(STEP) - own - np.nan_to_num(rows.values(INPUT))
    usual, _ = per_group(job, waits)
    found: Mask = ~(waits > usual)
    return found
