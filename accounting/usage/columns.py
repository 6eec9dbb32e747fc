"""Places and shares as Arrow tables, and as text within a record."""

import base64
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar, overload

import pyarrow as pa
import pyarrow.compute as pc

from .amounts import AMOUNTS, Place, Seconds, Share

SECONDS = tuple(one.name for one in fields(Seconds))
HOLDER = ("holder", "user", "account", "project", "partition", "model")
PLACE = ("node", "model")
SHARES = pa.schema(
    [*((name, pa.string()) for name in (*HOLDER, "command")), ("gpus", pa.int64())]
    + [(name, pa.float64()) for name in AMOUNTS]
)
PLACES = pa.schema(
    [*((name, pa.string()) for name in PLACE), *((name, pa.float64()) for name in SECONDS)]
)


_Row = TypeVar("_Row")


class Rows(Sequence[_Row]):
    """Rows of a table that become values on first access; code that only adds up never needs them."""

    __slots__ = ("_read", "_rows", "table")
    __hash__ = None  # type: ignore[assignment]  # as a list's

    def __init__(self, table: pa.Table, read: Callable[[pa.Table], tuple[_Row, ...]]) -> None:
        self.table = table
        self._read = read
        self._rows: tuple[_Row, ...] | None = None

    @overload
    def __getitem__(self, index: int) -> _Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_Row]: ...
    def __getitem__(self, index: int | slice) -> _Row | Sequence[_Row]:
        return self._all()[index]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[_Row]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == tuple(other)

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> tuple[_Row, ...]:
        if self._rows is None:
            self._rows = self._read(self.table)
        return self._rows


def table_of(rows: Sequence[Place] | Sequence[Share], schema: pa.Schema) -> pa.Table:
    """Return a table with one row for each place or share."""
    if isinstance(rows, Rows):
        return rows.table
    names = [
        f"seconds.{name}" if schema is PLACES and name in SECONDS else name for name in schema.names
    ]
    columns = list(zip(*map(attrgetter(*names), rows), strict=True)) or [()] * len(names)
    return pa.table(dict(zip(schema.names, columns, strict=True)), schema)


def shares_of(rows: pa.Table) -> tuple[Share, ...]:
    """Return the shares of a table that `table_of` made."""
    names = rows.column_names
    columns = [rows[name].to_pylist() for name in names]
    return tuple(Share(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True))


def places_of(rows: pa.Table) -> tuple[Place, ...]:
    """Return the places of a table that `table_of` made."""
    columns = [rows[name].to_pylist() for name in (*PLACE, *SECONDS)]
    return tuple(
        # An amount that an earlier version did not count is null.
        Place(node=node, model=model, seconds=Seconds(*(value or 0.0 for value in values)))
        for node, model, *values in zip(*columns, strict=True)
    )


def packed(table: pa.Table) -> str:
    """Return the table as text: a compressed Arrow stream, a fraction of the size of JSON and faster to read."""
    columns = [_short(column) for column in table.columns]
    rows = pa.table(dict(zip(table.column_names, columns, strict=True)))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return base64.b64encode(sink.getvalue()).decode("ascii")


def _short(column: pa.ChunkedArray) -> pa.Array:
    """Shorten a column: milliseconds are enough, and repeated names become numbers."""
    if pa.types.is_floating(column.type):
        column = pc.round(column, 3)
    elif pa.types.is_string(column.type):
        column = column.combine_chunks().dictionary_encode()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def unpacked(text: str, schema: pa.Schema) -> pa.Table:
    """Read what `packed` wrote; missing columns become null, and unknown ones are left out.

    Texts may be dictionaries, as `together` takes them. ValueError or TypeError for anything else.
    """
    # One thread: a table has some hundred kilobytes, and threads cost more than they save.
    options = pa.ipc.IpcReadOptions(use_threads=False)
    with pa.ipc.open_stream(a2b_base64(text, strict_mode=True), options=options) as reader:
        found = reader.read_all()
    if found.column_names == schema.names and all(map(_fits, found.schema.types, schema.types)):
        return found
    columns: list[Any] = [
        _as(found[one.name], one.type)
        if one.name in found.column_names
        else pa.nulls(found.num_rows, one.type)
        for one in schema
    ]
    return pa.table(dict(zip(schema.names, columns, strict=True)))


def _fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column can stay as it is; a dictionary-encoded text stays so, since decoding is slow."""
    coded = pa.types.is_dictionary(kind) and kind.value_type == wanted
    return bool(coded or kind == wanted)


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if _fits(column.type, kind) else column.cast(kind)


def together(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return the rows of all tables, texts encoded by one dictionary, which groups many times faster."""
    chosen = (table.select(schema.names) for table in (schema.empty_table(), *tables))
    return pa.concat_tables(map(_coded, chosen)).unify_dictionaries().combine_chunks()


def _coded(table: pa.Table) -> pa.Table:
    for place, one in enumerate(table.schema):
        if pa.types.is_string(one.type):
            table = table.set_column(place, one.name, table[place].dictionary_encode())
    return table
