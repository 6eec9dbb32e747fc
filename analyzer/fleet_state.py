"""The fleet's state from its records: its nodes and switches, who holds what, recent events."""

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.faults import FAULTS, XID_FAULTS, Scope
from gpuvigil.faults.sxids import sxid
from gpuvigil.faults.xid_messages import Signature, read, signature
from gpuvigil.model import (
    Allocation,
    Ended,
    EndedBy,
    Event,
    EventKind,
    Incident,
    Inventory,
    Record,
    RecordKind,
    Retirement,
    Scheduler,
    Subject,
    Switch,
)
from gpuvigil.model.equipment import Equipment
from gpuvigil.model.expected_nodes import is_retired
from gpuvigil.schedulers.out_of_service import DELETED, USUAL, Checks, name_of
from gpuvigil.topology import Files

from .evidence.planned_silence import went_on
from .window.copied import Copied
from .window.driver_since import DriverSince
from .window.holdings import Holding, Holdings
from .window.out_of_service import Away, SchedulerReports

# The name under which the analyzer retires a node that its scheduler deleted.
OWN = "gpuvigil"
# Events and ended allocations older than this say nothing about now, unless the fault still stands.
MEMORY = timedelta(hours=24)
# Events kept of one sort on one subject: a storm must not fill the memory.
_MOST_ALIKE = 500

# The kinds of event that end an event, for the kinds that can outlast `MEMORY`.
_LASTS_UNTIL: Mapping[EventKind, frozenset[EventKind]] = {
    **{kind: row.cured_by for row in FAULTS.values() for kind in row.told_by},
    # These say why a node is away, for as long as it is.
    EventKind.SHUTDOWN: frozenset({EventKind.BOOT, EventKind.SHUTDOWN}),
    EventKind.STOPPED: frozenset({EventKind.BOOT, EventKind.STOPPED}),
}
_WORDS = frozenset({EventKind.SHUTDOWN, EventKind.STOPPED})
NO_FILES = Files()
# For these events, which wait for others, the arrival time is kept for a while, as clocks differ.
_AWAITED, _YOUNG = frozenset({EventKind.PORT_DOWN}), timedelta(minutes=10)


class Fleet:
    """The newest version of every record, by subject. One thread at a time."""

    def __init__(self, checks: Checks = USUAL, files: Files = NO_FILES) -> None:
        """Start empty; `files` name the switch of a port whose inventory names none."""
        self._files = files
        self._events: dict[str, dict[str, Event]] = {}
        self._sorted: Copied[tuple[Event, ...]] = Copied()
        self._allocations: dict[str, dict[str, Allocation]] = {}
        self._held: Copied[tuple[Allocation, ...]] = Copied()
        self._holdings = Holdings()
        self._ended: list[tuple[datetime, str, str]] = []  # heap of ended allocations, oldest first
        self._inventories: Copied[Inventory] = Copied()
        self._drivers: Copied[DriverSince] = Copied()
        self._switches: Copied[Switch] = Copied()
        self._equipment: Copied[Equipment] = Copied()
        self._late: set[str] = set()
        self._came: Copied[datetime] = Copied()
        self._scheduler_reports = SchedulerReports(checks=checks)
        self._retirements: dict[str, Retirement] = {}

    def ingest(
        self, record: Record, late: bool = False, came_at: datetime | None = None
    ) -> Subject | None:
        """Remember a record; return the node of an event that was not known yet, else None.

        `late`: the event arrived long after it happened. `came_at`: when it arrived, if just now.
        Raises ValueError when the record is not what its kind promises.
        """
        if record.kind is RecordKind.EVENT:
            return self._ingest_event(Event.from_record(record), late, came_at)
        if record.kind is RecordKind.ALLOCATION:
            self._ingest_allocation(record, Allocation.from_record(record))
        elif record.kind is RecordKind.INVENTORY:
            self._ingest_inventory(self._files.completed(Inventory.from_record(record)))
        elif record.kind is RecordKind.SCHEDULER:
            self._scheduler_reports = self._scheduler_reports.with_record(
                Scheduler.from_record(record)
            )
        elif record.kind is RecordKind.SWITCH:
            self._switches.put(record.subject, Switch.from_record(record))
        elif record.kind is RecordKind.EQUIPMENT:
            self._equipment.put(record.subject, Equipment.from_record(record))
        elif record.kind is RecordKind.RETIREMENT:
            self._ingest_retirement(Retirement.from_record(record))
        return None

    def _ingest_inventory(self, inventory: Inventory) -> None:
        key = inventory.subject.key
        self._inventories.put(key, inventory)
        known = self._drivers.get(key)
        # An inventory without a driver, as during a reload, is no change of version.
        if inventory.driver and (known is None or known.version != inventory.driver):
            self._drivers.put(
                key, DriverSince(inventory.driver, inventory.at, changed=known is not None)
            )

    def _ingest_retirement(self, retirement: Retirement) -> None:
        known = self._retirements.get(retirement.node.key)
        if known is None or known.at <= retirement.at:
            self._retirements[retirement.node.key] = retirement

    def remember_deleted(self, incidents: Iterable[Incident]) -> None:
        """Remember deleted nodes with incidents that no scheduler names any more."""
        self._scheduler_reports = self._scheduler_reports.with_deleted(incidents)

    def _ingest_allocation(self, record: Record, allocation: Allocation) -> None:
        known = self._allocations.setdefault(record.subject, {})
        self._holdings.put(known.get(record.id), allocation)
        known[record.id] = allocation
        self._held.put(record.subject, tuple(known.values()))
        if allocation.ended_at is not None:
            heapq.heappush(self._ended, (allocation.ended_at, record.subject, record.id))

    def _ingest_event(self, event: Event, late: bool, came_at: datetime | None) -> Subject | None:
        node = event.subject.of_node()
        known = self._events.setdefault(node.key, {})
        before = known.get(event.id)
        if before is not None and before.version >= event.version:
            return None
        known[event.id] = event
        if late:
            self._late.add(event.id)
        if came_at is not None and event.kind in _AWAITED:
            self._came.put(event.id, came_at)
        self._sort(node.key)
        return node

    def events(self) -> Mapping[str, tuple[Event, ...]]:
        """Return each node's events, oldest first; a copy that later records do not change."""
        return self._sorted.copy()

    def allocations(self) -> Mapping[str, tuple[Allocation, ...]]:
        """Return each GPU's held and recently ended allocations; a copy."""
        return self._held.copy()

    def holdings(self) -> Mapping[str, Holding]:
        """Return what each holder has now, by `holder_key`; a copy."""
        return self._holdings.by_holder()

    def inventory(self, node: Subject) -> Inventory | None:
        """Return a node's last inventory, None if it sent none."""
        return self._inventories.get(node.key)

    def inventories(self) -> Mapping[str, Inventory]:
        """Return each node's last inventory; a copy."""
        return self._inventories.copy()

    def drivers(self) -> Mapping[str, DriverSince]:
        """Return each node's current driver version and since when it has it; a copy."""
        return self._drivers.copy()

    def equipment(self) -> Mapping[str, Equipment]:
        """Return what powers and cools nodes and racks, by key; a copy."""
        return self._equipment.copy()

    def switches(self) -> Mapping[str, Switch]:
        """Return the switches by key, as the readers of the fabric reported them; a copy."""
        return self._switches.copy()

    def drop(self, nodes: Iterable[str]) -> None:
        """Forget these nodes' events, inventories and drivers; their allocations end as usual."""
        for key in nodes:
            self._events.pop(key, None)
            self._sorted.drop(key)
            self._inventories.drop(key)
            self._drivers.drop(key)

    def away(self, now: datetime, last_seen: Mapping[str, datetime]) -> Away:
        """Return which nodes are out of service on purpose; `last_seen`: by key, when it was last heard."""
        return self._scheduler_reports.away(now, last_seen)

    def retired(self, last_seen: Mapping[str, datetime]) -> Mapping[str, Ended]:
        """Return who retired each node that was not heard since, by key; `last_seen` as for `away`."""
        return {
            key: Ended(by=EndedBy.RETIRED, who=said.by, at=said.at)
            for key, said in self._retirements.items()
            if is_retired(said.at, self._last_seen_at(key, last_seen))
        }

    def to_retire(self, now: datetime, last_seen: Mapping[str, datetime]) -> list[Retirement]:
        """Return retirements of nodes deleted by their scheduler a day ago and not heard since."""
        left = self._scheduler_reports.left(now)
        if not left:
            return []
        retired = self.retired(last_seen)
        found = []
        for key, inventory in self._inventories.copy().items():
            until = left.get(name_of(inventory.subject))
            told_at = self._last_seen_at(key, last_seen)
            if until is not None and key not in retired and (not told_at or told_at <= until):
                found.append(
                    Retirement(node=inventory.subject, by=OWN, note=DELETED.reason, at=now)
                )
        return found

    def _last_seen_at(self, key: str, last_seen: Mapping[str, datetime]) -> datetime | None:
        inventory = self._inventories.get(key)
        return last_seen.get(key) or (None if inventory is None else inventory.at)

    def came(self) -> Mapping[str, datetime]:
        """Return when recent events that wait for others arrived, by event id; a copy."""
        return self._came.copy()

    def late(self) -> frozenset[str]:
        """Return the ids of events that arrived late."""
        return frozenset(self._late)

    def forget(
        self,
        now: datetime,
        known: Collection[str] = (),
        last_seen: Mapping[str, datetime] | None = None,
    ) -> None:
        """Drop what is over and older than `MEMORY`, and long-deleted nodes that are not in `known`.

        `last_seen`: when each node was heard last, by key; an older shutdown or stop was not its end.
        """
        self._scheduler_reports = self._scheduler_reports.without(now, known)
        before = now - MEMORY
        for key, events in self._sorted.copy().items():
            if events and (events[0].at < before or len(events) > _MOST_ALIKE):
                kept = _worth_keeping(events, before, (last_seen or {}).get(key))
                self._events[key] = {event.id: event for event in kept}
                self._sort(key)
        while self._ended and self._ended[0][0] < before:
            _, key, identifier = heapq.heappop(self._ended)
            told = self._allocations[key].get(identifier)
            # A newer record may say that the allocation ended at another time.
            if told is not None and told.ended_at is not None and told.ended_at < before:
                del self._allocations[key][identifier]
                self._held.put(key, tuple(self._allocations[key].values()))
        self._forget_switches(before)
        for identifier, came_at in self._came.copy().items():
            if came_at < now - _YOUNG:
                self._came.drop(identifier)
        if self._late:
            self._late &= {i for known in self._events.values() for i in known}

    def _forget_switches(self, before: datetime) -> None:
        for key, switch in self._switches.copy().items():
            if switch.at < before:
                self._switches.drop(key)
        for key, equipment in self._equipment.copy().items():
            if equipment.at < before:
                self._equipment.drop(key)

    def _sort(self, key: str) -> None:
        events = self._events[key].values()
        self._sorted.put(key, tuple(sorted(events, key=lambda event: (event.at, event.id))))


def _worth_keeping(
    events: Iterable[Event], before: datetime, last_seen: datetime | None
) -> list[Event]:
    """Return recent events and those whose fault stands, at most `_MOST_ALIKE` of a sort.

    The oldest one kept of a sort carries the counts of those dropped.
    """
    kept: dict[str, Event] = {}
    alike: dict[_Alike, list[str]] = defaultdict(list)
    ended: dict[tuple[Subject, EventKind], datetime] = {}
    for event in reversed(list(events)):
        if event.at >= before or _still_holds(event, ended, last_seen):
            same = alike[_alike(event)]
            if len(same) < _MOST_ALIKE:
                kept[event.id] = event
                same.append(event.id)
            else:
                oldest = kept[same[-1]]
                kept[oldest.id] = replace(oldest, count=oldest.count + event.count)
        ended.setdefault((event.subject, event.kind), event.at)
    return list(kept.values())


_Alike = tuple[Subject, EventKind, int | None, int | None, Signature | None]


def _alike(event: Event) -> _Alike:
    """Return the sort of an event: subject, kind and code, and an Xid's gravity, unit and link."""
    said = None if event.xid is None else signature(event.xid, event.message)
    return event.subject, event.kind, event.xid, event.sxid, said


def _still_holds(
    event: Event,
    later: Mapping[tuple[Subject, EventKind], datetime],
    last_seen: datetime | None,
) -> bool:
    """Tell whether neither a later event nor its node's return has ended what an old event reports.

    The last boot of a node stands, too: it says since when the machine is up.
    """
    if event.kind is EventKind.BOOT:
        return (event.subject, EventKind.BOOT) not in later
    if event.kind not in _LASTS_UNTIL or _passes(event):
        return False
    if event.kind in _WORDS and last_seen is not None and went_on(event, last_seen):
        return False
    places = (event.subject, event.subject.of_node())
    return not any((place, cure) in later for place in places for cure in _LASTS_UNTIL[event.kind])


def _passes(event: Event) -> bool:
    if event.kind is EventKind.SXID:
        return sxid(event.code).scope is Scope.PASSING
    return (
        event.kind is EventKind.XID
        and event.xid not in XID_FAULTS
        and read(event.code, event.message).scope is Scope.PASSING
    )
