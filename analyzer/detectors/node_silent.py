"""A node that reported before and of which the hub hears nothing any more."""

from datetime import datetime, timedelta
from enum import Enum

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS
from gpuvigil.model import Evidence, Finding, Subject

from ..window import Window

_FAULT = FAULTS["node_silent"]
_TICKS = 3


class Hearing(Enum):
    """What the hub has of a node."""

    HEARD = "a body came lately"
    SILENT = "no body came for too long"
    UNSURE = "the hub has not listened for long enough to say"
    NOT_PLAYED = "a simulated node that this simulation does not have"


def hearing(window: Window, node: Subject) -> Hearing:
    """Whether a node reports, by when its bodies reached the hub: its own clock plays no part."""
    heard, listening = window.heard.get(node.key), window.listening_since
    limit = timedelta(seconds=_limit_seconds(window, node))
    if heard is not None and window.now - heard < limit:
        return Hearing.HEARD
    if listening is None:
        return Hearing.UNSURE
    if node.simulated and (heard is None or heard < listening):
        return Hearing.NOT_PLAYED
    silent_for = window.now - max(heard or listening, listening)
    return Hearing.SILENT if silent_for >= limit else Hearing.UNSURE


def silent_nodes(window: Window) -> list[Finding]:
    """Nodes that are known and sent no body for too long."""
    # All but a few were heard just now.
    lately = window.now - timedelta(seconds=window.settings.silent_after_seconds)
    heard = {key for key, at in window.heard.items() if at > lately}
    nodes = map(Subject.parse, sorted({*window.inventories, *window.heard} - heard))
    return [_finding(window, node) for node in nodes if hearing(window, node) is Hearing.SILENT]


def _finding(window: Window, node: Subject) -> Finding:
    heard = window.heard.get(node.key)
    since: datetime = heard or window.listening_since or window.now
    last = "none since the hub started" if heard is None else moment(heard)
    return Finding(
        fault="node_silent",
        subject=node,
        severity=_FAULT.severity,
        since=since,
        evidence=(
            Evidence(
                name="last data",
                value=last,
                limit=f"every {window.tick_seconds(node):g} s",
            ),
        ),
        detector="node_silent",
        action=_FAULT.action,
        source=_FAULT.source,
    )


def _limit_seconds(window: Window, node: Subject) -> float:
    return max(window.settings.silent_after_seconds, _TICKS * window.tick_seconds(node))
