"""What a page is drawn from: the newest numbers and the standing records, as the hub gave them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from gpuvigil.lifecycle import STANDING
from gpuvigil.model import Allocation, Incident, Inventory, Record, RecordKind

Row = Mapping[str, Any]

STANDING_STATES = frozenset(state.value for state in STANDING)
FOLLOWED = frozenset(
    {
        RecordKind.INVENTORY,
        RecordKind.ALLOCATION,
        RecordKind.INCIDENT,
        RecordKind.NOTICE,
        RecordKind.PULSE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One moment of the fleet; `now` is the hub's clock when it was asked."""

    now: datetime
    gpus: tuple[Row, ...] = ()  # newest rows of measurement `gpu`: its tags, `at`, some fields
    ports: tuple[Row, ...] = ()
    nodes: tuple[Row, ...] = ()
    heard: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    inventories: tuple[Inventory, ...] = ()
    allocations: tuple[Allocation, ...] = ()  # those that are open
    incidents: tuple[Incident, ...] = ()  # those that stand
    notices: tuple[Record, ...] = ()
    pulses: tuple[Record, ...] = ()
    # Why and since when the hub does not answer; everything else is then as it was before.
    trouble: str | None = None
    trouble_since: datetime | None = None


class Book:
    """The records that pages need, kept up to date by what changed; for one thread at a time."""

    def __init__(self) -> None:
        self._kept: dict[RecordKind, dict[str, Record]] = {kind: {} for kind in FOLLOWED}
        self.unreadable = 0

    def apply(self, records: Iterable[Record]) -> None:
        """Take new versions; forget what ended."""
        for record in records:
            kept = self._kept[record.kind]
            if _is_over(record):
                kept.pop(record.id, None)
            elif record.id not in kept or kept[record.id].version <= record.version:
                kept[record.id] = record
        incidents = self._kept[RecordKind.INCIDENT]
        notices = self._kept[RecordKind.NOTICE]
        for gone in [n for n, notice in notices.items() if notice.parent not in incidents]:
            del notices[gone]

    def onto(self, facts: Facts) -> Facts:
        """`facts` with these records; a record that a newer version wrote is left out, counted."""
        self.unreadable = 0
        return replace(
            facts,
            inventories=self._read(RecordKind.INVENTORY, Inventory.from_record),
            allocations=self._read(RecordKind.ALLOCATION, Allocation.from_record),
            incidents=self._read(RecordKind.INCIDENT, Incident.from_record),
            notices=tuple(self._kept[RecordKind.NOTICE].values()),
            pulses=tuple(self._kept[RecordKind.PULSE].values()),
        )

    def _read(self, kind: RecordKind, read: Any) -> tuple[Any, ...]:
        values = []
        for record in self._kept[kind].values():
            try:
                values.append(read(record))
            except (KeyError, TypeError, ValueError):
                self.unreadable += 1
        return tuple(values)


def _is_over(record: Record) -> bool:
    if record.kind is RecordKind.INCIDENT:
        return record.body.get("state") not in STANDING_STATES
    return record.kind is RecordKind.ALLOCATION and record.body.get("ended_at") is not None
