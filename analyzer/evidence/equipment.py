"""Power and cooling of nodes and racks that the site's own Prometheus reports as failed."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from gpuvigil.faults import FAULTS
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Evidence, Finding, Group, GroupKind, Subject, without_domain
from gpuvigil.model.equipment import Equipment, FailedPart, PartKind

from ..window.window import Window

# It is asked once a minute and told again every five; nothing is concluded from what is older.
_OLD = timedelta(minutes=15)
# A second look must confirm the first: looks are at least five seconds apart.
_CONFIRMED = timedelta(seconds=4)
Faults = Mapping[PartKind, tuple[str, str]]
"""By kind of part its fault, and the condition whose words say it, if these are not the fault's own."""
_SOURCE = "the site's Prometheus"


def failed_equipment(window: Window, faults: Faults, detector: str) -> list[Finding]:
    """Return a finding per fault and node, or rack with its nodes, of parts that two looks saw failed."""
    found = []
    for one in _fresh(window):
        nodes = _nodes(window, one)
        parts: dict[str, list[FailedPart]] = defaultdict(list)
        for part in one.failed:
            if one.at - part.since >= _CONFIRMED:
                parts[faults[part.kind][0]].append(part)
        if nodes:
            found += [_finding(one, nodes, them, faults, detector) for them in parts.values()]
    return found


def is_unread(window: Window, faults: Faults, subject: Subject, fault: str) -> bool:
    """Tell whether a node's or its rack's equipment had this fault when it was read last, long ago."""
    return any(
        subject in _nodes(window, one) and any(faults[it.kind][0] == fault for it in one.failed)
        for one in window.equipment.values()
        if one.failed and not _is_fresh(window, one)
    )


def _fresh(window: Window) -> Iterator[Equipment]:
    return (it for it in window.equipment.values() if it.failed and _is_fresh(window, it))


def _is_fresh(window: Window, one: Equipment) -> bool:
    return abs(window.now - one.at) < _OLD


def _nodes(window: Window, one: Equipment) -> Sequence[Subject]:
    """Return the node, or those of the rack; none where no collector reports it."""
    cluster, name = one.subject.cluster, one.subject.node
    if one.is_rack:
        return window.once(_by_rack, None).get((cluster, name.casefold()), ())
    known, low = window.once(_by_name, None), name.casefold()
    return known.get((cluster, low)) or known.get((cluster, without_domain(low)), ())


def _by_rack(window: Window, _: None) -> Mapping[tuple[str, str], Sequence[Subject]]:
    found: dict[tuple[str, str], list[Subject]] = defaultdict(list)
    for it in window.inventories.values():
        if it.rack:
            found[it.subject.cluster, it.rack.casefold()].append(it.subject)
    return {rack: sorted(nodes) for rack, nodes in found.items()}


def _by_name(window: Window, _: None) -> Mapping[tuple[str, str], Sequence[Subject]]:
    """Return nodes by cluster and lower-case name, whole and, if only one has it, without a domain."""
    short: dict[tuple[str, str], list[Subject]] = defaultdict(list)
    whole = {}
    for it in window.inventories.values():
        name = it.subject.node.casefold()
        whole[it.subject.cluster, name] = (it.subject,)
        short[it.subject.cluster, without_domain(name)].append(it.subject)
    return {key: tuple(them) for key, them in short.items() if len(them) == 1} | whole


def _finding(
    one: Equipment,
    nodes: Sequence[Subject],
    parts: Sequence[FailedPart],
    faults: Faults,
    detector: str,
) -> Finding:
    fault = faults[parts[0].kind][0]
    # What a node has itself is told in the fault's own words.
    condition = min(faults[part.kind][1] for part in parts)
    row = CONDITIONS[condition] if condition else FAULTS[fault]
    group, of_rack = None, tuple[Evidence, ...]()
    if one.is_rack:
        group = Group(GroupKind.RACK, one.subject.node)
        named = ", ".join(it.node for it in nodes)
        of_rack = (Evidence(name=f"nodes of {group.label}", value=named),)
    return Finding(
        fault=fault,
        subject=nodes[0],
        severity=row.severity,
        title=row.title if condition else "",
        condition=condition,
        since=min(part.since for part in parts),
        evidence=(
            *(
                Evidence(
                    name=f"{part.kind.value} {part.name}", value=f"{part.said}, says {_SOURCE}"
                )
                for part in parts
            ),
            *of_rack,
        ),
        detector=detector,
        action=row.action,
        source=row.source,
        own_limit=row.own_limit,
        members=tuple(nodes) if one.is_rack else (),
        group=group,
    )
