"""Fabric ports of several nodes went down at once: what they share is gone, not their cables.

Which port leads to which switch is known only where lldpd runs, so a switch is told by the ports that it takes
along: those of one name, where the fabric is rail-optimised, or all ports of a rack. What is neither is
told as what it is: nodes that lost their fabric ports at once.

Where somebody reads the fabric, a switch that does not answer any more is told by its name.
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
from ..evidence.port_drops import (
    Drop,
    drop_of,
    fabric_ports,
    is_complete,
    is_leaving,
    is_switch,
    racks_of,
    role_of,
    together,
)
from ..evidence.switches import switch_of_all
from ..window.fault_kinds import LINKS_DOWN
from ..window.rows import Rows
from ..window.window import Need, Span, Window
from . import Detector
from .node_silent import Hearing, hearing

_UP = Aggregate(function=Function.MAX, field="up")
NEEDS = (
    Need(measurement="port", span=Span.NOW, fields=("up", "enabled")),
    Need(measurement="port", span=Span.FLAP, aggregates=(_UP,)),
)

_FAULT, _LOST = FAULTS["switch_down"], CONDITIONS["switch_lost"]
# Of a rack's nodes that have the port.
_MOST = 0.5
# A node whose way to the hub leads over the same switch was last heard up to a tick before.
_SILENT_AFTER = timedelta(seconds=5)
_SHOWN = 8
_GUID = re.compile(r"[0-9a-f]{16}").fullmatch
# A fabric is read once a minute.
_ONE_CAUSE, _SEVERAL_LOST = timedelta(minutes=2), "Switches do not answer"
Name = tuple[str | None, str | None]  # of a port: its device and number
AT_ONCE = "Nodes lost their fabric ports at once"
_CHECK_SHARED = (
    "Check what these ports share: a leaf switch, its power, or a change of drivers or settings"
    " on these nodes."
)


def switches_down(window: Window) -> list[Finding]:
    """One finding per group of ports, about the first that went down; the others are its members.

    Nodes that fell silent in the same moment are among them: their management network may lead over
    the same switch. What is not complete yet is not told yet.
    """
    rows = window.get("port", Span.NOW)
    drops = list(_drops(window, rows))
    found = []
    for group in together(drops, racks_of(window)):
        of_switch = _of_switch(window, rows, group)
        if is_switch(of_switch, _peers(window, rows, of_switch)) and is_complete(
            of_switch, window.now
        ):
            whole = [*of_switch, *_by_numbers(window, rows, of_switch)]
            found.append(_by_name(window, _finding(window, whole)))
    return [*found, *_lost(window, found)]


def _by_numbers(window: Window, rows: Rows, group: Sequence[Drop]) -> Iterator[Drop]:
    """Ports of these names on the racks' other nodes that were up ten minutes ago: not every node tells
    by an event that one went down, nor sends its numbers at once.

    One that stands in the switch's incident goes on as a part of it, and one that was told before by itself is no part.
    """
    mates, names = rack_mates(window), {drop.name for drop in group}
    hit = {drop.port.of_node() for drop in group}
    beside = {mate for one in hit for mate in mates.get(one, ())} - hit
    span, stood = window.get("port", Span.FLAP), _stood(window)
    own = {
        it.subject
        for it in window.stood
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
    """The ports of switches whose incidents stand."""
    standing = (it for it in window.stood if it.fault == _FAULT.key and it.resolved_at is None)
    return {member for it in standing for member in it.members}


def _by_name(window: Window, found: Finding) -> Finding:
    """The same with all ports at the switches that do not answer any more, where it is about theirs.

    Not every node tells of its port by an event; that such a port is down is the switch's doing, too.
    """
    ports = {found.subject, *found.members}
    lost = [it for it in fabric.lost(window) if not ports.isdisjoint(fabric.hosts_of(window, it))]
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
    """Switches that whoever reads the fabric misses, but those whose ports the nodes told of.

    Those that went within two minutes have one cause. Nor is one told that somebody took out of service.
    """
    told = {port for finding in found for port in (finding.subject, *finding.members)}
    left = [
        it
        for it in fabric.lost(window)
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
    """Critical where hosts hang on one: without a spine the fabric goes on, with less of it."""
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
    """`leaf1 (0x0002c90300f172a0)`; a switch of Ethernet goes by its name or its address."""
    name, guid = switch.subject.node, switch.guid
    if guid == name:
        return name
    return f"{name} (0x{guid})" if _GUID(guid) else f"{name} ({guid})"


def _drops(window: Window, rows: Rows) -> Iterator[Drop]:
    """Fabric ports that went down by an event and are not known to be up again, nor switched off."""
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
    """Whether its newest line says so, is older than the event, or its node is away."""
    row = rows.get(event.subject)
    if row is None or row["at"] <= event.at:
        return True
    return bool(row["up"] == 0 and row.get("enabled") != 0)


def _of_switch(window: Window, rows: Rows, group: Sequence[Drop]) -> Sequence[Drop]:
    """Without those whose rack has such a port up: their cable went down in the same moment.

    A leaf takes its port from most nodes of a rack, or of none: first by the port's name, since a
    leaf of a rail takes one name; where names differ from node to node, by any of the group's. Where racks are not told, or the
    leaf has too few nodes of each, nothing is left out. Nodes of which nobody reads the port, as of
    those without one, do not count.
    """
    mates, names = rack_mates(window), {drop.name for drop in group}

    def took_most(drop: Drop, names: Collection[Name]) -> bool:
        node = drop.port.of_node()
        hit = {one.port.of_node() for one in group if one.name in names}
        told = _told(rows, mates.get(node, (node,)), hit, names)
        return len(hit.intersection(told)) >= _MOST * len(told)

    by_name = [drop for drop in group if took_most(drop, {drop.name})]
    whole = [drop for drop in group if took_most(drop, names)]
    return next((some for some in (by_name, whole) if is_switch(some, None)), group)


def _told(
    rows: Rows,
    nodes: Collection[Subject],
    hit: Collection[Subject],
    names: Collection[Name],
) -> list[Subject]:
    """Of these nodes the hit ones, and those of which such a port is read."""
    return [node for node in nodes if node in hit or any(_reads(rows, node, n) for n in names)]


def _reads(rows: Rows, node: Subject, name: Name) -> bool:
    device, port = name
    port_of = Subject(cluster=node.cluster, node=node.node, device=device, port=port)
    return rows.get(port_of) is not None


def _peers(window: Window, rows: Rows, group: Sequence[Drop]) -> int | None:
    """How many nodes of the group's one rack have such a port; None where it is not one rack's."""
    hit, racks = {drop.port.of_node() for drop in group}, racks_of(window)
    names = {racks.get(node.key) for node in hit}
    if len(names) != 1 or None in names:
        return None
    mates = rack_mates(window)[min(hit)]
    return len(_told(rows, mates, hit, {drop.name for drop in group}))


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
    """Nodes that were heard last when the first port went down, as far as one switch could do that."""
    racks = racks_of(window)
    own = {racks.get(node.key) for node in nodes}
    found = []
    for key, heard in window.heard.items():
        node = Subject.parse(key)
        before = timedelta(seconds=window.tick_seconds(node)) + _SILENT_AFTER
        then = first.at - before <= heard <= first.at + _SILENT_AFTER
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
