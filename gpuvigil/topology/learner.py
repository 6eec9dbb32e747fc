"""Learns a cluster's fabric from stated facts and from what follows from them.

Inferred facts are marked as such, with the share of the evidence that agrees, and are left out without
a clear majority: an unknown switch is better than a wrong one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..model import Event, Inventory
from ..numbers_in_words import natural
from . import doubts, stated, together
from .model import Contradictions, Doubt, Fact, Imported, Link, Source, Topology, Uplink
from .pods import PEERS, Pods, cards, majority, pods

_HALF = 0.5
_NOTHING = Imported()


def learn(
    inventories: Iterable[Inventory],
    imported: Imported = _NOTHING,
    events: Iterable[Event] = (),
) -> Topology:
    """Return the fabric of one cluster's nodes. `events`: ports that went down are evidence, too."""
    nodes = list(inventories)
    told = stated.alike(nodes, imported)
    links, said = stated.links(nodes, told)
    places = stated.places(nodes, told)
    links = stated.of_only_ports(links, places)
    blocks = {node: fact.value for node, fact in places.items()}
    of_pods = pods(links, (blocks, _racks(nodes)), cards(nodes))
    links = _named_rails(
        _where_peers_are(links, of_pods, together.switches(links, events)), of_pods
    )
    uplinks = _reached(told.uplinks, links, places)
    found: list[Doubt] = [
        *doubts.miswired(links, of_pods),
        *said,
        *doubts.without_uplink(_leaves(links), uplinks),
        *doubts.rails_missing(links, of_pods, _builds(nodes)),
    ]
    return Topology(links=tuple(links), uplinks=uplinks, doubts=tuple(found), places=places)


def contradictions(
    inventories: Iterable[Inventory], imported: Imported = _NOTHING
) -> Contradictions:
    """Return the contradictions among one cluster's nodes, judged by stated facts only."""
    nodes = list(inventories)
    told = stated.alike(nodes, imported)
    links, _ = stated.links(nodes, told)
    of_pods = pods(links, (_racks(nodes),), cards(nodes))
    links = _named_rails(links, of_pods)
    return Contradictions(
        doubts=(
            *doubts.miswired(links, of_pods),
            *doubts.without_uplink(_leaves(links), told.uplinks),
            *doubts.rails_missing(links, of_pods, _builds(nodes)),
        ),
        judged=doubts.judged(links, of_pods),
        hosts=doubts.with_rails(links, of_pods),
        leaves={
            (link.node, link.name): link.switch.value
            for link in _where_peers_are(links, of_pods, {})
            if link.switch is not None and _is_fabric(link)
        },
    )


def _racks(nodes: Iterable[Inventory]) -> Mapping[str, str]:
    return {one.subject.node or "": one.rack for one in nodes if one.rack}


def _leaves(links: Iterable[Link]) -> set[str]:
    return {link.switch.value for link in links if link.switch is not None and _is_fabric(link)}


def _builds(nodes: Iterable[Inventory]) -> Mapping[str, str]:
    """Return each node's GPU models: hosts that differ in them may differ in their rails."""
    return {
        one.subject.node or "": ", ".join(sorted(gpu.model for gpu in one.gpus)) for one in nodes
    }


def _is_fabric(link: Link) -> bool:
    return link.role == "fabric"


def _where_peers_are(
    links: Iterable[Link], of_pods: Pods, fell: Mapping[together.Port, Fact]
) -> list[Link]:
    """Fill in the switches of ports for which none was stated: where that port of their peers is.

    A port that was never up is taken as unplugged.
    """
    found = []
    for link in links:
        if link.switch is not None or not _is_fabric(link) or not link.was_up:
            found.append(link)
            continue
        facts = [it for it in (_by_peers(link, of_pods), fell.get(_key(link))) if it is not None]
        agree = len({fact.value for fact in facts}) == 1
        found.append(replace(link, switch=facts[0]) if agree else link)
    return found


def _key(link: Link) -> together.Port:
    return link.node, link.device, link.port


def _by_peers(link: Link, of_pods: Pods) -> Fact | None:
    norm = of_pods.likely(link)
    if norm is None or norm.hosts < PEERS:
        return None
    return Fact(value=norm.leaf, source=Source.PEERS, confidence=round(norm.share, 3))


def _named_rails(links: Sequence[Link], of_pods: Pods) -> list[Link]:
    """Fill in the rail of each port: the name that ports have on the hosts at its leaf."""
    fabric = [link for link in links if _is_fabric(link)]
    hosts = len({link.node for link in fabric})
    names = Counter(name for _, name in {(link.node, link.name) for link in fabric})
    at_leaf: dict[str, Counter[str]] = defaultdict(Counter)
    for link in fabric:
        if link.switch is not None and link.node not in of_pods.renumbered:
            at_leaf[link.switch.value][link.name] += 1
    return [
        replace(link, rail=_rail(link, of_pods, at_leaf, names[link.name] / hosts))
        if _is_fabric(link) and link.rail is None and names[link.name] > 1
        else link
        for link in links
    ]


def _rail(
    link: Link, of_pods: Pods, at_leaf: Mapping[str, Counter[str]], share: float
) -> Fact | None:
    """Return the rail of a port; None for a host that numbers its ports differently.

    The rail is the port's own name where its pod has a norm for it, else the name of most ports at its leaf,
    else its own name.
    """
    norm = of_pods.norm(link)
    if norm is not None:
        confidence = round(norm.share, 3)
        return Fact(value=link.name, source=Source.PORT_NAMES, confidence=confidence)
    if link.switch is not None:
        votes = at_leaf.get(link.switch.value, Counter())
        name = majority(votes, _HALF)
        if name is not None:
            agree = round(votes[name] / votes.total(), 3)
            return Fact(value=name, source=Source.PEERS, confidence=agree)
    if link.node in of_pods.renumbered:
        return None
    return Fact(value=link.name, source=Source.PORT_NAMES, confidence=round(share, 3))


def _reached(
    uplinks: Iterable[Uplink], links: Iterable[Link], places: Mapping[str, Fact]
) -> tuple[Uplink, ...]:
    """Return the cables between switches that this cluster's nodes are connected by."""
    beside: dict[str, set[str]] = defaultdict(set)
    known = list(uplinks)
    for up in known:
        beside[up.lower].add(up.upper)
        beside[up.upper].add(up.lower)
    reached: set[str] = set()
    waiting = [link.switch.value for link in links if link.switch is not None]
    waiting += [fact.value for fact in places.values()]
    while waiting:
        switch = waiting.pop()
        if switch not in reached:
            reached.add(switch)
            waiting += beside.get(switch, ())
    mine = [up for up in known if up.lower in reached]
    return tuple(sorted(mine, key=lambda up: (natural(up.lower), natural(up.upper))))
