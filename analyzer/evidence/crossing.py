"""Which jobs send over what lies between switches: those with nodes at one of its leaves and elsewhere.

Which of several ways a packet takes is the fabric's own affair; who needs none of them is known.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gpuvigil.model import SWITCH_DEVICE, Finding, Subject
from gpuvigil.model.switch_hosts import Place

from ..window.holdings import Holding
from ..window.window import Window
from . import fabric


@dataclass(frozen=True, slots=True)
class Crossing:
    """Whether the nodes at its leaves are known, and the jobs of those that need it, the largest first."""

    known: bool
    jobs: tuple[Holding, ...]


def crossing(window: Window, finding: Finding) -> Crossing:
    """The jobs over a cable between switches, or over switches that do not answer."""
    at = window.once(_nodes_at, None)
    leaves = [leaf for leaf in _leaves(window, finding) if at.get(leaf)]
    needing = [
        it
        for it in window.holdings.values()
        if len(it.nodes) > 1 and any(_is_across(it.nodes, at[leaf]) for leaf in leaves)
    ]
    needing.sort(key=lambda it: (-len(it.gpus), it.name))
    return Crossing(known=bool(leaves), jobs=tuple(needing))


def _is_across(nodes: Collection[Subject], at: frozenset[Subject]) -> bool:
    here = sum(node in at for node in nodes)
    return 0 < here < len(nodes)


def _leaves(window: Window, finding: Finding) -> Iterable[Place]:
    """The switches at the ends, and of one that is gone whatever had a cable to it."""
    ends = {it for it in (finding.subject, *finding.members) if it.device == SWITCH_DEVICE}
    gone = {(it.cluster, it.node) for it in ends if it.port == "0"}
    found = {(it.cluster, it.node) for it in ends}
    for cable in fabric.cables(window.whole or window):
        cluster, names = cable.between
        both = {(cluster, name) for name in names}
        own = not ends.isdisjoint(end.subject for end in cable.ends)
        if own or not gone.isdisjoint(both):
            found |= both
    return sorted(found)


def _nodes_at(window: Window, _: None) -> Mapping[Place, frozenset[Subject]]:
    found: dict[Place, set[Subject]] = defaultdict(set)
    for port, (switch, _port) in fabric.plugged(window.whole or window).items():
        found[port.cluster, switch].add(port.of_node())
    return {place: frozenset(nodes) for place, nodes in found.items()}
