"""What a silence turns out to have been, once its nodes are heard again.

While a node is silent, only others can tell whether the node or just its collector is dead. A
starting collector tells when its machine was booted, and sends what it had to keep meanwhile: both
settle the question, and the incident ends in the right words.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.model import EventKind, Evidence, Incident, Severity, Subject
from gpuvigil.silence_conditions import UNSETTLED, NodeSilence

from ..detectors.node_silent import Hearing, hearing
from ..window.fault_kinds import SILENCES
from ..window.window import Span, Window
from .observation import Hindsight

# Clocks that nobody calls wrong may still differ by this much.
_SKEW = timedelta(seconds=5)
# The share of a silence's samples that must have come later, out of a spool.
_SHARE = 0.5


def nodes_of(incident: Incident) -> set[Subject]:
    """Return the nodes that an incident is about."""
    members = incident.members or (incident.subject.key,)
    return {Subject.parse(member).of_node() for member in members}


def silent_nodes_of(silence: Incident) -> set[Subject]:
    """Return the nodes that fell silent, without a rack's first one if it only gives the name."""
    nodes = nodes_of(silence)
    own = [key for key in silence.members if Subject.parse(key).of_node() == silence.subject]
    return nodes - {silence.subject} if len(nodes) > 1 and len(own) == 1 else nodes


def hindsights(window: Window, missing: Iterable[Incident]) -> dict[str, Hindsight]:
    """Return what the silences that are over turn out to have been, by fingerprint."""
    told = {}
    for incident in missing:
        if incident.fault in SILENCES:
            nodes = silent_nodes_of(incident)
            if all(hearing(window, node) is Hearing.HEARD for node in nodes):
                told[incident.fingerprint] = hindsight(window, incident, nodes)
    return {print_: words for print_, words in told.items() if words is not None}


def hindsight(window: Window, incident: Incident, nodes: Collection[Subject]) -> Hindsight | None:
    """Return what the silence of nodes that are all heard again was; None if nobody can tell.

    A boot is certain once it is told. If none is told soon after, that there was none remains.
    """
    if incident.condition not in UNSETTLED:
        return None
    boots = {node: _booted_at(window, node) for node in nodes}
    since = {node: at for node, at in boots.items() if at is not None and at > _begin(incident)}
    of_rack = len(nodes) > 1
    if 2 * len(since) > len(nodes):
        harmless = incident.severity is Severity.INFO and not of_rack
        was = NodeSilence.WAS_REBOOTED if harmless else NodeSilence.WAS_DOWN
        was = NodeSilence.RACK_WAS_DOWN if of_rack else was
        return _hindsight(was, _of_boots(since.items()), sure=True)
    if not all(_reports_boots(window, node) for node in nodes):
        return None
    if all(_kept(window, node, incident.since) for node in nodes):
        was = NodeSilence.RACK_CUT_OFF if of_rack else NodeSilence.CUT_OFF
    else:
        was = NodeSilence.RACK_DID_NOT_REPORT if of_rack else NodeSilence.DID_NOT_REPORT
    return _hindsight(was, _of_none(boots.values()))


def _hindsight(was: NodeSilence, evidence: Evidence, *, sure: bool = False) -> Hindsight:
    return Hindsight(
        condition=was.value, title=was.heading, action=was.action, evidence=(evidence,), sure=sure
    )


def _begin(incident: Incident) -> datetime:
    return incident.since - _SKEW


def _booted_at(window: Window, node: Subject) -> datetime | None:
    """Return when the machine was last booted, on the hub's clock; None when nobody told."""
    ahead = timedelta(seconds=window.clocks.get(node.key, 0.0))
    own = (e.at for e in window.node_events(node, EventKind.BOOT) if e.subject == node)
    last = max(own, default=None)
    return None if last is None else last - ahead


def _reports_boots(window: Window, node: Subject) -> bool:
    """Tell whether one of our collectors reports the node; exporters do not report boots."""
    inventory = window.inventories.get(node.key)
    return inventory is not None and bool(inventory.version)


def _kept(window: Window, node: Subject, since: datetime) -> bool:
    """Tell whether at least half of the silence's samples came later, out of a spool.

    This is asked `clear_seconds` after the node was heard again: samples since then do not count.
    """
    row = window.get("node", Span.STEADY).get(node)
    if row is None:
        return False
    tick = window.tick_seconds(node)
    ahead = timedelta(seconds=window.clocks.get(node.key, 0.0))
    begin = max(since, window.now - timedelta(seconds=window.settings.steady_seconds))
    after = window.settings.clear_seconds / tick + 1.0
    due = (window.now - begin).total_seconds() / tick - after
    reaches_back = row["first_at"] - ahead <= begin + timedelta(seconds=2 * tick)
    before = max((begin - (row["first_at"] - ahead)).total_seconds() / tick, 0.0)
    return reaches_back and bool(row["samples"] - before - after >= _SHARE * due)


def _of_boots(booted: Iterable[tuple[Subject, datetime]]) -> Evidence:
    told = sorted((at, node.node) for node, at in booted)
    if len(told) == 1:
        return Evidence(name="booted", value=f"at {moment(told[0][0])}")
    return Evidence(
        name="booted", value=f"{len(told)} from {moment(told[0][0])} to {moment(told[-1][0])}"
    )


def _of_none(boots: Iterable[datetime | None]) -> Evidence:
    known = [at for at in boots if at is not None]
    up = f": up since {moment(max(known))}" if known else ""
    return Evidence(name="booted", value=f"not since it was last heard{up}")
