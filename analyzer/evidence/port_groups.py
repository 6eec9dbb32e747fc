"""Which ports one fault may have hit: those at one leaf, or of one job.

Where no leaf is known, ports of one name are taken to be at one: that is how a rail is built.
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
"""A leaf, or a rail where that is not known."""


def joined(them: Iterable[_One], ties: Callable[[_One], Iterable[Hashable]]) -> list[list[_One]]:
    """Those that have a tie in common, also by way of others, in groups; each has one at least."""
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
    """On a rail-optimised fabric ports of one name talk to each other, over one leaf."""
    return port.cluster, port.device, port.port


def leaf_of(window: Window, port: Subject) -> str | None:
    """The switch that a port is at, as it was said or as its peers have it."""
    whole = window.whole or window
    said = plugged_into(whole, port)
    if said is not None:
        return said[0]
    learned = contradicting(whole).get(port.cluster)
    return None if learned is None else learned.leaves.get((port.node, name_of(port)))


def place_of(window: Window, port: Subject) -> Place:
    """The leaf of a port; its rail where nobody knows that."""
    leaf = leaf_of(window, port)
    return rail_of(port) if leaf is None else (port.cluster, leaf)


def at_full_leaves(window: Window, waiting: Iterable[Subject]) -> set[Subject]:
    """Of ports that wait those at leaves where so many nodes wait that it is the leaf's."""
    places: dict[Place, set[Subject]] = defaultdict(set)
    for port in waiting:
        places[place_of(window, port)].add(port)
    full = (them for them in places.values() if len({it.of_node() for it in them}) >= NODES)
    return {port for them in full for port in them}


def ties_of(
    window: Window, port: Subject, jobs: Iterable[str], sure: bool = False
) -> Iterator[Hashable]:
    """What makes a port one matter with another: its leaf, or a job that goes over that rail.

    `jobs`: by `holder_key`, those that send through it. `sure`: a leaf that is not known is none.
    """
    leaf = leaf_of(window, port)
    if leaf is not None:
        yield port.cluster, leaf
    else:
        yield port if sure else rail_of(port)
    for job in jobs:
        yield rail_of(port), job
