"""The queries of the pages of incidents to the hub, each with a limit."""

from dataclasses import dataclass
from datetime import datetime

from accounting.hardware.similar_incidents import (
    MOST_SHOWN,
    EarlierIncident,
    IncidentRecords,
    earlier_incident,
    similar_incidents,
)
from accounting.usage.model import cluster_key
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import State
from gpuvigil.matching.matchers import Labels, covered, labels_of
from gpuvigil.model import (
    Acknowledgement,
    Incident,
    Inventory,
    NodeAction,
    Record,
    RecordKind,
    Rma,
    Setup,
    Silence,
    Transition,
    readable,
)

from .listing import Entry, entry

OVER = (State.RESOLVED.value, State.DISMISSED.value)
# The newest ended incidents are read often; more are read only if these do not reach back far enough.
# Beyond that a list helps nobody, and the page says that there are more.
NEWEST = 300
MOST = 2_000
MOST_OTHERS = 50
_MOST_NODES = 100_000
_MOST_SETUPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PastIncidents:
    """The incidents that ended last; `cut` if the hub may have more."""

    entries: tuple[Entry, ...] = ()
    cut: bool = False

    def reaches(self, since: datetime) -> bool:
        """Return whether all incidents that ended since then are among them."""
        ends = [one.ended_at for one in self.entries if one.ended_at is not None]
        return not self.cut or min(ends, default=since) < since

    def and_newer(self, newer: "PastIncidents") -> "PastIncidents":
        """Return the entries together with newer ones."""
        entries = {one.id: one for one in (*self.entries, *newer.entries)}
        return PastIncidents(entries=tuple(entries.values()), cut=self.cut)


def newest_past_incidents(hub: Hub, limit: int) -> PastIncidents:
    """Return the `limit` incidents that ended last."""
    records = hub.records(RecordKind.INCIDENT, states=OVER, limit=limit)
    return PastIncidents(
        entries=tuple(
            entry(one) for one in readable(records, Incident.from_record) if not one.marked
        ),
        cut=len(records) == limit,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All that the hub knows of one incident."""

    incident: Incident
    transitions: tuple[Transition, ...]
    notices: tuple[Record, ...]
    acknowledgements: tuple[Acknowledgement, ...]
    others: tuple[Incident, ...]  # other incidents on the same node
    pulses: tuple[Record, ...]
    silences: tuple[Silence, ...] = ()  # silences that match it, also future and expired ones
    rma: tuple[Rma, ...] = ()  # the steps of a return to the manufacturer, oldest first
    actions: tuple[NodeAction, ...] = ()  # what `gpuvigil act` did because of it
    setups: tuple[Setup, ...] = ()  # the software and hardware of its node, one for each change


def story(hub: Hub, id_: str) -> Story | None:
    """Return the whole story of an incident; None if the hub has none of that ID that can be read."""
    record = hub.record(RecordKind.INCIDENT, id_)
    incident = next(readable([] if record is None else [record], Incident.from_record), None)
    if incident is None:
        return None
    node = incident.subject.of_node().key
    others = hub.records(RecordKind.INCIDENT, subject=node, limit=MOST_OTHERS)
    steps = readable(hub.records(RecordKind.TRANSITION, parent=id_), Transition.from_record)
    acknowledged = hub.records(RecordKind.ACKNOWLEDGEMENT, parent=id_)
    taken = readable(acknowledged, Acknowledgement.from_record)
    return Story(
        incident=incident,
        transitions=tuple(sorted(steps, key=lambda step: step.number)),
        notices=hub.records(RecordKind.NOTICE, parent=id_),
        acknowledgements=tuple(sorted(taken, key=lambda one: (one.at, one.id))),
        others=tuple(one for one in readable(others, Incident.from_record) if one.id != id_),
        pulses=hub.records(RecordKind.PULSE),
        silences=_silences(hub, incident),
        rma=_steps(hub, id_),
        actions=_actions(hub, id_),
        setups=_setups(hub, incident),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Similar:
    """The earlier incidents with the same fault that are shown, and how many there were."""

    shown: tuple[EarlierIncident, ...] = ()
    amount: int = 0
    unknown: bool = False  # the hub did not answer


def similar(hub: Hub, one: Incident, now: datetime) -> Similar:
    """Find ended incidents of the same fault in its cluster, among those that ended last."""
    records = hub.records(
        RecordKind.INCIDENT, subject=cluster_key(one.subject.cluster), states=OVER, limit=MOST
    )
    past = list(readable(records, Incident.from_record))
    found = similar_incidents(one, past, now)
    shown = tuple(
        earlier_incident(one, it, _records_of(hub, it.id), past) for it in found[:MOST_SHOWN]
    )
    return Similar(shown=shown, amount=len(found))


def _records_of(hub: Hub, id_: str) -> IncidentRecords:
    notes = hub.records(RecordKind.ACKNOWLEDGEMENT, parent=id_)
    steps = hub.records(RecordKind.TRANSITION, parent=id_)
    return IncidentRecords(
        transitions=tuple(readable(steps, Transition.from_record)),
        notes=tuple(readable(notes, Acknowledgement.from_record)),
        rma=_steps(hub, id_),
        actions=_actions(hub, id_),
    )


def _actions(hub: Hub, id_: str) -> tuple[NodeAction, ...]:
    return tuple(readable(hub.records(RecordKind.ACTION, parent=id_), NodeAction.from_record))


def _setups(hub: Hub, incident: Incident) -> tuple[Setup, ...]:
    node = incident.subject.of_node().key
    records = hub.records(RecordKind.SETUP, subject=node, limit=_MOST_SETUPS)
    return tuple(readable(records, Setup.from_record))


def _steps(hub: Hub, id_: str) -> tuple[Rma, ...]:
    steps = readable(hub.records(RecordKind.RMA, parent=id_), Rma.from_record)
    return tuple(sorted(steps, key=lambda one: (one.at, one.id)))


def _silences(hub: Hub, incident: Incident) -> tuple[Silence, ...]:
    """Return the silences that cover the whole incident, the last to end first."""
    every = tuple(readable(hub.records(RecordKind.SILENCE), Silence.from_record))
    if not every:
        return ()
    racks: dict[str, str] = {}
    if any("rack" in text for one in every for text in one.matchers):
        nodes = hub.records(RecordKind.INVENTORY, limit=_MOST_NODES)
        told = readable(nodes, Inventory.from_record)
        racks = {node.subject.key: node.rack for node in told if node.rack}
    labels = labels_of(incident, racks)
    about = [one for one in every if _fits(one, labels)]
    return tuple(sorted(about, key=lambda one: one.ends_at, reverse=True))


def _fits(silence: Silence, labels: Labels) -> bool:
    try:
        return covered(silence.matchers, labels)
    except ValueError:  # written by another version
        return False
