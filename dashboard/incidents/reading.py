"""What the pages of incidents ask the hub, each answer bounded."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.hub import Hub
from gpuvigil.lifecycle import State
from gpuvigil.model import Acknowledgement, Incident, Record, RecordKind, Transition

from .listing import Entry, entry

OVER = (State.RESOLVED.value, State.DISMISSED.value)
# What ended last is read often; only where that does not reach back far enough, more is. Beyond
# that a list helps nobody, and the page says that there is more.
NEWEST = 300
MOST = 2_000
MOST_OTHERS = 50

_UNREADABLE = (KeyError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Incidents that are over, those that ended last; `cut` when the hub may have more."""

    entries: tuple[Entry, ...] = ()
    cut: bool = False

    def reaches(self, since: datetime) -> bool:
        """Whether all that ended since then are among them."""
        ends = [one.ended_at for one in self.entries if one.ended_at is not None]
        return not self.cut or min(ends, default=since) < since

    def and_newer(self, newer: "Past") -> "Past":
        """The same, with what ended since."""
        entries = {one.id: one for one in (*self.entries, *newer.entries)}
        return Past(entries=tuple(entries.values()), cut=self.cut)


def newest_past(hub: Hub, limit: int) -> Past:
    """The `limit` incidents that ended last."""
    records = hub.records(RecordKind.INCIDENT, states=OVER, limit=limit)
    return Past(entries=tuple(map(entry, _incidents(records))), cut=len(records) == limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All that the hub knows of one incident."""

    incident: Incident
    transitions: tuple[Transition, ...]
    notices: tuple[Record, ...]
    acknowledgements: tuple[Acknowledgement, ...]
    others: tuple[Incident, ...]  # on the same node
    pulses: tuple[Record, ...]


def story(hub: Hub, id_: str) -> Story | None:
    """The whole of an incident; None when the hub has none of that id that can be read."""
    record = hub.record(RecordKind.INCIDENT, id_)
    incident = next(iter(_incidents([] if record is None else [record])), None)
    if incident is None:
        return None
    node = incident.subject.of_node().key
    others = _incidents(hub.records(RecordKind.INCIDENT, subject=node, limit=MOST_OTHERS))
    return Story(
        incident=incident,
        transitions=tuple(_transitions(hub.records(RecordKind.TRANSITION, parent=id_))),
        notices=hub.records(RecordKind.NOTICE, parent=id_),
        acknowledgements=tuple(_acknowledgements(hub, id_)),
        others=tuple(one for one in others if one.id != id_),
        pulses=hub.records(RecordKind.PULSE),
    )


def _incidents(records: Iterable[Record]) -> list[Incident]:
    """Those that this version can read."""
    found = []
    for record in records:
        with contextlib.suppress(*_UNREADABLE):
            found.append(Incident.from_record(record))
    return found


def _transitions(records: Iterable[Record]) -> list[Transition]:
    found = []
    for record in records:
        with contextlib.suppress(*_UNREADABLE):
            found.append(Transition.from_record(record))
    return sorted(found, key=lambda step: step.number)


def _acknowledgements(hub: Hub, id_: str) -> list[Acknowledgement]:
    found = []
    for record in hub.records(RecordKind.ACKNOWLEDGEMENT, parent=id_):
        with contextlib.suppress(*_UNREADABLE):
            found.append(Acknowledgement.from_record(record))
    return sorted(found, key=lambda one: (one.at, one.id))
