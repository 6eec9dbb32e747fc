"""Nodes of a rack that fall silent together: one finding about what the rack shares."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from gpuvigil.clock import moment
from gpuvigil.model import Evidence, Finding, Group, GroupKind, Subject
from gpuvigil.silence_conditions import NodeSilence

from ..window.window import Window
from .cluster_wide import half_of
from .grouping import rack_mates

# Two nodes at once may be chance; three, and half of their rack, are a feed, a switch or an aisle.
_NODES, _SHARE = 3, 0.5
_TOGETHER = timedelta(minutes=5)


def of_racks(window: Window, found: Iterable[Finding]) -> list[Finding]:
    """Return a finding for each rack of which enough nodes fell silent within five minutes.

    `found`: findings about silent nodes, without those that went in order. If half of a cluster is
    silent, the rack is not the cause. Racks are those named in inventories.
    """
    by_cluster: dict[str, list[Finding]] = defaultdict(list)
    for finding in found:
        by_cluster[finding.subject.cluster].append(finding)
    mates = rack_mates(window) if any(len(them) >= _NODES for them in by_cluster.values()) else {}
    told = []
    for cluster, them in sorted(by_cluster.items()):
        if half_of(window, cluster, {f.subject: f.since for f in them}):
            continue
        racks: dict[tuple[Subject, ...], list[Finding]] = defaultdict(list)
        for finding in them:
            racks[tuple(mates.get(finding.subject, ()))].append(finding)
        for rack, silent in racks.items():
            alike = _at_once(silent) if rack else []
            if len(alike) >= max(_NODES, _SHARE * len(rack)):
                told.append(_of_rack(window, rack, alike))
    return told


def _at_once(silent: Iterable[Finding]) -> list[Finding]:
    """Return the most findings of nodes that fell silent within five minutes."""
    ordered = sorted(silent, key=lambda finding: (finding.since, finding.subject))
    runs = [
        [f for f in ordered[first:] if f.since - ordered[first].since <= _TOGETHER]
        for first in range(len(ordered))
    ]
    return max(runs, key=len, default=[])


def _of_rack(window: Window, rack: Sequence[Subject], silent: Sequence[Finding]) -> Finding:
    """Return a finding about the rack's first node, silent or not, which stays while others change."""
    known = [finding.condition for finding in silent]
    told = _verdict(known)
    worst = min(silent, key=lambda finding: (finding.severity.rank, finding.subject))
    nodes = sorted(finding.subject for finding in silent)
    group = Group(GroupKind.RACK, str(window.inventories[nodes[0].key].rack))
    times = [finding.since for finding in silent]
    return replace(
        worst,
        subject=rack[0],
        since=min(times),
        title=told.heading,
        condition=told.value,
        action=told.action,
        source="ours: half of a rack within five minutes",
        own_limit=True,
        evidence=(
            Evidence(
                name=f"nodes of {group.label}",
                value=f"{len(nodes)} of {len(rack)}: {', '.join(node.node for node in nodes)}",
            ),
            Evidence(name="last heard", value=f"from {moment(min(times))} to {moment(max(times))}"),
            *_tally(known),
        ),
        members=tuple(nodes),
        group=group,
    )


def _verdict(known: Collection[str]) -> NodeSilence:
    """Return the verdict by the other nodes of their jobs; one dead node is enough, as all share it."""
    if NodeSilence.DEAD in known:
        return NodeSilence.RACK_POWER
    return NodeSilence.RACK_NETWORK if NodeSilence.COLLECTOR in known else NodeSilence.RACK_EITHER


def _tally(known: Sequence[str]) -> tuple[Evidence, ...]:
    counts = {
        "dead": known.count(NodeSilence.DEAD),
        "alive": known.count(NodeSilence.COLLECTOR),
    }
    parts = [f"{count} {word}" for word, count in counts.items() if count]
    return (Evidence(name="their jobs say", value=", ".join(parts)),) if parts else ()
