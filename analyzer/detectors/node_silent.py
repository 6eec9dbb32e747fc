"""A node that reported before and of which the hub hears nothing any more."""

from datetime import datetime, timedelta
from enum import Enum

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS
from gpuvigil.model import Allocation, Evidence, Finding, Subject

from ..window import Need, Span, Window
from .host_disk import DROPPED

NEEDS = (Need(measurement="node", span=Span.STEADY, aggregates=(DROPPED,)),)

_FAULT = FAULTS["node_silent"]
_TICKS = 3
_WITH_HOLES = 4.0
# A job whose node is gone fails at the next collective, and the scheduler ends it.
_DIES_WITHIN = timedelta(minutes=3)
_DEAD = (
    "Node is dead: its jobs ended with it",
    "Look at the node's console; power-cycle it when nothing answers.",
)
_COLLECTOR = (
    "Collector does not report: the node's jobs go on",
    "Look at the collector's log and start it; check the node's way to the hub.",
)


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
    """Nodes that are known and sent no body for too long.

    Where a scheduler has jobs on the node they tell more: a node that dies takes its jobs along, a
    collector that dies does not. So such a node is told a little later.
    """
    # All but a few were heard just now.
    lately = window.now - timedelta(seconds=window.settings.silent_after_seconds)
    heard = {key for key, at in window.heard.items() if at > lately}
    nodes = map(Subject.parse, sorted({*window.inventories, *window.heard} - heard))
    silent = (node for node in nodes if hearing(window, node) is Hearing.SILENT)
    found = (_finding(window, node) for node in silent)
    return [finding for finding in found if finding is not None]


def _finding(window: Window, node: Subject) -> Finding | None:
    heard = window.heard.get(node.key)
    since: datetime = heard or window.listening_since or window.now
    jobs = _jobs(window, node, since)
    ended = [a for a in jobs if a.ended_at is not None]
    title, action = "", _FAULT.action
    evidence: tuple[Evidence, ...] = ()
    if jobs and len(ended) < len(jobs):
        if window.now - since < timedelta(seconds=window.settings.silent_verdict_seconds):
            return None
        title, action = _COLLECTOR
        evidence = (Evidence(name="its jobs", value="go on, as the scheduler says"),)
    elif jobs and all((a.ended_at or since) - since <= _DIES_WITHIN for a in ended):
        title, action = _DEAD
        last = max(a.ended_at or since for a in ended)
        evidence = (Evidence(name="its jobs", value=f"ended by {moment(last)}"),)
    last_data = "none since the hub started" if heard is None else moment(heard)
    return Finding(
        fault="node_silent",
        subject=node,
        severity=_FAULT.severity,
        since=since,
        evidence=(
            Evidence(
                name="last data",
                value=last_data,
                limit=f"every {window.tick_seconds(node):g} s",
            ),
            *evidence,
        ),
        detector="node_silent",
        action=action,
        source=_FAULT.source,
        title=title,
    )


def _jobs(window: Window, node: Subject, since: datetime) -> list[Allocation]:
    """What a scheduler had on the node when it fell silent."""
    inventory = window.inventories.get(node.key)
    gpus = () if inventory is None else inventory.gpus
    keys = (Subject(cluster=node.cluster, node=node.node, gpu=g.uuid).key for g in gpus)
    return [
        a
        for key in keys
        for a in window.allocations.get(key, ())
        if a.holder.startswith("job ")
        and a.started_at <= since
        and (a.ended_at is None or a.ended_at > since)
    ]


def _limit_seconds(window: Window, node: Subject) -> float:
    """A collector that has to drop bodies is heard with holes: it must be silent for longer."""
    limit = max(window.settings.silent_after_seconds, _TICKS * window.tick_seconds(node))
    row = window.get("node", Span.STEADY).get(node)
    drops = row is not None and (row[DROPPED.column] or 0) > 0
    return limit * _WITH_HOLES if drops else limit
