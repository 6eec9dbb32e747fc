"""Lost GPU-hours, by who can do something about them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from accounting.queueing import reason_of
from accounting.usage import BUCKET, Bucket
from gpuvigil.faults import FAULTS, Stops
from gpuvigil.model import Incident, Job

from ..inputs.facts import Facts, SpanData
from ..model.rounding import HOUR, rounded
from ..model.sheet import Cell, Column, Kind, Sheet, exact, moved
from . import capacity
from .hit import behind, held_gpus
from .waste import Wasted

_Amount = tuple[float, float]  # lower and upper bound; equal when the amount is known


@dataclass(frozen=True, slots=True, kw_only=True)
class LostHours:
    """GPU-hours lost in one way; `hours` is None when nobody could tell."""

    key: str
    label: str
    who: str
    hours: _Amount | None
    part: bool = False  # part of the row above it
    cost: float | None = None  # at the holders' own prices; None: use the cluster's mean price


def losses(past: SpanData, rows: Sequence[Wasted]) -> tuple[LostHours, ...]:
    """Return every kind of loss in a span."""
    seconds, span = past.usage.seconds, (past.usage.start, past.usage.end)
    judged = seconds.judged > 0
    out = (seconds.lost_maintenance + seconds.lost_unknown) / HOUR
    idle = sum(one.idle for one in rows)
    blind = seconds.unattributed > 0 and seconds.allocated <= 0
    broken = capacity.faults(seconds) + seconds.lost_repair
    stopped = [min(one.held.excused, one.held.idle) for one in rows]
    return (
        LostHours(key="broken", label="broken", who="operations", hours=_one(broken / HOUR)),
        LostHours(
            key="stopped",
            label="allocated, while a fault stopped the job",
            who="operations",
            hours=_one(sum(stopped)),
            cost=_cost(rows, stopped),
        ),
        LostHours(
            key="out",
            label="out of service otherwise",
            who="operations",
            hours=_one(out) if judged else None,
        ),
        LostHours(
            key="free",
            label="not allocated",
            who="planning",
            hours=None if blind else _one(seconds.free / HOUR),
        ),
        LostHours(
            key="queued",
            label="of those, while jobs waited",
            who="scheduling",
            hours=_queued(past.usage.buckets, past.jobs),
            part=True,
        ),
        LostHours(
            key="idle",
            label="allocated but idle",
            who="users",
            hours=None if blind else (idle, idle + sum(_dark(one) for one in rows)),
            cost=_cost(rows, [one.idle for one in rows]),
        ),
        LostHours(
            key="unfilled",
            label="allocated and inefficient",
            who="programmers",
            hours=_one(sum(one.little for one in rows)) if past.wastes else None,
            cost=_cost(rows, [one.little for one in rows]),
        ),
        LostHours(
            key="network",
            label="behind a bad link",
            who="network",
            hours=(0.0, behind(filter(is_network, past.incidents), held_gpus(rows), span)),
        ),
    )


def act(now: Sequence[LostHours], before: Sequence[LostHours] | None, facts: Facts) -> Sheet:
    """Return the sheet of losses: a row per kind, in the order of a GPU's states."""
    rate = facts.mean_rate
    earlier = {one.key: one.hours for one in before or ()}
    owned = facts.usage.seconds.installed / HOUR
    rows = tuple(_row(one, _for(earlier.get(one.key), facts), owned, rate) for one in now)
    columns = (
        Column(key="kind", label="GPU-hours that were"),
        Column(key="who", label="Who can act"),
        Column(key="gpu_hours", label="GPU-hours", kind=Kind.HOURS),
        Column(key="share", label="Of owned", kind=Kind.PERCENT, bar=True),
        Column(key="cost", label=facts.currency, kind=Kind.MONEY),
        Column(key="change", label=f"vs {facts.before_word}", kind=Kind.MORE, more_is="worse"),
    )
    sheet = Sheet(
        key="losses",
        heading="What was lost, and who can act",
        caption="A range means that more cannot be known: a job behind a bad link may or may not have waited for it",
        columns=columns,
        rows=rows,
        currency=facts.currency,
    )
    return sheet if facts.priced else sheet.without(["cost"])


def _for(before: _Amount | None, facts: Facts) -> _Amount | None:
    """Return the earlier span's amount, scaled to this span's length."""
    return before and (facts.longer * before[0], facts.longer * before[1])


def _row(
    one: LostHours, before: _Amount | None, owned: float, rate: float | None
) -> tuple[Cell, ...]:
    label = f"– {one.label}" if one.part else one.label
    if one.hours is None:
        return label, one.who, None, None, None, None
    low, high = exact(one.hours[0]), exact(one.hours[1])
    known = low == high
    change = moved(low, before[0]) if known and before and before[0] == before[1] else None
    by_rate = None if rate is None else one.hours[0] * rate
    cost = by_rate if one.cost is None else one.cost
    return (
        label,
        one.who,
        low if known else (low, high),
        rounded(100 * one.hours[0] / owned, 1) if owned and known else None,
        exact(cost) if cost is not None and known else None,
        change,
    )


def is_network(incident: Incident) -> bool:
    """Return whether the incident is about a link, a port or a switch."""
    row = FAULTS.get(incident.fault)
    return incident.subject.kind == "port" or (row is not None and row.stops is Stops.SPREAD)


def lasted(one: Incident, start: datetime, end: datetime) -> float:
    """Return the hours of an incident that lie within the span."""
    until = min(one.resolved_at or end, end)
    return max((until - max(one.since, start)).total_seconds(), 0.0) / HOUR


def _cost(rows: Sequence[Wasted], hours: Sequence[float]) -> float | None:
    """Return the total cost of these hours of each holder; None when no holder has a price."""
    found = [
        of_one * one.held.price
        for one, of_one in zip(rows, hours, strict=True)
        if one.held.price is not None
    ]
    return sum(found) if found else None


def _dark(one: Wasted) -> float:
    return max(one.held.idle_most - one.held.idle, 0.0)


def _one(hours: float) -> _Amount:
    return hours, hours


def _queued(buckets: Sequence[Bucket], jobs: Sequence[Job]) -> _Amount | None:
    """Return free GPU-hours that waiting jobs asked for; None without a scheduler that reports jobs.

    The lower bound is 0, since nobody can tell afterwards whether a job could have started.
    """
    if not jobs or not buckets:
        return None
    first = buckets[0].start
    width = (buckets[-1].start - first) // BUCKET + 1
    wanted = np.zeros(width + 1)
    for job in _waiting(jobs):
        since = min(max((job.submitted_at - first) // BUCKET, 0), width)
        left = job.started_at or job.ended_at
        until = width if left is None else min(max((left - first) // BUCKET, since), width)
        wanted[since] += job.gpus or 0
        wanted[until] -= job.gpus or 0
    asked = np.cumsum(wanted) * BUCKET.total_seconds()
    free = sum(min(one.seconds.free, asked[(one.start - first) // BUCKET]) for one in buckets)
    return 0.0, float(free) / HOUR


def _waiting(jobs: Iterable[Job]) -> Iterable[Job]:
    """Return the jobs that GPUs would have helped: not those that still wait by choice."""
    return (one for one in jobs if one.state != "PENDING" or reason_of(one).wants_gpus)
