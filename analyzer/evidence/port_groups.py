"""Groups of ports that one fault may have hit: those at one leaf, or of one job.

Where no leaf is known, ports of one name are taken to be at one leaf, as rails are built.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from gpuvigil.model import Subject

from ..window.window import Window
from .cabling import contradicting, name_of
from .port_drops import NODES
from .switches import plugged_into

_One = TypeVar("_One")
Rail = tuple[str, str | None, str | None]
Place = tuple[str, ...] | Rail
"""A leaf, or a rail where the leaf is unknown."""


def joined(them: Iterable[_One], ties: Callable[[_One], Iterable[Hashable]]) -> list[list[_One]]:
    """Return items in groups that share a tie, directly or through others; each has at least one."""
    above: dict[Hashable, Hashable] = {}

    def top(tie: Hashable) -> Hashable:
        while above.setdefault(tie, tie) != tie:
            above[tie] = tie = above[above[tie]]
        return tie

    firsts: list[tuple[_One, Hashable]] = []
    for one in them:
        first, *others = ties(one)
        for other in others:
            above[top(other)] = top(first)
        firsts.append((one, first))
    groups: dict[Hashable, list[_One]] = defaultdict(list)
    for one, first in firsts:
        groups[top(first)].append(one)
    return list(groups.values())


def rail_of(port: Subject) -> Rail:
    """Return a port's rail: on a rail-optimised fabric ports of one name share a leaf."""
    return port.cluster, port.device, port.port


def leaf_of(window: Window, port: Subject) -> str | None:
    """Return the switch that a port is at, as reported or learned from its peers, None if unknown."""
    whole = window.whole or window
    said = plugged_into(whole, port)
    if said is not None:
        return said[0]
    learned = contradicting(whole).get(port.cluster)
    return None if learned is None else learned.leaves.get((port.node, name_of(port)))


def place_of(window: Window, port: Subject) -> Place:
    """Return the leaf of a port; its rail if the leaf is unknown."""
    leaf = leaf_of(window, port)
    return rail_of(port) if leaf is None else (port.cluster, leaf)


def at_full_leaves(window: Window, waiting: Iterable[Subject]) -> set[Subject]:
    """Return the waiting ports at leaves where so many nodes wait that the leaf is the cause."""
    places: dict[Place, set[Subject]] = defaultdict(set)
    for port in waiting:
        places[place_of(window, port)].add(port)
    full = (them for them in places.values() if len({it.of_node() for it in them}) >= NODES)
    return {port for them in full for port in them}


def ties_of(
    window: Window, port: Subject, jobs: Iterable[str], sure: bool = False
) -> Iterator[Hashable]:
    """Yield what ties a port to others: its leaf, and each job that uses its rail.

    `jobs`: the `holder_key` of each job that sends through it. `sure`: an unknown leaf is not
    replaced by the rail.
    """
    leaf = leaf_of(window, port)
    if leaf is not None:
        yield port.cluster, leaf
    else:
        yield port if sure else rail_of(port)
    for job in jobs:
        yield rail_of(port), job
