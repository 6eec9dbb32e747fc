"""Sealed lines: which Parquet files there are, and what is in them.

A unit is a span of one measurement: its lines sorted by subject and time in one file, their
roll-ups in another. Once the lines are past their retention, only the roll-ups stay. The table
`sealed` of the DuckDB file is the manifest: only the files in it are read, so that a file which a
crash has left does no harm. Each file repeats its row, for a manifest that was lost.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path

import duckdb

from gpuvigil.file_sync import sync
from gpuvigil.metrics import Measurement, Metric

from ..bodies.tables import EXTRA

# Incremented when an older version could not read the files that a newer one writes.
LAYOUT_VERSION = 1

# Values that the catalogue does not know, a row each: sealed as they are, without sums.
BESIDE = Measurement(
    name=EXTRA,
    sentence="Values that the catalogue does not know.",
    tags=("measurement", "tags", "field"),
    metrics=(),
)

TABLE = (
    "name VARCHAR, measurement VARCHAR, lines BIGINT, first_ns BIGINT, last_ns BIGINT,"
    " first_node VARCHAR, last_node VARCHAR, level INTEGER, sealed_ns BIGINT,"
    " lines_bytes BIGINT, lines_sha256 VARCHAR, rolled_bytes BIGINT, rolled_sha256 VARCHAR,"
    " layout VARCHAR"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One row of the manifest. `lines_bytes` is None once only the roll-ups are kept."""

    name: str
    measurement: str
    lines: int
    first_ns: int  # of the oldest line
    last_ns: int  # of the newest
    first_node: str
    last_node: str
    level: int  # 0: of an hour, 1: of a whole day
    sealed_ns: int
    lines_bytes: int | None
    lines_sha256: str
    rolled_bytes: int
    rolled_sha256: str
    layout: str  # the name of the list of its columns

    def lines_file(self, folder: Path) -> Path:
        """Return the path of the unit's lines."""
        return folder / self.measurement / f"{self.name}.lines.parquet"

    def rolled_file(self, folder: Path) -> Path:
        """Return the path of the unit's roll-ups."""
        return folder / self.measurement / f"{self.name}.rolled.parquet"

    def files(self, folder: Path) -> dict[Path, tuple[int, str]]:
        """Return the unit's files, with their sizes and checksums."""
        found = {self.rolled_file(folder): (self.rolled_bytes, self.rolled_sha256)}
        if self.lines_bytes is not None:
            found[self.lines_file(folder)] = (self.lines_bytes, self.lines_sha256)
        return found

    @property
    def bytes(self) -> int:
        """The size of the unit's files, in bytes."""
        return (self.lines_bytes or 0) + self.rolled_bytes

    def touches(self, start_ns: int, end_ns: int) -> bool:
        """Return whether the unit may hold lines of `[start_ns, end_ns)`."""
        return self.first_ns < end_ns and self.last_ns >= start_ns

    def without_lines(self) -> "Unit":
        """Return the unit as it is when only its roll-ups are left."""
        return replace(self, lines_bytes=None, lines_sha256="")


_NAMES = [field.name for field in fields(Unit)]


def units(cursor: duckdb.DuckDBPyConnection, measurement: str | None = None) -> list[Unit]:
    """Return the units of the manifest, or those of one measurement, oldest first."""
    where = "" if measurement is None else "WHERE measurement = ?"
    rows = cursor.execute(
        f"SELECT {', '.join(_NAMES)} FROM sealed {where} ORDER BY first_ns, name",
        [] if measurement is None else [measurement],
    ).fetchall()
    return [Unit(**dict(zip(_NAMES, row, strict=True))) for row in rows]


def enter(cursor: duckdb.DuckDBPyConnection, unit: Unit) -> None:
    """Add a unit to the manifest."""
    marks = ", ".join("?" for _ in _NAMES)
    values = [getattr(unit, name) for name in _NAMES]
    cursor.execute(f"INSERT INTO sealed ({', '.join(_NAMES)}) VALUES ({marks})", values)


def strike(cursor: duckdb.DuckDBPyConnection, gone: Iterable[Unit]) -> None:
    """Take units out of the manifest."""
    for unit in gone:
        cursor.execute("DELETE FROM sealed WHERE name = ?", [unit.name])


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_folder(folder: Path) -> None:
    """Make a folder and missing ones above it, and wait until their names are on disk."""
    missing = [it for it in folder.parents if not it.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in (folder, *missing):
        sync(made.parent)


def wrong_with(unit: Unit, folder: Path) -> dict[Path, str]:
    """Read every byte of a unit's files and return what is wrong with them.

    OSError when they cannot be read at the moment, which says nothing about their content.
    """
    found = {}
    for path, (size, sum_of_bytes) in unit.files(folder).items():
        try:
            there = path.stat().st_size
            if there != size:
                found[path] = f"{there} bytes instead of {size}"
            elif sha256(path) != sum_of_bytes:
                found[path] = "its bytes are not those that were written"
        except FileNotFoundError:
            found[path] = "it is gone"
    return found


def columns_of(measurement: Measurement, metrics: Iterable[Metric] | None = None) -> list[str]:
    """Return the columns of lines with these metrics, or with all of today's catalogue."""
    given = measurement.metrics if metrics is None else metrics
    values = ["value", "text"] if measurement is BESIDE else [it.name for it in given]
    return ["at", *measurement.tags, *values]
