"""Fabric ports that went down where no event says so: on nodes that only an exporter reads.

When such a port went down is known as well as its node is read, from how many of its lines say that it
was up. A node that was away meanwhile is left out: its links come up one after the other.
"""

from collections.abc import Iterator
from datetime import timedelta

from gpuvigil.faults.symptoms import PORT_DOWN, STARTS_WITHIN_SECONDS
from gpuvigil.model import EventKind, Subject
from gpuvigil.store import Aggregate, Function

from ..window.fault_kinds import SWITCHES_DOWN
from ..window.rows import Row
from ..window.window import Need, Span, Window
from .port_drops import Drop, is_leaving, role_of

_SHARE_UP = Aggregate(function=Function.MEAN, field="up")
_UP = Aggregate(function=Function.MAX, field="up")
_WANTED = Aggregate(function=Function.MIN, field="enabled")
_TIMES = Aggregate(function=Function.INCREASE, field="link_downed")
NEEDS = (
    Need(measurement="port", span=Span.NOW, fields=("up", "enabled")),
    Need(measurement="port", span=Span.FLAP, aggregates=(_SHARE_UP, _UP, _WANTED, _TIMES)),
)
# No machine with GPUs is back from a reboot within a minute [ours].
_AWAY = timedelta(seconds=60)


def measured_drops(window: Window) -> Iterator[Drop]:
    """Yield fabric ports of nodes without events on ports that are measured as down since they were up.

    Until its lines have said so for the patience with a port, one counts only beside others that did. Those in
    a switch's open incident stay in it.
    """
    for port, drop in dict([*_fallen(window), *_known_drops(window)]).items():
        role = role_of(window.inventories.get(port.of_node().key), port)
        if role == "fabric" and not (
            _has_events(window, port.of_node()) or is_leaving(window, drop)
        ):
            yield drop


def _fallen(window: Window) -> Iterator[tuple[Subject, Drop]]:
    """Yield the ports that were up lately: one that was switched off, or comes and goes, is none of a switch's."""
    rows, span = window.get("port", Span.NOW), window.get("port", Span.FLAP)
    fell = (rows.values("up") == 0) & (span.beside(rows, _UP.column) == 1)
    fell &= ~(span.beside(rows, _WANTED.column) == 0) & ~(span.beside(rows, _TIMES.column) > 1)
    for port, row in rows.where(fell):
        lines = span.get(port)
        if lines is not None and (drop := _drop(window, port, row, lines)) is not None:
            yield port, drop


def _known_drops(window: Window) -> Iterator[tuple[Subject, Drop]]:
    """Yield the ports of open incidents of switches that are still down, as of when those began."""
    rows = window.get("port", Span.NOW)
    for it in window.active_incidents:
        if it.fault in SWITCHES_DOWN:
            for port in map(Subject.parse, it.members):
                row = rows.get(port) if port.kind == "port" else None
                if row is not None and PORT_DOWN.shows(row):
                    yield port, Drop(port=port, at=it.since, came_at=it.since)


def _drop(window: Window, port: Subject, row: Row, lines: Row) -> Drop | None:
    """Return the drop that these lines show, None if too many are missing."""
    node = port.of_node()
    tick = timedelta(seconds=window.tick_seconds(node))
    if lines["last_at"] - lines["first_at"] - (lines["samples"] - 1) * tick > _AWAY:
        return None
    down = lines["samples"] - round(lines[_SHARE_UP.column] * lines["samples"])
    first_down = lines["last_at"] - (down - 1) * tick
    at = first_down - timedelta(seconds=window.clocks.get(node.key, 0.0))
    lasts = row["at"] - first_down >= timedelta(seconds=window.settings.port_down_seconds)
    return Drop(port=port, at=at, came_at=at if lasts else window.now + tick, within=tick)


def _has_events(window: Window, node: Subject) -> bool:
    """Tell whether events speak about the node's ports, or say that it has just booted."""
    after = window.now - timedelta(seconds=STARTS_WITHIN_SECONDS)
    ports = window.node_events(node, EventKind.PORT_DOWN, EventKind.PORT_UP)
    boots = window.node_events(node, EventKind.BOOT)
    return any(True for _ in ports) or any(boot.at > after for boot in boots)
