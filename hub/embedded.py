"""The embedded time-series store: one DuckDB file that this process alone opens."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gpuvigil.clock import from_ns, to_ns
from gpuvigil.errors import StoreError
from gpuvigil.metrics import MEASUREMENTS

from .rows import EXTRA, TIME, arrow_type
from .seen import Arrival, Lane

# Raised when a reader of the old version could not make sense of what the new one writes.
SCHEMA_VERSION = 1

_TYPES = {
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    TIME: "TIMESTAMP_NS",
    pa.string(): "VARCHAR",
}
_SEEN = (
    "cluster VARCHAR, node VARCHAR, boot VARCHAR, lane VARCHAR, first BIGINT, last BIGINT,"
    " received_ns BIGINT, sent_ns BIGINT, version VARCHAR"
)
_SEEN_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("cluster", "node", "boot", "lane", "version")]
    + [(name, pa.int64()) for name in ("first", "last", "received_ns", "sent_ns")]
)


class Embedded:
    """Tables of telemetry, one per measurement of the catalogue, and which bodies are in them.

    Every method raises StoreError with one line when the store cannot do it.
    """

    def __init__(self, path: Path, memory_limit_bytes: int, threads: int) -> None:
        self._path = path
        self._settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory_limit_bytes}B",
            "threads": str(threads),
            # Otherwise any variable of ours with the name of a table would stand in for it.
            "python_enable_replacements": "false",
        }
        # One writer at a time; readers never wait for it.
        self._writing = threading.Lock()
        self._opening = threading.RLock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._connected()

    def append(self, tables: Mapping[str, pa.Table], arrivals: Sequence[Arrival]) -> None:
        """Keep rows and the bodies they came in, in one commit: all or nothing."""
        incoming = {**tables, "seen": _seen_table(arrivals)}
        with self._writing:
            self._transaction(lambda cursor: _insert(cursor, incoming))

    def ask(self, query: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """All rows that a query gives."""
        try:
            with self._connected().cursor() as cursor:
                return cursor.sql(query, params=list(parameters)).to_arrow_table()
        except duckdb.Error as error:
            raise _store_error(self._path, error) from error

    def forget(self, before_ns: int) -> None:
        """Drop every row of telemetry older than `before_ns`."""

        def delete(cursor: duckdb.DuckDBPyConnection) -> None:
            for table in (*MEASUREMENTS, EXTRA):
                cursor.execute(
                    f'DELETE FROM "{table}" WHERE "at" < make_timestamp_ns(?::BIGINT)', [before_ns]
                )

        with self._writing:
            self._transaction(delete)

    def seen(self) -> list[Arrival]:
        """Every body with an identity that was committed."""
        return [_arrival(row) for row in self.ask("SELECT * FROM seen").to_pylist()]

    def replace_seen(self, arrivals: Sequence[Arrival]) -> None:
        """Put `arrivals` in the place of all that `seen` gives."""

        def replace(cursor: duckdb.DuckDBPyConnection) -> None:
            cursor.execute("DELETE FROM seen")
            _insert(cursor, {"seen": _seen_table(arrivals)})

        with self._writing:
            self._transaction(replace)

    def sizes(self) -> tuple[dict[str, int], int]:
        """Rows per table, and the bytes on disk."""
        found = self.ask("SELECT table_name, estimated_size FROM duckdb_tables()").to_pylist()
        rows = {row["table_name"]: int(row["estimated_size"]) for row in found}
        files = (self._path, self._path.with_name(self._path.name + ".wal"))
        size = sum(file.stat().st_size for file in files if file.exists())
        return {table: rows[table] for table in (*MEASUREMENTS, EXTRA)}, size

    def oldest(self) -> datetime | None:
        """The time of the oldest row of a node; None in an empty store."""
        found = self.ask('SELECT epoch_ns(min("at")) AS oldest FROM node')["oldest"][0].as_py()
        return None if found is None else from_ns(found)

    def close(self) -> None:
        """Write everything into the one file and let it go."""
        with self._writing:
            self._disconnect()

    def _transaction(self, work: Any) -> None:
        try:
            with self._connected().cursor() as cursor:
                cursor.begin()
                try:
                    work(cursor)
                    cursor.commit()
                except duckdb.Error:
                    # A failed commit has rolled back by itself.
                    with suppress(duckdb.Error):
                        cursor.rollback()
                    raise
        except duckdb.FatalException as error:
            # After a failed commit DuckDB serves nobody until the file is opened again.
            self._disconnect()
            raise _store_error(self._path, error) from error
        except duckdb.Error as error:
            raise _store_error(self._path, error) from error

    def _connected(self) -> duckdb.DuckDBPyConnection:
        with self._opening:
            if self._connection is None:
                try:
                    self._connection = duckdb.connect(str(self._path), config=self._settings)
                    _prepare(self._connection, self._path)
                except duckdb.Error as error:
                    self._disconnect()
                    raise _store_error(self._path, error) from error
                except StoreError:
                    self._disconnect()
                    raise
            return self._connection

    def _disconnect(self) -> None:
        with self._opening:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _store_error(path: Path, error: duckdb.Error) -> StoreError:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return StoreError(f"the store in {path}: {first}")


def _prepare(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Create what is missing; StoreError when a newer version wrote the file."""
    connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER)")
    found = connection.execute("SELECT max(version) FROM schema_version").fetchall()[0][0]
    if found is not None and found > SCHEMA_VERSION:
        raise StoreError(
            f"the store in {path} was written by a newer gpuvigil (schema {found}, this one knows"
            f" {SCHEMA_VERSION}); start that version, or move the file away"
        )
    connection.begin()
    if found is None:
        connection.execute("INSERT INTO schema_version VALUES (?)", [SCHEMA_VERSION])
    connection.execute(f"CREATE TABLE IF NOT EXISTS seen ({_SEEN})")
    connection.execute(
        f'CREATE TABLE IF NOT EXISTS {EXTRA} ("at" TIMESTAMP_NS, measurement VARCHAR,'
        " tags VARCHAR, field VARCHAR, value DOUBLE, text VARCHAR)"
    )
    for measurement in MEASUREMENTS.values():
        connection.execute(f'CREATE TABLE IF NOT EXISTS "{measurement.name}" ("at" TIMESTAMP_NS)')
        for tag in measurement.tags:
            _add_column(connection, measurement.name, f"\"{tag}\" VARCHAR DEFAULT ''")
        for metric in measurement.metrics:
            kind = _TYPES[arrow_type(metric)]
            _add_column(connection, measurement.name, f'"{metric.name}" {kind}')
    connection.commit()


def _add_column(connection: duckdb.DuckDBPyConnection, table: str, column: str) -> None:
    connection.execute(f'ALTER TABLE "{table}" ADD COLUMN IF NOT EXISTS {column}')


def _insert(cursor: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table]) -> None:
    for name, table in tables.items():
        cursor.register("incoming", table)
        cursor.execute(f'INSERT INTO "{name}" BY NAME SELECT * FROM incoming')
        cursor.unregister("incoming")


def _seen_table(arrivals: Sequence[Arrival]) -> pa.Table:
    rows = [
        {
            "cluster": it.lane.cluster,
            "node": it.lane.node,
            "boot": it.lane.boot,
            "lane": it.lane.lane,
            "first": it.first,
            "last": it.last,
            "received_ns": to_ns(it.received_at),
            "sent_ns": None if it.sent_at is None else to_ns(it.sent_at),
            "version": it.version,
        }
        for it in arrivals
    ]
    return pa.Table.from_pylist(rows, schema=_SEEN_SCHEMA)


def _arrival(row: Mapping[str, Any]) -> Arrival:
    return Arrival(
        lane=Lane(cluster=row["cluster"], node=row["node"], boot=row["boot"], lane=row["lane"]),
        first=row["first"],
        last=row["last"],
        received_at=from_ns(row["received_ns"]),
        sent_at=None if row["sent_ns"] is None else from_ns(row["sent_ns"]),
        version=row["version"],
    )
