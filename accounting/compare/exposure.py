"""How long each node was heard with each version that it had."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from gpuvigil.model import Attribute, Setup

_EVER = datetime.min.replace(tzinfo=timezone.utc)
# A piece of time, and what the node had then; None where nobody has said it.
Spans = Iterator[tuple[str | None, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A piece of time, and for how much of it a node was heard."""

    node: str
    start: datetime
    end: datetime
    seconds: float


@dataclass(frozen=True, slots=True)
class History:
    """What one node had of one attribute: from each time on the value of the same place."""

    times: tuple[datetime, ...] = ()
    values: tuple[str, ...] = ()

    def at(self, moment: datetime) -> str | None:
        """None before anybody said it."""
        place = bisect_right(self.times, moment)
        return self.values[place - 1] if place else None

    def turns(self, start: datetime, end: datetime) -> bool:
        """Whether one value took another's place between the two; the first takes nobody's."""
        return any(start < at < end for at in self.times[1:])

    def shares(self, heard: Heard) -> Spans:
        """The seconds of `heard` by value, as many as were heard.

        When within the piece it was silent nobody knows, so each value has its part of it by its
        length. What was said first is known to have been there: it comes before what nobody said.
        """
        edges = [max(at, heard.start) for at in self.times if at < heard.end]
        lengths = [
            (end - start).total_seconds()
            for start, end in zip(edges, [*edges[1:], heard.end], strict=False)
        ]
        known = sum(lengths)
        there = min(heard.seconds, known)
        for value, length in zip(self.values, lengths, strict=False):
            if length > 0.0:
                yield value, there * length / known
        if heard.seconds > there:
            yield None, heard.seconds - there


NO_HISTORY = History()


def histories(setups: Iterable[Setup], attribute: Attribute) -> Mapping[str, History]:
    """By node's name; what only repeats the value before is left out."""
    told: dict[str, dict[datetime, str]] = defaultdict(dict)
    for one in setups:
        if attribute in one.values:
            told[one.node.node][one.at] = one.values[attribute]
    return {node: _history(sorted(them.items()), attribute) for node, them in told.items()}


def _history(told: list[tuple[datetime, str]], attribute: Attribute) -> History:
    times: list[datetime] = []
    values: list[str] = []
    for at, value in told:
        if not values or values[-1] != value:
            times.append(_EVER if attribute.lasts and not times else at)
            values.append(value)
    return History(tuple(times), tuple(values))
