"""The inputs of a manufacturer's page: what the hub knows of a node and its incidents, read once.

Names are removed from everything together, after all of it is read: a sentence may name a person whom
only another record mentions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TypeVar

from accounting.people.names import Names
from accounting.people.records_view import RecordsView
from accounting.people.roles import Person, Role
from accounting.usage.model import cluster_key
from gpuvigil.errors import ConfigError
from gpuvigil.faults.affected import affected_keys
from gpuvigil.hub_client import Hub
from gpuvigil.model import (
    Acceptance,
    Acknowledgement,
    Allocation,
    Event,
    Incident,
    Inventory,
    Job,
    NodeAction,
    Record,
    RecordKind,
    Rma,
    Setup,
    Subject,
    Transition,
    readable,
)

AROUND = timedelta(minutes=5)
MOST_EVENTS = 5_000
_MOST_RECORDS = 100_000
_MOST_INCIDENTS = 20_000
# Jobs that wait or run longer than this before they end are not considered.
_JOBS_BACK = timedelta(days=14)
_OF_INCIDENTS = (
    RecordKind.TRANSITION,
    RecordKind.ACKNOWLEDGEMENT,
    RecordKind.RMA,
    RecordKind.ACTION,
)
_OF_PARTS = frozenset({RecordKind.INVENTORY, RecordKind.SETUP})
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCauseInputs:
    """All inputs; mappings are by incident id."""

    node: Subject
    inventory: Inventory | None
    setups: Sequence[Setup]
    events: Sequence[Event]
    incidents: Sequence[Incident]  # of this node, and of its GPUs wherever they sat
    transitions: Mapping[str, Sequence[Transition]]
    notes: Mapping[str, Sequence[Acknowledgement]]
    rma: Mapping[str, Sequence[Rma]]
    actions: Mapping[str, Sequence[NodeAction]]
    acceptance: Acceptance | None
    jobs: Sequence[Job]
    held: Sequence[Allocation]

    @property
    def events_cut(self) -> bool:
        """Whether the hub may have more events than were read."""
        return len(self.events) >= MOST_EVENTS


def node_called(hub: Hub, name: str, cluster: str | None) -> Subject:
    """Return the node of that name; raise ConfigError in one line when there is none, or several."""
    records = hub.records(RecordKind.INVENTORY, limit=_MOST_RECORDS)
    known = [
        one for one in (Subject.parse(it.subject) for it in records if not it.marked) if one.node
    ]
    found = [one for one in known if one.node == name and cluster in {None, one.cluster}]
    if not found:
        near = get_close_matches(name, sorted({one.node for one in known}), n=3)
        hint = (
            f": did you mean {' or '.join(near)}?"
            if near
            else "; 'gpuvigil status' names those with trouble"
        )
        raise ConfigError(f"the hub knows no node {name!r}{hint}")
    if len(found) > 1:
        there = ", ".join(sorted(one.cluster for one in found))
        raise ConfigError(f"node {name!r} is in several clusters ({there}): add --cluster NAME")
    return found[0]


def incident_called(hub: Hub, id_: str) -> Incident:
    """Return the incident of that id; raise ConfigError in one line when none can be read."""
    record = hub.record(RecordKind.INCIDENT, id_)
    found = next(readable([] if record is None else [record], Incident.from_record), None)
    if found is None:
        raise ConfigError(
            f"the hub knows no incident {id_!r}; 'gpuvigil status' lists the open ones"
        )
    return found


def read_records(hub: Hub, node: Subject, since: datetime, until: datetime) -> tuple[Record, ...]:
    """Return the records of a node; events and jobs are those of the span."""
    key = node.key
    found: list[Record] = []
    for kind in (RecordKind.INVENTORY, RecordKind.ACCEPTANCE):
        one = hub.record(kind, key)
        found += [] if one is None else [one]
    found += hub.records(RecordKind.SETUP, subject=key)
    found += hub.records(
        RecordKind.EVENT,
        subject=key,
        since=since - 2 * AROUND,
        until=until + 2 * AROUND,
        limit=MOST_EVENTS,
    )
    jobs = hub.records(
        RecordKind.JOB,
        subject=cluster_key(node.cluster),
        since=since - _JOBS_BACK,
        limit=_MOST_RECORDS,
    )
    found += [one for one in jobs if node.node in (one.body.get("nodes") or ())]
    found += hub.records(RecordKind.ALLOCATION, subject=key, since=since - _JOBS_BACK)
    found += _of_incidents(hub, node, tuple(readable(found[:1], Inventory.from_record)))
    return tuple(found)


def _of_incidents(hub: Hub, node: Subject, had: Sequence[Inventory]) -> Iterator[Record]:
    """Yield incidents that hit the node or its GPUs elsewhere, and the records about each."""
    every = hub.records(
        RecordKind.INCIDENT, subject=cluster_key(node.cluster), limit=_MOST_INCIDENTS
    )
    serials = {gpu.serial for one in had for gpu in one.gpus if gpu.serial}
    for record in every:
        one = next(readable([record], Incident.from_record), None)
        if one is not None and (one.serial in serials or strikes(one, node)):
            yield record
            if one.subject.of_node() != node:
                for kind in _OF_INCIDENTS:
                    yield from hub.records(kind, parent=one.id)
    for kind in _OF_INCIDENTS:
        yield from hub.records(kind, subject=node.key)


def strikes(incident: Incident, node: Subject) -> bool:
    """Return whether the node is among the subjects that the incident hits."""
    keys = affected_keys(incident)
    return any(key == node.key or key.startswith(f"{node.key}/") for key in keys)


def without_names(records: Iterable[Record], now: datetime) -> tuple[Record, ...]:
    """Return the records as shown to a person who may see the whole fleet but nobody's name."""
    every = tuple(records)
    stranger = Person(name="", role=Role.VIEWER)
    seen = RecordsView(person=stranger, names=Names()).records(every, now)
    # A person whose name is part of a serial number must not change it: these two kinds name nobody.
    parts = tuple(one for one in every if one.kind in _OF_PARTS)
    return (*parts, *(one for one in seen if one.kind not in _OF_PARTS))


def group_inputs(node: Subject, records: Iterable[Record]) -> RootCauseInputs:
    """Group the records by kind, each list oldest first."""
    by_kind: defaultdict[RecordKind, dict[str, Record]] = defaultdict(dict)
    for one in records:
        by_kind[one.kind][one.id] = one

    def of(kind: RecordKind, read_one: Callable[[Record], _Read]) -> list[_Read]:
        return list(readable(sorted(by_kind[kind].values(), key=lambda it: it.at), read_one))

    return RootCauseInputs(
        node=node,
        inventory=next(iter(of(RecordKind.INVENTORY, Inventory.from_record)), None),
        setups=of(RecordKind.SETUP, Setup.from_record),
        events=of(RecordKind.EVENT, Event.from_record),
        incidents=of(RecordKind.INCIDENT, Incident.from_record),
        transitions=_by_incident(of(RecordKind.TRANSITION, Transition.from_record)),
        notes=_by_incident(of(RecordKind.ACKNOWLEDGEMENT, Acknowledgement.from_record)),
        rma=_by_incident(of(RecordKind.RMA, Rma.from_record)),
        actions=_by_incident(of(RecordKind.ACTION, NodeAction.from_record)),
        acceptance=next(iter(of(RecordKind.ACCEPTANCE, Acceptance.from_record)), None),
        jobs=of(RecordKind.JOB, Job.from_record),
        held=of(RecordKind.ALLOCATION, Allocation.from_record),
    )


_Said = TypeVar("_Said", Transition, Acknowledgement, Rma, NodeAction)


def _by_incident(found: Iterable[_Said]) -> Mapping[str, Sequence[_Said]]:
    groups: defaultdict[str, list[_Said]] = defaultdict(list)
    for one in found:
        groups[one.incident].append(one)
    return groups
