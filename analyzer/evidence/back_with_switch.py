"""Ports that went down with a switch and are not reported up yet, though most of its others are.

A switch brings its ports up one after the other, and a node's samples may come late: such a port is
still down because of the switch, and not of a cable.
"""

from datetime import datetime, timedelta

from gpuvigil.model import EventKind, Incident, Subject

from ..window.fault_kinds import SWITCHES
from ..window.window import Span, Window
from .port_drops import NODES, SAME_NAME

# How long a port may stay down after its switch is back [own].
_PATIENCE = timedelta(minutes=5)


def is_awaited(window: Window, port: Subject, since: datetime) -> bool:
    """Tell whether a port that is down since `since` went with a switch that is just coming back."""
    return any(
        _took(it, port, since) and _comes_back(window, it)
        for it in window.recent_incidents
        if it.fault in SWITCHES
    )


def _took(switch: Incident, port: Subject, since: datetime) -> bool:
    is_of = port == switch.subject or port.key in switch.members
    return is_of and since >= switch.since - SAME_NAME


def _comes_back(window: Window, switch: Incident) -> bool:
    if switch.resolved_at is not None:
        return window.now < switch.resolved_at + _PATIENCE
    whole = window.whole or window
    ports = [switch.subject, *map(Subject.parse, switch.members)]
    return len({it.of_node() for it in ports if _is_down(whole, it)}) < NODES


def _is_down(window: Window, port: Subject) -> bool:
    """Tell whether a port is down by its newest line, and no later event says that it is up."""
    row = window.get("port", Span.NOW).get(port)
    if row is None or row["up"] != 0:
        return False
    events = window.node_events(port.of_node(), EventKind.PORT_UP)
    return not any(it.subject == port and it.at >= row["at"] for it in events)
