"""The hub's records in memory, by a clock of one's own: a month of them costs minutes, not an hour.

A test holds what alerts makes of it to what it makes of the records in SQLite.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import ManualClock
from gpuvigil.errors import HubRefused
from gpuvigil.hub_client import Hub
from gpuvigil.model import Record, RecordKind

Shelf = dict[str, Record]
# The most that the hub gives in one answer.
_MOST_RECORDS = 100_000


class Shelves:
    """All records, those of a kind in the order in which they were written last; and the leases."""

    def __init__(self) -> None:
        self.kinds: dict[RecordKind, Shelf] = defaultdict(dict)
        self.parents: dict[tuple[RecordKind, str | None], Shelf] = defaultdict(dict)
        self.due: dict[RecordKind, dict[str, datetime]] = defaultdict(dict)
        self.leases: dict[tuple[RecordKind, str], tuple[str, datetime]] = {}
        self.written = 0

    def keep(self, record: Record) -> None:
        """Keep a record, if it is new or newer."""
        of_kind = self.kinds[record.kind]
        known = of_kind.get(record.id)
        if known is not None and known.version >= record.version:
            return
        of_parent = self.parents[record.kind, record.parent]
        for shelf in (of_kind, of_parent):
            shelf.pop(record.id, None)
            shelf[record.id] = record
        self.end(record.kind, record.id)
        if record.due_at is not None:
            self.due[record.kind][record.id] = record.due_at
        self.written += 1

    def end(self, kind: RecordKind, id_: str) -> None:
        """It is due no more."""
        self.due[kind].pop(id_, None)


class ShelfHub(Hub):
    """A client of them."""

    def __init__(self, shelves: Shelves, clock: ManualClock) -> None:
        super().__init__("http://127.0.0.1:1", str)
        self._shelves = shelves
        self._clock = clock

    def write_records(self, records: Iterable[Record]) -> int:
        for one in records:
            self._shelves.keep(one)
        return self._shelves.written

    def records(
        self,
        kind: RecordKind,
        *,
        parent: str | None = None,
        subject: str | None = None,
        holder: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        states: Collection[str] = (),
        limit: int = 10_000,
    ) -> tuple[Record, ...]:
        if not 1 <= limit <= _MOST_RECORDS:
            raise HubRefused("limit", 400)
        shelves = self._shelves
        shelf = shelves.kinds[kind] if parent is None else shelves.parents[kind, parent]
        found = [
            one
            for one in shelf.values()
            if (subject is None or f"{one.subject}/".startswith(f"{subject}/"))
            and (holder is None or one.body.get("holder") == holder)
            and (since is None or one.at >= since)
            and (until is None or one.at < until)
            and (not states or one.body.get("state") in states)
        ]
        return tuple(found[-limit:])

    def record(self, kind: RecordKind, id_: str) -> Record | None:
        return self._shelves.kinds[kind].get(id_)

    def claim(
        self,
        kind: RecordKind,
        owner: str,
        *,
        lease_seconds: float,
        limit: int = 100,
        wait_seconds: float = 0.0,
    ) -> tuple[Record, ...]:
        del wait_seconds  # nothing else happens meanwhile
        shelves, now = self._shelves, self._clock.now()
        free = [
            (due_at, id_)
            for id_, due_at in shelves.due[kind].items()
            if due_at <= now and not self._is_leased(kind, id_)
        ]
        claimed = [id_ for _, id_ in sorted(free, key=lambda it: it[0])[:limit]]
        until = now + timedelta(seconds=lease_seconds)
        shelves.leases |= {(kind, id_): (owner, until) for id_ in claimed}
        return tuple(shelves.kinds[kind][id_] for id_ in claimed)

    def finish(
        self, kind: RecordKind, owner: str, ids: Sequence[str], records: Iterable[Record] = ()
    ) -> None:
        shelves = self._shelves
        if not all(self._is_leased(kind, id_, owner) for id_ in ids):
            raise HubRefused("the lease is lost", 409)
        for id_ in ids:
            shelves.end(kind, id_)
            del shelves.leases[kind, id_]
        self.write_records(records)

    def status(self) -> Mapping[str, Any]:
        return {"nodes": []}

    def _is_leased(self, kind: RecordKind, id_: str, owner: str | None = None) -> bool:
        by, until = self._shelves.leases.get((kind, id_), ("", None))
        return until is not None and until > self._clock.now() and owner in {None, by}
