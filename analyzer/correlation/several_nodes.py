"""Findings and incidents about several nodes (a silent rack, an NVLink domain, a switch): which they
are, and how people call them.
"""

from collections.abc import Sequence

from gpuvigil.model import SWITCH_DEVICE, Finding, Group, GroupKind, Incident, Subject, with_kind
from gpuvigil.numbers_in_words import natural
from gpuvigil.topology.link_names import link_name, switch_link_name, switch_port_name

from ..evidence import fabric
from ..evidence.switches import plugged_into, switch_of_all
from ..window.fault_kinds import AT_SWITCHES, OF_LINKS, OF_RACKS
from ..window.subject_names import label
from ..window.window import Window
from .causes import multi_node

_NAMED = 3
_NAMED_GROUPS = frozenset({GroupKind.RACK, GroupKind.NVLINK_DOMAIN})


def is_of_rack(incident: Incident) -> bool:
    """Tell whether an incident is about silent nodes of a rack."""
    return incident.group is not None and incident.group.kind is GroupKind.RACK


def is_of_domain(what: Finding | Incident) -> bool:
    """Tell whether it is about several nodes of an NVLink domain."""
    return what.group is not None and what.group.kind is GroupKind.NVLINK_DOMAIN


def is_of_switch(what: Finding | Incident) -> bool:
    """Tell whether it is about the ports of several nodes."""
    return what.fault in AT_SWITCHES and multi_node(what)


def is_of_several_with(incident: Incident, node: Subject) -> bool:
    """Tell whether an incident is about several nodes, this one among them."""
    if incident.fault in AT_SWITCHES or is_of_domain(incident):
        return any(member.startswith(f"{node.key}/") for member in incident.members)
    return node.key in incident.members and is_of_rack(incident)


def is_of_several(what: Finding | Incident) -> bool:
    """Tell whether it is about a silent rack, an NVLink domain or a switch."""
    is_named = what.group is not None and what.group.kind in _NAMED_GROUPS
    return is_named or is_of_switch(what)


def rack_of(finding: Finding) -> str:
    """Return the rack's label for a finding about its silent nodes, else an empty string."""
    is_rack = finding.group is not None and finding.group.kind is GroupKind.RACK
    return finding.group.label if finding.group is not None and is_rack else ""


def hit_rack(window: Window, finding: Finding) -> str:
    """Return the rack's label for a finding about its air or its power, else an empty string."""
    if finding.fault not in OF_RACKS or not multi_node(finding):
        return ""
    inventory = (window.whole or window).inventories.get(finding.subject.of_node().key)
    rack = None if inventory is None else inventory.rack
    return Group(GroupKind.RACK, rack).label if rack else ""


def display_name(window: Window, finding: Finding) -> str:
    """Return the name of what a finding is about: for a link both ends, as far as they are known."""
    whole = shared_name(window, finding)
    if whole or finding.subject.kind != "port" or finding.fault not in OF_LINKS:
        return whole or label(window, finding.subject)
    seen, own = window.whole or window, label(window, finding.subject)
    if finding.subject.device != SWITCH_DEVICE:
        known = plugged_into(window, finding.subject)
        return own if known is None else link_name(own, switch_port_name(*known))
    others = [it for it in finding.members if it.device == SWITCH_DEVICE]
    if others:
        return _links(seen, finding.subject, others)
    cable = fabric.cable_at(seen, finding.subject)
    far = None if cable is None else cable.beyond(finding.subject)
    if not far or cable is None:
        return own
    return switch_link_name(own, far) if cable.at_switches else link_name(far, own)


def _links(window: Window, first: Subject, others: Sequence[Subject]) -> str:
    """Return a name like `4 links of leaf1 (to spine1, spine2)`.

    Without a switch that all links share, it is their number and the first one's name.
    """
    cables = [fabric.cable_at(window, it) for it in (first, *others)]
    between = [set(cable.between[1]) for cable in cables if cable is not None]
    shared = sorted(set.intersection(*between)) if between else []
    count = len(others) + 1
    if not shared:
        return f"{count} links, the first at {label(window, first)}"
    own = first.node if first.node in shared else shared[0]
    far = sorted(set.union(*between) - {own}, key=natural)
    more = f" and {len(far) - _NAMED} more" if len(far) > _NAMED else ""
    return f"{count} links of {own} (to {', '.join(far[:_NAMED])}{more})"


def shared_name(window: Window, finding: Finding) -> str:
    """Return the name of what several nodes share: a rack, an NVLink domain or a switch.

    The name is empty for a finding about one node.
    """
    if finding.group is not None and is_of_domain(finding):
        return finding.group.label
    if not is_of_switch(finding):
        return rack_of(finding) or hit_rack(window, finding)
    if finding.subject.device == SWITCH_DEVICE:
        switches = [it for it in (finding.subject, *finding.members) if it.device == SWITCH_DEVICE]
        shown = ", ".join(it.node for it in switches[:_NAMED])
        more = f" and {len(switches) - _NAMED} more" if len(switches) > _NAMED else ""
        return with_kind("switch", shown) if len(switches) == 1 else f"switches {shown}{more}"
    nodes = sorted({s.of_node() for s in (finding.subject, *finding.members)})
    shown = ", ".join(node.node for node in nodes[:_NAMED])
    left = len(nodes) - _NAMED
    shown += f" and {left} more node{'s' if left > 1 else ''}" if left > 0 else ""
    ports = [it for it in (finding.subject, *finding.members) if it.kind == "port"]
    names = sorted({it.device or "" for it in ports})
    ports_of = f"{names[0]} of {shown}" if len(names) == 1 else shown
    switch = switch_of_all(window, ports)
    return f"{with_kind('switch', switch)} ({ports_of})" if switch else ports_of
