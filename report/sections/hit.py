"""GPU-hours hit by incidents, each counted once however many incidents overlap."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from accounting.hours_of_people import Span, union_hours
from gpuvigil.model import Incident

from .hardware import gpus_of
from .waste import Wasted


@dataclass(slots=True)
class _Together:
    """The union of incidents about one GPU, or about one holder."""

    gpus: int = 0
    times: list[Span] = field(default_factory=list)
    own: set[str] = field(default_factory=set)  # for a holder: the parts that are broken

    def add(self, gpus: int, time: Span) -> None:
        self.gpus = max(self.gpus, gpus)
        self.times.append(time)

    @property
    def hours(self) -> float:
        return self.gpus * union_hours(self.times)


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """The GPUs that each holder had at a time in the span, and its GPU-hours; also everybody's GPU-hours."""

    gpus: Mapping[str, int]
    hours: Mapping[str, float]

    @property
    def all(self) -> float:
        return sum(self.hours.values())

    def at_most(self, holder: str, gpus: int) -> int:
        return min(gpus, self.gpus[holder]) if holder in self.gpus else gpus


def held_gpus(rows: Iterable[Wasted]) -> HeldGpus:
    gpus: defaultdict[str, int] = defaultdict(int)
    hours: defaultdict[str, float] = defaultdict(float)
    for one in rows:
        gpus[one.held.holder] += one.held.gpus
        hours[one.held.holder] += one.held.allocated
    return HeldGpus(gpus, hours)


def behind(incidents: Iterable[Incident], held: HeldGpus, span: Span) -> float:
    """Return the holders' GPU-hours while any of these incidents stood, at most what they held."""
    found = _holders(_within(incidents, span), held)
    return min(sum(_capped(it, one, held) for it, one in found.items()), held.all)


def hit(incidents: Iterable[Incident], held: HeldGpus, span: Span) -> float:
    """Return GPU-hours of broken GPUs, plus those of other GPUs whose jobs waited for them."""
    within = _within(incidents, span)
    own: defaultdict[str, _Together] = defaultdict(_Together)
    for one, time in within:
        for key, gpus in _own(one).items():
            own[key].add(gpus, time)
    besides = 0.0
    for holder, it in _holders(within, held).items():
        broken = sum(own[key].hours for key in it.own)
        besides += max(_capped(holder, it, held) - broken, 0.0)
    return sum(one.hours for one in own.values()) + min(besides, held.all)


def _within(incidents: Iterable[Incident], span: Span) -> Sequence[tuple[Incident, Span]]:
    """Return each incident with its time in the span, except those that another one explains."""
    found = []
    for one in incidents:
        time = max(one.since, span[0]), min(one.resolved_at or span[1], span[1])
        if time[0] < time[1] and not one.covered_by:
            found.append((one, time))
    return found


def _holders(within: Sequence[tuple[Incident, Span]], held: HeldGpus) -> Mapping[str, _Together]:
    found: defaultdict[str, _Together] = defaultdict(_Together)
    for one, time in within:
        for holder in one.impact.holders:
            # An incident with several holders does not say whose GPUs were hit: take what it held, or
            # an even part.
            known = holder in held.gpus
            part = one.impact.gpus if known else -(-one.impact.gpus // len(one.impact.holders))
            found[holder].add(held.at_most(holder, part), time)
            found[holder].own |= _own(one).keys()
    return found


def _capped(holder: str, one: _Together, held: HeldGpus) -> float:
    return min(one.hours, held.hours.get(holder, one.hours))


def _own(one: Incident) -> Mapping[str, int]:
    """Return the GPUs that are hit whoever holds them, or just their number if they are not named."""
    named = gpus_of(one)
    if not one.impact.holders and one.impact.gpus > len(named):
        return {one.subject.key: one.impact.gpus}
    return dict.fromkeys(sorted(named), 1)
