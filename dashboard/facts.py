"""What a page is drawn from: the newest numbers and the standing records, as the hub gave them."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
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
    # Nodes that have not sent again since the hub was away; the numbers are from before it was.
    not_back: int = 0


class Book:
    """The records that pages need, kept up to date by what changed; for one thread at a time."""

    def __init__(self) -> None:
        self._kept: dict[RecordKind, dict[str, tuple[int, Any]]] = {kind: {} for kind in FOLLOWED}

    def apply(self, records: Iterable[Record]) -> None:
        """Take new versions; forget what ended, and leave out what a newer version wrote."""
        for record in records:
            kept = self._kept[record.kind]
            if _is_over(record):
                kept.pop(record.id, None)
            elif record.id not in kept or kept[record.id][0] <= record.version:
                # What cannot be read takes no other record down; the hub keeps it all the same.
                with contextlib.suppress(KeyError, TypeError, ValueError):
                    kept[record.id] = record.version, _READERS[record.kind](record)
        notices, incidents = self._kept[RecordKind.NOTICE], self._kept[RecordKind.INCIDENT]
        for gone in [id_ for id_, (_, notice) in notices.items() if notice.parent not in incidents]:
            del notices[gone]

    def onto(self, facts: Facts) -> Facts:
        """`facts` with these records."""
        return replace(
            facts,
            inventories=self._all(RecordKind.INVENTORY),
            allocations=self._all(RecordKind.ALLOCATION),
            incidents=self._all(RecordKind.INCIDENT),
            notices=self._all(RecordKind.NOTICE),
            pulses=self._all(RecordKind.PULSE),
        )

    def _all(self, kind: RecordKind) -> tuple[Any, ...]:
        return tuple(value for _, value in self._kept[kind].values())


_READERS: Mapping[RecordKind, Callable[[Record], Any]] = {
    RecordKind.INVENTORY: Inventory.from_record,
    RecordKind.ALLOCATION: Allocation.from_record,
    RecordKind.INCIDENT: Incident.from_record,
    RecordKind.NOTICE: lambda record: record,
    RecordKind.PULSE: lambda record: record,
}


def _is_over(record: Record) -> bool:
    if record.kind is RecordKind.INCIDENT:
        return record.body.get("state") not in STANDING_STATES
    return record.kind is RecordKind.ALLOCATION and record.body.get("ended_at") is not None
