"""When a node has stopped reporting: for pages and the analyzer."""

from collections.abc import Collection, Hashable, Mapping
from datetime import datetime, timedelta
from typing import TypeVar

# A node that reports less often than every ten seconds must miss this many ticks.
TICKS = 3

# Share of the reporting nodes; NVSentinel's circuit breaker opens at half of them within five minutes.
SHARE = 0.5
# Share for nodes whose racks have others that are heard: neither power nor a rack's switch picks nodes
# like that.
MIXED = 0.25
# Two of three nodes are more than half, but may well be chance.
LEAST = 4
TOGETHER = timedelta(minutes=5)
# A body is sent a moment after its tick, and may have to be sent again.
ARRIVAL = timedelta(seconds=5)

Node = TypeVar("Node", bound=Hashable)


def are_most(some: int, nodes: int, share: float = SHARE) -> bool:
    """Return whether so many of a cluster's nodes failed at once that they must share a cause."""
    return some >= max(LEAST, share * nodes)


def late_by_one_cause(
    late: Mapping[Node, datetime],
    reporting: Collection[Node],
    racks: Mapping[Node, str],
    within: timedelta = TOGETHER,
) -> frozenset[Node]:
    """Return the late nodes whose cause is the hub or the way to it; none when the cause is theirs.

    These are most of the nodes that went late at once, since nodes do not do so by themselves. A
    quarter is enough when they are in several racks and most of these have nodes that are heard. If a
    whole rack is late while others are heard, the rack has a cause of its own. `late`: when each late node was
    last heard; `reporting`: the nodes that are heard; `racks`: the rack of each, where known.
    """
    alike = at_once(late, within)
    others = frozenset(reporting) - alike
    places = {racks.get(node, "") for node in alike}
    mixed = (places & {racks.get(node, "") for node in others}) - {""}
    share = MIXED if 1 < len(places) <= 2 * len(mixed) else SHARE
    if not are_most(len(alike), len(alike) + len(others), share):
        return frozenset()
    is_rack = len(places) == 1 and "" not in places
    elsewhere = any(racks.get(node) not in places for node in others)
    return frozenset() if is_rack and elsewhere else alike


def at_once(times: Mapping[Node, datetime], within: timedelta = TOGETHER) -> frozenset[Node]:
    """Return the largest set of nodes whose times lie within `within` of each other."""
    ordered = sorted(times.items(), key=lambda item: item[1])
    best, first = (0, 0), 0
    for last, (_, at) in enumerate(ordered):
        while at - ordered[first][1] > within:
            first += 1
        best = max(best, (last + 1 - first, first))
    return frozenset(node for node, _ in ordered[best[1] : best[1] + best[0]])


def late_after(tick_seconds: float) -> timedelta:
    """Return after how long without a body a node is overdue; it has not stopped reporting by then."""
    return timedelta(seconds=1.5 * tick_seconds) + ARRIVAL


def silent_after(silent_after_seconds: float, tick_seconds: float) -> timedelta:
    """Return how long a node that reports every `tick_seconds` may be silent before it has stopped.

    `silent_after_seconds` is the setting `analyzer.silent_after_seconds`.
    """
    return timedelta(seconds=max(silent_after_seconds, TICKS * tick_seconds))
