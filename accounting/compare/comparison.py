"""Faults per 1,000 node-days for each value of an attribute, and which difference is more than chance.

A pure function of what was heard, what failed and what nodes had at that time.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..chance import LEVEL, Interval, exact_rate, rate_ratio
from .exposure import NO_HISTORY, Heard, History

_DAY_SECONDS = 86_400.0
# Rates are of so many node-days.
PER_NODE_DAYS = 1_000.0
Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Amount:
    """What one node, or several, showed with a value."""

    faults: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.faults + other.faults, self.seconds + other.seconds)

    @property
    def days(self) -> float:
        return self.seconds / _DAY_SECONDS

    @property
    def rate(self) -> float | None:
        """Per 1,000 node-days; None without any."""
        return PER_NODE_DAYS * self.faults / self.days if self.seconds > 0.0 else None

    @property
    def interval(self) -> Interval:
        return exact_rate(self.faults, self.days / PER_NODE_DAYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One value; None: of these nobody has said it."""

    value: str | None
    nodes: Mapping[str, Amount]
    whole: Amount  # of all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """The node that failed most on the side that fails more, and the ratio without it."""

    node: str
    faults: int
    of: int  # all of that side
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How the faults of one value stand to those of another one, or of all others."""

    value: str
    against: str | None  # None: all others together
    ratio: float | None  # None: neither had any fault
    interval: Interval
    outlier: Outlier | None  # None where chance alone may make the whole difference

    @property
    def holds(self) -> bool:
        """Whether it is more than chance, and more than one bad node."""
        return self.outlier is not None and _is_apart(self.outlier.interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Of one cluster; `rows` with most node-days first, what is not known last."""

    cluster: str
    rows: Sequence[Row]
    until: datetime

    @property
    def compared(self) -> Sequence[Row]:
        """Those that can be held against each other."""
        return [one for one in self.rows if one.value is not None and one.whole.seconds > 0.0]

    @property
    def differences(self) -> Sequence[Difference]:
        """Of two values the one that fails more, against the other; of more each against the rest.

        As many looks find something by chance: each has its part of the 5 %.
        """
        them = self.compared
        if len(them) < 2:
            return ()
        if len(them) == 2:
            one, other = sorted(them, key=lambda it: -(it.whole.rate or 0.0))
            return (_difference(one, [other], other.value, LEVEL),)
        level = 1.0 - (1.0 - LEVEL) / len(them)
        found = [
            _difference(one, [it for it in them if it is not one], None, level) for one in them
        ]
        return sorted(found, key=lambda it: (-(it.ratio or 0.0), it.value))


def rows(
    heard: Iterable[Heard],
    failed: Mapping[str, Sequence[datetime]],
    known: Mapping[str, History],
    counted: Iterable[Span],
) -> Sequence[Row]:
    """A row per value. A failure counts with what its node had then, if that node was ever heard.

    `counted`: the times, none over another, in which somebody counted who was heard; what failed
    outside of them would stand beside no node-days.
    """
    spans = sorted(counted)
    # Numbers and no `Amount`: of a large fleet there are hundreds of thousands of pieces.
    seconds: dict[str | None, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    faults: dict[str | None, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    nodes = set()
    for piece in heard:
        nodes.add(piece.node)
        for value, share in known.get(piece.node, NO_HISTORY).shares(piece):
            seconds[value][piece.node] += share
    for node in nodes & failed.keys():
        for at in failed[node]:
            place = bisect_right(spans, at, key=lambda span: span[0])
            if place and at < spans[place - 1][1]:
                faults[known.get(node, NO_HISTORY).at(at)][node] += 1
    made = [_row(value, seconds[value], faults[value]) for value in {**seconds, **faults}]
    return sorted(made, key=lambda it: (it.value is None, -it.whole.seconds, it.value or ""))


def _row(value: str | None, seconds: Mapping[str, float], faults: Mapping[str, int]) -> Row:
    nodes = {
        node: Amount(faults.get(node, 0), seconds.get(node, 0.0)) for node in {**seconds, **faults}
    }
    return Row(value=value, nodes=nodes, whole=sum(nodes.values(), Amount()))


def _difference(one: Row, others: Sequence[Row], against: str | None, level: float) -> Difference:
    mine, theirs = one.whole, sum((it.whole for it in others), Amount())
    interval = _ratio(mine, theirs, level)
    outlier = _outlier(one, others, interval, level) if _is_apart(interval) else None
    ratio = math.inf if mine.faults else None
    if theirs.faults:
        ratio = (mine.rate or 0.0) / (theirs.rate or math.inf)
    return Difference(
        value=one.value or "", against=against, ratio=ratio, interval=interval, outlier=outlier
    )


def _outlier(one: Row, others: Sequence[Row], interval: Interval, level: float) -> Outlier:
    """Where a value fails less, one bad node among the others may have made it look so."""
    more = interval[0] > 1.0
    mine, theirs = one.whole, sum((it.whole for it in others), Amount())
    side: Mapping[str, Amount] = one.nodes
    if not more:
        together: dict[str, Amount] = defaultdict(Amount)
        for row in others:
            for node, amount in row.nodes.items():
                together[node] += amount
        side = together
    worst = max(side, key=lambda node: (side[node].faults, node))
    left = sum((amount for node, amount in side.items() if node != worst), Amount())
    return Outlier(
        node=worst,
        faults=side[worst].faults,
        of=(mine if more else theirs).faults,
        interval=_ratio(left, theirs, level) if more else _ratio(mine, left, level),
    )


def _ratio(one: Amount, other: Amount, level: float) -> Interval:
    return rate_ratio(one.faults, one.seconds, other.faults, other.seconds, level)


def _is_apart(interval: Interval) -> bool:
    return not interval[0] <= 1.0 <= interval[1]
