"""What each user and each team had in a span, and how it was used: pure, from usage and incidents.

A team is what schedulers call an account, under Kubernetes the namespace. *Blocked* hours are those in
which an incident kept a held GPU from computing, by the excuses of the idle rule. The times of a holder's
incidents are merged, so that two incidents about one job count once. *Idle* hours are those held at 0 %,
however short, less the blocked hours: how much of a holder's time at 0 % was within its blocked time is
not recorded, and nobody is blamed for what a fault may have caused.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gpuvigil.faults.stopping import only_slows
from gpuvigil.model import Incident

from .cost.money import Prices
from .efficiency.idle_query import held_up
from .efficiency.inefficient_hours import WasteHour
from .usage.ledger import Ledger
from .usage.ownership import NOBODY_KNOWN

_HOUR = 3600.0
# A smaller share of the held hours is no habit; less than an hour is not worth mentioning.
IDLE_SHARE, LEAST_HOURS = 0.1, 1.0
# With a smaller share of the hours of now, counting began within the span before, and nothing is compared [own].
COMPARABLE = 0.1
RELEASE = "release GPUs that idle"

Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """The GPU-hours of a user, a team, a job or all; None is not measured, or without a price."""

    held: float = 0.0
    used_percent: float | None = None
    idle: float = 0.0  # no fault explains these
    blocked: float = 0.0
    cost: float | None = None
    idle_cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A user or a team; `before` is the span before, None where too little was counted then."""

    name: str
    teams: tuple[str, ...]  # of a user
    users: tuple[str, ...]  # of a team
    now: Amounts
    before: Amounts | None
    help: str  # the most useful advice; empty where nothing stands out


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUse:
    """The usage of one holder in the span."""

    holder: str
    user: str
    team: str
    now: Amounts
    help: str
    wasted: float = 0.0  # GPU-hours of the span that the advice is about


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """The usage of one cluster in one span, those who held most first."""

    cluster: str
    span: Span
    users: Sequence[Person]
    teams: Sequence[Person]
    jobs: Sequence[JobUse]
    everybody: Person
    counted_since: datetime | None = None  # if counting began within the span


@dataclass(slots=True)
class _Sum:
    held: float = 0.0
    measured: float = 0.0
    used: float = 0.0
    idle: float = 0.0
    blocked: float = 0.0
    cost: float = 0.0
    idle_cost: float = 0.0
    priced: bool = False
    gpus: int = 0
    users: set[str] = field(default_factory=set)
    teams: set[str] = field(default_factory=set)
    helps: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def amounts(self) -> Amounts:
        return Amounts(
            held=self.held / _HOUR,
            used_percent=100 * self.used / self.measured if self.measured > 0 else None,
            idle=self.idle / _HOUR,
            blocked=self.blocked,
            cost=self.cost if self.priced else None,
            idle_cost=self.idle_cost if self.priced else None,
        )

    def help(self) -> str:
        """Return the advice that concerns most GPU-hours, held idle included."""
        return self.advice()[0]

    def advice(self) -> tuple[str, float]:
        """Return that advice and its GPU-hours."""
        found = dict(self.helps)
        idle = self.idle / _HOUR
        if idle >= LEAST_HOURS and self.idle >= IDLE_SHARE * self.held:
            found[RELEASE] = idle
        best = max(found, key=lambda it: (found[it], it), default="")
        return (best, found[best]) if best and found[best] >= LEAST_HOURS else ("", 0.0)


@dataclass(frozen=True, slots=True)
class _Sums:
    users: Mapping[str, _Sum]
    teams: Mapping[str, _Sum]
    jobs: Mapping[tuple[str, str], _Sum]
    all: _Sum


def people(  # noqa: PLR0913 - each is one source
    cluster: str,
    span: Span,
    parts: Iterable[Ledger],
    before: Iterable[Ledger],
    *,
    incidents: Iterable[Incident],
    wastes: Iterable[WasteHour],
    prices: Prices,
) -> People:
    """Return the usage by user, team and job; `parts` and `before` are cut where prices change."""
    now, was = _summed(parts, prices), _summed(before, prices)
    known_faults = tuple(incidents)
    for sums, times in (now, span), (was, (span[0] - (span[1] - span[0]), span[0])):
        alone = _on_one_gpu(sums)
        stopping = [one for one in known_faults if not only_slows(one)]
        excused = blocked(known_faults, cluster, times, alone)
        _block(sums, blocked(stopping, cluster, times, alone), excused)
    for hour in wastes:
        for one in hour.wastes:
            for it in _of(now, one.holder, one.user or ""):
                it.helps[one.advice] += one.gpu_hours
    known = was.all.held > 0 and was.all.held >= COMPARABLE * now.all.held
    return People(
        cluster=cluster,
        span=span,
        users=_persons(now.users, was.users, known),
        teams=_persons(now.teams, was.teams, known),
        jobs=_jobs(now.jobs),
        everybody=_person("all", now.all, was.all if known else None),
    )


def _summed(parts: Iterable[Ledger], prices: Prices) -> _Sums:
    found = _Sums(defaultdict(_Sum), defaultdict(_Sum), defaultdict(_Sum), _Sum())
    for part in parts:
        hourly: dict[str | None, float | None] = {}
        for row in part.holders.to_pylist():
            model = row["model"]
            if model not in hourly:
                price = prices.price(part.cluster, model, part.start)
                hourly[model] = None if price is None else price.per_gpu_hour
            user, team, holder = row["user"] or "", row["account"] or "", row["holder"] or ""
            for it in (found.users[user], found.teams[team], found.jobs[holder, user], found.all):
                _add(it, row, hourly[model])
                it.users.update({user} - {""})
                it.teams.update({team} - {""})
    return found


def _add(to: _Sum, row: Mapping[str, float | None], hourly: float | None) -> None:
    to.gpus = max(to.gpus, int(row["gpus"] or 0))
    to.held += row["allocated"] or 0.0
    to.measured += row["measured"] or 0.0
    to.used += row["used"] or 0.0
    to.idle += row["idle"] or 0.0
    if hourly is not None:
        to.priced = True
        to.cost += hourly * (row["allocated"] or 0.0) / _HOUR
        to.idle_cost += hourly * (row["idle"] or 0.0) / _HOUR


def _of(sums: _Sums, holder: str, user: str) -> list[_Sum]:
    """Return the sums that a holder counts in; users and teams that held nothing in the span are not added."""
    job = sums.jobs.get((holder, user))
    if job is None:
        return []
    named = [sums.users.get(user), *(sums.teams.get(team) for team in job.teams or {""})]
    return [job, sums.all, *(one for one in named if one is not None)]


def _on_one_gpu(sums: _Sums) -> frozenset[str]:
    """Return the holders that never had more than one GPU at once, and so are on one node."""
    return frozenset(holder for (holder, _), it in sums.jobs.items() if it.gpus == 1)


def blocked(
    incidents: Iterable[Incident], cluster: str, span: Span, alone: Collection[str] = ()
) -> Mapping[str, float]:
    """Return the GPU-hours in which incidents stood that held up or excuse each holder, within a span."""
    times: defaultdict[str, list[Span]] = defaultdict(list)
    gpus: defaultdict[str, int] = defaultdict(int)
    for one in incidents:
        if one.subject.cluster != cluster or not one.impact.gpus or one.covered_by or one.marked:
            continue
        start, end = max(one.since, span[0]), min(one.resolved_at or span[1], span[1])
        for holder in held_up(one, alone) if start < end else ():
            times[holder].append((start, end))
            # With several holders, nobody knows how many of the GPUs are whose.
            gpus[holder] = max(gpus[holder], -(-one.impact.gpus // len(one.impact.holders)))
    return {holder: gpus[holder] * union_hours(them) for holder, them in times.items()}


def union_hours(times: list[Span]) -> float:
    """Return the hours that at least one of the spans covers."""
    total, last = 0.0, None
    for start, end in sorted(times):
        begin = start if last is None else max(start, last)
        if end > begin:
            total += (end - begin).total_seconds() / _HOUR
            last = end
    return total


def _block(sums: _Sums, hours: Mapping[str, float], excuses: Mapping[str, float]) -> None:
    """Add the hours in which holders could not compute, and take from their idle ones those with an excuse."""
    for (holder, user), job in list(sums.jobs.items()):
        # No more than it held, since an incident may outlive its job.
        lost = min(hours.get(holder, 0.0), job.held / _HOUR)
        excused = min(excuses.get(holder, 0.0) * _HOUR, job.held, job.idle)
        cost = job.idle_cost * excused / job.idle if job.idle else 0.0
        for it in _of(sums, holder, user) if lost or excused else ():
            it.blocked += lost
            # A job of two teams counts with both; nothing goes below zero.
            it.idle = max(it.idle - excused, 0.0)
            it.idle_cost = max(it.idle_cost - cost, 0.0)


def _persons(now: Mapping[str, _Sum], was: Mapping[str, _Sum], known: bool) -> Sequence[Person]:
    found = [
        _person(name, it, was.get(name, _Sum()) if known else None) for name, it in now.items()
    ]
    return sorted(found, key=lambda it: (-it.now.held, it.name))


def _person(name: str, now: _Sum, was: _Sum | None) -> Person:
    return Person(
        name=name,
        teams=tuple(sorted(now.teams)),
        users=tuple(sorted(now.users)),
        now=now.amounts(),
        before=None if was is None else was.amounts(),
        help=now.help() if name != NOBODY_KNOWN else "",
    )


def _jobs(sums: Mapping[tuple[str, str], _Sum]) -> Sequence[JobUse]:
    found = [
        JobUse(
            holder=holder,
            user=user,
            team=", ".join(sorted(it.teams)),
            now=it.amounts(),
            help=it.advice()[0],
            # The hourly judgement may reach beyond the span.
            wasted=min(it.advice()[1], it.held / _HOUR),
        )
        for (holder, user), it in sums.items()
    ]
    return sorted(found, key=lambda it: (-it.now.held, it.holder))


def change_percent(now: float, before: float) -> float | None:
    """Return the change in percent; None when it was nothing before."""
    return 100 * (now - before) / before if before > 0 else None
