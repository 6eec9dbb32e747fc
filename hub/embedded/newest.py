"""The newest line of every subject, in memory: what pages and passes ask for most, at a cost that
does not grow with the history.
"""

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpuvigil.metrics import Measurement

from ..bodies.tables import TIME, arrow_type
from .schema import newest_table, quoted
from .sealed_files import units
from .sealed_sql import lines_of

Ints = npt.NDArray[np.int64]
Values = npt.NDArray[Any]  # int64 or float64

# Rows that may wait to be merged; the next question merges them at once.
_MOST_WAITING = 50_000


class Newest:
    """The newest lines of one measurement; any thread may call.

    Every answer includes all lines that `add` was given before. Of two lines of one subject and
    time, either may be the newest.
    """

    def __init__(self, measurement: Measurement) -> None:
        self._measurement = measurement
        self._lock = threading.Lock()
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._slots: dict[tuple[str, ...], int] = {}
        self._at: Ints = np.array([], np.int64)
        self._values: dict[str, Values] = {
            it.name: np.array([], np.int64) if it.integer else np.array([], np.float64)
            for it in measurement.metrics
        }
        self._known = {it.name: np.array([], np.bool_) for it in measurement.metrics}
        self._order: Ints | None = None
        self._tags: list[pa.Array] = []

    def add(self, rows: pa.Table) -> None:
        """Add committed lines: the tags, `at`, and any of the fields."""
        if not rows.num_rows:
            return
        with self._lock:
            self._waiting.append(rows)
            self._rows += rows.num_rows
            if self._rows >= _MOST_WAITING:
                self._merge_waiting()

    def forget(self, before_ns: int) -> None:
        """Drop the subjects whose newest line, and so all their lines, are older than `before_ns`."""
        with self._lock:
            self._merge_waiting()
            keep = np.nonzero(self._at >= before_ns)[0]
            if len(keep) == len(self._at):
                return
            names = list(self._slots)
            self._slots = {names[old]: new for new, old in enumerate(keep.tolist())}
            self._at = self._at[keep]
            for name in self._values:
                self._values[name] = self._values[name][keep]
                self._known[name] = self._known[name][keep]
            self._order = None

    def latest(self, fields: Sequence[str], since_ns: int) -> pa.Table:
        """Return tags, `at` in nanoseconds and fields of all newest lines since `since_ns`, by
        tags.
        """
        with self._lock:
            self._merge_waiting()
            order = self._sorted()
            chosen = self._at[order] >= since_ns
            rows = order[chosen]
            mask = pa.array(chosen)
            columns = {
                tag: names.filter(mask)
                for tag, names in zip(self._measurement.tags, self._tags, strict=True)
            }
            columns["at"] = pa.array(self._at[rows]).cast(TIME)
            for name in fields:
                kind = arrow_type(self._measurement.metric(name))
                columns[name] = pa.array(
                    self._values[name][rows], kind, mask=~self._known[name][rows]
                )
            return pa.table(columns)

    def _sorted(self) -> Ints:
        """Return the slots sorted by their tags, and bring `_tags` into that order."""
        if self._order is None:
            names = sorted(self._slots)
            self._order = np.fromiter(
                (self._slots[name] for name in names), np.int64, count=len(names)
            )
            columns = zip(*names, strict=True) if names else [()] * len(self._measurement.tags)
            self._tags = [pa.array(column, pa.string()) for column in columns]
        return self._order

    def _merge_waiting(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting, promote_options="default").combine_chunks()
        self._waiting, self._rows = [], 0
        at = rows["at"].cast(pa.int64()).to_numpy()
        slots = self._slots_of([rows[tag] for tag in self._measurement.tags])
        # The newest row of each slot, if it is not older than the one known before.
        order = np.lexsort((at, slots))
        last = np.append(np.diff(slots[order]) != 0, True)
        chosen = order[last]
        chosen = chosen[at[chosen] >= self._at[slots[chosen]]]
        self._write(rows, chosen, slots[chosen], at[chosen])

    def _write(self, rows: pa.Table, chosen: Ints, slots: Ints, at: Ints) -> None:
        self._at[slots] = at
        given = set(rows.column_names)
        for name, known in self._known.items():
            if name not in given:
                known[slots] = False
                continue
            column = rows[name].combine_chunks().take(pa.array(chosen))
            known[slots] = column.is_valid().to_numpy(zero_copy_only=False)
            self._values[name][slots] = column.fill_null(0).to_numpy(zero_copy_only=False)

    def _slots_of(self, tags: Iterable[pa.ChunkedArray]) -> Ints:
        """Return the slot of each row; a new subject gets the next one."""
        codes: Ints | None = None
        names: list[tuple[str, ...]] = [()]
        for column in tags:
            encoded = column.combine_chunks().dictionary_encode()
            own = encoded.dictionary.to_pylist()
            indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            codes = indices if codes is None else codes * len(own) + indices
            # Combinations that no row has are dropped at every tag, so that there are never more
            # than rows.
            found, codes = np.unique(codes, return_inverse=True)
            size = len(own)
            names = [(*names[code // size], own[code % size]) for code in found.tolist()]
        assert codes is not None
        of_name = np.fromiter(
            (self._slots.setdefault(name, len(self._slots)) for name in names),
            np.int64,
            count=len(names),
        )
        self._grow(len(self._slots))
        return of_name[codes]

    def _grow(self, size: int) -> None:
        more = size - len(self._at)
        if more <= 0:
            return
        self._order = None
        self._at = np.append(self._at, np.full(more, np.iinfo(np.int64).min))
        for name, values in self._values.items():
            self._values[name] = np.resize(values, size)
            self._known[name] = np.append(self._known[name], np.zeros(more, np.bool_))


def read_newest(
    cursor: duckdb.DuckDBPyConnection, measurement: Measurement, folder: Path, *, from_files: bool
) -> Newest:
    """Read the newest lines from the tables, and from sealed files too when the tables are new."""
    found = Newest(measurement)
    places = [quoted(measurement.name), quoted(newest_table(measurement))]
    sealed = [it for it in units(cursor, measurement.name) if it.lines_bytes is not None]
    if from_files and sealed:
        places.append(lines_of(cursor, folder, measurement, sealed))
    tags = ", ".join(map(quoted, measurement.tags))
    for place in places:
        found.add(
            cursor.sql(
                f'SELECT * FROM {place} JOIN (SELECT {tags}, max("at") AS "at" FROM {place}'
                f' GROUP BY {tags}) USING ({tags}, "at")'
            ).to_arrow_table()
        )
    return found
