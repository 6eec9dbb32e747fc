"""What is about several nodes: a rack's silence, an NVLink domain, a switch. What it is called, and
whom it is about.
"""

from gpuvigil.model import SWITCH_DEVICE, Finding, GroupKind, Incident, Subject

from ..evidence.switches import switch_of_all
from ..window.fault_kinds import AT_SWITCHES
from ..window.window import Window
from .causes import spreads

_NAMED = 3
_NAMED_GROUPS = frozenset({GroupKind.RACK, GroupKind.NVLINK_DOMAIN})


def is_of_rack(incident: Incident) -> bool:
    """Whether it is about silent nodes of a rack."""
    return incident.group is not None and incident.group.kind is GroupKind.RACK


def is_of_domain(what: Finding | Incident) -> bool:
    """Whether it is about several nodes of an NVLink domain."""
    return what.group is not None and what.group.kind is GroupKind.NVLINK_DOMAIN


def is_of_switch(what: Finding | Incident) -> bool:
    """Whether it is about the ports of several nodes."""
    return what.fault in AT_SWITCHES and spreads(what)


def is_of_several_with(incident: Incident, node: Subject) -> bool:
    """Whether it is about several nodes, this one among them."""
    if incident.fault in AT_SWITCHES or is_of_domain(incident):
        return any(member.startswith(f"{node.key}/") for member in incident.members)
    return node.key in incident.members and is_of_rack(incident)


def is_of_several(what: Finding | Incident) -> bool:
    """Whether it is about a silent rack, an NVLink domain or a switch."""
    is_named = what.group is not None and what.group.kind in _NAMED_GROUPS
    return is_named or is_of_switch(what)


def rack_of(finding: Finding) -> str:
    """What silent nodes of a rack are called by: their finding is about one of its nodes."""
    is_rack = finding.group is not None and finding.group.kind is GroupKind.RACK
    return finding.group.label if finding.group is not None and is_rack else ""


def several(window: Window, finding: Finding) -> str:
    """What is about several nodes is called by what they share: a rack, an NVLink domain, a switch;
    empty for what is about one.
    """
    if finding.group is not None and is_of_domain(finding):
        return finding.group.label
    if not is_of_switch(finding):
        return rack_of(finding)
    if finding.subject.device == SWITCH_DEVICE:
        switches = [it for it in (finding.subject, *finding.members) if it.device == SWITCH_DEVICE]
        shown = ", ".join(it.node for it in switches[:_NAMED])
        more = f" and {len(switches) - _NAMED} more" if len(switches) > _NAMED else ""
        return f"switch{'es' if len(switches) > 1 else ''} {shown}{more}"
    nodes = sorted({s.of_node() for s in (finding.subject, *finding.members)})
    shown = ", ".join(node.node for node in nodes[:_NAMED])
    left = len(nodes) - _NAMED
    shown += f" and {left} more node{'s' if left > 1 else ''}" if left > 0 else ""
    ports = [it for it in (finding.subject, *finding.members) if it.kind == "port"]
    names = sorted({it.device or "" for it in ports})
    ports_of = f"{names[0]} of {shown}" if len(names) == 1 else shown
    switch = switch_of_all(window, ports)
    return f"switch {switch} ({ports_of})" if switch else ports_of
