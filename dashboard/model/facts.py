"""The facts that pages are drawn from: the newest numbers and the current records of the hub."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from gpuvigil.config import AnalyzerSettings
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.model import (
    UNREADABLE,
    Allocation,
    Event,
    EventKind,
    Incident,
    Inventory,
    Record,
    RecordKind,
    Retirement,
    Scheduler,
)

from .delivery_status import is_failing
from .newest_rows import gpu_table, node_table, port_table

ACTIVE_STATES = frozenset(state.value for state in ACTIVE)
FOLLOWED = frozenset(
    {
        RecordKind.INVENTORY,
        RecordKind.ALLOCATION,
        RecordKind.EVENT,
        RecordKind.INCIDENT,
        RecordKind.NOTICE,
        RecordKind.PULSE,
        RecordKind.RETIREMENT,
        RecordKind.SCHEDULER,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Facts:
    """The fleet at one moment; `now` is the hub's clock when it was asked."""

    now: datetime
    gpus: pa.Table = field(default_factory=gpu_table)  # the newest rows
    ports: pa.Table = field(default_factory=port_table)
    nodes: pa.Table = field(default_factory=node_table)
    last_seen: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    # By node: seconds ahead of the hub's clock, and what the hub does about it.
    clocks: Mapping[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    inventories: tuple[Inventory, ...] = ()
    allocations: tuple[Allocation, ...] = ()  # open ones
    incidents: tuple[Incident, ...] = ()  # open ones
    notices: tuple[Record, ...] = ()  # of open incidents, and those that wait for their receiver
    port_events: Mapping[str, Event] = field(default_factory=dict)  # each port's last, by key
    pulses: tuple[Record, ...] = ()
    retirements: tuple[Retirement, ...] = ()
    schedulers: tuple[Scheduler, ...] = ()  # the last report of each
    listening_since: datetime | None = None  # when the hub was started
    # Number of nodes that have not sent since the hub was away; the numbers are then older than that.
    not_back: int = 0
    oldest_at: datetime | None = None  # time of the oldest row in the store
    past: bool = False  # whether `now` is a moment of the past
    silent_after_seconds: float = AnalyzerSettings().silent_after_seconds


def hurries(records: Iterable[Record]) -> bool:
    """Return whether pages should show one of these records before their next refresh.

    Pulses, repeated inventories and allocations come all the time in a large fleet, so they can wait. Of
    events only those of ports are shown.
    """
    told = tuple(records)
    return moves_port(told) or any(record.kind not in _PATIENT for record in told)


_PATIENT = frozenset(
    {RecordKind.PULSE, RecordKind.INVENTORY, RecordKind.ALLOCATION, RecordKind.EVENT}
)


def moves_port(records: Iterable[Record]) -> bool:
    """Return whether one of the records says that a port went up or down."""
    return any(
        record.kind is RecordKind.EVENT and record.body.get("event") in _PORT_EVENTS
        for record in records
    )


class RecordCache:
    """The records that pages need, kept up to date by the hub's changes; for one thread at a time."""

    def __init__(self) -> None:
        self._kept: dict[RecordKind, dict[str, tuple[float, Any]]] = {kind: {} for kind in FOLLOWED}
        self._listed: dict[RecordKind, tuple[Any, ...]] = {}

    def apply(self, records: Iterable[Record]) -> None:
        """Take new versions of records and drop those that ended, those of the selftest and unreadable ones."""
        taken: set[str] = set()  # IDs of notices
        ended = False
        for record in records:
            if record.marked:
                continue
            if record.kind is RecordKind.EVENT and record.body.get("event") not in _PORT_EVENTS:
                continue
            if _is_over(record):
                ended |= self._forget(record) and record.kind is RecordKind.INCIDENT
            else:
                self._keep(record)
                if record.kind is RecordKind.NOTICE:
                    taken.add(record.id)
        # All notices are checked only if an incident ended, since there are thousands.
        self._leave_out(self._kept[RecordKind.NOTICE].keys() if ended else taken)

    def _keep(self, record: Record) -> None:
        kept, (name, version) = self._kept[record.kind], _name(record)
        # A report without nodes, of a scheduler that does not answer, does not replace the last full one.
        if (
            record.kind is RecordKind.SCHEDULER
            and name in kept
            and record.body.get("nodes") is None
        ):
            return
        if name not in kept or kept[name][0] <= version:
            self._listed.pop(record.kind, None)
            # One unreadable record must not stop the others.
            with contextlib.suppress(*UNREADABLE):
                kept[name] = version, _READERS[record.kind](record)

    def _forget(self, record: Record) -> bool:
        """Drop a record; return whether it was kept until now."""
        self._listed.pop(record.kind, None)
        return self._kept[record.kind].pop(_name(record)[0], None) is not None

    def _leave_out(self, names: Iterable[str]) -> None:
        """Drop those of these notices whose incident is not open and which wait for no failing receiver."""
        notices, incidents = self._kept[RecordKind.NOTICE], self._kept[RecordKind.INCIDENT]
        for name in tuple(names):
            notice = notices[name][1]
            if notice.parent not in incidents and not is_failing(notice):
                del notices[name]
                self._listed.pop(RecordKind.NOTICE, None)

    def onto(self, facts: Facts) -> Facts:
        """Return `facts` with these records; a tuple stays the same object while its records do."""
        return replace(
            facts,
            inventories=self._all(RecordKind.INVENTORY),
            allocations=self._all(RecordKind.ALLOCATION),
            incidents=self._all(RecordKind.INCIDENT),
            notices=self._all(RecordKind.NOTICE),
            port_events={key: event for key, (_, event) in self._kept[RecordKind.EVENT].items()},
            pulses=self._all(RecordKind.PULSE),
            retirements=self._all(RecordKind.RETIREMENT),
            schedulers=self._all(RecordKind.SCHEDULER),
        )

    def _all(self, kind: RecordKind) -> tuple[Any, ...]:
        """Return a kind's records as the same tuple until one changes, so that derived values can be cached."""
        if kind not in self._listed:
            self._listed[kind] = tuple(value for _, value in self._kept[kind].values())
        return self._listed[kind]


_READERS: Mapping[RecordKind, Callable[[Record], Any]] = {
    RecordKind.INVENTORY: Inventory.from_record,
    RecordKind.ALLOCATION: Allocation.from_record,
    RecordKind.EVENT: Event.from_record,
    RecordKind.INCIDENT: Incident.from_record,
    RecordKind.NOTICE: lambda record: record,
    RecordKind.PULSE: lambda record: record,
    RecordKind.RETIREMENT: Retirement.from_record,
    RecordKind.SCHEDULER: Scheduler.from_record,
}


_PORT_EVENTS = frozenset({EventKind.PORT_UP, EventKind.PORT_DOWN})


def _name(record: Record) -> tuple[str, float]:
    """Return the name that a record is kept under and its version; of a port only the last event is kept."""
    if record.kind is RecordKind.EVENT:
        return record.subject, record.at.timestamp()
    return record.id, record.version


def _is_over(record: Record) -> bool:
    if record.kind is RecordKind.INCIDENT:
        return record.body.get("state") not in ACTIVE_STATES
    return record.kind is RecordKind.ALLOCATION and record.body.get("ended_at") is not None
