"""Opens the records in SQLite whatever happened to them: a damaged file is set aside, the newest
backup takes its place, and what was committed since comes from the journal.
"""

import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Table, and_, select, update
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import IntegrityError

from gpuvigil.clock import Clock, SystemClock, from_text, to_ns, to_text
from gpuvigil.config import HubSettings
from gpuvigil.errors import StoreError
from gpuvigil.log import Log

from ..embedded.damage import moved_away
from .backups import FOLDER, backups, is_damage, put_back, wrong_inside
from .database import SQLITE_NAME, open_sqlite, writing
from .journal import Changes, Journal, Segment, newest_sequence, segments
from .tables import counter, record, token

_LOG = Log("hub")

_NOTES = "repairs.jsonl"
_SUSPECT, _RESTORED = ".suspect", ".restored"
# A repair is reported as long as the file that was set aside exists; without one, for this long.
REPORTED_FOR = timedelta(days=1)
_MOST_NOTES = 20
# Sequences go on this far above all that were given out, so that followers of changes miss none.
_JUMP = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What was wrong with the records, and from what they were restored; times are RFC 3339 texts."""

    at: str
    file: str
    reason: str
    moved_to: str | None
    backup: str | None = None  # the file that took its place
    backup_at: str | None = None
    commits: int = 0  # that came from the journal
    missing_since: str | None = None  # None: nothing is known to be missing
    missing_until: str | None = None
    empty: bool = False  # there was neither a backup nor a journal

    def to_json(self) -> dict[str, Any]:
        """Return the repair as it is stored, reported and shown."""
        return asdict(self)

    def is_pending(self, now: datetime) -> bool:
        """Return whether somebody still has to look at the repair."""
        if self.moved_to is not None:
            return Path(self.moved_to).exists()
        return now - from_text(self.at) < REPORTED_FOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The records' database, its journal, and the repairs that are known, the oldest first."""

    engine: Engine
    journal: Journal
    folder: Path
    repairs: Sequence[Repair]
    lags: bool  # the journal lacks what the database has: a backup makes up for it


def open_kept(settings: HubSettings, clock: Clock) -> Opened:
    """Open the hub's own SQLite file with its backups; ConfigError or StoreError with one line."""
    path, now = settings.data_directory / SQLITE_NAME, clock.now()
    folder = settings.data_directory / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = _copy_of_log(path)
        repair = _restore(path, folder, _wrong(path, folder), now)
        try:
            engine = open_sqlite(path)
        except StoreError as error:
            if not is_damage(_origin(error)):
                raise
            repair = _restore(path, folder, str(error), now)
            engine = open_sqlite(path)
        return _replay_journal(engine, folder, (repair, log), clock)
    except OSError as error:
        place = error.filename or path
        raise StoreError(f"the records: {place}: {error.strerror or error}") from error


def suspect(path: Path, reason: str) -> None:
    """Have the next start restore the records, which SQLite has found damaged."""
    with suppress(OSError):
        _marker(path).write_text(reason, encoding="utf-8")


def mark_restored(path: Path) -> None:
    """Have the next start take the records for what a person has put there, and not for damaged."""
    _mark_of_restore(path).touch(mode=0o600)


def set_records_aside(path: Path, now: datetime | None = None) -> dict[Path, Path]:
    """Rename the existing files of a SQLite database; return where each is now."""
    files = [path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))]
    return moved_away(files, now or SystemClock().now())


def repairs(folder: Path) -> list[Repair]:
    """Return the newest repairs that were recorded, oldest first."""
    found = []
    with suppress(FileNotFoundError):
        for line in (folder / _NOTES).read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, TypeError):
                found.append(Repair(**json.loads(line)))
    return found[-_MOST_NOTES:]


def _wrong(path: Path, folder: Path) -> str | None:
    """Return what is wrong with the file; None for nothing, or when there have never been records."""
    known = bool(backups(folder) or segments(folder))
    if _marker(path).exists():
        return _marker(path).read_text(encoding="utf-8", errors="replace") or "it was found damaged"
    if not path.exists():
        return "it is gone" if known else None
    if path.stat().st_size == 0:
        return "it is empty" if known or _log_of(path).exists() else None
    return wrong_inside(path, thorough=False)


def _restore(path: Path, folder: Path, wrong: str | None, now: datetime) -> Repair | None:
    """Set a damaged file aside, restore the newest backup in its place, and return the repair."""
    if wrong is None:
        return None
    moved = set_records_aside(path, now).get(path)
    backup = put_back(folder, path)
    _marker(path).unlink(missing_ok=True)
    return Repair(
        at=to_text(now),
        file=str(path),
        reason=wrong,
        moved_to=None if moved is None else str(moved),
        backup=None if backup is None else str(backup.path),
        backup_at=None if backup is None else to_text(backup.at),
    )


def _replay_journal(
    engine: Engine, folder: Path, before: tuple[Repair | None, Path | None], clock: Clock
) -> Opened:
    """Replay from the journal what the database lacks, record the repair, and begin a new segment."""
    repair, log = before
    mark = _mark_of_restore(Path(str(engine.url.database)))
    restored = repair is None and mark.exists()
    found = segments(folder)
    with writing(engine).begin() as connection:
        lineage = _lineage(connection, found)
        start = _sequence(connection)
        newest = newest_sequence(found, lineage)
        if repair is None and newest > start:
            repair = _of_log(engine, log, clock.now())
        if repair is not None:
            own = [it for it in found if it.lineage == lineage]
            told = _replayed(connection, own, repair, start)
            repair = replace(
                repair,
                commits=told.commits,
                missing_since=told.since,
                missing_until=told.until,
                empty=repair.backup is None and not told.entries and not start,
            )
            _set_sequence(connection, max(told.reached, newest) + _JUMP, clock)
        sequence = _sequence(connection)
        tokens: list[Mapping[str, Any]] = [
            dict(row) for row in connection.execute(select(token)).mappings()
        ]
    journal = Journal(folder, lineage, clock)
    journal.begin(sequence)
    # Also the tokens that `gpuvigil token` has changed while no hub ran.
    journal.append(Changes(before=sequence, after=sequence, tokens=tokens))
    if repair is not None and restored and repair.missing_since is None:
        _LOG.info("records restored, and their journal added", commits=repair.commits)
    elif repair is not None:
        _note(folder, repair)
    mark.unlink(missing_ok=True)
    if log is not None:
        log.unlink(missing_ok=True)
    return Opened(
        engine=engine, journal=journal, folder=folder, repairs=repairs(folder), lags=start > newest
    )


@dataclass(slots=True)
class _Replay:
    """The result of a replay: how many commits, up to which sequence, and the time that is missing."""

    reached: int
    last_at: str | None
    entries: int = 0
    commits: int = 0
    since: str | None = None
    until: str | None = None

    def lacks(self, until: str) -> None:
        self.since = self.since or self.last_at or until
        self.until = until


def _replayed(
    connection: Connection, found: Sequence[Segment], repair: Repair, start: int
) -> _Replay:
    told = _Replay(reached=start, last_at=repair.backup_at)
    unreadable = False
    for entry in (line for one in found for line in one.lines()):
        # The entry after one that cannot be read shows whether it mattered.
        unreadable = entry is None
        if entry is None or "to" not in entry:
            continue
        told.entries += 1
        if int(entry["to"]) > told.reached:
            if int(entry["from"]) > told.reached:
                told.lacks(entry["at"])
            told.commits += 1
            told.reached = int(entry["to"])
        if int(entry["to"]) >= start:
            _apply(connection, entry)
        told.last_at = entry["at"]
    if unreadable or not told.entries:
        told.lacks(repair.at)
    return told


def _apply(connection: Connection, entry: Mapping[str, Any]) -> None:
    for table, key, newer in (
        (record, "rows", record.c.sequence),
        (token, "tokens", token.c.changed),
    ):
        rows = [
            {name: value for name, value in row.items() if name in table.c}
            for row in entry.get(key, ())
        ]
        if rows:
            _upsert(connection, table, rows, newer)
    for kind, id_, sequence, owner in entry.get("done", ()):
        same = and_(record.c.kind == kind, record.c.id == id_, record.c.sequence == sequence)
        ended = {"due_at": None, "lease_until": None, "owner": owner}
        connection.execute(update(record).where(same).values(ended))


def _upsert(
    connection: Connection, table: Table, rows: list[dict[str, Any]], newer: ColumnElement[Any]
) -> None:
    """Write rows that are new or newer; a row whose sequence another record has is left out."""
    statement = insert(table)
    keys = [column.name for column in table.primary_key]
    values = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    upsert = statement.on_conflict_do_update(
        index_elements=keys, set_=values, where=statement.excluded[newer.name] > newer
    )
    try:
        with connection.begin_nested():
            connection.execute(upsert, rows)
    except IntegrityError:
        for row in rows:
            with suppress(IntegrityError), connection.begin_nested():
                connection.execute(upsert, [row])


def _of_log(engine: Engine, log: Path | None, now: datetime) -> Repair:
    """Return the repair of a sound file that is older than its journal.

    SQLite silently ignores a log that is garbled or gone.
    """
    path = Path(str(engine.url.database))
    moved = None if log is None else moved_away([log], now)[log]
    return Repair(
        at=to_text(now),
        file=str(_log_of(path)),
        reason="it is garbled or gone: the records were older than their journal",
        moved_to=None if moved is None else str(moved),
    )


def _note(folder: Path, repair: Repair) -> None:
    file = os.open(folder / _NOTES, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, json.dumps(repair.to_json()).encode() + b"\n")
        os.fsync(file)
    finally:
        os.close(file)
    _LOG.error("records repaired", **{**repair.to_json(), "restore": _command(folder)})


def _command(folder: Path) -> str:
    """Return the command that restores another backup."""
    known = backups(folder)
    if not known:
        return "gpuvigil store restore DIR, a backup of gpuvigil store backup"
    return f"gpuvigil store restore {known[-1].path}"


def _copy_of_log(path: Path) -> Path | None:
    """Copy the log that a killed hub has left: SQLite overwrites it, whatever is in it."""
    log = _log_of(path)
    if not log.exists() or not log.stat().st_size:
        return None
    copy = log.with_name(log.name + ".before")
    shutil.copyfile(log, copy)
    copy.chmod(0o600)
    return copy


def _lineage(connection: Connection, found: Sequence[Segment]) -> int:
    """Return the number of this database, which its backups share; a new one takes its journal's."""
    known = int(connection.exec_driver_sql("PRAGMA application_id").scalar_one())
    if known:
        return known
    last = next((one.lineage for one in reversed(found) if one.lineage), None)
    lineage = last or 1 + secrets.randbelow(2**31 - 2)
    connection.exec_driver_sql(f"PRAGMA application_id = {lineage}")
    return lineage


def _sequence(connection: Connection) -> int:
    return int(connection.execute(select(counter.c.sequence)).scalar_one())


def _set_sequence(connection: Connection, least: int, clock: Clock) -> None:
    """Set the sequence to `least` or more, above any that was ever given out.

    Sequences follow no clock, and there are fewer than one per millisecond.
    """
    sequence = max(least, to_ns(clock.now()) // 1_000_000)
    connection.execute(update(counter).values(sequence=sequence))


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _marker(path: Path) -> Path:
    return path.with_name(path.name + _SUSPECT)


def _mark_of_restore(path: Path) -> Path:
    return path.with_name(path.name + _RESTORED)


def _origin(error: BaseException) -> BaseException | None:
    return getattr(error.__cause__, "orig", None)
