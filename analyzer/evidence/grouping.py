"""Joining the same condition on GPUs of a node, or on nodes of a rack, into one claim."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gpuvigil.model import Evidence, Finding, Subject, with_kind

from ..window.window import Window
from .claims import Claim

# The least number of a rack's nodes.
_NODES, _HALF = 2, 0.5


def by_node(
    window: Window,
    claims: Iterable[Claim],
    share: float,
    condition: str,
    measured: Mapping[Subject, int] | None = None,
) -> list[Claim]:
    """Join claims about `share` of a node's GPUs, two at least, into one claim about the node.

    `measured`: by node, how many of its GPUs could show it, where not all of them can.
    """
    nodes: dict[Subject, list[Claim]] = defaultdict(list)
    for claim in claims:
        nodes[claim.subject.of_node()].append(claim)
    joined: list[Claim] = []
    for node, them in sorted(nodes.items()):
        inventory = window.inventories.get(node.key)
        gpus = len(them) if inventory is None else len(inventory.gpus)
        if measured is not None:
            gpus = max(measured.get(node, 0), len(them))
        if len(them) >= max(2, share * gpus):
            joined.append(_of_node(node, them, condition, gpus))
        else:
            joined += them
    return joined


def _of_node(node: Subject, claims: Sequence[Claim], condition: str, gpus: int) -> Claim:
    first = claims[0]
    return replace(
        first,
        condition=condition,
        subject=node,
        since=min(claim.since for claim in claims),
        evidence=(Evidence(name="GPUs", value=f"{len(claims)} of {gpus}"), *first.evidence),
        severity=min((claim.urgency for claim in claims), key=lambda s: s.rank),
        members=tuple(sorted(claim.subject for claim in claims)),
    )


def one_of_node(found: Iterable[Finding], title: str, action: str | None = None) -> list[Finding]:
    """Merge the findings of several GPUs on a node into one about the node, worded as the gravest.

    `action` is what to do where the node has several, if that differs.
    """
    of_node: dict[Subject, list[Finding]] = defaultdict(list)
    for one in sorted(found, key=lambda one: (one.severity.rank, one.subject)):
        of_node[one.subject.of_node()].append(one)
    return [
        them[0]
        if len(them) == 1
        else replace(
            them[0],
            subject=node,
            title=title,
            since=min(one.since for one in them),
            evidence=(Evidence(name="GPUs", value=str(len(them))), *them[0].evidence),
            action=action or them[0].action,
            members=tuple(sorted(one.subject for one in them)),
        )
        for node, them in sorted(of_node.items())
    ]


def by_rack(
    window: Window,
    claims: Sequence[Claim],
    condition: str,
    share: float = 0.5,
    among: Collection[Subject] | None = None,
) -> list[Claim]:
    """Join claims about `share` of a rack's nodes, two at least, into one about the rack.

    Racks are those named in inventories; without a rack nothing is joined. The joined claim is
    about the rack's first node, hit or not, so that it stays the same while nodes come and go.
    `among`: the nodes that count, where not all of a rack can show it.
    """
    if not claims:
        return []
    racks = _racks(window)
    by_name: dict[tuple[str, str], list[Claim]] = defaultdict(list)
    alone = []
    for claim in claims:
        inventory = window.inventories.get(claim.subject.key)
        if claim.subject.kind == "node" and inventory is not None and inventory.rack:
            by_name[claim.subject.cluster, inventory.rack].append(claim)
        else:
            alone.append(claim)
    for name, them in sorted(by_name.items()):
        hit = {claim.subject for claim in them}
        counted = [node for node in racks[name] if among is None or node in among or node in hit]
        if len(hit) >= max(_NODES, share * len(counted)):
            alone.append(_of_rack(name[1], racks[name][0], them, condition))
        else:
            alone += them
    return alone


def in_racks(
    window: Window, claims: Sequence[Claim], among: Callable[[Window], frozenset[Subject]]
) -> list[Claim]:
    """Return the claims on nodes in racks with half, and two at least, of the counting nodes claimed.

    What several nodes of a rack share needs less evidence than what a single node shows.
    """
    if not claims:
        return []
    hit, mates, counting = {claim.subject for claim in claims}, rack_mates(window), among(window)

    def are_most(rack: Sequence[Subject]) -> bool:
        return len(hit.intersection(rack)) >= max(_NODES, _HALF * len(counting.intersection(rack)))

    return [claim for claim in claims if are_most(mates.get(claim.subject, ()))]


def rack_mates(window: Window) -> Mapping[Subject, Sequence[Subject]]:
    """Return by node all nodes of its rack, sorted; nodes without a named rack are left out."""
    return {node: nodes for nodes in _racks(window).values() for node in nodes}


def _racks(window: Window) -> Mapping[tuple[str, str], list[Subject]]:
    """Return the nodes of each rack, sorted."""
    racks: dict[tuple[str, str], list[Subject]] = defaultdict(list)
    for inventory in window.inventories.values():
        if inventory.rack:
            racks[inventory.subject.cluster, inventory.rack].append(inventory.subject)
    return {name: sorted(nodes) for name, nodes in racks.items()}


def _of_rack(rack: str, subject: Subject, claims: Sequence[Claim], condition: str) -> Claim:
    """Return a claim on a rack in the words and with the severity of its gravest claim."""
    worst = min(claims, key=lambda claim: (claim.urgency.rank, claim.subject))
    hit = sorted({claim.subject for claim in claims})
    name = f"nodes of {with_kind('rack', rack)}"
    evidence = Evidence(name=name, value=", ".join(node.node for node in hit))
    return replace(
        worst,
        condition=condition,
        subject=subject,
        since=min(claim.since for claim in claims),
        evidence=(evidence, *worst.evidence),
        severity=worst.urgency,
        members=tuple(sorted({s for c in claims for s in (c.subject, *c.members)} - {subject})),
    )
