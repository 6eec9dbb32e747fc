"""The same port of several nodes is down since the same minute: their switch, not their cables."""

from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS
from gpuvigil.model import EventKind, Evidence, Finding, Subject

from ..columns import fabric
from ..rows import Rows
from ..together import first_of_rack, rack_mates
from ..window import Need, Span, Window

NEEDS = (Need(measurement="port", span=Span.NOW, fields=("up",)),)

_FAULT = FAULTS["switch_down"]
# Two may be chance; a node whose every port is down has lost more than a switch.
_NODES = 3
_TOGETHER = timedelta(seconds=60)
_MOST = 0.5


def switches_down(window: Window) -> list[Finding]:
    """One finding per group of ports, about one of them; the others are its members.

    It is the port of the first node of their first rack, hit or not, so that the finding stays the
    same while single ports come back.
    On a rail-optimised fabric the ports of one name in a pod share a leaf.
    """
    rows, since = window.get("port", Span.NOW), _down_since(window)
    down = [port for port in since if _is_fabric(window, port) and _may_be_down(rows, port)]
    if len(down) < _NODES:
        return []
    up = (rows.values("up") == 1) & fabric(window, rows)
    with_link = {port.of_node() for port, _ in rows.where(up)}
    groups: dict[tuple[str, str | None, str | None], list[tuple[datetime, Subject]]]
    groups = defaultdict(list)
    for port in down:
        # Nobody says of a node that is away whether it has another link.
        if port.of_node() in with_link or rows.get(port) is None:
            groups[port.cluster, port.device, port.port].append((since[port], port))
    found = []
    for _, downs in sorted(groups.items(), key=lambda item: str(item[0])):
        found += _together(window, sorted(downs))
    return found


def _is_fabric(window: Window, port: Subject) -> bool:
    inventory = window.inventories.get(port.of_node().key)
    return inventory is not None and any(
        (known.device, known.port) == (port.device, port.port) and known.role == "fabric"
        for known in inventory.ports
    )


def _may_be_down(rows: Rows, port: Subject) -> bool:
    """Whether its newest line says so, or its node is away."""
    row = rows.get(port)
    return row is None or row["up"] == 0


def _down_since(window: Window) -> dict[Subject, datetime]:
    since: dict[Subject, datetime] = {}
    for event in window.all_events(EventKind.PORT_DOWN, EventKind.PORT_UP):
        if event.kind is EventKind.PORT_DOWN:
            since[event.subject] = event.at
        else:
            since.pop(event.subject, None)
    return since


def _together(window: Window, downs: list[tuple[datetime, Subject]]) -> list[Finding]:
    """Those that went down within a minute of the first one that is left."""
    found = []
    while len(downs) >= _NODES:
        alike = [(at, port) for at, port in downs if at - downs[0][0] <= _TOGETHER]
        of_switch = _of_switch(window, alike)
        if len({port.of_node() for _, port in of_switch}) >= _NODES:
            found.append(_finding(window, of_switch))
        downs = downs[len(alike) :]
    return found


def _of_switch(
    window: Window, downs: list[tuple[datetime, Subject]]
) -> list[tuple[datetime, Subject]]:
    """Without those whose rack has this port up: their cable went down in the same minute.

    A leaf takes its port from most nodes of a rack, or of none. Where racks are not told, or the
    leaf has too few nodes of each, nothing is left out. Nodes of which nobody reads the port, as of
    those without one, do not count.
    """
    hit, mates = {port.of_node() for _, port in downs}, rack_mates(window)
    rows, one = window.get("port", Span.NOW), downs[0][1]

    def is_most(node: Subject) -> bool:
        rack = mates.get(node, (node,))
        told = [m for m in rack if m in hit or rows.get(replace(one, node=m.node)) is not None]
        return len(hit.intersection(rack)) >= _MOST * len(told)

    whole = [(at, port) for at, port in downs if is_most(port.of_node())]
    return whole if len({port.of_node() for _, port in whole}) >= _NODES else downs


def _subject(window: Window, ports: list[Subject]) -> Subject:
    first = replace(ports[0], node=first_of_rack(window, ports[0].of_node()).node)
    return first if _is_fabric(window, first) else ports[0]


def _finding(window: Window, downs: list[tuple[datetime, Subject]]) -> Finding:
    ports = sorted(port for _, port in downs)
    subject = _subject(window, ports)
    nodes = [port.node for port in ports]
    shown = ", ".join(nodes[:8]) + (f" and {len(nodes) - 8} more" if len(nodes) > 8 else "")
    return Finding(
        fault="switch_down",
        subject=subject,
        severity=_FAULT.severity,
        since=downs[0][0],
        evidence=(
            Evidence(name="down since", value=moment(downs[0][0])),
            Evidence(name=f"port {ports[0].device} of", value=f"{len(ports)} nodes: {shown}"),
        ),
        detector="switch_down",
        action=_FAULT.action,
        source=_FAULT.source,
        members=tuple(port for port in ports if port != subject),
    )
