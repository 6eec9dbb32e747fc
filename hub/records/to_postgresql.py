"""Moves one hub's SQLite records into PostgreSQL as they are: sequences, leases, tokens."""

import time

from sqlalchemy import Connection, Engine, func, insert, select, update
from sqlalchemy.exc import DBAPIError

from gpuvigil.config import HubSettings
from gpuvigil.errors import StoreError

from .backups import FOLDER
from .database import SQLITE_NAME, open_records, open_sqlite, place, reason, writing
from .tables import counter, record, token

_AT_ONCE = 1_000


def move_records(settings: HubSettings) -> int:
    """Copy the hub's file into the configured database, all or nothing; return how many records.

    The file is renamed once all are copied. StoreError when there is no file, or when the
    configured database is SQLite's, or holds records already. No hub may use the file meanwhile.
    """
    file = settings.data_directory / SQLITE_NAME
    if not file.exists():
        raise StoreError(f"there are no records to move: {file} does not exist")
    into = open_records(settings)
    try:
        if into.dialect.name != "postgresql":
            raise StoreError("hub.records_url names no PostgreSQL to move the records to")
        source = open_sqlite(file)
        try:
            count = _copied(source, into)
        finally:
            source.dispose()
    except DBAPIError as error:
        raise StoreError(f"the records were not moved: {reason(error)}") from error
    finally:
        into.dispose()
    file.rename(file.with_name(f"{SQLITE_NAME}.moved"))
    # Otherwise a hub that comes back to SQLite would take these backups for its own.
    kept = file.with_name(FOLDER)
    if kept.exists():
        kept.rename(file.with_name(f"{FOLDER}.moved-{time.time_ns()}"))
    return count


def _copied(source: Engine, into: Engine) -> int:
    # The write lock keeps the file as it is until all of it is copied.
    with writing(source).begin() as old, into.begin() as new:
        # The lock that every writer takes, so that no hub writes in between.
        new.execute(update(counter).values(sequence=counter.c.sequence))
        if _count(new):
            raise StoreError(f"the records in {place(into)}: there are some already")
        rows = old.execute(select(record).order_by(record.c.sequence)).mappings()
        for part in rows.partitions(_AT_ONCE):
            new.execute(insert(record), [dict(row) for row in part])
        tokens = [dict(row) for row in old.execute(select(token)).mappings()]
        if tokens:
            new.execute(insert(token), tokens)
        sequence = old.execute(select(counter.c.sequence)).scalar_one()
        new.execute(update(counter).values(sequence=sequence))
        return _count(new)


def _count(connection: Connection) -> int:
    return int(connection.execute(select(func.count()).select_from(record)).scalar_one())
