"""When a node has stopped reporting: for pages and the analyzer."""

from collections.abc import Collection, Hashable, Mapping
from datetime import datetime, timedelta
from typing import TypeVar

# Of a node that reports more seldom than every ten seconds so many ticks have to be missing.
TICKS = 3

# Of the nodes that report; NVSentinel's circuit breaker opens at half of them within five minutes.
SHARE = 0.5
# Of nodes whose racks have others that are heard, so many suffice: neither power nor a rack's switch picks them.
MIXED = 0.25
# Of three nodes two are half, and two of them are chance.
LEAST = 4
TOGETHER = timedelta(minutes=5)
# A body is sent a moment after its tick, and may have to be sent again.
ARRIVAL = timedelta(seconds=5)

Node = TypeVar("Node", bound=Hashable)


def are_most(some: int, nodes: int, share: float = SHARE) -> bool:
    """Whether what befell so many of a cluster's nodes at once has one cause that they share."""
    return some >= max(LEAST, share * nodes)


def in_the_middle(
    late: Mapping[Node, datetime],
    heard: Collection[Node],
    racks: Mapping[Node, str],
    within: timedelta = TOGETHER,
) -> frozenset[Node]:
    """The late nodes of a cluster whose cause is the hub or the way to it; none where it is theirs.

    Those are most of the nodes that went late at once, since nodes do not do so by themselves; a
    quarter where they are of several racks and most of these have nodes that are heard. A rack that
    is late while another is heard has a cause of its own. `late`: when each was last heard; `heard`:
    the nodes that are; `racks`: of both, where one is named.
    """
    alike = at_once(late, within)
    others = frozenset(heard) - alike
    places = {racks.get(node, "") for node in alike}
    mixed = (places & {racks.get(node, "") for node in others}) - {""}
    share = MIXED if 1 < len(places) <= 2 * len(mixed) else SHARE
    if not are_most(len(alike), len(alike) + len(others), share):
        return frozenset()
    is_rack = len(places) == 1 and "" not in places
    elsewhere = any(racks.get(node) not in places for node in others)
    return frozenset() if is_rack and elsewhere else alike


def at_once(times: Mapping[Node, datetime], within: timedelta = TOGETHER) -> frozenset[Node]:
    """The most to which it happened within this time of each other."""
    ordered = sorted(times.items(), key=lambda item: item[1])
    best, first = (0, 0), 0
    for last, (_, at) in enumerate(ordered):
        while at - ordered[first][1] > within:
            first += 1
        best = max(best, (last + 1 - first, first))
    return frozenset(node for node, _ in ordered[best[1] : best[1] + best[0]])


def late_after(tick_seconds: float) -> timedelta:
    """After how long without a body one is overdue; its node has not stopped reporting by that."""
    return timedelta(seconds=1.5 * tick_seconds) + ARRIVAL


def silent_after(silent_after_seconds: float, tick_seconds: float) -> timedelta:
    """How long a node that reports every `tick_seconds` may send nothing before it has stopped.

    `silent_after_seconds` is the setting `analyzer.silent_after_seconds`.
    """
    return timedelta(seconds=max(silent_after_seconds, TICKS * tick_seconds))
