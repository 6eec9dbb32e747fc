"""SQL over sealed lines, for what DuckDB merges or cuts."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from gpuvigil.metrics import Measurement

from .damage import OF_SCAN, of_sealed_file
from .schema import quoted, text
from .sealed_files import Unit, columns_of


def lines_of(
    cursor: duckdb.DuckDBPyConnection,
    folder: Path,
    measurement: Measurement,
    of: Sequence[Unit],
) -> str:
    """Return all lines of units with the columns of today's catalogue, as SQL for FROM."""
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
    """Group units by the columns of their lines: files with different columns are read separately."""
    groups: dict[str, list[Unit]] = {}
    for unit in of:
        groups.setdefault(unit.layout, []).append(unit)
    for layout, group in groups.items():
        rows = cursor.execute("SELECT columns FROM layouts WHERE layout = ?", [layout]).fetchall()
        yield frozenset(rows[0][0].split(",")), group


def undecodable(cursor: duckdb.DuckDBPyConnection, unit: Unit, folder: Path) -> dict[Path, str]:
    """Read every value of a unit's files and return which cannot be decoded, and why.

    duckdb.Error when they cannot be read for another reason, such as too little memory.
    """
    found = {}
    for path in unit.files(folder):
        try:
            read_values(cursor, path)
        except duckdb.Error as error:
            if not of_sealed_file(error):
                raise
            found[path] = str(error).splitlines()[0]
    return found


def read_values(cursor: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Read every value of a Parquet file; duckdb.Error when one cannot be."""
    # A mere count would not read the values.
    cursor.execute(
        f"SELECT bit_xor(hash(COLUMNS(*))) FROM read_parquet({text(str(path))})"
    ).fetchall()


def rows_of(path: Path) -> int | None:
    """Return how many lines a sealed file of lines has; None for any other, or if unreadable."""
    with suppress(*OF_SCAN):
        if ".lines.parquet" in path.name:
            return int(pq.read_metadata(path).num_rows)
    return None
