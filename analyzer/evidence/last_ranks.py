"""What else is known of ranks that come last to their job's collectives: whether they are slow, or were dealt more.

A lower clock than the others' is its GPU, where it explains how long they wait. Who did not come last when the job was
young has become slow, whatever the cause is. Who always did and draws less than the others, which spin while they wait,
is slow, too: whoever has more to do draws no less.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

import numpy as np

from gpuvigil.model import Collective, Subject

from ..window.columns import Codes, Floats, Mask, models, per_group, together
from ..window.rows import Rows
from ..window.window import Span, Window
from . import draws_least, own_steps
from .job_pace import PEERS, jobs
from .waits import firsts

# In thousandths of the job's time [ours]: more that the others wait for it than when the job was young.
LEAST_TURNED = 25
# It is told at the second of two looks, so far apart, and was not at the one before these: so it began, to half a look,
# half a look before what was read at the first of them.
_BETWEEN_LOOKS, _MOST_SECONDS = timedelta(seconds=120.0), 86_400


class Why(Enum):
    """Of several that are true the first here is told."""

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
    clock: float  # beside the middle of its job, as a logarithm; NaN where it is not told


def last_ranks(window: Window, _asked: None = None) -> Mapping[Subject, LastRank]:
    """By GPU; nothing of one whose job began after that was told, or whose own work is as the others' by now."""
    told = {
        gpu: it
        for gpu, it in window.once(firsts, None).items()
        if any(held.started_at <= it[0] for held in window.held(gpu))
    }
    if not told:
        return {}
    rows = window.get("gpu", Span.NOW)
    job = together(jobs(window, rows), models(window, rows))
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
        found[gpu] = LastRank(since=since, of=of, why=why, clock=float(clock))
    return found


def _since(window: Window, gpu: Subject, at: datetime, of: Collective, why: Why) -> datetime:
    begun = min(held.started_at for held in window.held(gpu))
    if why is Why.BEGUN:
        return begun
    read = timedelta(seconds=min(of.seconds or 0, _MOST_SECONDS))
    return max(begun, at - 1.5 * _BETWEEN_LOOKS - read)


def _clocks(window: Window, rows: Rows, job: Codes) -> list[tuple[float, bool]]:
    """How each one's clock stands beside its job's, and whether it is lower."""
    hertz = window.get("gpu", Span.RECENT).beside(rows, own_steps.CLOCK.column)
    clock: Floats = np.log(np.where((job != 0) & (hertz > 0.0), hertz, np.nan))
    usual, count = per_group(job, clock)
    slower = clock - usual
    lower = own_steps.runs_lower(job, slower, count) & (count >= PEERS)
    return list(zip(slower.tolist(), lower.tolist(), strict=True))


def _work_as_others(window: Window, rows: Rows, job: Codes) -> Mask:
    """Whose own work is as its job's others': its last steps by less than is told of a change, the last minute by half of that.

    Also while the job pauses: what was told of before a rank came back is no news then.
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
    """Whether a clock so much lower makes the others wait, or wait more than when the job was young; true where nobody
    knows how long they do.
    """
    if of.cost is None:
        return True
    return -1000.0 * clock >= own_steps.EXPLAINED * (_grown(of) or of.cost)


def _grown(of: Collective) -> int | None:
    """How much more the others wait for it than when the job was young; None where it is too little, or not known."""
    grown = None if of.cost is None or of.cost_before is None else of.cost - of.cost_before
    return grown if grown is not None and grown >= LEAST_TURNED else None


def _why(window: Window, gpu: Subject, of: Collective) -> Why:
    if _grown(of) is not None:
        return Why.TURNED
    found = window.once(draws_least.draws_least, None)
    place = None if found is None else found.rows.index.number(gpu)
    is_less = found is not None and place is not None and bool(found.less[place])
    return Why.BEGUN if is_less else Why.UNKNOWN
