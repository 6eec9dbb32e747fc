"""Sealed files that the manifest does not know: what a crash has left, or all of them when the
manifest itself was lost.
"""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from gpuvigil.errors import StoreError
from gpuvigil.metrics import MEASUREMENTS, Measurement

from .schema import quoted, subjects_table, text
from .units import LAYOUT_VERSION, Unit, enter, sha256
from .writing import DAY, DRAFT, HOUR, entered_layout

_LINES, _ROLLED = ".lines.parquet", ".rolled.parquet"


def remove_orphans(folder: Path, known: list[Unit]) -> None:
    """Remove drafts and files that are in no unit; what was set aside stays."""
    wanted = {path for unit in known for path in unit.files(folder)}
    for path in folder.glob("*/*"):
        if path.name.endswith((_LINES, _ROLLED, DRAFT)) and path not in wanted:
            path.unlink()


def adopted(cursor: duckdb.DuckDBPyConnection, folder: Path) -> list[Unit]:
    """Enter every whole unit into an empty manifest, but for those that another one replaced."""
    found: dict[str, Unit] = {}
    replaced: set[str] = set()
    for measurement in MEASUREMENTS:
        for rolled in sorted((folder / measurement).glob(f"*{_ROLLED}")):
            name = rolled.name.removesuffix(_ROLLED)
            try:
                unit, instead_of = _read(cursor, measurement, name, rolled)
            except (OSError, ValueError, KeyError, pa.ArrowException, duckdb.Error):
                # It is no orphan: somebody may want to see what can be saved of it.
                for file in (rolled, rolled.with_name(name + _LINES)):
                    if file.exists():
                        file.rename(file.with_name(file.name + ".damaged"))
                continue
            found[name] = unit
            replaced |= instead_of
    units = [unit for name, unit in found.items() if name not in replaced]
    for unit in units:
        enter(cursor, unit)
    return units


def _read(
    cursor: duckdb.DuckDBPyConnection, measurement: str, name: str, rolled: Path
) -> tuple[Unit, set[str]]:
    """A unit as its files tell of it, and the names of those whose place it took."""
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
    if lines.exists():
        pq.read_metadata(lines)
    _know_subjects(cursor, MEASUREMENTS[measurement], rolled)
    return unit, {one for one in said["replaces"].split(",") if one}


def _know_subjects(
    cursor: duckdb.DuckDBPyConnection, measurement: Measurement, rolled: Path
) -> None:
    """Take over the numbers that a file has for its subjects."""
    table, tags = quoted(subjects_table(measurement)), ", ".join(map(quoted, measurement.tags))
    cursor.execute(
        f"INSERT INTO {table} SELECT DISTINCT subject, {tags} FROM read_parquet({text(str(rolled))})"
        f" EXCEPT SELECT subject, {tags} FROM {table}"
    )
