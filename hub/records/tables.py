"""The SQL tables of the records, and how they are opened. Portable but for `open_engine`."""

from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    insert,
    select,
)
from sqlalchemy.exc import DBAPIError

from gpuvigil.errors import StoreError

# Raised when an older version could not make sense of the tables.
SCHEMA_VERSION = 1

metadata = MetaData()

# Times are RFC 3339 text with microseconds in UTC (`gpuvigil.clock.to_text`), which sorts.
record = Table(
    "record",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False, unique=True),
    Column("version", BigInteger, nullable=False),
    Column("at", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("parent", Text),
    Column("state", Text),  # to be asked for: `body.state`, of an allocation an `AllocationState`
    Column("body", Text, nullable=False),
    Column("due_at", Text),
    Column("owner", Text),  # who claimed it last
    Column("lease_until", Text),  # no lease, or a finished one, without it
)
Index("record_by_kind", record.c.kind, record.c.sequence)
Index("record_by_state", record.c.kind, record.c.state, record.c.sequence)
Index("record_by_parent", record.c.kind, record.c.parent)
Index("record_by_age", record.c.kind, record.c.at)
Index("record_due", record.c.kind, record.c.due_at)

# One row. Its lock makes the order of sequences the order of commits.
counter = Table(
    "counter",
    metadata,
    Column("schema_version", Integer, nullable=False),
    Column("sequence", BigInteger, nullable=False),
)


def open_engine(path: Path) -> Engine:
    """The records in a SQLite file, created when missing; StoreError with one line."""
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 10.0})
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    try:
        with writing(engine).begin() as connection:
            metadata.create_all(connection)
            version = connection.execute(select(counter.c.schema_version)).scalar()
            if version is None:
                connection.execute(insert(counter).values(schema_version=1, sequence=0))
    except DBAPIError as error:
        raise StoreError(f"the records in {path}: {error.orig}") from error
    if version is not None and version > SCHEMA_VERSION:
        engine.dispose()
        raise StoreError(
            f"the records in {path} were written by a newer gpuvigil (schema {version}, this one"
            f" knows {SCHEMA_VERSION}); start that version, or move the file away"
        )
    return engine


def writing(engine: Engine) -> Engine:
    """The same engine for transactions that write."""
    return engine.execution_options(writes=True)


def _on_connect(connection: Any, _record: object) -> None:
    # The driver would begin transactions on its own, and too late; `_on_begin` does it.
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _on_begin(connection: Connection) -> None:
    # A transaction that reads and then writes must hold the write lock from its start.
    mode = "IMMEDIATE" if connection.get_execution_options().get("writes") else "DEFERRED"
    connection.exec_driver_sql(f"BEGIN {mode}")
