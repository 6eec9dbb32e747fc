"""How long each node was heard with each value of an attribute."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from gpuvigil.model import Attribute, Setup

_EVER = datetime.min.replace(tzinfo=timezone.utc)
# The value that a node had, None where nobody reported it, and the seconds heard with it.
Spans = Iterator[tuple[str | None, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportingSpan:
    """A span of time, and for how many seconds of it a node was heard."""

    node: str
    start: datetime
    end: datetime
    seconds: float


@dataclass(frozen=True, slots=True)
class History:
    """The values of one attribute on one node, each from the time at the same index on."""

    times: tuple[datetime, ...] = ()
    values: tuple[str, ...] = ()

    def at(self, moment: datetime) -> str | None:
        """Return the value at a moment; None before the first report."""
        place = bisect_right(self.times, moment)
        return self.values[place - 1] if place else None

    def turns(self, start: datetime, end: datetime) -> bool:
        """Return whether one value replaced another between the two times; the first value replaces none."""
        return any(start < at < end for at in self.times[1:])

    def shares(self, span: ReportingSpan) -> Spans:
        """Yield each value and its part of the seconds reported; None is the value before the first report.

        It is unknown when within the piece the node was silent, so each value gets a part by the length of
        its time. A known value is counted as reported before an unknown one.
        """
        edges = [max(at, span.start) for at in self.times if at < span.end]
        lengths = [
            (end - start).total_seconds()
            for start, end in zip(edges, [*edges[1:], span.end], strict=False)
        ]
        known = sum(lengths)
        there = min(span.seconds, known)
        for value, length in zip(self.values, lengths, strict=False):
            if length > 0.0:
                yield value, there * length / known
        if span.seconds > there:
            yield None, span.seconds - there


NO_HISTORY = History()


def histories(setups: Iterable[Setup], attribute: Attribute) -> Mapping[str, History]:
    """Return the history of one attribute by node name; repeats of the value before are left out."""
    told: dict[str, dict[datetime, str]] = defaultdict(dict)
    for one in setups:
        if attribute in one.values:
            told[one.node.node][one.at] = one.values[attribute]
    return {node: _history(sorted(them.items()), attribute) for node, them in told.items()}


def _history(reports: list[tuple[datetime, str]], attribute: Attribute) -> History:
    times: list[datetime] = []
    values: list[str] = []
    for at, value in reports:
        if not values or values[-1] != value:
            times.append(_EVER if attribute.lasts and not times else at)
            values.append(value)
    return History(tuple(times), tuple(values))
