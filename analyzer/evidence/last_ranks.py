"""Ranks that come last to their job's collectives: whether they are slow, or have more work.

If a rank's clock is lower than the others' and explains how long they wait, its GPU is to blame. A
rank that did not come last when the job was young has become slow, whatever the cause. One that
always did and draws less than the others, which spin while they wait, is slow, too: a rank with
more work draws no less.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

import numpy as np

from gpuvigil.model import Collective, Subject

from ..window.columns import Codes, Floats, Mask, combined_codes, models, per_group
from ..window.rows import Rows
from ..window.window import Span, Window
from . import draws_least, own_steps
from .job_pace import PEERS, jobs
from .waits import firsts

# How much longer than in the young job the others must wait for a rank, in thousandths of the job's
# time [ours].
LEAST_TURNED = 25
# A rank is reported at the second of two looks, and was not last at the look before these: so it
# began, to within half a look, half a look before the time that was read at the first of them. The
# second comes sooner where little was read.
_BETWEEN_LOOKS, _TO_SECOND = timedelta(seconds=60.0), timedelta(seconds=30.0)
_TIMES_READ = 1.2
_MOST_SECONDS = 86_400


class Why(Enum):
    """The reason why a rank comes last; the first one that is true counts."""

    CLOCK = "clock"
    TURNED = "turned"
    BEGUN = "begun"
    UNKNOWN = "unknown"


LAST_TITLES = {
    Why.CLOCK: "GPU slows its job down: its rank comes last to collectives at a lower clock",
    Why.TURNED: "A rank of the job has become slow: the others wait for it in collectives",
    Why.BEGUN: "A rank of the job has been slow since it began: the others wait for it in collectives",
    Why.UNKNOWN: "A rank of the job comes last to its collectives: the others wait for it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRank:
    """One rank that its job's others wait for."""

    since: datetime
    of: Collective
    why: Why
    clock: float  # distance from its job's median, as a logarithm; NaN if unknown


def last_ranks(window: Window, _asked: None = None) -> Mapping[Subject, LastRank]:
    """Return the ranks that come last to their job's collectives, by GPU.

    A GPU is left out if its job began after the report, or if its own work is like the others' by
    now.
    """
    told = {
        gpu: it
        for gpu, it in window.once(firsts, None).items()
        if any(held.started_at <= it[0] for held in window.held(gpu))
    }
    if not told:
        return {}
    rows = window.get("gpu", Span.NOW)
    job = combined_codes(jobs(window, rows), models(window, rows))
    clocks, as_others = _clocks(window, rows, job), _work_as_others(window, rows, job)
    found = {}
    for gpu, (at, of) in told.items():
        place = rows.index.number(gpu)
        if place is not None and as_others[place]:
            continue
        clock, is_lower = (np.nan, False) if place is None else clocks[place]
        is_cause = is_lower and _explains(float(clock), of)
        why = Why.CLOCK if is_cause else _why(window, gpu, of)
        since = _since(window, gpu, at, of, why)
        if place is not None and not np.isnan(rows.values(own_steps.OWN)[place]):
            # Its own work says it better, and an incident keeps the earliest that it was told: no sooner than is certain.
            since = min(at, since + 0.5 * _BETWEEN_LOOKS)
        found[gpu] = LastRank(since=since, of=of, why=why, clock=float(clock))
    return found


def _since(window: Window, gpu: Subject, at: datetime, of: Collective, why: Why) -> datetime:
    begun = min(held.started_at for held in window.held(gpu))
    if why is Why.BEGUN:
        return begun
    read = timedelta(seconds=min(of.seconds or 0, _MOST_SECONDS))
    second = min(max(_TO_SECOND, _TIMES_READ * read), _BETWEEN_LOOKS)
    return max(begun, at - second - 0.5 * _BETWEEN_LOOKS - read)


def _clocks(window: Window, rows: Rows, job: Codes) -> list[tuple[float, bool]]:
    """Return each GPU's clock beside its job's, as a logarithm, and whether it is lower."""
    hertz = window.get("gpu", Span.RECENT).beside(rows, own_steps.CLOCK.column)
    clock: Floats = np.log(np.where((job != 0) & (hertz > 0.0), hertz, np.nan))
    usual, count = per_group(job, clock)
    slower = clock - usual
    lower = own_steps.runs_lower(job, slower, count) & (count >= PEERS)
    return list(zip(slower.tolist(), lower.tolist(), strict=True))


def _work_as_others(window: Window, rows: Rows, job: Codes) -> Mask:
    """Tell which ranks' own work is like their job's others'.

    Their last steps differ by less than counts as a change, the last minute by less than half of
    that. This also holds while the job pauses: a report from before a rank came back is no news
    then.
    """
    seconds = (
        rows.values(own_steps.OWN),
        window.get("gpu", Span.RECENT).beside(rows, own_steps.OWN_LATELY),
    )
    own = np.log(np.stack([np.where((job != 0) & (it > 0.0), it, np.nan) for it in seconds]))
    usual, count = per_group(job, own)
    now, lately = own - usual
    least = np.log1p(own_steps.LEAST_CHANGE)
    found: Mask = (now < least) & (lately < least / 2.0) & (count[0] >= PEERS)
    return found


def _explains(clock: float, of: Collective) -> bool:
    """Tell whether a lower clock explains the others' wait, or its growth since the job was young.

    True if it is unknown how long they wait.
    """
    if of.cost is None:
        return True
    return -1000.0 * clock >= own_steps.EXPLAINED * (_grown(of) or of.cost)


def _grown(of: Collective) -> int | None:
    """Return how much more the others wait than in the young job, in thousandths of the job's time.

    None if it is less than `LEAST_TURNED`, or unknown.
    """
    grown = None if of.cost is None or of.cost_before is None else of.cost - of.cost_before
    return grown if grown is not None and grown >= LEAST_TURNED else None


def _why(window: Window, gpu: Subject, of: Collective) -> Why:
    if _grown(of) is not None:
        return Why.TURNED
    found = window.once(draws_least.power_among_peers, None)
    place = None if found is None else found.rows.index.number(gpu)
    is_less = found is not None and place is not None and bool(found.less[place])
    return Why.BEGUN if is_less else Why.UNKNOWN
