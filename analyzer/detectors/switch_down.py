"""Fabric ports of several nodes that went down together: what they share is gone, not their cables.

Which port leads to which switch is known only where lldpd runs, so a switch is recognised by the ports that go
down with it: those of one name, where the fabric is rail-optimised, or all ports of a rack. A group that is
neither is reported as ports of several nodes that went down together. Where no event says when a port went
down, its lines do.

Where somebody reads the fabric, a switch that no longer answers is reported by its name.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS, found_by
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Event, EventKind, Evidence, Finding, Severity, Subject, Switch
from gpuvigil.store import Aggregate, Function

from ..evidence import fabric, fabric_links
from ..evidence.grouping import rack_mates
from ..evidence.measured_drops import NEEDS as MEASURED
from ..evidence.measured_drops import measured_drops
from ..evidence.port_drops import (
    Drop,
    drop_of,
    fabric_ports,
    group_drops,
    is_complete,
    is_leaving,
    is_switch,
    racks_of,
    role_of,
)
from ..evidence.switches import switch_of_all
from ..window.fault_kinds import LINKS_DOWN
from ..window.rows import Rows
from ..window.window import Need, Span, Window
from . import Detector
from .node_silent import Hearing, hearing

_UP = Aggregate(function=Function.MAX, field="up")
NEEDS = (
    *MEASURED,
    Need(measurement="port", span=Span.NOW, fields=("up", "enabled")),
    Need(measurement="port", span=Span.FLAP, aggregates=(_UP,)),
)

_FAULT, _LOST = FAULTS["switch_down"], CONDITIONS["switch_lost"]
# Share of the rack's nodes that have the port.
_MOST = 0.5
# A node that reaches the hub over the same switch was last heard up to a tick before.
_SILENT_AFTER = timedelta(seconds=5)
_SHOWN = 8
_GUID = re.compile(r"[0-9a-f]{16}").fullmatch
# A fabric is read once a minute, so switches lost within this time have one cause.
_ONE_CAUSE, _SEVERAL_LOST = timedelta(minutes=2), "Switches do not answer"
Name = tuple[str | None, str | None]  # a port's device and number
AT_ONCE = "Ports of several nodes went down together"
_CHECK_SHARED = (
    "Check what these ports share: a leaf switch, its power, or a change of drivers or settings"
    " on these nodes."
)


def switches_down(window: Window) -> list[Finding]:
    """Return one finding per group of ports, about the first that went down, with the others as members.

    Nodes that fell silent at the same moment are members, too: their management network may use the same
    switch. A group that is not complete yet is not reported yet.
    """
    rows = window.get("port", Span.NOW)
    drops = [*_drops(window, rows), *measured_drops(window)]
    found = []
    for group in group_drops(drops, racks_of(window)):
        of_switch = _of_switch(window, rows, group)
        if is_switch(of_switch, _peers(window, rows, of_switch)) and is_complete(
            of_switch, window.now
        ):
            whole = [*of_switch, *_by_numbers(window, rows, of_switch)]
            found.append(_by_name(window, _finding(window, whole)))
    return [*found, *_lost(window, found)]


def _by_numbers(window: Window, rows: Rows, group: Sequence[Drop]) -> Iterator[Drop]:
    """Yield ports of these names that are measured as down on the racks' other nodes, and were up ten minutes ago.

    Not every node reports by an event that a port went down, nor sends its measurements at once. A port that is
    in the switch's open incident stays part of it; one that was reported by itself before does not become part.
    """
    mates, names = rack_mates(window), {drop.name for drop in group}
    hit = {drop.port.of_node() for drop in group}
    beside = {mate for one in hit for mate in mates.get(one, ())} - hit
    span, stood = window.get("port", Span.FLAP), _stood(window)
    own = {
        it.subject
        for it in window.recent_incidents
        if not LINKS_DOWN.isdisjoint({it.fault, it.condition}) and not it.resolved_at
    }
    for node in sorted(beside):
        for port in fabric_ports(window, node):
            row, lately = rows.get(port), span.get(port)
            is_down = row is not None and row["up"] == 0 and (port.device, port.port) in names
            fell = lately is not None and lately[_UP.column] == 1
            drop = replace(group[0], port=port)
            with_it = (fell and port not in own) or port.key in stood
            if is_down and with_it and not is_leaving(window, drop):
                yield drop


def _stood(window: Window) -> set[str]:
    """Return the keys of the ports in open incidents of switches."""
    return {
        member for it in window.active_incidents if it.fault == _FAULT.key for member in it.members
    }


def _by_name(window: Window, found: Finding) -> Finding:
    """Return the finding with all ports of the switches that no longer answer, where it is about their ports.

    Not every node reports its port by an event, but such a port is down because of the switch, too.
    """
    ports = {found.subject, *found.members}
    lost = [
        it
        for it in fabric.lost_switches(window)
        if not ports.isdisjoint(fabric.hosts_of(window, it))
    ]
    if not lost:
        return found
    for switch in lost:
        ports |= set(fabric.hosts_of(window, switch))
    return replace(
        found,
        evidence=(*found.evidence, Evidence(name="do not answer", value=_called(lost))),
        action=_FAULT.action,
        title="",
        condition="",
        members=tuple(sorted(ports - {found.subject})),
    )


def _lost(window: Window, found: Sequence[Finding]) -> Iterator[Finding]:
    """Yield findings on switches that the fabric's reader misses, unless nodes reported their ports.

    Switches lost within two minutes have one cause. One that was taken out of service is not reported.
    """
    told = {port for finding in found for port in (finding.subject, *finding.members)}
    left = [
        it
        for it in fabric.lost_switches(window)
        if told.isdisjoint(fabric.hosts_of(window, it)) and not fabric.is_taken_out(window, it)
    ]
    left.sort(key=lambda it: (it.subject.cluster, it.lost_at, it.subject))
    while left:
        first, *others = left
        since = first.lost_at or first.at
        alike = [
            it
            for it in others
            if it.subject.cluster == first.subject.cluster
            and (it.lost_at or it.at) - since <= _ONE_CAUSE
        ]
        yield _lost_switches(window, [first, *alike], since)
        left = [it for it in others if it not in alike]


def _lost_switches(window: Window, switches: Sequence[Switch], since: datetime) -> Finding:
    """Build the finding on lost switches, critical only where hosts are attached to one.

    Without a spine the fabric goes on, with less capacity.
    """
    plugged = {host for switch in switches for host in fabric.plugged_hosts(window, switch)}
    evidence = [
        Evidence(name="answered until", value=moment(since)),
        Evidence(name="hosts' ports there", value=str(len(plugged))),
        *fabric_links.links_lost(window, switches),
        Evidence(name="switches", value=_called(switches)),
    ]
    hosts = [host for switch in switches for host in fabric.hosts_of(window, switch)]
    return Finding(
        fault="switch_down",
        subject=switches[0].port_subject(0),
        severity=_LOST.severity if plugged else Severity.WARNING,
        since=since,
        evidence=tuple(evidence),
        detector="switch_down",
        action=_LOST.action,
        source=_LOST.source,
        own_limit=_FAULT.own_limit,
        title=_LOST.title if len(switches) == 1 else _SEVERAL_LOST,
        condition=_LOST.key,
        members=(*(it.port_subject(0) for it in switches[1:]), *hosts),
    )


def _called(switches: Sequence[Switch]) -> str:
    shown = ", ".join(map(_with_guid, switches[:_SHOWN]))
    return shown + (f" and {len(switches) - _SHOWN} more" if len(switches) > _SHOWN else "")


def _with_guid(switch: Switch) -> str:
    """Return a name such as `leaf1 (0x0002c90300f172a0)`; an Ethernet switch goes by its name or its address."""
    name, guid = switch.subject.node, switch.guid
    if guid == name:
        return name
    return f"{name} (0x{guid})" if _GUID(guid) else f"{name} ({guid})"


def _drops(window: Window, rows: Rows) -> Iterator[Drop]:
    """Yield fabric ports that went down by an event and are not known to be up again or switched off."""
    last: dict[Subject, Event] = {}
    for event in window.all_events(EventKind.PORT_DOWN, EventKind.PORT_UP):
        last[event.subject] = event
    for port, event in last.items():
        is_fabric = role_of(window.inventories.get(port.of_node().key), port) == "fabric"
        if event.kind is EventKind.PORT_DOWN and is_fabric and not event.gone:
            drop = drop_of(window, event)
            if _may_be_down(rows, event) and not is_leaving(window, drop):
                yield drop


def _may_be_down(rows: Rows, event: Event) -> bool:
    """Return whether the port's newest line says that it is down, is older than the event, or is missing."""
    row = rows.get(event.subject)
    if row is None or row["at"] <= event.at:
        return True
    return bool(row["up"] == 0 and row.get("enabled") != 0)


def _of_switch(window: Window, rows: Rows, group: Sequence[Drop]) -> Sequence[Drop]:
    """Return the drops without those whose rack still has such a port up: their cable failed at the same moment.

    A leaf takes its port from most nodes of a rack, or from none. This is checked by the port's name first,
    since a leaf of a rail takes one name, and then, where names differ from node to node, by any name of the
    group. Where racks are unknown, or the leaf has too few nodes of each, nothing is left out. Nodes without
    such a port, or whose port nobody reads, do not count.
    """
    mates, names = rack_mates(window), {drop.name for drop in group}

    def took_most(drop: Drop, names: Collection[Name]) -> bool:
        node = drop.port.of_node()
        hit = {one.port.of_node() for one in group if one.name in names}
        told = _affected(rows, mates.get(node, (node,)), hit, names)
        return len(hit.intersection(told)) >= _MOST * len(told)

    by_name = [drop for drop in group if took_most(drop, {drop.name})]
    whole = [drop for drop in group if took_most(drop, names)]
    return next((some for some in (by_name, whole) if is_switch(some, None)), group)


def _affected(
    rows: Rows,
    nodes: Collection[Subject],
    hit: Collection[Subject],
    names: Collection[Name],
) -> list[Subject]:
    """Return those of the nodes that are hit, or on which such a port is read."""
    return [node for node in nodes if node in hit or any(_reads(rows, node, n) for n in names)]


def _reads(rows: Rows, node: Subject, name: Name) -> bool:
    device, port = name
    port_of = Subject(cluster=node.cluster, node=node.node, device=device, port=port)
    return rows.get(port_of) is not None


def _peers(window: Window, rows: Rows, group: Sequence[Drop]) -> int | None:
    """Return how many nodes of the group's only rack have such a port; None unless the group is in one rack."""
    hit, racks = {drop.port.of_node() for drop in group}, racks_of(window)
    names = {racks.get(node.key) for node in hit}
    if len(names) != 1 or None in names:
        return None
    mates = rack_mates(window)[min(hit)]
    return len(_affected(rows, mates, hit, {drop.name for drop in group}))


def _finding(window: Window, group: Sequence[Drop]) -> Finding:
    ports, first = {drop.port for drop in group}, group[0]
    nodes = sorted({port.of_node() for port in ports})
    cut_off = [node for node in nodes if ports.issuperset(fabric_ports(window, node))]
    racks = {racks_of(window).get(node.key) for node in nodes}
    of_rail = len({drop.name for drop in group}) == 1 and 2 * len(cut_off) < len(nodes)
    known = of_rail or (len(racks) == 1 and None not in racks) or switch_of_all(window, ports)
    silent = _silent_with(window, first, nodes)
    return Finding(
        fault="switch_down",
        subject=first.port,
        severity=_FAULT.severity,
        since=first.at,
        evidence=tuple(_evidence(group, nodes, cut_off, silent)),
        detector="switch_down",
        action=_FAULT.action if known else _CHECK_SHARED,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        title="" if known else AT_ONCE,
        condition="" if known else "ports_at_once",
        members=(*sorted(ports - {first.port}), *silent),
    )


def _silent_with(window: Window, first: Drop, nodes: Collection[Subject]) -> list[Subject]:
    """Return nodes last heard when the first port went down, as far as a single switch could be the reason."""
    racks = racks_of(window)
    own = {racks.get(node.key) for node in nodes}
    found = []
    for key, heard in window.last_seen.items():
        node = Subject.parse(key)
        before = timedelta(seconds=window.tick_seconds(node)) + _SILENT_AFTER
        then = first.earliest - before <= heard <= first.at + _SILENT_AFTER
        near = racks.get(key) in own or None in {racks.get(key), *own}
        alike = then and near and node.cluster == first.port.cluster
        if alike and hearing(window, node) is Hearing.SILENT:
            found.append(node)
    return sorted(found)


def _evidence(
    group: Sequence[Drop],
    nodes: Sequence[Subject],
    cut_off: Collection[Subject],
    silent: Sequence[Subject],
) -> Iterator[Evidence]:
    last = max(drop.at for drop in group)
    yield Evidence(name="down since", value=moment(group[0].at))
    if last - group[0].at >= timedelta(seconds=1):
        yield Evidence(name="last port down", value=moment(last))
    names = sorted({drop.port.device or "" for drop in group})
    of = f"{', '.join(names)} of {len(nodes)} nodes: {_named(nodes)}"
    yield Evidence(name="ports down", value=of)
    yield Evidence(name="nodes without any fabric port", value=f"{len(cut_off)} of {len(nodes)}")
    if silent:
        yield Evidence(name="fell silent with it", value=_named(silent))


def _named(nodes: Sequence[Subject]) -> str:
    shown = ", ".join(node.node for node in nodes[:_SHOWN])
    return shown + (f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else "")


DETECTOR = Detector(
    name="switch_down",
    find=switches_down,
    faults=found_by("switch_down"),
    needs=NEEDS,
    sentence="Fabric ports of several nodes that went down together.",
    source="three nodes at once are no cables",
)
