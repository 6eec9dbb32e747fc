"""Which leaves serve the same nodes, and at which leaf each port of such nodes belongs.

In a rail-optimised fabric the nodes of one pod have port 0 at one leaf, port 1 at the next and so on
(NVIDIA DGX SuperPOD reference architecture); other pods have other leaves. So a port is compared with
the ports of the same name in its own pod.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType

from ..model import Inventory
from ..numbers_in_words import natural
from .model import Fact, Link

AGREE = 0.8  # share of hosts that makes a clear majority
HOSTS = 5  # at least, before a host is said to differ
PEERS = 3  # at least, before a port is assumed to be where theirs are
_RENUMBERED = 2  # more misfits than one swap causes


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """The leaf of a pod's ports of one name, and how many of how many hosts agree."""

    leaf: str
    agree: int
    hosts: int

    @property
    def share(self) -> float:
        return self.agree / self.hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The pods of a cluster's nodes; a pod is named after the first of its leaves.

    `renumbered`: nodes that number their ports differently from the rest of their pod.
    """

    of_node: Mapping[str, str] = field(default_factory=dict)
    norms: Mapping[tuple[str, str], Norm] = field(default_factory=dict)  # by pod and port name
    renumbered: frozenset[str] = frozenset()
    of_all: Mapping[tuple[str, str], Norm] = field(default_factory=dict)  # with those hosts
    heard: frozenset[str] = frozenset()  # nodes for which some port's switch is known
    alike: frozenset[str] = frozenset()  # nodes that are known to number their ports as most do

    def rail(self, node: str, leaf: str) -> str:
        """Return the names of the ports that most hosts of the node's pod have at a leaf."""
        pod = self.of_node.get(node)
        names = (name for (of, name), norm in self.norms.items() if of == pod and norm.leaf == leaf)
        return ", ".join(sorted(names, key=natural))

    def likely(self, link: Link) -> Norm | None:
        """Return where a port without stated facts most likely is; None without a clear majority.

        A host without any stated facts may be renumbered, like those that are known to be: so these
        count.
        """
        if link.node in self.heard or self.norm(link) is None:
            return self.norm(link)
        found = self.of_all[self.of_node[link.node], link.name]
        return found if found.share >= AGREE else None

    def norm(self, link: Link) -> Norm | None:
        """Return where the majority of the pod has this port; None without a clear majority."""
        if link.node in self.renumbered or link.node not in self.of_node:
            return None
        found = self.norms.get((self.of_node[link.node], link.name))
        return found if found is not None and found.share >= AGREE else None


Cards = Mapping[tuple[str, str], str]  # by node and device: the PCI address of its card


def cards(inventories: Iterable[Inventory]) -> Cards:
    """Return the PCI addresses of these nodes' network cards, where nodes report them."""
    return {
        (one.subject.node or "", device): nic.address
        for one in inventories
        for nic in one.nics
        for device in nic.devices
    }


def pods(
    links: Iterable[Link], groups: Iterable[Mapping[str, str]], where: Cards = MappingProxyType({})
) -> Pods:
    """Group nodes into pods by their fabric ports with known switches. `groups`: racks and blocks, by node.

    A node without a known switch is put into the pod of its group. `where`: a node whose ports are in
    another order than its pod's, going by their cards, numbers them differently.
    """
    known = [link for link in links if link.role == "fabric" and link.switch is not None]
    by_node: dict[str, list[Link]] = defaultdict(list)
    for link in known:
        by_node[link.node].append(link)
    of_leaf = _of_leaf({node: {_leaf(one) for one in ports} for node, ports in by_node.items()})
    of_node = {}
    for node, ports in by_node.items():
        pod = majority(Counter(of_leaf[_leaf(one)] for one in ports), 0.5)
        if pod is not None:
            of_node[node] = pod
    for group in groups:
        of_node |= _of_group(group, of_node)
    norms = _norms(known, of_node)
    first = Pods(of_node=of_node, norms=norms)
    alike, otherwise = _by_cards(by_node, of_node, where)
    odd = otherwise | {node for node, ports in by_node.items() if _is_renumbered(ports, first)}
    rest = [link for link in known if link.node not in odd]
    return Pods(
        of_node=of_node,
        norms=_norms(rest, of_node),
        renumbered=odd,
        of_all=norms,
        heard=frozenset(by_node),
        alike=alike - odd,
    )


def majority(votes: Counter[str], over: float) -> str | None:
    """Return the value with more than this share of the votes; None without one."""
    if not votes:
        return None
    ((first, count),) = votes.most_common(1)
    return first if count > over * votes.total() else None


def _leaf(link: Link) -> str:
    known: Fact | None = link.switch
    assert known is not None
    return known.value


def _of_leaf(leaves_of: Mapping[str, set[str]]) -> dict[str, str]:
    """Return each leaf's pod: two leaves share one if they share over half of the smaller one's nodes."""
    sizes, both = Counter[str](), Counter[tuple[str, str]]()
    for leaves in leaves_of.values():
        sizes.update(leaves)
        both.update(combinations(sorted(leaves), 2))
    pod = {leaf: leaf for leaf in sizes}

    def top(leaf: str) -> str:
        while pod[leaf] != leaf:
            pod[leaf] = leaf = pod[pod[leaf]]
        return leaf

    for (a, b), shared in both.items():
        if shared > min(sizes[a], sizes[b]) / 2:
            first, second = sorted((top(a), top(b)))
            pod[second] = first
    return {leaf: top(leaf) for leaf in sizes}


def _of_group(group: Mapping[str, str], of_node: Mapping[str, str]) -> dict[str, str]:
    """Return the pods of nodes without one, where nearly all others of their group are in the same pod."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for node, name in group.items():
        if node in of_node:
            votes[name][of_node[node]] += 1
    found = {}
    for node, name in group.items():
        pod = majority(votes[name], AGREE)
        if node not in of_node and pod is not None and votes[name][pod] >= PEERS:
            found[node] = pod
    return found


def _norms(known: Iterable[Link], of_node: Mapping[str, str]) -> dict[tuple[str, str], Norm]:
    votes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for link in known:
        if link.node in of_node:
            votes[of_node[link.node], link.name][_leaf(link)] += 1
    found = {}
    for key, counts in votes.items():
        ((leaf, agree),) = counts.most_common(1)
        found[key] = Norm(leaf=leaf, agree=agree, hosts=counts.total())
    return found


def _by_cards(
    by_node: Mapping[str, Sequence[Link]], of_node: Mapping[str, str], where: Cards
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the nodes whose cards order their ports as usual, and those where they do not.

    The first have every port at the card where most of their pod have it, the others have one at a card
    where most have another port.
    """
    votes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    told: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    for node, ports in by_node.items():
        for link in ports:
            address = where.get((node, link.device))
            if address is not None and node in of_node:
                told[node][of_node[node], link.name] = address
                votes[of_node[node], link.name][address] += 1
    usual = {
        key: address
        for key, counts in votes.items()
        if counts.total() >= PEERS and (address := majority(counts, 0.5)) is not None
    }
    of_others: dict[str, set[str]] = defaultdict(set)
    for (pod, _), address in usual.items():
        of_others[pod].add(address)
    alike, otherwise = set(), set()
    for node, own in told.items():
        odd = [it for key, it in own.items() if key in usual and usual[key] != it]
        if not odd and len(own) == len(by_node[node]) and own.keys() <= usual.keys():
            alike.add(node)
        elif any(it in of_others[of_node[node]] for it in odd):
            otherwise.add(node)
    return frozenset(alike), frozenset(otherwise)


def _is_renumbered(ports: Iterable[Link], pods_: Pods) -> bool:
    """Return whether most ports of a node are at other leaves: then its driver numbers them differently."""
    norms = [(one, norm) for one in ports if (norm := pods_.norm(one)) is not None]
    misfits = [(_leaf(one), norm.leaf) for one, norm in norms if norm.leaf != _leaf(one)]
    if len(misfits) > max(_RENUMBERED, len(norms) / 2):
        return True
    is_all = len(misfits) == len(norms) == _RENUMBERED
    return is_all and {at for at, _ in misfits} != {leaf for _, leaf in misfits}
