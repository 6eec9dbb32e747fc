"""A recording as a table of the catalogue, from files in the columns of a map."""

import os
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.metrics import GPU
from gpuvigil.store.schema import TIME, latest_schema

from .columns import Columns
from .nodes import with_nodes
from .raw import raw

CLUSTER = "recorded"
_NUMBER = r"(?P<number>-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
_VALUE = rf"^\s*{_NUMBER}\s*(?:%|W|MiB|MHz|C)?\s*$"
# What does not fit into a counter is no number: drivers write 2**64 - 1 for what they cannot know.
_BEYOND = 2.0**63
_TIME_FORMATS = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S")
# The year 5138 in seconds; 1973 in milliseconds, as in microseconds and nanoseconds.
_SECONDS_END = 1e11


def recording(
    paths: Sequence[Path], columns: Columns, tell: Callable[[str], object] = lambda _: None
) -> pa.Table:
    """All files together, in order of time and GPU: tags, `at`, and the fields that there are.

    ValueError says which file cannot be read and why; what was left out of one is told.
    """
    parts = []
    for path in paths:
        try:
            part, lost = _rows(path, columns)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else error
            raise ValueError(f"cannot read {path}: {why}") from error
        except (ValueError, pa.ArrowException) as error:
            raise ValueError(f"{path}: {str(error).splitlines()[0]}") from error
        if lost:
            tell(f"{path}: rows left out, torn or without a time or a GPU: {lost}")
        parts.append(part)
    table = pa.concat_tables(with_nodes(paths, parts), promote_options="default")
    if not len(table):
        raise ValueError(f"{', '.join(map(str, paths))}: no row with a time, a GPU and a number")
    return table.sort_by([("at", "ascending"), ("node", "ascending"), ("uuid", "ascending")])


def _rows(path: Path, columns: Columns) -> tuple[pa.Table, int]:
    """The rows of a file, and how many others it has."""
    found, torn = raw(path)
    table = _shaped(found, columns)
    rows = table.filter(pc.and_(pc.is_valid(table["at"]), pc.is_valid(table["uuid"])))
    return rows, torn + len(table) - len(rows)


def _shaped(raw: pa.Table, columns: Columns) -> pa.Table:
    if columns.long is not None and set(columns.long) <= set(raw.column_names):
        raw = _wide(raw, columns)
    word = {
        word: next((c for c in them if c in raw.column_names), None)
        for word, them in columns.words.items()
    }
    for needed in ("time", "gpu"):
        if word.get(needed) is None:
            wanted = ", ".join(columns.words.get(needed, ())) or f"... = {needed}"
            raise ValueError(
                f"has no column for the {needed} ({wanted}); it has {', '.join(raw.column_names)}"
            )
    chosen = {
        field: (name, factor)
        for name, (field, factor) in columns.fields.items()
        if name in raw.column_names
    }
    if not chosen:
        raise ValueError(f"has none of the map's columns; it has {', '.join(raw.column_names)}")
    values: dict[str, Any] = {
        "cluster": pa.array([CLUSTER] * len(raw)),
        "node": _text(raw, word.get("node")),
        "uuid": _text(raw, word["gpu"]),
        "model": pc.fill_null(_text(raw, word.get("model")), "unknown"),
        "at": _times(raw.column(str(word["time"]))),
    }
    fields = [metric.name for metric in GPU.metrics if metric.name in chosen or metric.name == "up"]
    for name in fields:
        if name in chosen:
            column, factor = chosen[name]
            values[name] = _numbers(raw.column(column), factor, GPU.metric(name).integer)
    # A row is what a GPU said: it was there.
    values.setdefault("up", pa.array([1] * len(raw), pa.int64()))
    schema = latest_schema(GPU, fields)
    return pa.table([values[name] for name in schema.names], schema)


def _wide(raw: pa.Table, columns: Columns) -> pa.Table:
    """One row for each moment and GPU, from one for each value."""
    name, value = columns.long or ("", "")
    known = raw.filter(pc.is_in(raw[name], pa.array(list(columns.fields))))
    words = [c for them in columns.words.values() for c in them if c in raw.column_names]
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in known.to_pylist():
        key = tuple(row[word] for word in words)
        rows.setdefault(key, dict(zip(words, key, strict=True)))[row[name]] = str(row[value])
    found = sorted({column for row in rows.values() for column in row})
    schema = pa.schema([(column, pa.string()) for column in found])
    listed = [{k: None if v is None else str(v) for k, v in row.items()} for row in rows.values()]
    return pa.Table.from_pylist(listed, schema=schema)


def _text(raw: pa.Table, column: str | None) -> pa.ChunkedArray:
    """Words; null where none stand."""
    nothing = pa.scalar(None, pa.string())
    if column is None:
        return pa.chunked_array([pa.nulls(len(raw), pa.string())])
    words = pc.utf8_trim_whitespace(raw.column(column).cast(pa.string()))
    return pc.if_else(pc.equal(words, ""), nothing, words)


def _numbers(column: pa.ChunkedArray, factor: float, whole: bool) -> pa.ChunkedArray:
    """Numbers, with or without a unit; whatever else stands there was not measured."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        column = pc.struct_field(pc.extract_regex(column.cast(pa.string()), _VALUE), "number")
    scaled = pc.multiply(column.cast(pa.float64(), safe=False), factor)
    known = pc.less(pc.abs(scaled), _BEYOND)
    scaled = pc.if_else(known, scaled, pa.scalar(None, pa.float64()))
    return pc.round(scaled).cast(pa.int64()) if whole else scaled


def _times(column: pa.ChunkedArray) -> pa.Array:
    """Null where no time stands; ValueError when none stands anywhere."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(TIME)
    texts = [(text or "").strip() for text in column.cast(pa.string()).to_pylist()]
    times = [_time(text) for text in texts]
    if any(texts) and not any(times):
        raise ValueError(f"{next(filter(None, texts))!r} is no time")
    return pa.array(times, TIME)


def _time(text: str) -> datetime | None:
    """A time as exporters write it: a number since 1970, ISO 8601, or nvidia-smi's.

    The number may count seconds, milliseconds, microseconds or nanoseconds. A time without a zone
    is taken as UTC.
    """
    try:
        return _since_1970(float(text))
    except ValueError:
        pass
    for form in _TIME_FORMATS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=timezone.utc)
        except ValueError:
            continue
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def _since_1970(number: float) -> datetime | None:
    for factor in (1.0, 1e3, 1e6, 1e9):
        if 0.0 <= number / factor < _SECONDS_END:
            return datetime.fromtimestamp(number / factor, timezone.utc)
    return None
