"""A rack's air is one incident, whichever of its nodes shows it first and last.

Power that two nodes lack one after the other may be two supplies, which air is not.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from gpuvigil.model import Finding, Incident

from ..window.fault_kinds import OF_RACKS, WARM_AIR
from .causes import is_apart, multi_node

# What began on a node this long before its rack's is a matter of its own (ours: nodes at different powers show the
# same air up to two spans of ten minutes apart).
_FIRST = timedelta(minutes=20)


def as_of_racks(
    found: Sequence[Finding],
    active: Mapping[str, Incident],
    over: Collection[Incident],
    believed: Collection[str],
) -> list[Finding]:
    """Return the findings, those about a rack under the name of the incident that they continue.

    That is the rack's own, by whichever of its nodes it is called; or, from the second look on, that of the
    node that showed first what the rack has. What is left of it on that node keeps the rack's words.
    """
    said = [_named(one, found, active, over, believed) for one in found]
    return [_of_its_rack(one, active) for one in said]


def _named(
    one: Finding,
    found: Iterable[Finding],
    active: Mapping[str, Incident],
    over: Collection[Incident],
    believed: Collection[str],
) -> Finding:
    if one.fault not in WARM_AIR or not multi_node(one) or one.fingerprint in active:
        return one
    others = {it.fingerprint for it in found if it is not one}
    first = _first(one, active.values(), one.certain or one.fingerprint in believed)
    if first is None and all(i.fingerprint != one.fingerprint for i in over):
        first = _first(one, over, is_sure=False)
    if first is None or first.fingerprint in others:
        return one
    # A rack is called by its first node, hit or not.
    is_hit = any(it.of_node() == one.subject for it in one.members)
    members = {*one.members, *([one.subject] if is_hit else ())} - {first.subject}
    return replace(one, subject=first.subject, members=tuple(sorted(members)))


def _first(one: Finding, incidents: Iterable[Incident], is_sure: bool) -> Incident | None:
    """Return the rack's own incident, else, where it `is_sure`, the node's that began shortly before."""
    nodes = {member.of_node() for member in (one.subject, *one.members)}
    alike = [
        i
        for i in incidents
        if i.fault == one.fault
        and i.subject in nodes
        and not is_apart(one, i)
        and (multi_node(i) or (is_sure and _is_first_sign(i, one)))
    ]
    return min(alike, key=lambda i: (not multi_node(i), i.since, i.id), default=None)


def _is_first_sign(of_node: Incident, one: Finding) -> bool:
    """Tell whether a node's incident is no graver than its rack's, and began shortly before it."""
    return of_node.severity.rank >= one.severity.rank and one.since - of_node.since <= _FIRST


def _of_its_rack(finding: Finding, active: Mapping[str, Incident]) -> Finding:
    """Return a finding about the node that names its rack, in the words of the rack's incident.

    The rest of a rack's air or feed problem on one node is no other problem, unless it is graver.
    """
    rack = active.get(finding.fingerprint)
    if (
        rack is None
        or finding.fault not in OF_RACKS
        or not multi_node(rack)
        or multi_node(finding)
        or finding.severity.rank < rack.severity.rank
    ):
        return finding
    return replace(
        finding,
        title=rack.title,
        condition=rack.condition,
        action=rack.action,
        source=rack.source,
        own_limit=rack.own_limit,
        evidence=rack.evidence,
    )
