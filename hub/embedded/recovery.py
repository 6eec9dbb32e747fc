"""Sealed files that the manifest does not know: what a crash has left, or all of them when the
manifest itself was lost.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from gpuvigil.errors import StoreError
from gpuvigil.file_sync import sync
from gpuvigil.metrics import MEASUREMENTS, Measurement

from .damage import moved_away, of_sealed_file
from .database import Lost
from .schema import quoted, subjects_table, text
from .sealed_files import BESIDE, LAYOUT_VERSION, Unit, enter, sha256, strike, units
from .sealed_sql import read_values
from .segment_writer import DAY, DRAFT, HOUR, HOUR_NS, entered_layout

_LINES, _ROLLED = ".lines.parquet", ".rolled.parquet"
# Exists while sealed files are still to be entered into a new manifest: a start that finds it
# enters them, as an earlier one was interrupted.
_MARK = ".adopting"


def mark(folder: Path) -> None:
    """Mark on disk, before there is a new manifest, that sealed files are to be entered into it."""
    if any(folder.glob(f"*/*{_ROLLED}")):
        (folder / _MARK).touch()
        sync(folder)


def marked(folder: Path) -> bool:
    """Return whether some sealed files may not be in the manifest yet."""
    return (folder / _MARK).exists()


def unmark(folder: Path) -> None:
    """Remove the mark: all sealed files that can be read are in the manifest."""
    if marked(folder):
        (folder / _MARK).unlink()
        sync(folder)


def remove_orphans(folder: Path, known: list[Unit]) -> None:
    """Remove drafts and files that are in no unit; what was set aside stays."""
    wanted = {path for unit in known for path in unit.files(folder)}
    for path in folder.glob("*/*"):
        if path.name.endswith((_LINES, _ROLLED, DRAFT)) and path not in wanted:
            path.unlink()


def recover_units(
    cursor: duckdb.DuckDBPyConnection,
    folder: Path,
    now: datetime,
    after_step: Callable[[str], None],
) -> tuple[list[Unit], Lost]:
    """Enter every unit that the manifest does not know, after the tables have lost recent commits.

    All are entered in one commit. Return them, and the files that cannot be read, which are set
    aside.

    What such a unit was made of is removed: the units that it replaced, or the hot lines of its
    hour that are in it. Lines that came while it was made are only in the hot table.
    """
    known = {unit.name: unit for unit in units(cursor)}
    away: Lost = {}
    found = {one.unit.name: one for one in _unknown(cursor, folder, known, (now, away))}
    for name in _poorer(list(found.values()), known):
        del found[name]
    replaced = {name for one in found.values() for name in one.replaces}
    fresh = [one.unit for name, one in found.items() if name not in replaced]
    # Begun only now: a file that cannot be read would end the transaction.
    cursor.begin()
    for unit in fresh:
        after_step("adopting")
        enter(cursor, unit)
        if unit.level == HOUR:
            _delete_hot(cursor, folder, unit)
    strike(cursor, [unit for name, unit in known.items() if name in replaced])
    cursor.commit()
    if fresh:
        after_step("adopted")
    return fresh, away


def _delete_hot(cursor: duckdb.DuckDBPyConnection, folder: Path, unit: Unit) -> None:
    """Delete the lines of an hour's unit from the hot table, but none that came since it was made."""
    hour = unit.first_ns // HOUR_NS * HOUR_NS
    table, file = quoted(unit.measurement), unit.lines_file(folder)
    sealed = ""
    if unit.lines_bytes is not None:
        known = BESIDE if unit.measurement == BESIDE.name else MEASUREMENTS[unit.measurement]
        columns = ("at", *known.tags)
        same = " AND ".join(f"hot.{quoted(it)} = sealed.{quoted(it)}" for it in columns)
        lines = f"read_parquet({text(str(file))}) AS sealed"
        sealed = f" AND EXISTS (SELECT 1 FROM {lines} WHERE {same})"
    cursor.execute(
        f'DELETE FROM {table} AS hot WHERE hot."at" >= make_timestamp_ns({hour})'
        f' AND hot."at" < make_timestamp_ns({hour + HOUR_NS}){sealed}'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A unit as its files describe it, and the names of the units that it replaced, together with
    others: `parts` in all.
    """

    unit: Unit
    replaces: frozenset[str]
    together: str
    parts: int


def _poorer(found: Sequence[_Found], known: Mapping[str, Unit]) -> set[str]:
    """Return units of incomplete days that have fewer lines than is left of what they were made of.

    A crash came between the units of such a day, or one of them was damaged since.
    """
    there = {**known, **{one.unit.name: one.unit for one in found}}
    days: dict[str, list[_Found]] = defaultdict(list)
    for one in found:
        days[one.together].append(one)
    poorer: set[str] = set()
    for together, parts in days.items():
        if not together or len(parts) == parts[0].parts:
            continue
        before = {name for one in parts for name in one.replaces} & there.keys()
        if sum(there[name].lines for name in before) > sum(one.unit.lines for one in parts):
            poorer |= {one.unit.name for one in parts}
    return poorer


def _unknown(
    cursor: duckdb.DuckDBPyConnection,
    folder: Path,
    known: Collection[str],
    put_away: tuple[datetime, Lost],
) -> Iterator[_Found]:
    """Yield the unknown units that are whole; set aside other files, adding them to `put_away`."""
    now, away = put_away
    for measurement in (*MEASUREMENTS, BESIDE.name):
        for rolled in sorted((folder / measurement).glob(f"*{_ROLLED}")):
            name = rolled.name.removesuffix(_ROLLED)
            if name in known:
                continue
            try:
                yield _read(cursor, measurement, name, rolled)
            except (OSError, ValueError, KeyError, pa.ArrowException, duckdb.Error) as error:
                if not _of_file(error):
                    raise
                # Not removed as an orphan: somebody may want to see what can be saved of it.
                moved = moved_away((rolled, rolled.with_name(name + _LINES)), now)
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                away |= {file: (to, reason) for file, to in moved.items()}


def _of_file(error: Exception) -> bool:
    """Return whether an error is about the content of a file, not about a resource that ran out.

    Raise StoreError for lack of memory, which nothing else reports in one line.
    """
    if isinstance(error, MemoryError):
        raise StoreError(f"the store: too little memory for its sealed files: {error}") from error
    if isinstance(error, duckdb.Error):
        return of_sealed_file(error)
    # Arrow reports a garbled file as an OSError without a number.
    gone = isinstance(error, FileNotFoundError)
    return gone or not isinstance(error, OSError) or error.errno is None


def _read(cursor: duckdb.DuckDBPyConnection, measurement: str, name: str, rolled: Path) -> _Found:
    said = {
        key.decode(): value.decode() for key, value in pq.read_metadata(rolled).metadata.items()
    }
    if int(said["version"]) > LAYOUT_VERSION:
        raise StoreError(f"{rolled} was written by a newer gpuvigil; start that version")
    parts = pq.read_table(rolled, columns=["lines", "first_at", "last_at", "node"])
    nodes = parts["node"].unique().to_pylist()
    lines = rolled.with_name(name + _LINES)
    columns = said["columns"].split(",")
    unit = Unit(
        name=name,
        measurement=measurement,
        lines=sum(parts["lines"].to_pylist()),
        first_ns=min(parts["first_at"].cast(pa.int64()).to_pylist()),
        last_ns=max(parts["last_at"].cast(pa.int64()).to_pylist()),
        first_node=min(nodes),
        last_node=max(nodes),
        level=HOUR if "T" in name else DAY,
        sealed_ns=rolled.stat().st_mtime_ns,
        lines_bytes=lines.stat().st_size if lines.exists() else None,
        lines_sha256=sha256(lines) if lines.exists() else "",
        rolled_bytes=rolled.stat().st_size,
        rolled_sha256=sha256(rolled),
        layout=entered_layout(cursor, columns),
    )
    # The checksums above are those of the files as found, so nothing else would show that they are
    # garbled.
    read_values(cursor, rolled)
    if lines.exists():
        read_values(cursor, lines)
    if measurement in MEASUREMENTS:
        _know_subjects(cursor, MEASUREMENTS[measurement], rolled)
    return _Found(
        unit=unit,
        replaces=frozenset(one for one in said["replaces"].split(",") if one),
        # Older files say nothing of others.
        together=said.get("together", ""),
        parts=int(said.get("parts", "1")),
    )


def _know_subjects(
    cursor: duckdb.DuckDBPyConnection, measurement: Measurement, rolled: Path
) -> None:
    """Take over the numbers that a file has for its subjects."""
    table, tags = quoted(subjects_table(measurement)), ", ".join(map(quoted, measurement.tags))
    cursor.execute(
        f"INSERT INTO {table} SELECT DISTINCT subject, {tags} FROM read_parquet({text(str(rolled))})"
        f" EXCEPT SELECT subject, {tags} FROM {table}"
    )
