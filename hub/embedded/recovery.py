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
# There while sealed files are to be entered into a new manifest: a start that finds it does so,
# for one before it was cut off.
_MARK = ".adopting"


def mark(folder: Path) -> None:
    """Say on the disk, before there is a new manifest, that sealed files are to be entered."""
    if any(folder.glob(f"*/*{_ROLLED}")):
        (folder / _MARK).touch()
        sync(folder)


def marked(folder: Path) -> bool:
    """Whether sealed files may not all be in the manifest yet."""
    return (folder / _MARK).exists()


def unmark(folder: Path) -> None:
    """Say that all sealed files that can be read are in the manifest."""
    if marked(folder):
        (folder / _MARK).unlink()
        sync(folder)


def remove_orphans(folder: Path, known: list[Unit]) -> None:
    """Remove drafts and files that are in no unit; what was set aside stays."""
    wanted = {path for unit in known for path in unit.files(folder)}
    for path in folder.glob("*/*"):
        if path.name.endswith((_LINES, _ROLLED, DRAFT)) and path not in wanted:
            path.unlink()


def adopted(
    cursor: duckdb.DuckDBPyConnection,
    folder: Path,
    now: datetime,
    after_step: Callable[[str], None],
) -> tuple[list[Unit], Lost]:
    """Enter every unit that the manifest does not know, once the tables have gone back in time:
    all of them in one commit. Returns them, and the files that cannot be read, which are put away.

    What such a unit was made of is struck: the units that it replaced, or the hot lines of its hour
    that are in it. Lines that came while it was made are in the hot table alone.
    """
    known = {unit.name: unit for unit in units(cursor)}
    away: Lost = {}
    found = {one.unit.name: one for one in _unknown(cursor, folder, known, (now, away))}
    for name in _poorer(list(found.values()), known):
        del found[name]
    replaced = {name for one in found.values() for name in one.replaces}
    fresh = [one.unit for name, one in found.items() if name not in replaced]
    # Only now: a file that cannot be read would end the transaction.
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
    """Take the lines of an hour's unit out of the hot table, but none that came since it was made."""
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
    """A unit as its files tell of it, and the names of those whose place it took, together with
    others: `parts` in all.
    """

    unit: Unit
    replaces: frozenset[str]
    together: str
    parts: int


def _poorer(found: Sequence[_Found], known: Mapping[str, Unit]) -> set[str]:
    """Units of which others of their day are missing, and that have fewer lines than are still
    there of what they were made of: a crash came between them, or one was damaged meanwhile.
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
    """Units that are whole; what cannot be read is put away now, and entered into the list."""
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
                # It is no orphan: somebody may want to see what can be saved of it.
                moved = moved_away((rolled, rolled.with_name(name + _LINES)), now)
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                away |= {file: (to, reason) for file, to in moved.items()}


def _of_file(error: Exception) -> bool:
    """Whether an error tells of what is in a file, and not of what the system has none left of.

    StoreError for lack of memory, which nobody else tells in one line.
    """
    if isinstance(error, MemoryError):
        raise StoreError(f"the store: too little memory for its sealed files: {error}") from error
    if isinstance(error, duckdb.Error):
        return of_sealed_file(error)
    # Arrow tells of a garbled file in an OSError without a number.
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
    # The sums are taken here of what is there: nothing else would tell later that it is garbled.
    read_values(cursor, rolled)
    if lines.exists():
        read_values(cursor, lines)
    if measurement in MEASUREMENTS:
        _know_subjects(cursor, MEASUREMENTS[measurement], rolled)
    return _Found(
        unit=unit,
        replaces=frozenset(one for one in said["replaces"].split(",") if one),
        # Files of before say nothing of others.
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
