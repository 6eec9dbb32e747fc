"""Idle nodes that fall silent one by one, as an autoscaler makes them without a scheduler saying so.

A feed, a switch or a kernel takes nodes down at once, with whatever runs on them. An autoscaler
takes the idle ones, each when its own time has come.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from gpuvigil.model import Subject

# An autoscaler takes several nodes within an hour; nodes that go less than `_AT_ONCE` apart go at
# once.
WITHIN, _AT_ONCE = timedelta(hours=1), timedelta(seconds=30)
_NODES = 3
# Meanwhile hardly any node goes that works: idle ones must be this many times as many.
_TIMES_BUSY = 3


def one_by_one(
    idle: Mapping[Subject, datetime], busy: Mapping[Subject, datetime]
) -> dict[Subject, int]:
    """Return a cluster's nodes that left one by one, with how many idle ones left within an hour.

    `idle`: when nodes that nobody held fell silent; `busy`: when held ones did. Two that left apart
    may be the first of several: they count as 2, three or more as that many. A node that left
    alone, or with half of the others at once, is not among them.
    """
    order = sorted(idle.items(), key=lambda item: (item[1], item[0]))
    times, others = [at for _, at in order], sorted(busy.values())
    moments = _moments(times)
    sizes = Counter(moments)
    found = {}
    for place, (node, at) in enumerate(order):
        first, end = bisect_left(times, at - WITHIN), bisect_right(times, at + WITHIN)
        count, apart = end - first, moments[end - 1] - moments[first] + 1
        alike = bisect_right(others, at + WITHIN) - bisect_left(others, at - WITHIN)
        if (
            apart >= min(count, _NODES) > 1
            and (count == 2 or 2 * sizes[moments[place]] < count)
            and _TIMES_BUSY * alike <= count
        ):
            found[node] = count
    return found


def _moments(times: Sequence[datetime]) -> list[int]:
    """Return a number for the moment that each of these sorted times belongs to."""
    numbers: list[int] = []
    begin = None
    for at in times:
        if begin is None or at - begin > _AT_ONCE:
            begin = at
            numbers.append(numbers[-1] + 1 if numbers else 0)
        else:
            numbers.append(numbers[-1])
    return numbers


def is_scaled_down(count: int) -> bool:
    """Tell whether a count from `one_by_one` is enough to say that nodes are scaled down."""
    return count >= _NODES
