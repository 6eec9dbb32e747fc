"""The store's answer to a query: columns of all subjects, and single rows for the few that matter."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.clock import EPOCH
from gpuvigil.model import Subject

from .index import NOWHERE, Index, Numbers, index_of

# Values, and which of them were measured (None: all). Times are microseconds since 1970.
Column = tuple[Numbers, Numbers | None]
_TIMES = frozenset({"at", "first_at", "last_at"})


class Rows:
    """Rows of one measurement, one per subject, as `Store.window` and `Store.latest` give them."""

    __slots__ = (
        "__weakref__",
        "_beside",
        "_columns",
        "_index",
        "_read",
        "_size",
        "_values",
        "table",
    )

    def __init__(self, table: pa.Table, index: Index | None = None) -> None:
        self.table = table
        self._size = int(table.num_rows)
        self._index = index
        self._read: Callable[[str], Column] = lambda name: _column(table[name])
        self._columns: dict[str, Column] = {}
        self._values: dict[str, Numbers] = {}
        self._beside: dict[tuple[Index, str], Numbers] = {}

    @classmethod
    def of_columns(cls, index: Index, read: Callable[[str], Column]) -> "Rows":
        """Return rows of these subjects; each column is read when it is first asked for."""
        rows = cls(_NO_TABLE, index)
        rows._size, rows._read = len(index), read
        return rows

    def __len__(self) -> int:
        return self._size

    @property
    def index(self) -> Index:
        """The subjects of the rows, in their order."""
        if self._index is None:
            self._index = index_of(self.table)
        return self._index

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """The subjects, in the order of the rows."""
        return self.index.subjects

    def values(self, column: str) -> Numbers:
        """Return a column of all rows as float64; NaN, "not measured", fails every comparison.

        Times are microseconds since 1970, which float64 keeps exactly.
        """
        found = self._values.get(column)
        if found is None:
            found = _floats(*self._column(column)) if self._size else _NOTHING
            found.flags.writeable = False
            self._values[column] = found
        return found

    def bits(self, column: str) -> Numbers:
        """Return a column of flags for all rows as int64, 0 where not measured."""
        if not self._size:
            return _NOTHING.astype(np.int64)
        values, valid = self._column(column)
        return values if valid is None else np.where(valid, values, 0)

    def beside(self, rows: "Rows", column: str) -> Numbers:
        """Return `values` in the order of other rows: the subject's, else its node's, else NaN."""
        if rows.index is self.index:
            return self.values(column)
        key = rows.index, column
        if key not in self._beside:
            found = self._beside[key] = self._in_order_of(*key)
            found.flags.writeable = False
        return self._beside[key]

    def _in_order_of(self, index: Index, column: str) -> Numbers:
        if not self._size:
            return np.full(len(index), np.nan)
        places = index.places(self.index)
        return np.where(places == NOWHERE, np.nan, self.values(column)[places])

    def where(self, mask: Numbers) -> Iterator[tuple[Subject, "Row"]]:
        """Yield the subject and row wherever the mask is true."""
        subjects = self.subjects if self._size else ()
        for number in np.flatnonzero(mask).tolist():
            yield subjects[number], Row(self, number)

    def cells(self, mask: Numbers, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield these columns of the rows where the mask is true, as plain values; no column of times."""
        chosen = np.flatnonzero(mask)
        told = (_plain(*self._column(name), chosen) for name in columns)
        return (dict(zip(columns, values, strict=True)) for values in zip(*told, strict=True))

    def get(self, subject: Subject) -> "Row | None":
        """Return the row of one subject, None when it has none."""
        number = self.index.number(subject) if self._size else None
        return None if number is None else Row(self, number)

    def value(self, column: str, number: int) -> Any:
        """Return one cell as a plain value; None is "not measured"."""
        values, valid = self._column(column)
        if valid is not None and not valid[number]:
            return None
        value = values[number]
        if column in _TIMES:
            return EPOCH + timedelta(microseconds=int(value))
        return value.item() if isinstance(value, np.generic) else value

    def of_node(self, node: Subject) -> "Rows":
        """Return only the rows of one node and of its GPUs and ports."""
        return self._only(self.index.of_node(node)) if self._size else self

    def of_subject(self, subject: Subject) -> "Rows":
        """Return only the row of one subject, or no rows."""
        number = self.index.number(subject) if self._size else None
        return self._only(np.array([] if number is None else [number], np.int64))

    def _only(self, chosen: Numbers) -> "Rows":
        def read(name: str) -> Column:
            values, valid = self._column(name)
            return values[chosen], None if valid is None else valid[chosen]

        return Rows.of_columns(Index(self.subjects[n] for n in chosen.tolist()), read)

    def _column(self, name: str) -> Column:
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self._read(name)
        return found


class Row:
    """One row, which turns cells into plain values only when they are read."""

    __slots__ = ("_number", "_rows")

    def __init__(self, rows: "Rows", number: int) -> None:
        self._rows = rows
        self._number = number

    def __getitem__(self, column: str) -> Any:
        return self._rows.value(column, self._number)

    def get(self, column: str) -> Any:
        """Return a cell's value; None if it was not measured or nobody asked for the column."""
        try:
            return self._rows.value(column, self._number)
        except KeyError:
            return None


_NO_TABLE = pa.table({})
_NOTHING = np.empty(0, np.float64)


def _column(column: pa.ChunkedArray) -> Column:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return np.array(column.to_pylist(), object), pc.is_valid(column).to_numpy()
    if column.null_count == 0:
        return column.to_numpy(), None
    return pc.fill_null(column, 0).to_numpy(), pc.is_valid(column).to_numpy()


def _plain(values: Numbers, valid: Numbers | None, chosen: Numbers) -> list[Any]:
    plain: list[Any] = values[chosen].tolist()
    if valid is None:
        return plain
    pairs = zip(plain, valid[chosen].tolist(), strict=True)
    return [value if known else None for value, known in pairs]


def _floats(values: Numbers, valid: Numbers | None) -> Numbers:
    if valid is None:
        return values.astype(np.float64, copy=False)
    return np.where(valid, values, np.nan)
