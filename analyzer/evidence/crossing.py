"""The jobs that may send over a link between switches: those with nodes at its leaves and elsewhere.

Which of several ways a packet takes is up to the fabric; but which jobs need none of them is known.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gpuvigil.model import SWITCH_DEVICE, Finding, Subject
from gpuvigil.model.switch_hosts import Place

from ..window.holdings import Holding
from ..window.window import Window
from . import fabric


@dataclass(frozen=True, slots=True)
class Crossing:
    """Whether the nodes at a link's leaves are known, and the jobs that need it, largest first."""

    known: bool
    jobs: tuple[Holding, ...]


def crossing(window: Window, finding: Finding) -> Crossing:
    """Return the jobs over a cable between switches, or over switches that do not answer."""
    leaves = _leaves(window, finding) & window.once(_with_hosts, None)
    needing = [job for job, over in window.once(_crossed, None) if not leaves.isdisjoint(over)]
    return Crossing(known=bool(leaves), jobs=tuple(needing))


def _leaves(window: Window, finding: Finding) -> frozenset[Place]:
    """Return the switches at a finding's ends, and for a lost switch all that had a cable to it."""
    ends = {it for it in (finding.subject, *finding.members) if it.device == SWITCH_DEVICE}
    gone = {(it.cluster, it.node) for it in ends if it.port == "0"}
    found = {(it.cluster, it.node) for it in ends}
    for cable in fabric.cables(window.whole or window):
        cluster, names = cable.between
        both = {(cluster, name) for name in names}
        own = not ends.isdisjoint(end.subject for end in cable.ends)
        if own or not gone.isdisjoint(both):
            found |= both
    return frozenset(found)


def _switches_of(window: Window, _: None) -> Mapping[Subject, Collection[Place]]:
    """Return by node the switches that its ports are plugged into."""
    found: dict[Subject, set[Place]] = defaultdict(set)
    for port, (switch, _port) in fabric.plugged(window.whole or window).items():
        found[port.of_node()].add((port.cluster, switch))
    return found


def _with_hosts(window: Window, _: None) -> frozenset[Place]:
    return frozenset(place for them in window.once(_switches_of, None).values() for place in them)


def _crossed(window: Window, _: None) -> Sequence[tuple[Holding, frozenset[Place]]]:
    """Return the jobs over several nodes, largest first, each with the switches that it crosses.

    These are the switches that some of the job's nodes are at, and not all.
    """
    at = window.once(_switches_of, None)
    several = [job for job in window.holdings.values() if len(job.nodes) > 1]
    found = []
    for job in sorted(several, key=lambda it: (-len(it.gpus), it.name)):
        nodes = Counter(place for node in job.nodes for place in at.get(node, ()))
        over = frozenset(place for place, count in nodes.items() if count < len(job.nodes))
        found.append((job, over))
    return found
