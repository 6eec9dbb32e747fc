"""Wasted GPU-hours by team, user, project, partition and job."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

from accounting.efficiency.efficiency import (
    BUSY_PERCENT,
    HARDLY_PERCENT,
    HARDLY_USED,
    LITTLE_SM_PERCENT,
    Advice,
)
from accounting.efficiency.holdings import Holding, Hourly, excused_by, holdings
from accounting.efficiency.inefficient_hours import HOUR, LEAST_PART, Waste, WasteHour
from gpuvigil.model import Job

from ..inputs.facts import Facts, SpanData
from ..model.rounding import rounded
from ..model.sheet import Cell, Column, Kind, Sheet, exact, moved

MOST_JOBS, MOST_GROUPS, LEAST_GROUPS = 10, 12, 2
# Less than this share of all waste is not listed among the worst.
LEAST_SHARE = 0.005
NO_NAME = {"account": "no team", "user": "no user", "project": "no project"}
_HARDLY_USED, _FEWER = frozenset(one.value for one in HARDLY_USED), Advice.FEWER.value
_ABOUT_IDLE = _HARDLY_USED | {_FEWER}
# What to do where an hour's advice only names the problem.
_TO_DO = {Advice.LITTLE.value: "profile it: its kernels are small"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """One way to group GPU-hours by whose they were."""

    key: str
    heading: str
    of: str  # the attribute of a holding
    one: str


FACETS: tuple[Facet, ...] = (
    Facet(key="teams", heading="By team", of="account", one="Team"),
    Facet(key="users", heading="By user", of="user", one="User"),
    Facet(key="projects", heading="By project", of="project", one="Project"),
    Facet(key="partitions", heading="By partition", of="partition", one="Partition"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wasted:
    """One holding, and what its holder wasted of it; faults and gaps are not included."""

    held: Holding
    little: float  # GPU-hours that were busy but not filled
    idle: float
    hours: float  # the sum of both
    cost: float | None  # of these hours; None without a price
    advice: str

    @classmethod
    def of(cls, held: Holding, little: float, advice: str) -> "Wasted":
        """Return it with its sums computed once, since every table uses them in its own way."""
        idle = max(held.idle - held.excused, 0.0)
        hours = idle + little
        cost = None if held.price is None else held.price * hours
        return cls(held=held, little=little, idle=idle, hours=hours, cost=cost, advice=advice)


@dataclass(frozen=True, slots=True)
class _Sum:
    """The totals of several holders, in GPU-hours."""

    rows: int = 0
    allocated: float = 0.0
    measured: float = 0.0
    used: float = 0.0
    idle: float = 0.0
    little: float = 0.0
    hours: float = 0.0  # wasted
    cost: float | None = None  # of the wasted hours; None when no holder has a price

    @property
    def used_percent(self) -> float | None:
        return rounded(100 * self.used / self.measured) if self.measured > 0 else None


def _sum(them: Iterable[Wasted]) -> _Sum:
    """Return the totals in one pass: a large cluster's week has tens of thousands of rows."""
    rows, cost = 0, None
    allocated = measured = used = idle = little = hours = 0.0
    for rows, one in enumerate(them, 1):  # noqa: B007 - the last number is how many there are
        held, lost = one.held, one.cost
        allocated += held.allocated
        measured += held.measured
        used += held.used
        idle += one.idle
        little += one.little
        hours += one.hours
        if lost is not None:
            cost = lost if cost is None else cost + lost
    return _Sum(rows, allocated, measured, used, idle, little, hours, cost)


def wasted(past: SpanData, facts: Facts) -> tuple[Wasted, ...]:
    """Return every holder of a span with what it wasted, the worst first."""
    hit = {holder for one in past.incidents for holder in one.impact.holders}
    excused = excused_by(past.incidents, past.usage.end, _on_one_node(past.jobs, hit))
    found = holdings(past.usage.buckets, facts.prices, facts.idle_after, excused)
    theirs: defaultdict[tuple[str, str], list[Holding]] = defaultdict(list)
    for one in found:
        theirs[one.holder, one.user].append(one)
    first = (
        past.usage.buckets[0].start.replace(minute=0) if past.usage.buckets else past.usage.start
    )
    little = _little(past.wastes, theirs, first, facts.idle_after)
    rows = []
    for one in found:
        key = one.holder, one.user
        amount, advice = little.get(key, (0.0, ""))
        if amount:
            # For GPUs of several models, nobody says on which it was: divide it in proportion.
            room = sum(max(it.allocated - it.idle, 0.0) for it in theirs[key])
            amount *= max(one.allocated - one.idle, 0.0) / room if room else 0.0
        rows.append(Wasted.of(one, amount, advice))
    return tuple(sorted(rows, key=lambda row: (-row.hours, -row.held.allocated, row.held.holder)))


def _on_one_node(jobs: Iterable[Job], holders: Collection[str]) -> frozenset[str]:
    """Return the holders that are single-node jobs in every run that their scheduler reported."""
    nodes: defaultdict[str, int] = defaultdict(int)
    for one in jobs if holders else ():
        if (holder := str(one.holder)) in holders:
            nodes[holder] = max(nodes[holder], len(one.nodes))
    return frozenset(holder for holder, most in nodes.items() if most == 1)


def _little(
    wastes: Iterable[WasteHour],
    theirs: Mapping[tuple[str, str], Sequence[Holding]],
    first: datetime,
    idle_after: timedelta,
) -> dict[tuple[str, str], tuple[float, str]]:
    """Return GPU-hours that each holder did not fill, and the advice for most of them.

    Time that is idle by the rule is subtracted: an hour is judged by means over all of it, and its idle time
    is in the idle sum already. The same goes for a job's GPUs that computed nothing, and for an hour that was
    hardly used only because most of it was idle: its rest must be hardly used by itself, or busy and little
    filled. The few minutes of an hour in which a job began or ended cannot be judged and count as the hour
    beside them. If a job had less of an hour than the idle rule asks for, a pause is most of it and no waste:
    "hardly used" then counts only beside an hour with the same verdict.
    """
    hours: defaultdict[tuple[str, str], defaultdict[str, float]]
    hours = defaultdict(lambda: defaultdict(float))
    judged: defaultdict[tuple[str, str], dict[int, tuple[Waste, float]]] = defaultdict(dict)
    hardly: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    short: list[tuple[tuple[str, str], int, str, float]] = []
    for hour in wastes:
        number = (hour.start - first) // HOUR
        for one in hour.wastes:
            key = one.holder, one.user or ""
            held, idle, used = _in_hour(theirs.get(key, ()), number)
            counts = _not_filled(one, (held, idle, used))
            judged[key][number] = one, min(one.gpu_hours / held, 1.0) if held else 0.0
            if one.advice not in _HARDLY_USED or held >= one.gpus * (idle_after / HOUR):
                hours[key][one.advice] += counts
                hardly[key] |= {number} if one.advice in _HARDLY_USED else set()
            else:
                short.append((key, number, one.advice, counts))
    for key, number, name, counts in short:
        if not hardly[key].isdisjoint({number - 1, number + 1}):
            hours[key][name] += counts
    for key, of_key in judged.items():
        for advice, counts in _at_the_ends(theirs.get(key, ()), of_key):
            hours[key][advice] += counts
    return {
        key: (sum(them.values()), max(sorted(them), key=lambda name: them[name]))
        for key, them in hours.items()
    }


def _not_filled(one: Waste, hour: Hourly) -> float:
    """Return an hour's GPU-hours that are in no other sum: of its rest without idle time."""
    held, idle, used = hour
    counts, left = max(min(one.gpu_hours, held) - idle, 0.0), held - idle
    if one.advice == _FEWER:
        return 0.0
    if idle <= 0 or one.advice not in _HARDLY_USED:
        return counts
    busy_percent = 100 * used / left if left > 0 else 0.0
    little = busy_percent >= BUSY_PERCENT and counts > (1 - LITTLE_SM_PERCENT / 100) * left
    return counts if busy_percent < HARDLY_PERCENT or little else 0.0


def _at_the_ends(
    rows: Sequence[Holding], judged: Mapping[int, tuple[Waste, float]]
) -> Iterator[tuple[str, float]]:
    """Yield advice and unfilled GPU-hours for hours in which a holder had too little to be judged."""
    for number in {it for one in rows for it in one.hourly}.difference(judged):
        beside = judged.get(number + 1) or judged.get(number - 1)
        held, idle, _ = _in_hour(rows, number)
        # A program's pause says nothing about the minutes beside it.
        if beside is None or beside[0].advice in _ABOUT_IDLE:
            continue
        one, share = beside
        if held < one.gpus * (LEAST_PART / HOUR):
            yield one.advice, max(share * held - idle, 0.0)


def _in_hour(rows: Iterable[Holding], number: int) -> Hourly:
    """Return what one holder's rows held, had idle and used in an hour; 0 where nothing was counted."""
    held = idle = used = 0.0
    for one in rows:
        amounts = one.hourly.get(number, (0.0, 0.0, 0.0))
        held, idle, used = held + amounts[0], idle + amounts[1], used + amounts[2]
    return held, idle, used


def groups(
    now: Sequence[Wasted], before: Sequence[Wasted] | None, facts: Facts
) -> Iterator[Sheet | None]:
    """Yield a table per facet, with a row per team, user and so on, the most wasteful first.

    None when nobody is named, when there is only one group, or when the groups are the teams again:
    such a table says nothing new.
    """
    whole = _sum(now), None if before is None else _sum(before)
    for facet in FACETS:
        yield _by(facet, now, before, whole, facts)


def _by(
    facet: Facet,
    now: Sequence[Wasted],
    before: Sequence[Wasted] | None,
    whole: tuple[_Sum, _Sum | None],
    facts: Facts,
) -> Sheet | None:
    named = set(map(attrgetter(f"held.{facet.of}", "held.account"), now))
    alike = facet.of != "account" and all(name == team for name, team in named)
    if alike or len({name for name, _ in named}) < LEAST_GROUPS:
        return None
    found, earlier = _grouped(now, facet.of), _grouped(before or (), facet.of)
    sums = {key: _sum(them) for key, them in found.items()}
    trends = _trends(facet, facts, sums, whole[0])
    order = sorted(found, key=lambda key: (-sums[key].hours, key))
    # Whoever wasted next to nothing goes into the rest; teams are all shown.
    least = 0.0 if facet.of == "account" else LEAST_SHARE * whole[0].hours
    first = [key for key in order[:MOST_GROUPS] if sums[key].hours >= least][:MOST_GROUPS]
    first = order if len(first) + 1 >= len(order) else first
    lists = [(key, sums[key], earlier.get(key, ())) for key in first]
    rest = order[len(first) :]
    if rest:
        of_rest = _sum(one for key in rest for one in found[key])
        lists.append(
            (f"{len(rest):,} more", of_rest, [o for k in rest for o in earlier.get(k, ())])
        )
    sheet = Sheet(
        key=facet.key,
        heading=facet.heading,
        caption=f"{facet.one}s, the most wasteful first: idle by the rule, or busy and doing little; without hours"
        " that a fault explains",
        columns=_columns(facet.one, facts),
        rows=tuple(
            _group(key, (of_key, None if before is None else _sum(old)), trends.get(key), facts)
            for key, of_key, old in lists
        ),
        total=_group("all", whole, trends.get(""), facts),
        currency=facts.currency,
    )
    absent = [] if trends else ["used_trend"]
    return sheet.without(absent if facts.priced else [*absent, "wasted_cost"])


def jobs(now: Sequence[Wasted], facts: Facts) -> Sheet | None:
    """Return the ten jobs that wasted most, with why and what would help; None when nobody wasted anything."""
    total = sum(one.hours for one in now)
    worst = [one for one in now if one.held.is_one and one.hours > LEAST_SHARE * total][:MOST_JOBS]
    if not worst:
        return None
    share = 100 * sum(one.hours for one in worst) / total
    columns = (
        Column(key="job", label="Job"),
        Column(key="user", label="User"),
        Column(key="team", label="Team"),
        Column(key="gpus", label="GPUs", kind=Kind.COUNT),
        Column(key="gpu_hours", label="Allocated GPU-h", kind=Kind.HOURS),
        Column(key="wasted_gpu_hours", label="Wasted GPU-h", kind=Kind.HOURS),
        Column(key="wasted_cost", label=f"Wasted {facts.currency}", kind=Kind.MONEY),
        Column(key="reason", label="Why"),
        Column(key="advice", label="What would help"),
    )
    sheet = Sheet(
        key="jobs",
        heading="Jobs that wasted most",
        caption=f"{_many(len(worst))} of {sum(one.held.is_one for one in now):,} jobs:"
        f" {share:.0f} % of all GPU-hours that were wasted",
        columns=columns,
        rows=tuple(map(_job, worst)),
        currency=facts.currency,
    )
    return sheet if facts.priced else sheet.without(["wasted_cost"])


def _job(one: Wasted) -> tuple[Cell, ...]:
    held = one.held
    return (
        held.holder,
        held.user,
        held.account or held.project,
        float(held.gpus),
        exact(held.allocated),
        exact(one.hours),
        None if one.cost is None else exact(one.cost),
        reason(one),
        advice(one),
    )


def reason(one: Wasted) -> str:
    """Return why the hours were wasted, in the words of the rule that found them."""
    share = 100 * one.idle / one.held.allocated if one.held.allocated else 0.0
    if one.idle >= one.little:
        now = f"; {one.held.still:,} still are" if one.held.still else ""
        return f"idle for {share:.0f} %{now}"
    return f"busy, {100 * one.little / one.held.allocated:.0f} % not filled"


def advice(one: Wasted) -> str:
    """Return what the holder could do about the larger part of the waste."""
    if one.idle >= one.little:
        if one.held.still:
            return "let them go"
        if one.advice not in _ABOUT_IDLE:
            return "end it when done"
    return _TO_DO.get(one.advice, one.advice)


def _group(
    name: str,
    sums: tuple[_Sum, _Sum | None],
    trend: tuple[float | None, ...] | None,
    facts: Facts,
) -> tuple[Cell, ...]:
    now, earlier = sums
    used, before = now.used_percent, None if earlier is None else earlier.used_percent
    return (
        name,
        exact(now.allocated),
        used,
        exact(now.idle),
        exact(now.little) if facts.now.wastes else None,
        None if now.cost is None else exact(now.cost),
        moved(now.hours, facts.longer * earlier.hours)
        if earlier is not None and earlier.rows
        else None,
        rounded(used - before) if used is not None and before is not None else None,
        trend or (),
    )


def _columns(one: str, facts: Facts) -> tuple[Column, ...]:
    return (
        Column(key="name", label=one),
        Column(key="gpu_hours", label="Allocated GPU-h", kind=Kind.HOURS),
        Column(key="used", label="Used", kind=Kind.PERCENT, bar=True),
        Column(key="idle_gpu_hours", label="Idle GPU-h", kind=Kind.HOURS),
        Column(key="unfilled_gpu_hours", label="Not filled GPU-h", kind=Kind.HOURS),
        Column(key="wasted_cost", label=f"Wasted {facts.currency}", kind=Kind.MONEY),
        Column(
            key="wasted_change",
            label=f"Wasted, vs {facts.before_word}",
            kind=Kind.MORE,
            more_is="worse",
        ),
        Column(
            key="used_change",
            label=f"Used, vs {facts.before_word}",
            kind=Kind.POINTS,
            more_is="better",
        ),
        Column(key="used_trend", label=f"Used, {facts.trend_word}", kind=Kind.TREND),
    )


def _grouped(rows: Sequence[Wasted], of: str) -> dict[str, list[Wasted]]:
    found: defaultdict[str, list[Wasted]] = defaultdict(list)
    empty = NO_NAME.get(of, "none")
    for name, one in zip(map(attrgetter(f"held.{of}"), rows), rows, strict=True):
        found[name or empty].append(one)
    return dict(found)


def _trends(
    facet: Facet, facts: Facts, now: Mapping[str, _Sum], all_now: _Sum
) -> dict[str, tuple[float | None, ...]]:
    """Return used percent by name for the earlier spans, oldest first, and this one; "" is the total."""
    weeks = [week.get(facet.of, {}) for week in facts.history]
    if not any(weeks):
        return {}
    empty = NO_NAME.get(facet.of, "none")
    named = [{key or empty: value for key, value in week.items()} for week in weeks]
    found = {
        key: (*(week.get(key) for week in named), one.used_percent) for key, one in now.items()
    }
    whole = tuple(week.get("", {}).get("") for week in facts.history)
    return {**found, "": (*whole, all_now.used_percent)}


def _many(number: int) -> str:
    words = ("", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
    return words[number]
