"""What one person's pages draw from: the shared snapshot and questions, without what they may not see.

Every page asks `live`, and `live` returns these for the person, so no page can forget to filter.
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from accounting.people.records_view import RecordsView
from accounting.people.roles import Person
from gpuvigil.clock import Clock
from gpuvigil.errors import HubRefused
from gpuvigil.hub_client import Hub
from gpuvigil.hub_client.seen import FilteredHub
from gpuvigil.model import (
    UNREADABLE,
    Allocation,
    Audit,
    AuditedAction,
    Event,
    GpuIdentity,
    Incident,
    Inventory,
    Record,
    RecordKind,
    Retirement,
    Scheduler,
    Subject,
)

from ..fleet import Fleet
from ..model.facts import Facts
from ..model.newest_rows import Row
from .questions import FIRST_SECONDS, PATIENCE_SECONDS, CachedAnswer, PersonKey, QueryCache
from .snapshot import DrawnView, Snapshot
from .views import FleetView

_T = TypeVar("_T")
ONLY_OPERATORS = "only operators may do that; ask one, or sign in as one"
# What pages may write, in the name of the signed-in person, and its entry in the audit log.
_AUDITED_ACTIONS = {
    RecordKind.ACKNOWLEDGEMENT: AuditedAction.ACKNOWLEDGE,
    RecordKind.SILENCE: AuditedAction.SILENCE,
    RecordKind.OPINION: AuditedAction.OPINION,
    RecordKind.RMA: AuditedAction.RMA,
    RecordKind.ANNOTATION: AuditedAction.ANNOTATION,
    RecordKind.REPORT: AuditedAction.REPORT,
}


def _is_anothers(record: Record) -> bool:
    """Return whether a record keeps its author: a silence or annotation that is ended or deleted."""
    return record.kind in {RecordKind.SILENCE, RecordKind.ANNOTATION} and record.version > 1


def _by_author(record: Record, name: str) -> Record:
    return record if _is_anothers(record) else replace(record, body={**record.body, "by": name})


def audit_entry(record: Record, person: Person, now: datetime) -> Record:
    """Return the audit entry for a record; without a name in the session, the name is only a claim."""
    about, is_silence = record.parent or record.id, record.kind is RecordKind.SILENCE
    claims = not person.name and not _is_anothers(record)
    told = (
        f"until {record.body['ends_at']}" if is_silence and record.body.get("ends_at") else "",
        "deleted" if record.body.get("deleted") else "",
        f"called themselves {record.body['by']}" if claims and "by" in record.body else "",
        f"signed in by {person.way}",
    )
    return Audit(
        deed=_AUDITED_ACTIONS[record.kind],
        person=person.name,
        about=about,
        detail=", ".join(filter(None, told)),
        at=now,
    ).to_record()


@dataclass(frozen=True, slots=True)
class PersonView:
    """One person's view of the hub."""

    sight: RecordsView
    clock: Clock

    def visible(self, records: Iterable[Record]) -> tuple[Record, ...]:
        return self.sight.records(records, self.clock.now())

    def signed(self, records: Iterable[Record]) -> tuple[Record, ...]:
        """Return the records in the person's name with audit entries; HubRefused if they may not write."""
        person, said = self.sight.person, tuple(records)
        if not person.is_operator or any(one.kind not in _AUDITED_ACTIONS for one in said):
            raise HubRefused(ONLY_OPERATORS, 403)
        if person.name:
            said = tuple(_by_author(one, person.name) for one in said)
        now = self.clock.now()
        entries = (audit_entry(one, person, now) for one in said)
        return (*said, *entries)

    def hub(self, hub: Hub) -> FilteredHub:
        sees_tokens = self.sight.person.is_operator
        return FilteredHub(hub, self.visible, self.signed, sees_tokens=sees_tokens)


class PersonQueryCache(QueryCache):
    """The shared cache of answers, with one entry for all who have the same rights."""

    def __init__(self, behind: QueryCache, eyes: PersonView) -> None:
        self._behind = behind
        self._eyes = eyes

    def ask(
        self,
        key: Hashable,
        ask: Callable[[Hub], _T],
        fresh_seconds: float,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        first_seconds: float = FIRST_SECONDS,
    ) -> CachedAnswer:
        """See `QueryCache.ask`."""
        return self._behind.ask(
            self._key(key),
            lambda hub: ask(self._eyes.hub(hub)),
            fresh_seconds,
            patience_seconds=patience_seconds,
            first_seconds=first_seconds,
        )

    def _key(self, key: Hashable) -> Hashable:
        sight = self._eyes.sight
        return key if sight.is_whole else PersonKey(sight.rights, key)

    def forget(self, key: Hashable) -> None:
        """See `QueryCache.forget`: it drops the answers of all people, so that all see the change."""
        self._behind.forget(key)

    def call(self, ask: Callable[[Hub], _T]) -> _T:
        """See `QueryCache.tell`; HubRefused if the person may not write."""
        return self._behind.call(lambda hub: ask(self._eyes.hub(hub)))

    def close(self) -> None:
        """Do nothing: the shared questions are closed by their owner."""


class PersonSnapshot(Snapshot):
    """The shared snapshot, with holders and texts filtered for the person."""

    def __init__(self, behind: Snapshot, eyes: PersonView) -> None:
        self.refresh_seconds = behind.refresh_seconds
        self._behind = behind
        self._eyes = eyes
        self._own_lock = threading.Lock()
        self._own_fleet = Fleet()
        self._last: tuple[DrawnView, FleetView] | None = None
        # By kind: the last values, the version of the known names then, and the filtered values.
        self._values: dict[str, tuple[Any, int, tuple[Any, ...]]] = {}

    def view(self, *, complete: bool = False) -> FleetView:
        """See `Snapshot.view`."""
        drawn = self._behind.drawn(complete=complete)
        with self._own_lock:
            if self._last is None or self._last[0] is not drawn:
                self._last = drawn, self._view(drawn)
            view = self._last[1]
        return self._behind.as_it_is(drawn, view)

    def _view(self, drawn: DrawnView) -> FleetView:
        if drawn.facts is None:
            return drawn.view
        seen = self._seen_facts(drawn.facts)
        view = self._behind.view_of(seen, drawn.view.now, self._own_fleet)
        return replace(view, warnings=drawn.view.warnings)

    def _seen_facts(self, facts: Facts) -> Facts:
        # Allocations go first, since from them the names to hide are learned.
        allocations = self._seen("allocations", facts.allocations, Allocation.from_record)
        incidents = self._seen("incidents", facts.incidents, Incident.from_record)
        events = tuple(facts.port_events.values())
        shown = self._seen("events", events, Event.from_record)
        return replace(
            facts,
            allocations=allocations,
            incidents=incidents,
            notices=self._seen("notices", facts.notices, lambda record: record),
            pulses=facts.pulses,
            port_events={one.subject.key: one for one in shown},
            retirements=self._seen("retirements", facts.retirements, Retirement.from_record),
            schedulers=self._seen("schedulers", facts.schedulers, Scheduler.from_record),
        )

    def _seen(
        self, what: str, values: tuple[_T, ...], read: Callable[[Record], _T]
    ) -> tuple[_T, ...]:
        """Return the values as the person may see them; the same tuple while nothing changes."""
        names = self._eyes.sight.names
        kept = self._values.get(what)
        if kept is not None and kept[0] is values and kept[1] == names.version:
            return kept[2]
        made = tuple(_read(self._eyes.visible(map(_record, values)), read))
        self._values[what] = values, names.version, made
        return made

    def silence(self) -> str | None:
        """See `Snapshot.silence`."""
        return self._behind.silence()

    def silent_seconds(self) -> float | None:
        """See `Snapshot.silent_seconds`."""
        return self._behind.silent_seconds()

    def details(self, subject: Subject) -> Row | None:
        """See `Snapshot.details`; measurements contain no names."""
        return self._behind.details(subject)

    def identity(self, subject: Subject) -> GpuIdentity | None:
        """See `Snapshot.identity`."""
        return self._behind.identity(subject)

    def inventories(self) -> Mapping[Subject, Inventory]:
        """See `Snapshot.inventories`; inventories contain no names of people."""
        return self._behind.inventories()

    def allocations(self) -> tuple[Allocation, ...]:
        """See `Snapshot.allocations`."""
        with self._own_lock:
            return self._seen("held", self._behind.allocations(), Allocation.from_record)

    def start(self) -> None:
        """Do nothing: the threads belong to the snapshot behind this one."""

    def stop(self) -> None:
        """See `start`."""


def _record(value: Any) -> Record:
    return value if isinstance(value, Record) else value.to_record()


def _read(records: Iterable[Record], read: Callable[[Record], _T]) -> Iterable[_T]:
    for record in records:
        try:
            yield read(record)
        except UNREADABLE:
            continue
