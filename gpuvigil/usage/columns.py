"""Places and holders as Arrow tables, and those as text within a record."""

import base64
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

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


def table_of(rows: Sequence[Place] | Sequence[Share], schema: pa.Schema) -> pa.Table:
    """One row each."""
    columns = {
        name: [
            getattr(one.seconds if isinstance(one, Place) and name in SECONDS else one, name)
            for one in rows
        ]
        for name in schema.names
    }
    return pa.table(columns, schema)


def shares_of(rows: pa.Table) -> tuple[Share, ...]:
    """What `table_of` made a table of."""
    names = rows.column_names
    columns = [rows[name].to_pylist() for name in names]
    return tuple(Share(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True))


def places_of(rows: pa.Table) -> tuple[Place, ...]:
    """The same."""
    columns = [rows[name].to_pylist() for name in (*PLACE, *SECONDS)]
    return tuple(
        Place(node=node, model=model, seconds=Seconds(*values))
        for node, model, *values in zip(*columns, strict=True)
    )


def packed(table: pa.Table) -> str:
    """Arrow's stream, compressed, as text: a fraction of the same as JSON, and read at once."""
    columns = [_short(column) for column in table.columns]
    rows = pa.table(dict(zip(table.column_names, columns, strict=True)))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return base64.b64encode(sink.getvalue()).decode("ascii")


def _short(column: pa.ChunkedArray) -> pa.Array:
    """Milliseconds are enough, and a name that comes again is a number."""
    if pa.types.is_floating(column.type):
        column = pc.round(column, 3)
    elif pa.types.is_string(column.type):
        column = column.combine_chunks().dictionary_encode()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def unpacked(text: str, schema: pa.Schema) -> pa.Table:
    """What `packed` wrote; columns that are not there are null, and strange ones are left out.

    ValueError or TypeError for anything else.
    """
    with pa.ipc.open_stream(base64.b64decode(text, validate=True)) as reader:
        found = reader.read_all()
    columns: list[Any] = [
        found[one.name].cast(one.type)
        if one.name in found.column_names
        else pa.nulls(found.num_rows, one.type)
        for one in schema
    ]
    return pa.table(dict(zip(schema.names, columns, strict=True)), schema)
