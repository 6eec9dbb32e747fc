"""Slow nodes behind a full leaf switch, which explains them even if the node counts no waits.

Many ports have no counter of waits, or one that is full: then the leaf's incident cannot name them.
"""

from collections.abc import Hashable, Iterable, Iterator

from gpuvigil.model import CoveredBy, Finding, Incident, Subject

from ..evidence.port_groups import leaf_of, rail_of
from ..evidence.port_rates import TIMESCALES, jobs_through
from ..window.fault_kinds import EXPLAINED_BY, SWITCHES_FULL
from ..window.window import Window
from .causes import WHOLE_NODE


def slowed_by_leaves(
    window: Window, found: Iterable[Finding], active: Iterable[Incident]
) -> dict[str, CoveredBy]:
    """Return the cover of each node that jobs wait for without a known reason, but with a full leaf.

    The covers are by the fingerprint of the node's finding.
    """
    seen = window.whole or window
    slow = [it for it in found if it.condition == WHOLE_NODE]
    full = [it for it in active if it.fault in SWITCHES_FULL] if slow else []
    places = [(it, {at for port in _ports(it) for at in _places(seen, port)}) for it in full]
    covered: dict[str, CoveredBy] = {}
    for one in slow:
        own = {at for port in _fabric(seen, one.subject) for at in _places(seen, port)}
        for leaf, waiting in places:
            if one.fault in EXPLAINED_BY[leaf.fault] and not waiting.isdisjoint(own):
                said = CoveredBy(fingerprint=leaf.fingerprint, what=f"{leaf.label}: {leaf.title}")
                covered.setdefault(one.fingerprint, said)
    return covered


def _ports(leaf: Incident) -> set[Subject]:
    return {it for it in {leaf.subject, *map(Subject.parse, leaf.members)} if it.kind == "port"}


def _fabric(window: Window, node: Subject) -> Iterator[Subject]:
    inventory = window.inventories.get(node.key)
    for it in () if inventory is None else inventory.ports:
        if it.role == "fabric" and it.was_up:
            yield Subject(cluster=node.cluster, node=node.node, device=it.device, port=it.port)


def _places(window: Window, port: Subject) -> Iterator[Hashable]:
    """Yield the leaf through which jobs over several nodes use a port.

    If the leaf is unknown, yield each of these jobs with the port's rail.
    """
    jobs, leaf = jobs_through(window, port, TIMESCALES[-1]), leaf_of(window, port)
    if leaf is None:
        yield from ((rail_of(port), job) for job in jobs)
    elif jobs:
        yield port.cluster, leaf
