"""Writes a unit: both its files under draft names, synced, then renamed."""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from gpuvigil.clock import from_ns
from gpuvigil.file_sync import sync
from gpuvigil.metrics import Measurement, Metric

from .aggregates import BUCKET_NS
from .schema import quoted, subjects_table, text
from .sealed_files import BESIDE, LAYOUT_VERSION, Unit, columns_of, make_folder, sha256
from .sql import rolled_columns

DRAFT = ".draft"
HOUR, DAY = 0, 1  # levels of units
HOUR_NS = 3_600_000_000_000

# zstd is an eighth smaller and takes half as long again to read. Nothing reads Bloom filters.
_FORMAT = "FORMAT parquet, COMPRESSION lz4_raw, WRITE_BLOOM_FILTER false"
# A row group is the smallest unit that is read; with smaller ones the first question spends more time
# on the footers, which describe every column of every row group. Of lines it is some twenty subjects' day
# at a line a minute; of roll-ups, which have three times as many columns, it is a whole file of those.
_LINES_IN_GROUP, _ROLLED_IN_GROUP = 30_720, 61_440


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentWriter:
    """Writes units below `folder`; `after_step` is called after each step: tests fail there."""

    folder: Path
    after_step: Callable[[str], None]
    most_lines: int = 500_000  # in a day's file: it is sorted in memory; a day may have millions
    made: list[Path] = field(default_factory=list)  # files, drafts included

    def make(
        self,
        cursor: duckdb.DuckDBPyConnection,
        measurement: Measurement,
        lines: str,
        about: tuple[int, int, int],
        replaces: Sequence[Unit] = (),
        group: tuple[str, int] = ("", 1),
    ) -> Unit | None:
        """Write a unit of the rows of `SELECT * FROM {lines}` and return it; None without rows.

        `about`: the unit's level, the start of its span, and now, in nanoseconds. The unit takes
        effect when it is entered into the manifest. `group`: the common name of the units that
        replace `replaces` together, and how many they are.
        """
        level, start_ns, now_ns = about
        known = _about(cursor, measurement, lines)
        if known is None:
            return None
        metrics = _measured(cursor, measurement, lines)
        columns = columns_of(measurement, metrics)
        unit = Unit(
            name=f"{_label(level, start_ns)}.{secrets.token_hex(4)}",
            measurement=measurement.name,
            level=level,
            sealed_ns=now_ns,
            lines_bytes=0,
            lines_sha256="",
            rolled_bytes=0,
            rolled_sha256="",
            layout=entered_layout(cursor, columns),
            **known,
        )
        for path in (unit.lines_file(self.folder), unit.rolled_file(self.folder)):
            self.made.extend((path, _draft(path)))
        _number_subjects(cursor, measurement, lines)
        make_folder(self.folder / measurement.name)
        said = {
            "version": str(LAYOUT_VERSION),
            "columns": ",".join(columns),
            "replaces": ",".join(one.name for one in replaces),
            "together": group[0],
            "parts": str(group[1]),
        }
        in_order = _sorted(measurement, lines, columns)
        _copy(cursor, in_order, _draft(unit.lines_file(self.folder)), said, _LINES_IN_GROUP)
        rolled = _rolled(measurement, lines, metrics)
        _copy(cursor, rolled, _draft(unit.rolled_file(self.folder)), said, _ROLLED_IN_GROUP)
        self.after_step("written")
        return self._named(unit)

    def _named(self, unit: Unit) -> Unit:
        """Sync the unit's files, give them their final names, and return it with sizes and sums."""
        told = []
        for path in (unit.lines_file(self.folder), unit.rolled_file(self.folder)):
            draft = _draft(path)
            sync(draft)
            told += [draft.stat().st_size, sha256(draft)]
            self.after_step("synced")
            draft.rename(path)
            self.after_step("renamed")
        sync(path.parent)
        sizes = dict(
            zip(("lines_bytes", "lines_sha256", "rolled_bytes", "rolled_sha256"), told, strict=True)
        )
        return Unit(**{name: getattr(unit, name) for name in Unit.__slots__} | sizes)


def entered_layout(cursor: duckdb.DuckDBPyConnection, columns: Iterable[str]) -> str:
    """Return the name of a list of columns, entering it into the table `layouts` if it is new."""
    listed = ",".join(columns)
    name = hashlib.sha256(listed.encode()).hexdigest()[:16]
    if not cursor.execute("SELECT 1 FROM layouts WHERE layout = ?", [name]).fetchall():
        cursor.execute("INSERT INTO layouts VALUES (?, ?)", [name, listed])
    return name


def _about(
    cursor: duckdb.DuckDBPyConnection, measurement: Measurement, lines: str
) -> dict[str, Any] | None:
    node = "node" if "node" in measurement.tags else "''"
    found = cursor.execute(
        f'SELECT count(*), epoch_ns(min("at")), epoch_ns(max("at")), min({node}), max({node})'
        f" FROM {lines}"
    ).fetchall()[0]
    names = ("lines", "first_ns", "last_ns", "first_node", "last_node")
    return dict(zip(names, found, strict=True)) if found[0] else None


def _measured(
    cursor: duckdb.DuckDBPyConnection, measurement: Measurement, lines: str
) -> list[Metric]:
    """Return the metrics with a value in any line: others take no space and no reading time."""
    if not measurement.metrics:
        return []
    counts = ", ".join(f"count({quoted(it.name)})" for it in measurement.metrics)
    (found,) = cursor.execute(f"SELECT {counts} FROM {lines}").fetchall()
    return [it for it, count in zip(measurement.metrics, found, strict=True) if count]


def _number_subjects(
    cursor: duckdb.DuckDBPyConnection, measurement: Measurement, lines: str
) -> None:
    """Give each subject without a number the next one."""
    if measurement is BESIDE:
        return
    table, tags = quoted(subjects_table(measurement)), ", ".join(map(quoted, measurement.tags))
    cursor.execute(
        f"INSERT INTO {table} SELECT (SELECT coalesce(max(subject), 0) FROM {table})"
        f" + row_number() OVER (ORDER BY {tags}), {tags} FROM"
        f" (SELECT {tags} FROM {lines} GROUP BY {tags} EXCEPT SELECT {tags} FROM {table})"
    )


def _label(level: int, start_ns: int) -> str:
    return from_ns(start_ns).strftime("%Y-%m-%dT%H" if level == HOUR else "%Y-%m-%d")


def _draft(path: Path) -> Path:
    return path.with_name(path.name + DRAFT)


def _sorted(measurement: Measurement, lines: str, names: Sequence[str]) -> str:
    """Return all lines, sorted by node, subject and time, as SQL."""
    columns = ", ".join(map(quoted, names))
    tags = ", ".join(map(quoted, measurement.tags))
    if measurement is BESIDE:
        return f'SELECT {columns} FROM {lines} ORDER BY {tags}, "at"'
    return (
        f"SELECT subject, {columns} FROM {lines} JOIN {quoted(subjects_table(measurement))}"
        f' USING ({tags}) ORDER BY node, subject, "at"'
    )


def _rolled(measurement: Measurement, lines: str, metrics: Sequence[Metric]) -> str:
    """Return the roll-ups of all lines, sorted by node, subject and bucket, as SQL."""
    tags = ", ".join(map(quoted, measurement.tags))
    at = f'make_timestamp_ns(epoch_ns("at") // {BUCKET_NS} * {BUCKET_NS})'
    columns = ", ".join(f"{how} AS {quoted(name)}" for name, how in rolled_columns(metrics))
    if measurement is BESIDE:
        told = f"SELECT {at} AS \"bucket\", '' AS node, {columns} FROM {lines}"
        return f'{told} GROUP BY "bucket" ORDER BY "bucket"'
    rolled = f'SELECT {at} AS "bucket", {tags}, {columns} FROM {lines} GROUP BY "bucket", {tags}'
    return (
        f"SELECT * FROM ({rolled}) JOIN {quoted(subjects_table(measurement))}"
        f' USING ({tags}) ORDER BY node, subject, "bucket"'
    )


def _copy(
    cursor: duckdb.DuckDBPyConnection,
    query: str,
    path: Path,
    metadata: Mapping[str, str],
    group_rows: int,
) -> None:
    """Write the rows of a query; the metadata goes into the file as well, in case the manifest is
    lost.
    """
    form = f"{_FORMAT}, ROW_GROUP_SIZE {group_rows}"
    pairs = ", ".join(f"{key}: {text(value)}" for key, value in metadata.items())
    cursor.execute(f"COPY ({query}) TO {text(str(path))} ({form}, KV_METADATA {{{pairs}}})")
