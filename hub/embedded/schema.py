"""The tables of the store's DuckDB file, made from the catalogue."""

from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gpuvigil.clock import from_ns, to_ns
from gpuvigil.errors import StoreError
from gpuvigil.metrics import MEASUREMENTS, Measurement, Metric

from ..bodies.deduplication import Arrival, Lane
from ..bodies.tables import EXTRA, TIME, arrow_type
from .sealed_files import TABLE as UNITS

# Incremented when an older version could not read what a newer one writes.
# 2: most lines are in sealed files, which version 1 would not find.
SCHEMA_VERSION = 2

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
_DAMAGED = "at_ns BIGINT, file VARCHAR, reason VARCHAR, moved_to VARCHAR, lines BIGINT"
_SEEN_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("cluster", "node", "boot", "lane", "version")]
    + [(name, pa.int64()) for name in ("first", "last", "received_ns", "sent_ns")]
)


def quoted(name: str) -> str:
    """Quote a name for SQL; names come from the catalogue only."""
    return f'"{name}"'


def text(value: str) -> str:
    """Quote a text for SQL."""
    return "'" + value.replace("'", "''") + "'"


def sql_type(metric: Metric) -> str:
    """Return the SQL type of a metric's column."""
    return _TYPES[arrow_type(metric)]


def prepare(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Create what is missing; return whether there was nothing.

    StoreError when a newer version wrote the file.
    """
    connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER)")
    found = connection.execute("SELECT max(version) FROM schema_version").fetchall()[0][0]
    if found is not None and found > SCHEMA_VERSION:
        raise StoreError(
            f"the store in {path} was written by a newer gpuvigil (schema {found}, this one knows"
            f" {SCHEMA_VERSION}); start that version, or move the file away"
        )
    known = _columns(connection)
    connection.begin()
    if found != SCHEMA_VERSION:
        connection.execute("DELETE FROM schema_version")
        connection.execute("INSERT INTO schema_version VALUES (?)", [SCHEMA_VERSION])
    connection.execute(f"CREATE TABLE IF NOT EXISTS seen ({_SEEN})")
    connection.execute(
        f'CREATE TABLE IF NOT EXISTS {EXTRA} ("at" TIMESTAMP_NS, measurement VARCHAR,'
        " tags VARCHAR, field VARCHAR, value DOUBLE, text VARCHAR)"
    )
    for measurement in MEASUREMENTS.values():
        for table in (measurement.name, newest_table(measurement)):
            _prepare_lines(connection, table, measurement, known.get(table))
        tags = ", ".join(f"{quoted(tag)} VARCHAR" for tag in measurement.tags)
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {quoted(subjects_table(measurement))}"
            f" (subject BIGINT, {tags})"
        )
    connection.execute(f"CREATE TABLE IF NOT EXISTS sealed ({UNITS})")
    connection.execute("CREATE TABLE IF NOT EXISTS layouts (layout VARCHAR, columns VARCHAR)")
    connection.execute(f"CREATE TABLE IF NOT EXISTS damaged ({_DAMAGED})")
    connection.commit()
    return found is None


def subjects_table(measurement: Measurement) -> str:
    """Return the table with the number of each subject, which sealed files have beside the tags.

    Grouping lines by one number takes a third of the time that four texts take.
    """
    return f"subjects_{measurement.name}"


def newest_table(measurement: Measurement) -> str:
    """Return the table with a newest line of each subject whose lines may all be sealed."""
    return f"newest_{measurement.name}"


def _columns(connection: duckdb.DuckDBPyConnection) -> Mapping[str, Set[str]]:
    """Return the columns of each table that exists."""
    rows = connection.execute(
        "SELECT table_name, list(column_name) FROM duckdb_columns() WHERE NOT internal GROUP BY ALL"
    ).fetchall()
    return {table: set(columns) for table, columns in rows}


def _prepare_lines(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    measurement: Measurement,
    known: Set[str] | None,
) -> None:
    """Create a table of lines, or add the columns that are missing in `known`, those that it has.

    A field that is new in the catalogue is null in old lines.
    """
    columns = {"at": "TIMESTAMP_NS"}
    columns |= dict.fromkeys(measurement.tags, "VARCHAR DEFAULT ''")
    columns |= {it.name: sql_type(it) for it in measurement.metrics}
    rows = {name: f"{quoted(name)} {type_}" for name, type_ in columns.items()}
    if known is None:  # a statement for each column would be a sixth of a first start
        connection.execute(f"CREATE TABLE {quoted(table)} ({', '.join(rows.values())})")
        return
    for row in (row for name, row in rows.items() if name not in known):
        connection.execute(f"ALTER TABLE {quoted(table)} ADD COLUMN {row}")


def insert(cursor: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table]) -> None:
    """Add rows to tables; columns that are not given are null."""
    for name, table in tables.items():
        cursor.register("incoming", table)
        cursor.execute(f"INSERT INTO {quoted(name)} BY NAME SELECT * FROM incoming")
        cursor.unregister("incoming")


def seen_table(arrivals: Sequence[Arrival]) -> pa.Table:
    """Return arrivals as rows of the table `seen`."""
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


def arrival(row: Mapping[str, Any]) -> Arrival:
    """Return a row of the table `seen` as an arrival."""
    return Arrival(
        lane=Lane(cluster=row["cluster"], node=row["node"], boot=row["boot"], lane=row["lane"]),
        first=row["first"],
        last=row["last"],
        received_at=from_ns(row["received_ns"]),
        sent_at=None if row["sent_ns"] is None else from_ns(row["sent_ns"]),
        version=row["version"],
    )


def read_through(cursor: duckdb.DuckDBPyConnection, table: str) -> None:
    """Read every value of a table."""
    cursor.execute(f"SELECT count(COLUMNS(*)) FROM {quoted(table)}").fetchall()


def any_older(cursor: duckdb.DuckDBPyConnection, tables: Iterable[str], before_ns: int) -> bool:
    """Return whether any of these tables has a row from before a time."""
    older = (
        f'EXISTS (SELECT 1 FROM {quoted(it)} WHERE "at" < make_timestamp_ns({before_ns}))'
        for it in tables
    )
    found: bool = cursor.execute(f"SELECT {' OR '.join(older)}").fetchall()[0][0]
    return found


def delete_older(cursor: duckdb.DuckDBPyConnection, table: str, before_ns: int) -> None:
    """Drop the rows of a table from before a time."""
    cursor.execute(
        f'DELETE FROM {quoted(table)} WHERE "at" < make_timestamp_ns(?::BIGINT)', [before_ns]
    )
