"""Faults per 1,000 node-days for each value of an attribute, and which differences exceed chance.

Pure functions of how long nodes were heard, when they failed and which value they had then.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..chance import LEVEL, Interval, exact_rate, rate_ratio
from .exposure import NO_HISTORY, History, ReportingSpan

_DAY_SECONDS = 86_400.0
# Rates are per this many node-days.
PER_NODE_DAYS = 1_000.0
Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Amount:
    """The faults and the seconds heard of one node, or of several, with one value."""

    faults: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.faults + other.faults, self.seconds + other.seconds)

    @property
    def days(self) -> float:
        return self.seconds / _DAY_SECONDS

    @property
    def rate(self) -> float | None:
        """The faults per 1,000 node-days; None without any time heard."""
        return PER_NODE_DAYS * self.faults / self.days if self.seconds > 0.0 else None

    @property
    def interval(self) -> Interval:
        return exact_rate(self.faults, self.days / PER_NODE_DAYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The nodes with one value; `value` is None where nobody reported it."""

    value: str | None
    nodes: Mapping[str, Amount]
    whole: Amount  # the sum over `nodes`


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """The node with most faults on the side that fails more, and the rate ratio without that node."""

    node: str
    faults: int
    of: int  # faults of that whole side
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The fault rate of one value against that of another value, or of all others."""

    value: str
    against: str | None  # None: all others together
    ratio: float | None  # None: neither side had a fault
    interval: Interval
    outlier: Outlier | None  # None where chance alone may explain the difference

    @property
    def holds(self) -> bool:
        """Whether the difference exceeds chance, and does so without the worst node as well."""
        return self.outlier is not None and _is_apart(self.outlier.interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The rows of one cluster: most node-days first, the unknown value last."""

    cluster: str
    rows: Sequence[Row]
    until: datetime

    @property
    def compared(self) -> Sequence[Row]:
        """The rows that can be compared: of a known value, with time heard."""
        return [one for one in self.rows if one.value is not None and one.whole.seconds > 0.0]

    @property
    def differences(self) -> Sequence[Difference]:
        """The differences: of two values the one that fails more against the other; of more, each against the rest.

        Several comparisons find something by chance, so each gets its part of the 5 %.
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
    reporting: Iterable[ReportingSpan],
    failed: Mapping[str, Sequence[datetime]],
    known: Mapping[str, History],
    counted: Iterable[Span],
) -> Sequence[Row]:
    """Return a row per value; a failure counts for the value its node had then, if the node ever reported.

    `counted` are the times, without overlap, for which usage was counted. A failure outside of them is
    left out, since it would have no node-days beside it.
    """
    spans = sorted(counted)
    # Plain numbers instead of `Amount`: a large fleet has hundreds of thousands of pieces.
    seconds: dict[str | None, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    faults: dict[str | None, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    nodes = set()
    for piece in reporting:
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
    """Return the worst node of the side that fails more: where a value fails less, that is among the others."""
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
