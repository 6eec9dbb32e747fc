"""Whether a job goes on at its pace since a fault began that may slow it down.

The pace is that of its GPUs (`job_pace.py`): their steps, their traffic, or what their multiprocessors do.
"""

from datetime import datetime, timedelta

import numpy as np

from gpuvigil.clock import micros

from ..window.columns import Floats
from ..window.holdings import Holding
from ..window.rows import Rows
from ..window.window import Span, Window
from .job_pace import held_since, means_earlier, means_of, pace_between

# A pace within this share of the earlier one counts as the same [ours].
SAME = 0.05
# The share of a job's GPUs that must be measured [ours].
_MOST = 0.5
# The earlier pace may include up to this share of time since the fault began [ours].
_SINCE = 0.25


def keeps_pace(window: Window, job: Holding, since: datetime, has_kept: bool) -> bool:
    """Return whether the job's pace is known to be what it was before `since`.

    That is measured from a minute after it on, and only while the time before lies within what a pass looks at;
    `has_kept`: an earlier pass has found it so, then the pace needs only to stay.
    """
    whole = window.whole or window
    limits, age = whole.settings, whole.now - since
    longest = limits.steady_seconds + _SINCE * (limits.trend_seconds - limits.steady_seconds)
    if age < timedelta(seconds=limits.window_seconds):
        return False
    if age > timedelta(seconds=longest) and not has_kept:
        return False
    lately = age < timedelta(seconds=limits.steady_seconds)
    change = whole.once(_change_of, (job, Span.RECENT if lately else Span.STEADY))
    return change is not None and abs(change) <= SAME


def _change_of(window: Window, asked: tuple[Holding, Span]) -> float | None:
    """Return by which share the job's pace differs from that before the steady span; None if too little is known."""
    job, now = asked
    rows, changes = window.once(_changes, now)
    if not len(rows):
        return None
    numbers = [it for gpu in job.gpus if (it := rows.index.number(gpu)) is not None]
    known = changes[np.array(numbers, np.int64)]
    known = known[np.isfinite(known)]
    if not len(known) or len(known) < _MOST * len(job.gpus):
        return None
    return float(np.expm1(np.median(known)))


def _changes(window: Window, now: Span) -> tuple[Rows, Floats]:
    """Return the change of each GPU's pace, of those that one job has had to itself all the time."""
    rows, long = window.get("gpu", Span.STEADY), window.get("gpu", Span.TREND)
    if not len(rows) or not len(long):
        return rows, np.full(len(rows), np.nan)
    try:
        pace = pace_between(means_of(rows, window.get("gpu", now)), means_earlier(rows, long))
    except KeyError:  # no detector in use has asked for it
        return rows, np.full(len(rows), np.nan)
    begun = micros(window.now) - window.settings.trend_seconds * 1e6
    return rows, np.where(window.of_allocations(rows, held_since) <= begun, pace, np.nan)
