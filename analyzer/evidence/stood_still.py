"""Jobs that stand still: all of their GPUs worked for hours, fell to 0 %, and their processes live on.

A program that waits for ever for a lock, a message or a file runs no kernel, and no GPU of it differs from the
others. That it worked all the time, and that none of its GPUs did anything since, is all that tells.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from accounting.efficiency.on_call import is_on_call
from gpuvigil.clock import EPOCH, micros
from gpuvigil.model import Allocation, Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import Floats, Mask, divided, means_before, seconds
from ..window.fault_kinds import STALLED_JOBS
from ..window.holdings import holder_key
from ..window.rows import Rows
from ..window.window import Need, Span, Window
from .held_up import HeldUp
from .job_pace import held_since
from .job_steps import AGE
from .power import least_at_work, limits

_PROCESSES = "compute_processes"
_BUSY = Aggregate(function=Function.MAX, field="utilization_percent")
_ALSO_BUSY = tuple(
    Aggregate(function=Function.MAX, field=field)
    for field in ("sm_activity_percent", "memory_utilization_percent")
)
_USED = Aggregate(function=Function.MEAN, field="utilization_percent")
_WATTS = Aggregate(function=Function.MEAN, field="power_watts")
_LIMIT = Aggregate(function=Function.MAX, field="power_limit_watts")
NEEDS = (
    Need(measurement="gpu", span=Span.NOW, fields=(_PROCESSES, AGE)),
    Need(measurement="gpu", span=Span.RECENT, aggregates=(_BUSY,)),
    Need(measurement="gpu", span=Span.STEADY, aggregates=(_BUSY, *_ALSO_BUSY, _WATTS)),
    Need(measurement="gpu", span=Span.TREND, aggregates=(_USED, _LIMIT)),
    Need(measurement="gpu", span=Span.UNDERUSED, aggregates=(_USED,)),
)

# Used for so much of the hours before: one that pauses, as many do, rests for that long. For so much of the trend
# span it has done nothing since, twenty minutes of half an hour: checkpoints and evaluations take a few [ours].
_WORKED_PERCENT, _STOOD, _COVERAGE = 80.0, 2.0 / 3.0, 0.8
# What one GPU's program does between two kernels is its own; that all ranks of a job do nothing is none of their turns.
_LEAST_GPUS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Still:
    """A job that stands still."""

    held: Allocation
    gpus: tuple[Subject, ...]
    since: datetime
    used: float  # in the hours before, in percent


def stood_still(window: Window) -> list[Still]:
    """Each job of which every GPU stands still, and that tells of no steps, waits for nobody and is held up by no incident."""
    rows = window.get("gpu", Span.TREND)
    if not len(rows):
        return []
    before = _before(window, rows)
    share = 1.0 - divided(rows.values(_USED.column), before)
    mask = _rests(window, rows) & (before >= _WORKED_PERCENT) & (share >= _STOOD)
    if not mask.any():
        return []
    jobs: dict[str, list[int]] = defaultdict(list)
    for place in np.flatnonzero(mask).tolist():
        (held,) = window.held(rows.subjects[place])
        jobs[holder_key(held)].append(place)
    held_up = _held_up(window, rows)
    return [
        _still(window, rows, places, before, share)
        for key, places in sorted(jobs.items())
        if _is_whole(window, key, [rows.subjects[place] for place in places], held_up)
    ]


def goes_on(window: Window, incident: Incident) -> bool:
    """Whether a job that stood still has its GPUs still, and none of them does anything to this minute."""
    rows = window.get("gpu", Span.RECENT)
    them = (Subject.parse(key) for key in {incident.subject.key, *incident.members})
    most = [
        row[_BUSY.column]
        for gpu in them
        if any(one.started_at <= incident.since for one in window.held(gpu))
        and (row := rows.get(gpu)) is not None
        and row[_BUSY.column] is not None
    ]
    return bool(most) and max(most) < window.settings.idle_below_percent


def _before(window: Window, rows: Rows) -> Floats:
    """What each was used in the mean of the hours before the trend span; NaN where those were not measured."""
    long = window.get("gpu", Span.UNDERUSED)
    used = means_before(rows, long, (_USED.column,))[_USED.column]
    whole = seconds(long, rows) >= _COVERAGE * window.settings.underused_after_seconds
    return np.where(whole, used, np.nan)


def _rests(window: Window, rows: Rows) -> Mask:
    """Of each row whether its GPU did nothing over the steady span, for a job whose process lives and that has it since
    before the trend span.
    """
    settings, steady = window.settings, window.get("gpu", Span.STEADY)
    limit = settings.idle_below_percent
    rests: Mask = steady.beside(rows, _BUSY.column) < limit
    for other in _ALSO_BUSY:
        rests &= ~(steady.beside(rows, other.column) >= limit)
    least = least_at_work(limits(window, rows, _LIMIT.column))
    rests &= ~(steady.beside(rows, _WATTS.column) >= least)
    rests &= ~(window.get("gpu", Span.NOW).beside(rows, _PROCESSES) == 0)
    for span, length in ((steady, settings.steady_seconds), (rows, settings.trend_seconds)):
        rests &= seconds(span, rows) >= _COVERAGE * length - window.ticks(rows)
    begun = micros(window.now) - 2.0 * settings.trend_seconds * 1e6
    rests &= window.of_allocations(rows, held_since) <= begun
    return rests


def _is_whole(window: Window, key: str, gpus: Collection[Subject], held_up: HeldUp) -> bool:
    holding = window.holdings.get(key)
    if holding is None or holding.gpus != frozenset(gpus) or len(gpus) < _LEAST_GPUS:
        return False
    (held,) = window.held(next(iter(gpus)))
    now = window.get("gpu", Span.NOW)
    tells = any(row is not None and row[AGE] is not None for row in map(now.get, gpus))
    return not (tells or is_on_call(held) or held_up.has(held))


def _held_up(window: Window, rows: Rows) -> HeldUp:
    """By anything but that its job stands still."""
    others = tuple(one for one in window.stood if one.fault not in STALLED_JOBS)
    span = window.settings.trend_seconds
    return HeldUp.over(replace(window, stood=others), span, lambda: _measured(window, rows))


def _measured(window: Window, rows: Rows) -> set[str]:
    """Keys of nodes with a GPU that was measured over the trend span."""
    whole = seconds(rows) >= _COVERAGE * window.settings.trend_seconds - window.ticks(rows)
    return {gpu.of_node().key for gpu, _ in rows.where(whole)}


def _still(window: Window, rows: Rows, places: list[int], before: Floats, share: Floats) -> Still:
    gpus = tuple(sorted(rows.subjects[place] for place in places))
    (held,) = window.held(gpus[0])
    # The last of them to stop says how long the job has stood.
    least = float(share[places].min())
    last = EPOCH + timedelta(microseconds=float(rows.values("last_at")[places].max()))
    return Still(
        held=held,
        gpus=gpus,
        since=last - timedelta(seconds=least * window.settings.trend_seconds),
        used=float(before[places].min()),
    )
