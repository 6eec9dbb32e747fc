"""What was wasted, by whoever can act on it, and by team, user, project, partition and job."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from accounting.efficiency.efficiency import Advice
from accounting.efficiency.holdings import Holding, excused_by, holdings
from accounting.efficiency.inefficient_hours import HOUR, WasteHour
from gpuvigil.model import Job

from .inputs import Facts, Past
from .rounding import rounded
from .sheet import Cell, Column, Kind, Sheet, exact, moved

MOST_JOBS, MOST_GROUPS, LEAST_GROUPS = 10, 12, 2
# What is less than this of all that was wasted is no row of the worst.
LEAST_SHARE = 0.005
NO_NAME = {"account": "no team", "user": "no user", "project": "no project"}
_Any = TypeVar("_Any")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """One way to say whose GPU-hours they were."""

    key: str
    heading: str
    of: str  # the holding's name for it
    one: str


FACETS: tuple[Facet, ...] = (
    Facet(key="teams", heading="By team", of="account", one="Team"),
    Facet(key="users", heading="By user", of="user", one="User"),
    Facet(key="projects", heading="By project", of="project", one="Project"),
    Facet(key="partitions", heading="By partition", of="partition", one="Partition"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wasted:
    """One holding, and what of it was wasted by who held it: no fault and no gap is in it."""

    held: Holding
    little: float  # GPU-hours that were busy and not filled
    advice: str

    @property
    def idle(self) -> float:
        return max(self.held.idle - self.held.excused, 0.0)

    @property
    def hours(self) -> float:
        return self.idle + self.little

    @property
    def cost(self) -> float | None:
        return None if self.held.price is None else self.held.price * self.hours


def wasted(past: Past, facts: Facts) -> tuple[Wasted, ...]:
    """Every holder of a span with what it wasted, the worst first."""
    excused = excused_by(past.incidents, past.usage.end, _on_one_node(past.jobs))
    found = holdings(past.usage.buckets, facts.prices, facts.idle_after, excused)
    theirs: defaultdict[tuple[str, str], list[Holding]] = defaultdict(list)
    for one in found:
        theirs[one.holder, one.user].append(one)
    first = (
        past.usage.buckets[0].start.replace(minute=0) if past.usage.buckets else past.usage.start
    )
    little = _little(past.wastes, theirs, first)
    rows = []
    for one in found:
        amount, advice = little.get((one.holder, one.user), (0.0, ""))
        room = sum(max(it.allocated - it.idle, 0.0) for it in theirs[one.holder, one.user])
        # On GPUs of several models: nobody says on which of them it was.
        part = max(one.allocated - one.idle, 0.0) / room if room else 0.0
        rows.append(Wasted(held=one, little=part * amount, advice=advice))
    return tuple(sorted(rows, key=lambda row: (-row.hours, -row.held.allocated, row.held.holder)))


def _on_one_node(jobs: Iterable[Job]) -> frozenset[str]:
    """Holders that are jobs of one node each time they ran, as their scheduler told."""
    nodes: defaultdict[str, int] = defaultdict(int)
    for one in jobs:
        nodes[str(one.holder)] = max(nodes[str(one.holder)], len(one.nodes))
    return frozenset(holder for holder, most in nodes.items() if most == 1)


def _little(
    wastes: Iterable[WasteHour],
    theirs: Mapping[tuple[str, str], Sequence[Holding]],
    first: datetime,
) -> dict[tuple[str, str], tuple[float, str]]:
    """GPU-hours that each holder did not fill, and the advice for most of them.

    What was idle by the rule in the same hour is in that sum already: an hour is judged by means over all
    of it. So is all that a job's GPUs had that computed nothing.
    """
    hours: defaultdict[tuple[str, str], defaultdict[str, float]]
    hours = defaultdict(lambda: defaultdict(float))
    for hour in wastes:
        number = (hour.start - first) // HOUR
        for one in hour.wastes:
            key = one.holder, one.user or ""
            held, idle = (_in_hour(theirs.get(key, ()), of, number) for of in (0, 1))
            counts = max(min(one.gpu_hours, held) - idle, 0.0)
            hours[key][one.advice] += 0.0 if one.advice == Advice.FEWER.value else counts
    return {
        key: (sum(them.values()), max(sorted(them), key=lambda name: them[name]))
        for key, them in hours.items()
    }


def _in_hour(rows: Iterable[Holding], of: int, number: int) -> float:
    """What rows of one holder held in an hour, or had idle in it; 0 where nothing was counted."""
    amounts = [one.hourly[of] for one in rows]
    return float(sum(one[number] for one in amounts if 0 <= number < len(one)))


def groups(
    facet: Facet, now: Sequence[Wasted], before: Sequence[Wasted] | None, facts: Facts
) -> Sheet | None:
    """A row for each team, or user and so on, the one that wasted most first.

    None where nobody is named, and where all of them are one: that says nothing that the whole does not.
    """
    name = _namer(facet.of)
    if len({getattr(one.held, facet.of) for one in now}) < LEAST_GROUPS:
        return None
    found, earlier = _grouped(now, name), _grouped(before or (), name)
    trends = _trends(facet, facts, found)
    order = sorted(found, key=lambda key: (-_hours(found[key]), key))
    # Who wasted next to nothing is one of the rest; of teams all are shown.
    least = 0.0 if facet.of == "account" else LEAST_SHARE * _hours(now)
    first = [key for key in order[:MOST_GROUPS] if _hours(found[key]) >= least][:MOST_GROUPS]
    first = order if len(first) + 1 >= len(order) else first
    lists = [(key, found[key], earlier.get(key)) for key in first]
    rest = order[len(first) :]
    if rest:
        of_rest = [one for key in rest for one in found[key]]
        lists.append(
            (f"{len(rest):,} more", of_rest, [o for k in rest for o in earlier.get(k, ())])
        )
    rows = tuple(
        _group(key, them, None if before is None else old or [], trends.get(key), facts)
        for key, them, old in lists
    )
    total = _group("all", now, before, trends.get(""), facts)
    return Sheet(
        key=facet.key,
        heading=facet.heading,
        caption=f"{facet.one}s, who wasted most first: idle by the rule, or busy and doing little; without hours"
        " that a fault explains",
        columns=_columns(facet.one, facts, trend=bool(trends)),
        rows=tuple(_cut(row, facts, trend=bool(trends)) for row in rows),
        total=_cut(total, facts, trend=bool(trends)),
        currency=facts.currency,
    )


def jobs(now: Sequence[Wasted], facts: Facts) -> Sheet | None:
    """The ten that wasted most, each with why and what would help; None where nobody wasted anything."""
    total = _hours(now)
    worst = [one for one in now if one.held.is_one and one.hours > LEAST_SHARE * total][:MOST_JOBS]
    if not worst:
        return None
    share = 100 * sum(one.hours for one in worst) / total
    columns = (
        Column(key="job", label="Job"),
        Column(key="user", label="User"),
        Column(key="team", label="Team"),
        Column(key="gpus", label="GPUs", kind=Kind.COUNT),
        Column(key="gpu_hours", label="Held GPU-h", kind=Kind.HOURS),
        Column(key="wasted_gpu_hours", label="Wasted GPU-h", kind=Kind.HOURS),
        *_money(facts, "wasted_cost", "Wasted"),
        Column(key="reason", label="Why"),
        Column(key="advice", label="What would help"),
    )
    return Sheet(
        key="jobs",
        heading="Jobs that wasted most",
        caption=f"{_many(len(worst))} of {sum(one.held.is_one for one in now):,} jobs:"
        f" {share:.0f} % of all GPU-hours that their holders wasted",
        columns=columns,
        rows=tuple(_job(one, facts) for one in worst),
        currency=facts.currency,
    )


def _job(one: Wasted, facts: Facts) -> tuple[Cell, ...]:
    held = one.held
    return (
        held.holder,
        held.user,
        held.account or held.project,
        float(held.gpus),
        exact(held.allocated),
        exact(one.hours),
        *([] if not facts.priced else [None if one.cost is None else exact(one.cost)]),
        reason(one),
        advice(one),
    )


def reason(one: Wasted) -> str:
    """Why its hours are wasted, in the words of the rule that found them."""
    share = 100 * one.idle / one.held.allocated if one.held.allocated else 0.0
    if one.idle >= one.little:
        now = f"; {one.held.still:,} still are" if one.held.still else ""
        return f"idle for {share:.0f} %{now}"
    return f"busy, {100 * one.little / one.held.allocated:.0f} % not filled"


def advice(one: Wasted) -> str:
    """What its holder could do."""
    if one.idle < one.little:
        return one.advice
    if one.held.still:
        return "let them go"
    return one.advice or "end it when done"


def _group(
    name: str,
    them: Sequence[Wasted],
    earlier: Sequence[Wasted] | None,
    trend: tuple[float | None, ...] | None,
    facts: Facts,
) -> tuple[Cell, ...]:
    used, before = _used(them), None if earlier is None else _used(earlier)
    costs = [one.cost for one in them if one.cost is not None]
    known = earlier is not None and bool(earlier)
    hours = _hours(them)
    return (
        name,
        exact(sum(one.held.allocated for one in them)),
        used,
        exact(sum(one.idle for one in them)),
        exact(sum(one.little for one in them)),
        exact(sum(costs)) if costs else None,
        moved(hours, _hours(earlier)) if known and earlier is not None else None,
        rounded(used - before) if used is not None and before is not None else None,
        trend or (),
    )


def _columns(one: str, facts: Facts, *, trend: bool) -> tuple[Column, ...]:
    all_of_them = (
        Column(key="name", label=one),
        Column(key="gpu_hours", label="Held GPU-h", kind=Kind.HOURS),
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
    return _cut(all_of_them, facts, trend=trend)


def _cut(row: tuple[_Any, ...], facts: Facts, *, trend: bool) -> tuple[_Any, ...]:
    """Without the columns of money and of weeks before, where there are none."""
    kept = row if trend else row[:8]
    return kept if facts.priced else (*kept[:5], *kept[6:])


def _money(facts: Facts, key: str, label: str) -> tuple[Column, ...]:
    if not facts.priced:
        return ()
    return (Column(key=key, label=f"{label} {facts.currency}", kind=Kind.MONEY),)


def _grouped(rows: Iterable[Wasted], name: Callable[[Wasted], str]) -> dict[str, list[Wasted]]:
    found: defaultdict[str, list[Wasted]] = defaultdict(list)
    for one in rows:
        found[name(one)].append(one)
    return dict(found)


def _namer(of: str) -> Callable[[Wasted], str]:
    return lambda one: str(getattr(one.held, of)) or NO_NAME.get(of, "none")


def _trends(
    facet: Facet, facts: Facts, now: Mapping[str, Sequence[Wasted]]
) -> dict[str, tuple[float | None, ...]]:
    """Used percent of each in the spans before, oldest first, and in this one; "" is all of them."""
    weeks = [week.get(facet.of, {}) for week in facts.history]
    if not any(weeks):
        return {}
    empty = NO_NAME.get(facet.of, "none")
    named = [{key or empty: value for key, value in week.items()} for week in weeks]
    every = [one for them in now.values() for one in them]
    found = {key: (*(week.get(key) for week in named), _used(them)) for key, them in now.items()}
    whole = tuple(week.get("", {}).get("") for week in facts.history)
    return {**found, "": (*whole, _used(every))}


def _used(them: Sequence[Wasted]) -> float | None:
    measured = sum(one.held.measured for one in them)
    return rounded(100 * sum(one.held.used for one in them) / measured) if measured > 0 else None


def _hours(them: Iterable[Wasted]) -> float:
    return sum(one.hours for one in them)


def _many(number: int) -> str:
    words = ("", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
    return words[number]
