"""Step reports of the programs on the fleet's GPUs, in the fields of `collector/sensors/steps.py`.

A step takes as long as its slowest rank: each works by itself at its GPU's clock and speed, then all wait
and communicate. While a job pauses, or a rank does nothing, no step ends. A program reports all of this,
only its pauses, only its steps, or nothing, as its author wrote it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .chance import Bits, Dice, Floats, bell, lane, mix
from .changes import FOREVER, Change, Quantity
from .holding import COLLECTIVE, INPUT, STAGES, STOPPED, WORK, RequestedLoad
from .jobs import Job
from .sensors import Numbers
from .workloads import Rhythm

FIELDS = (
    "step", "step_age_seconds", "step_p99_seconds", "rank", "step_seconds", "step_own_seconds",
    "step_own_first_seconds", "step_input_seconds", "checkpoint_age_seconds", "step_phase",
    "step_phase_seconds", "rank_gone_seconds",
)  # fmt: skip
# Deviations of the medians of five steps: of a rank's own work, and of the job's steps [chosen].
_OWN_SPREAD, _STEP_SPREAD, _INPUT_SPREAD = 0.006, 0.01, 0.08
# The 99th percentile over the median, in a job without delays [chosen].
_TAIL = 1.25
# A program takes the percentile over this many steps, so it misses rarer pauses; see `gpuvigil.steps`.
_KEPT, _WARM_STEPS = 1000.0, 25.0
GONE_SECONDS = 600.0
# A collector reports a gone rank this long after it went, whatever its ticks.
EARLY_SECONDS = 3.0


class ReportLevel(IntEnum):
    """How much a program reports."""

    NOTHING = 0
    STEPS = 1
    PAUSES = 2  # and its input
    OWN = 3  # and its own work


# The shares of programs [chosen].
_SHARES = (
    (ReportLevel.NOTHING, 0.2),
    (ReportLevel.STEPS, 0.12),
    (ReportLevel.PAUSES, 0.18),
    (ReportLevel.OWN, 0.5),
)


def report_level(job: Job) -> ReportLevel:
    """Return how much the programs of a job report."""
    if job.workload.rhythm is None or len(job.gpus) < 2:
        return ReportLevel.NOTHING
    dice = Dice("tells", job.key)
    said: ReportLevel = dice.pick([it for it, _ in _SHARES], [share for _, share in _SHARES])
    if said is ReportLevel.OWN and not job.workload.rhythm.own_told:
        return ReportLevel.PAUSES
    return said


def step_seconds(job: Job) -> float | None:
    """Return the length of a step without delays; None for a job that makes none."""
    if job.workload.rhythm is None:
        return None
    low, high = job.workload.rhythm.seconds
    return Dice("rhythm", job.key).of(((0.0, low), (0.6, 0.7 * low + 0.3 * high), (1.0, high)))


def makes_steps_from(job: Job, seconds: float) -> float:
    """Return the first moment from then on at which the job does not pause."""
    work = job.workload
    pauses = [(work.checkpoint_every, work.checkpoint_seconds),
              (work.evaluate_every, work.evaluate_seconds),
              (work.stall_every, work.stall_seconds)]  # fmt: skip
    left = [length - _into(job, seconds, every) for every, length in pauses if every < FOREVER]
    longest = max(left, default=0.0)
    # A pause may begin within another. Rounding may leave less than a microsecond of one that is over.
    return seconds if longest < 1e-6 else makes_steps_from(job, seconds + longest)


def _into(job: Job, seconds: Any, every: float) -> Any:
    """Return the time since the last start of something with that period."""
    shift = float(lane(np.array([job.key], dtype=np.uint64), 1)[0])
    return np.mod(seconds - job.start + shift * every, every)


@dataclass(slots=True)
class _Job:
    """The state of a job that outlives a block."""

    job: Job
    tells: ReportLevel
    rhythm: Rhythm
    base: float  # seconds of a step without delays
    dealt: Floats  # factor on each rank's work
    steps: float
    ended: float = np.nan
    length: float = np.nan
    at_ease: bool = False  # a pause that began before a rank stopped still goes on
    input: Floats | None = None
    own: Floats | None = None
    first: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranks:
    """One job's part of a block: [ticks x ranks], or per tick."""

    seconds: Floats
    tick: float
    bits: Bits
    common: Bits
    pace: Floats  # of the ranks' own work: the GPU's clock and speed
    slower: Floats  # the job's own slowdown
    fabric: Floats  # the remaining share of the fabric
    pause: NDArray[np.int64]
    phase: Floats  # phase in which a fault holds each rank, counted from 1
    gone: Floats
    runs: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The load of all GPUs in a block, and the effects of changes on it: [ticks x GPUs]."""

    asked: RequestedLoad
    clock: Floats
    bent: dict[str, Floats]  # speed, and the effects on work and on ranks
    seconds: Floats
    tick: float
    bits: Bits


class StepSensors:
    """The step sensors of all jobs of the plan; blocks come in order."""

    def __init__(self, jobs: Sequence[Job], changes: Sequence[Change]) -> None:
        self._jobs = jobs
        self._stops = [
            c for c in changes if c.on in {Quantity.STEPS, Quantity.WORK} and c.name in _HOLDS
        ]
        self._known: dict[int, _Job | None] = {}

    def read(self, stretch: Stretch) -> Numbers:
        """Return the reported fields of every GPU, and remove pauses that no longer begin from what is asked."""
        found = {name: np.full(stretch.asked.job.shape, np.nan) for name in FIELDS}
        here = np.unique(stretch.asked.job)
        for number in here[here < len(self._jobs)].tolist():
            one = self._of(number, stretch.seconds[0])
            if one is None:
                continue
            gpus = np.array(one.job.gpus)
            part = np.ix_(np.flatnonzero(stretch.asked.job[:, gpus[0]] == number), gpus)
            ranks = _ranks(one, stretch, part)
            # A node does not write its checkpoint data while a rank holds the checkpoint up.
            stretch.asked.pause[part] = ranks.pause[:, None]
            for name, values in _told(one, ranks, _course(one, ranks, self._begun(one))).items():
                found[name][part] = values
        return {name: values for name, values in found.items() if not np.isnan(values).all()}

    def _of(self, number: int, at: float) -> _Job | None:
        if number not in self._known:
            self._known[number] = _new(self._jobs[number], at)
        return self._known[number]

    def _begun(self, one: _Job) -> list[float]:
        """Return when the job's ranks begin to do nothing."""
        mine = set(one.job.gpus)
        return [c.start for c in self._stops if not mine.isdisjoint(c.targets)]


def _new(job: Job, at: float) -> _Job | None:
    said, rhythm = report_level(job), job.workload.rhythm
    if rhythm is None or said is ReportLevel.NOTHING:
        return None
    base = step_seconds(job) or 1.0
    stage = np.arange(len(job.gpus)) * STAGES // len(job.gpus)
    cut = np.array(rhythm.dealt or (1.0,) * STAGES)
    ran = max(at - job.start - job.workload.startup_seconds, 0.0)
    dealt = cut[np.clip(stage, 0, STAGES - 1)]
    return _Job(job=job, tells=said, rhythm=rhythm, base=base, dealt=dealt, steps=ran / base)


def _ranks(one: _Job, stretch: Stretch, part: Any) -> _Ranks:
    at, job, bent = stretch.seconds[part[0][:, 0]], one.job, stretch.bent
    begun = at - job.start >= job.workload.startup_seconds
    alive = at < (np.inf if job.stopped is None else job.stopped)
    still = np.any([bent[name][part] > 0.0 for name in _HOLDS], axis=(0, 2))
    pause = _open(one, stretch.asked.pause[part][:, 0], still)
    bits = stretch.bits[part]
    return _Ranks(
        seconds=at,
        tick=stretch.tick,
        bits=bits,
        common=mix(bits[:, 0], 97),
        pace=stretch.clock[part] * bent["speed"][part],
        slower=bent["pace"][part].min(axis=1),
        fabric=1.0 - bent["wait"][part].max(axis=1),
        pause=pause,
        phase=bent["phase"][part],
        gone=bent["gone"][part],
        runs=begun & alive & ~still & (pause == WORK),
    )


def early_looks(changes: Sequence[Change], seconds: Floats, tick: float) -> list[Change]:
    """Return the changes in which a rank goes within these ticks."""
    begun = seconds[0], seconds[-1] + tick
    gone = [c for c in changes if c.on is Quantity.STEPS and c.name == "gone"]
    return [c for c in gone if begun[0] <= c.start < begun[1]]


def _open(one: _Job, pause: NDArray[np.int64], still: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the pauses: none begins while a rank does nothing, since the others wait for it."""
    if not still.any():
        one.at_ease = bool(pause[-1])
        return pause
    found = pause.copy()
    for tick, (pauses, stands) in enumerate(zip(pause.tolist(), still.tolist(), strict=True)):
        one.at_ease = bool(pauses) and (one.at_ease or not stands)
        found[tick] = pauses if one.at_ease else WORK
    return found


_HOLDS = frozenset({"spin", "stall", "phase"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """The progress of a job's steps: [ticks x ranks], or per tick."""

    own: Floats
    waits: Floats  # waits for input
    length: Floats
    reached: Floats  # steps made, including the part of the current one
    ended: Floats  # end of the last step


def _work(one: _Job, ranks: _Ranks) -> tuple[Floats, Floats, Floats]:
    """Return a rank's own work, its wait for input, and the length of the job's steps, where it makes any."""
    rhythm = one.rhythm
    own = one.base * rhythm.own * one.dealt * (1.0 + _OWN_SPREAD * bell(ranks.bits))
    if rhythm.uneven:
        own = own * np.maximum(1.0 + rhythm.uneven * bell(mix(ranks.bits, 101)), 0.4)
    own = own / np.maximum(ranks.pace, 0.05) / ranks.slower[:, None]
    waits = one.base * rhythm.input * (1.0 + _INPUT_SPREAD * bell(mix(ranks.bits, 103)))
    talks = one.base * max(1.0 - rhythm.passes * rhythm.own - rhythm.input, 0.03)
    slowest = (rhythm.passes * own + waits).max(axis=1)
    length = slowest + talks / np.maximum(ranks.fabric, 0.05)
    return own, waits, length * (1.0 + _STEP_SPREAD * bell(ranks.common))


def _course(one: _Job, ranks: _Ranks, held: Sequence[float]) -> _Course:
    """Go through the ticks of a block; `held` are the moments at which a rank begins to do nothing."""
    own, waits, length = _work(one, ranks)
    reached = one.steps + np.cumsum(np.where(ranks.runs, ranks.tick / length, 0.0))
    length = _kept(length, ranks.runs, one.length)
    into = (reached - np.floor(reached)) * length
    ended, moved = ranks.seconds - into, ranks.runs.copy()
    for start in held:
        # The last step before a rank stopped, within its tick.
        just = (ranks.seconds >= start) & (ranks.seconds < start + ranks.tick)
        just &= ~ranks.runs & (ranks.pause == WORK)
        ended = np.where(just, start - into, ended)
        moved |= just
    found = _Course(
        own=_kept(own, ranks.runs, one.own),
        waits=_kept(waits, ranks.runs, one.input),
        length=length,
        reached=reached,
        ended=_kept(ended, moved, one.ended),
    )
    warm = (reached > _WARM_STEPS) & ranks.runs
    if one.first is None and warm.any():
        one.first = found.own[np.argmax(warm)].copy()
    one.steps, one.ended, one.length = (float(it[-1]) for it in (reached, found.ended, length))
    one.own, one.input = found.own[-1].copy(), found.waits[-1].copy()
    return found


def _told(one: _Job, ranks: _Ranks, course: _Course) -> dict[str, Any]:
    """Return what the ranks of a job report at these ticks."""
    size, reached = ranks.pace.shape, course.reached
    knows = ((reached >= 1.0) & ~np.isnan(course.ended))[:, None]
    phase, since = _phases(one, ranks, course)
    numbers = np.broadcast_to(np.arange(size[1], dtype=np.float64), size)

    def told(values: Any, least: ReportLevel = ReportLevel.STEPS) -> Floats:
        full = np.broadcast_to(values if np.ndim(values) == 2 else values[:, None], size)
        lively = knows & (ranks.gone <= 0.0) & (one.tells >= least)
        return np.where(lively, np.round(full, 4), np.nan)

    found = {
        "step": told(np.floor(reached)),
        "step_age_seconds": told(np.maximum(ranks.seconds - course.ended, 0.0)),
        "step_p99_seconds": told(_longest(one, course.length)),
        "step_seconds": told(course.length),
        "step_own_seconds": told(course.own, ReportLevel.OWN),
        "step_input_seconds": told(course.waits, ReportLevel.PAUSES),
        "checkpoint_age_seconds": told(_saved(one.job, ranks.seconds), ReportLevel.PAUSES),
        # The kernel reports for any process that it is stopped.
        "step_phase": told(
            np.where((phase == STOPPED) | (one.tells >= ReportLevel.PAUSES), phase, np.nan)
        ),
        "step_phase_seconds": told(np.where(phase == STOPPED, np.nan, since), ReportLevel.PAUSES),
    }
    if one.first is not None:
        first = np.where(reached[:, None] > _WARM_STEPS, one.first, np.nan)
        found["step_own_first_seconds"] = told(first, ReportLevel.OWN)
    gone = knows & (ranks.gone > 0.0) & (ranks.gone < GONE_SECONDS)
    found["rank_gone_seconds"] = np.where(gone, np.round(ranks.gone, 3), np.nan)
    found["rank"] = np.where(gone, numbers, told(numbers))
    return found


def _kept(values: Floats, here: NDArray[np.bool_], before: Any) -> Floats:
    """Return each current value, or else the last current one before it."""
    last = np.maximum.accumulate(np.where(here, np.arange(len(here)), -1))
    kept: Floats = values[np.maximum(last, 0)]
    old = np.nan if before is None else before
    shaped = last < 0 if kept.ndim == 1 else (last < 0)[:, None]
    return np.where(shaped, old, kept)


def _phases(one: _Job, ranks: _Ranks, course: _Course) -> tuple[Floats, Floats]:
    """Return the phase of each rank, and how long it has been in it."""
    into, waits, own = (ranks.seconds - course.ended)[:, None], course.waits, course.own
    works = np.where(into < waits, INPUT, np.where(into < waits + own, WORK, COLLECTIVE))
    since = into - np.where(works == INPUT, 0.0, np.where(works == WORK, waits, waits + own))
    if one.tells is not ReportLevel.OWN:
        # Nobody reports where a rank's own work ends.
        works = np.where(works == COLLECTIVE, WORK, works)
        since = np.where(works == WORK, into - waits, since)
    paused, held = ranks.pause[:, None] > 0, ranks.phase > 0.0
    works = np.where(held, ranks.phase - 1.0, np.where(paused, ranks.pause[:, None], works))
    since = np.where(held | paused, into - 0.5 * course.length[:, None], since)
    return works.astype(np.float64), np.maximum(since, 0.0)


def _longest(one: _Job, length: Floats) -> Floats:
    """Return the 99th percentile of a job's last steps, with the pauses that it does not report."""
    work = one.job.workload
    pauses = [(work.stall_every, work.stall_seconds)]
    if one.tells is ReportLevel.STEPS:
        pauses += [(work.checkpoint_every, work.checkpoint_seconds),
                   (work.evaluate_every, work.evaluate_seconds)]  # fmt: skip
    usual = _TAIL * length
    for every, seconds in pauses:
        often = (every < FOREVER) & (every / length < _KEPT / 10.0)
        usual = np.where(often, np.maximum(usual, seconds), usual)
    return usual


def _saved(job: Job, seconds: Floats) -> Floats:
    """Return how long ago the last checkpoint was written."""
    every, length = job.workload.checkpoint_every, job.workload.checkpoint_seconds
    if every >= FOREVER or length <= 0.0:
        return np.full(len(seconds), np.nan)
    since, place = seconds - job.start, _into(job, seconds, every)
    age = np.where(place >= length, place - length, place + every - length)
    return np.where(age <= since - job.workload.startup_seconds - length, age, np.nan)
