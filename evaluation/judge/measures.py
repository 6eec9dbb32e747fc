"""Figures made of tallies, each with its basis and its 95 % interval.

The headline is recall at a budget: the share of inferred faults found when the reader accepts so many wrong messages
and no more. A set of detectors is a number of operating points, each a rate of wrong messages and a recall: its
criticals alone, its criticals and warnings, and the same with each higher limit of its score. A reader who heeds only
every n-th message of the noisier of two points gets a point between them. Recall at a budget is therefore the upper
concave hull of the points, of (0, 0), and of an alarm in every quarter of an hour on every node, which anybody can
raise. That is the convention of the ROC curve (Provost and Fawcett, Machine Learning 42, 2001), with wrong messages
for false positives. So only silence, which finds nothing, can come out below the constant alarm, and a constant alarm
itself is worth next to nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from accounting.chance import Interval, exact_rate
from gpuvigil.model import Severity

from .inferred import is_inferred
from .intervals import wilson
from .matching import Outcome
from .tally import Tally

PER_NODE_DAYS = 1000.0
# A budget of one is one wrong message a day for whoever runs 1,000 nodes: beside four faults that need inference,
# four of five messages would be right. Ten are two and a half times the four incidents a day that Google's on-call
# engineers are given at most (two a shift of twelve hours: "Site Reliability Engineering", O'Reilly 2016, chapter
# 11); messages beyond that are no longer read.
BUDGETS = (1.0, 10.0)
# Inferred faults per 1,000 node-days: Meta saw 2.34 and 6.50 ("Revisiting Reliability", HPCA 2025) and
# the Llama 3 run 3.79, of all faults that stopped a job.
FAULT_RATE = 4.0
# With fewer faults a share of 0.9 is not known to within 0.035.
ENOUGH = 300


@dataclass(frozen=True, slots=True)
class Share:
    """`hits` out of `of`."""

    hits: int
    of: int

    @property
    def value(self) -> float | None:
        return self.hits / self.of if self.of else None

    @property
    def interval(self) -> Interval:
        return wilson(self.hits, self.of)


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` in so many node-days; values are per 1,000 node-days."""

    count: int
    node_days: float

    @property
    def value(self) -> float | None:
        return PER_NODE_DAYS * self.count / self.node_days if self.node_days else None

    @property
    def interval(self) -> Interval:
        low, high = exact_rate(self.count, self.node_days)
        return PER_NODE_DAYS * low, PER_NODE_DAYS * high


@dataclass(frozen=True, slots=True)
class Point:
    """One way to read a set of detectors: its wrong messages, and the faults that the others found."""

    wrong: Rate
    found: Share


def inferred(tallies: Iterable[Tally]) -> list[Outcome]:
    """Return the faults that do not name themselves."""
    return [it for one in tallies for it in one.outcomes if is_inferred(it.fault)]


def conformance(tallies: Iterable[Tally]) -> list[Outcome]:
    """Return the faults that name themselves."""
    return [it for one in tallies for it in one.outcomes if not is_inferred(it.fault)]


def found(outcomes: Sequence[Outcome]) -> Share:
    return Share(sum(it.found for it in outcomes), len(outcomes))


def shipped(tallies: Sequence[Tally]) -> Point:
    """Return the point of all warnings and criticals."""
    node_days = sum(one.node_days for one in tallies)
    wrong = sum(one.false() for one in tallies)
    return Point(Rate(wrong, node_days), found(inferred(tallies)))


def wrong_notes(tallies: Sequence[Tally]) -> Rate | None:
    """Return the rate of notes about no fault; None where any play did not count them."""
    counts = [one.wrong_notes for one in tallies]
    known = [it for it in counts if it is not None]
    if not known or len(known) < len(counts):
        return None
    return Rate(sum(known), sum(one.node_days for one in tallies))


def points(tallies: Sequence[Tally]) -> tuple[Point, Point]:
    """Return the point of the criticals alone, and that of all warnings and criticals."""
    whole, critical = shipped(tallies), Severity.CRITICAL
    hits = sum(it.found and it.told == critical.value for it in inferred(tallies))
    wrong = sum(one.false(critical) for one in tallies)
    alone = Point(Rate(wrong, whole.wrong.node_days), Share(hits, whole.found.of))
    return alone, whole


def recall_at(budget: float, of: Iterable[Point]) -> float:
    """Return the concave hull of the points and (0, 0) at `budget` wrong messages per 1,000 node-days."""
    return _hull(budget, [(it.wrong.value or 0.0, it.found.value or 0.0) for it in of])


def interval_at(budget: float, of: Sequence[Point]) -> Interval:
    """Return the hull of the worse and of the better ends of each point's two intervals: wider than 95 %."""
    worse = [(it.wrong.interval[1], it.found.interval[0]) for it in of]
    better = [(it.wrong.interval[0], it.found.interval[1]) for it in of]
    return _hull(budget, worse), _hull(budget, better)


def _hull(budget: float, of: Iterable[tuple[float, float]]) -> float:
    every = [(0.0, 0.0), *of]
    within = [it for it in every if it[0] <= budget]
    best = max(found for _, found in within)
    for wrong, more in every:
        if wrong > budget:
            for less, base in within:
                share = (budget - less) / (wrong - less)
                best = max(best, base + share * (more - base))
    return best


def precision_at(rate: float, point: Point) -> tuple[float, Interval] | None:
    """Return the share of messages that are about a fault, with its interval, at `rate` faults per 1,000 node-days.

    One message is counted for each fault found. The interval goes from the worse to the better ends of both intervals.
    Return None where there were no messages.
    """

    def precision(found: float, wrong: float) -> float:
        right = rate * found
        return right / (right + wrong) if right + wrong > 0.0 else 0.0

    if point.found.value is None or point.wrong.value is None:
        return None
    if not point.found.hits and not point.wrong.count:
        return None
    (few, many), (least, most) = point.found.interval, point.wrong.interval
    return precision(point.found.value, point.wrong.value), (
        precision(few, most),
        precision(many, least),
    )


def seconds(outcomes: Iterable[Outcome], percent: float) -> float | None:
    """Return a percentile of the seconds from a fault's first sign to its first message; None without any."""
    known = [it.seconds for it in outcomes if it.seconds is not None]
    return float(np.percentile(known, percent)) if known else None
