"""Sealed lines as SQL: what is put together or cut is read by DuckDB."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import duckdb

from gpuvigil.metrics import Measurement

from .schema import quoted, text
from .units import Unit, columns_of


def lines_of(
    cursor: duckdb.DuckDBPyConnection,
    folder: Path,
    measurement: Measurement,
    of: Sequence[Unit],
) -> str:
    """All lines of units with the columns of today, as SQL for FROM."""
    wanted = columns_of(measurement)
    parts = []
    for columns, group in _by_layout(cursor, of):
        there = [quoted(name) for name in wanted if name in columns]
        names = ", ".join(text(str(unit.lines_file(folder))) for unit in group)
        parts.append(
            f"SELECT {', '.join(there)} FROM read_parquet([{names}], hive_partitioning=false)"
        )
    empty = f"SELECT {', '.join(map(quoted, wanted))} FROM {quoted(measurement.name)} LIMIT 0"
    return f"(({empty}) UNION ALL BY NAME {' UNION ALL BY NAME '.join(parts)})"


def _by_layout(
    cursor: duckdb.DuckDBPyConnection, of: Iterable[Unit]
) -> Iterator[tuple[frozenset[str], list[Unit]]]:
    """Units by the columns of their lines: files of different ones are read apart."""
    groups: dict[str, list[Unit]] = {}
    for unit in of:
        groups.setdefault(unit.layout, []).append(unit)
    for layout, group in groups.items():
        rows = cursor.execute("SELECT columns FROM layouts WHERE layout = ?", [layout]).fetchall()
        yield frozenset(rows[0][0].split(",")), group
