"""The record book: records are written, found, followed, claimed and finished."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    and_,
    bindparam,
    case,
    exists,
    func,
    insert,
    or_,
    select,
    union_all,
    update,
)

from gpuvigil.clock import from_text, to_text
from gpuvigil.model import AllocationState, Record, RecordKind

from . import retention
from .follower import Follower, announce
from .journal import Journal
from .tables import counter, record
from .transactions import Transactions, sequence_of

_T = TypeVar("_T")

# Most records in one answer of `changes`.
MOST_CHANGES = 10_000

# Keys of one IN list: SQLite takes 32,766 parameters.
_KEYS_AT_ONCE = 5_000


# Largest answer of `changes`, which the next one continues, and of `find`, which is all or nothing.
_MOST_CHANGED_BYTES = 32 * 1024 * 1024
MOST_FOUND_BYTES = 256 * 1024 * 1024
_ROWS_AT_ONCE = 1_000


class TooMuchError(Exception):
    """The records that were asked for are too large, all together."""


class LeaseLostError(Exception):
    """The owner no longer holds a lease that it wants to finish."""


class RecordBook:
    """Reads and writes records in transactions; StoreError when the database cannot do one."""

    def __init__(self, engine: Engine, journal: Journal | None = None) -> None:
        """`journal`: see `Transactions`."""
        self.transactions = Transactions(engine, journal)
        self._follower: Follower | None = None
        self._newest = -1

    def follow(self, notify: Callable[[], None]) -> None:
        """Call `notify`, from a thread, when another hub has committed to the same database."""
        if self.transactions.shared:
            self._follower = Follower(self.transactions.engine, notify, lambda: self._newest)
            self._follower.start()

    def write(self, records: Iterable[Record]) -> tuple[int, int]:
        """Write records, all or none; return the commit sequence, and how many were new or newer."""
        with self.transactions.write() as connection:
            kept = self._keep(connection, records)
            sequence = self._announced(connection, kept)
        self._newest = sequence
        return sequence, kept

    def find(
        self,
        wanted: Sequence[ColumnElement[bool]],
        limit: int,
        *,
        states: Collection[str] = (),
        few: bool = False,
    ) -> list[dict[str, Any]]:
        """Return the newest `limit` records that fulfil all of `wanted`, oldest first.

        TooMuchError when they are too large. With `states` only those in one of them; `few` says
        that `wanted` leaves few to be sorted.
        """
        queries = [_newest((*wanted, *one), limit, few) for one in _each_state(states)]
        with self.transactions.read() as connection:
            rows, whole = _fetched(connection, _merged(queries, limit), MOST_FOUND_BYTES)
        if not whole:
            raise TooMuchError
        return [_json(row) for row in reversed(rows)]

    def changes(
        self, after: int, kinds: Collection[RecordKind]
    ) -> tuple[list[dict[str, Any]], int]:
        """Return records of `kinds` committed after a sequence, oldest first, and where to go on."""
        with self.transactions.read() as connection:
            # Read first: whatever is committed meanwhile has a higher sequence, and its turn later.
            current = sequence_of(connection)
            query = (
                select(record)
                .where(
                    record.c.kind.in_([kind.value for kind in kinds]),
                    record.c.sequence > after,
                    record.c.sequence <= current,
                )
                .order_by(record.c.sequence)
                .limit(MOST_CHANGES)
            )
            rows, whole = _fetched(connection, query, _MOST_CHANGED_BYTES)
        full = not whole or len(rows) == MOST_CHANGES
        return [_json(row) for row in rows], rows[-1].sequence if full else current

    def subjects(self, keys: Iterable[tuple[str, str]]) -> set[str]:
        """Return the subjects of the stored records with these kinds and ids."""
        with self.transactions.read() as connection:
            return set(_known(connection, keys, record.c.subject).values())

    def sequence(self) -> int:
        """Return the sequence of the newest commit."""
        with self.transactions.read() as connection:
            return sequence_of(connection)

    def claim(
        self, kind: RecordKind, owner: str, now: datetime, lease: timedelta, limit: int
    ) -> list[dict[str, Any]]:
        """Lease due records to `owner`, earliest first, and return them."""
        with self.transactions.read() as connection:
            # Usually nothing is due, and a transaction that writes waits for the disk.
            look = select(exists().where(_due(kind, self._now(connection, now))))
            if not connection.execute(look).scalar_one():
                return []
        with self.transactions.write() as connection:
            at = self._now(connection, now)
            query = (
                select(record)
                .where(_due(kind, at))
                .order_by(record.c.due_at, record.c.sequence)
                .limit(limit)
            )
            rows = connection.execute(query).all()
            for ids in _parts([row.id for row in rows]):
                connection.execute(
                    update(record)
                    .where(record.c.kind == kind.value, record.c.id.in_(ids))
                    .values(owner=owner, lease_until=to_text(at + lease))
                )
            return [_json(row) for row in rows]

    def due_in(self, kind: RecordKind, now: datetime) -> timedelta | None:
        """Return the time until the next record is due, or due again because its lease ends.

        None when there is none. The next look is due then at the latest: a leased record may count
        before its lease ends.
        """
        lease, due = record.c.lease_until, record.c.due_at
        with self.transactions.read() as connection:
            at = self._now(connection, now)
            # Due records are few, and mostly leased; those due later may be many, but the index
            # knows the first of them.
            ends = select(func.min(case((lease > due, lease), else_=due))).where(
                record.c.kind == kind.value, due <= to_text(at)
            )
            later = select(func.min(due)).where(record.c.kind == kind.value, due > to_text(at))
            found = [connection.execute(query).scalar() for query in (ends, later)]
            first = min((one for one in found if one is not None), default=None)
            return None if first is None else from_text(first) - at

    def finish(
        self,
        kind: RecordKind,
        owner: str,
        ids: Collection[str],
        records: Iterable[Record],
        now: datetime,
    ) -> tuple[int, int]:
        """End `owner`'s leases and write `records`, together; return what `write` does.

        LeaseLostError when a lease is no longer held: nothing is written. Finishing again what this
        owner finished before changes nothing, since an answer may get lost.
        """
        with self.transactions.write() as connection:
            leased = _held(connection, kind, owner, ids, self._now(connection, now))
            for part in _parts(list(leased)):
                connection.execute(
                    update(record)
                    .where(record.c.kind == kind.value, record.c.id.in_(part))
                    .values(due_at=None, lease_until=None)
                )
            ended = [(kind.value, id_, at, owner) for id_, at in leased.items()]
            self.transactions.changes.done += ended
            kept = self._keep(connection, records)
            sequence = self._announced(connection, kept)
        self._newest = sequence
        return sequence, kept

    def forget(self, before: datetime) -> int:
        """Drop the records that were over before a time, see `retention`; return how many."""
        gone, seen, limit = 0, 0, to_text(before)
        while True:
            with self.transactions.read() as connection:
                rows = retention.expired(connection, limit, seen)
            if not rows:
                return gone
            seen = rows[-1].sequence
            old = [row for row in rows if retention.old(row, limit)]
            if old:
                with self.transactions.write() as connection:
                    gone += retention.drop(connection, old)

    def _keep(self, connection: Connection, records: Iterable[Record]) -> int:
        rows = _kept(connection, records)
        self.transactions.changes.rows += rows
        return len(rows)

    def close(self) -> None:
        if self._follower is not None:
            self._follower.stop()
        self.transactions.close()

    def _announced(self, connection: Connection, kept: int) -> int:
        """Return the sequence after this transaction; announce it to other hubs if records changed."""
        sequence = sequence_of(connection)
        if kept and self.transactions.shared:
            announce(connection, sequence)
        return sequence

    def _now(self, connection: Connection, now: datetime) -> datetime:
        """Return the one clock's time for all hubs: one that is ahead would take leases for ended."""
        if not self.transactions.shared:
            return now
        found: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
        return found


def _fetched(
    connection: Connection, query: Select[Any], most_bytes: int
) -> tuple[list[Row[Any]], bool]:
    """Fetch rows of at most `most_bytes` of bodies, one at least; return whether these are all."""
    rows: list[Row[Any]] = []
    size = 0
    for row in connection.execute(query.execution_options(yield_per=_ROWS_AT_ONCE)):
        size += len(row.body)
        if rows and size > most_bytes:
            return rows, False
        rows.append(row)
    return rows, True


def under(subject: str) -> ColumnElement[bool]:
    """Return the condition that a record is about `subject` or anything below it."""
    prefix = f"{subject}/"
    below = func.substr(record.c.subject, 1, len(prefix)) == prefix
    return or_(record.c.subject == subject, below)


def held_by(holder: str) -> ColumnElement[bool]:
    """Return the condition that a body names this holder: in JSON no text has such quotes inside."""
    return record.c.body.contains(holder_text(holder), autoescape=True)


def holder_text(holder: str) -> str:
    """Return how the JSON of a body names a holder."""
    return json.dumps({"holder": holder})[1:-1]


def _due(kind: RecordKind, at: datetime) -> ColumnElement[bool]:
    """Return the condition that a record is due at a time and not leased."""
    lease = record.c.lease_until
    free = or_(lease.is_(None), lease <= to_text(at))
    return and_(record.c.kind == kind.value, record.c.due_at <= to_text(at), free)


def _each_state(states: Collection[str]) -> list[Sequence[ColumnElement[bool]]]:
    """Return a condition per state: for one state the index knows the newest records."""
    return [[record.c.state == state] for state in sorted(set(states))] or [[]]


def _newest(wanted: Sequence[ColumnElement[bool]], limit: int, few: bool) -> Select[Any]:
    # SQLite has no statistics about its indexes: just for the order it would go through all records
    # of the kind. An expression keeps it from using that index.
    order = func.abs(record.c.sequence) if few else record.c.sequence
    return select(record).where(*wanted).order_by(order.desc()).limit(limit)


def _merged(queries: Sequence[Select[Any]], limit: int) -> Select[Any]:
    """Return a query for the newest rows of all queries, each of which finds others."""
    if len(queries) == 1:
        return queries[0]
    found = union_all(*(select(query.subquery()) for query in queries)).subquery()
    return select(found).order_by(found.c.sequence.desc()).limit(limit)


def _kept(connection: Connection, records: Iterable[Record]) -> list[dict[str, Any]]:
    """Write new or newer records, each with a sequence of its own; return the rows written."""
    newest: dict[tuple[str, str], Record] = {}
    for it in records:
        known = newest.get((it.kind.value, it.id))
        if known is None or known.version < it.version:
            newest[it.kind.value, it.id] = it
    versions = _known(connection, newest, record.c.version)
    wanted = [it for key, it in newest.items() if versions.get(key, 0) < it.version]
    start = sequence_of(connection)
    added: list[dict[str, Any]] = []
    replaced: list[dict[str, Any]] = []
    for sequence, it in enumerate(wanted, start + 1):
        known_before = (it.kind.value, it.id) in versions
        (replaced if known_before else added).append(_values(it, sequence))
    if added:
        connection.execute(insert(record), added)
    if replaced:
        # A lease stays as it is: whoever works on the record goes on.
        connection.execute(
            update(record).where(
                record.c.kind == bindparam("of_kind"), record.c.id == bindparam("of_id")
            ),
            [{**values, "of_kind": values["kind"], "of_id": values["id"]} for values in replaced],
        )
    if wanted:
        connection.execute(update(counter).values(sequence=start + len(wanted)))
    return [*added, *replaced]


def _known(
    connection: Connection, keys: Iterable[tuple[str, str]], column: ColumnElement[_T]
) -> dict[tuple[str, str], _T]:
    """Return a column of the stored records, queried kind by kind, which any planner does by index."""
    ids: dict[str, list[str]] = defaultdict(list)
    for kind, id_ in keys:
        ids[kind].append(id_)
    found: dict[tuple[str, str], _T] = {}
    for kind, of_kind in ids.items():
        for part in _parts(of_kind):
            query = select(record.c.id, column).where(record.c.kind == kind, record.c.id.in_(part))
            found.update({(kind, id_): value for id_, value in connection.execute(query)})
    return found


def _held(
    connection: Connection, kind: RecordKind, owner: str, ids: Collection[str], now: datetime
) -> dict[str, int]:
    """Return the ids whose lease `owner` holds, with their sequence; the others it has finished."""
    leased: dict[str, int] = {}
    known = 0
    for part in _parts(sorted(set(ids))):
        query = select(record.c.id, record.c.sequence, record.c.owner, record.c.lease_until).where(
            record.c.kind == kind.value, record.c.id.in_(part)
        )
        for row in connection.execute(query):
            expired = row.lease_until is not None and row.lease_until <= to_text(now)
            if row.owner != owner or expired:
                raise LeaseLostError(row.id)
            known += 1
            if row.lease_until is not None:
                leased[row.id] = row.sequence
    if known < len(set(ids)):
        raise LeaseLostError("one of the ids is not known")
    return leased


def _parts(keys: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        yield keys[start : start + _KEYS_AT_ONCE]


def _values(it: Record, sequence: int) -> dict[str, Any]:
    return {
        "kind": it.kind.value,
        "id": it.id,
        "sequence": sequence,
        "version": it.version,
        "at": to_text(it.at),
        "subject": it.subject,
        "parent": it.parent,
        "state": _state(it),
        "body": json.dumps(it.body),
        "due_at": None if it.due_at is None else to_text(it.due_at),
    }


def _state(it: Record) -> str | None:
    if it.kind is RecordKind.ALLOCATION:
        if it.body.get("ended_at") is None:
            return AllocationState.HELD.value
        return AllocationState.ENDED.value
    state = it.body.get("state")
    return state if isinstance(state, str) else None


def _json(row: Row[Any]) -> dict[str, Any]:
    """Return the row as `Record.to_json` writes it, except that the body stays text."""
    found = row._mapping
    return {key: found[key] for key in _KEYS}


_KEYS = ("kind", "id", "at", "subject", "parent", "due_at", "version", "sequence", "body")
