"""A recording as a table of the catalogue: CSV, Parquet or JSON, in the columns of a map.

JSON is what Prometheus and VictoriaMetrics answer to `/api/v1/query_range`, kept as it came.
"""

import json
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from gpuvigil.metrics import GPU
from gpuvigil.store.shape import TIME, latest_schema

from .columns import Columns

CLUSTER = "recorded"
# nvidia-smi writes its unit into the header and, without `nounits`, behind every value.
_HEADER_UNIT = re.compile(r"\s*\[[^\]]*\]$")
_VALUE_UNIT = r"^\s*(-?[0-9][0-9.eE+-]*)\s*(?:%|W|MiB|MHz|C)?\s*$"
_TIME_FORMATS = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S")


def recording(paths: Sequence[Path], columns: Columns) -> pa.Table:
    """All files together, in order of time and GPU: tags, `at`, and the fields that there are.

    ValueError says which file cannot be read and why.
    """
    parts = []
    for path in paths:
        try:
            parts.append(_shaped(_raw(path), columns))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ValueError(f"{path}: {str(error).splitlines()[0]}") from error
    table = pa.concat_tables(parts, promote_options="default")
    if not len(table):
        raise ValueError(f"{', '.join(map(str, paths))}: no row with a time, a GPU and a number")
    return table.sort_by([("at", "ascending"), ("node", "ascending"), ("uuid", "ascending")])


def _raw(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    if path.suffix == ".json":
        return _answer(json.loads(path.read_text(encoding="utf-8")))
    if path.suffix != ".csv":
        raise ValueError("is none of .csv, .parquet and .json")
    # Everything is read as text: what a value means is the map's business.
    with pyarrow.csv.open_csv(path) as reader:
        names = reader.schema.names
    options = pyarrow.csv.ConvertOptions(column_types={name: pa.string() for name in names})
    table = pyarrow.csv.read_csv(path, convert_options=options)
    return table.rename_columns([_HEADER_UNIT.sub("", name.strip()) for name in names])


def _answer(found: Any) -> pa.Table:
    """A range query's series, a row for each value: labels, `timestamp` and `value`."""
    try:
        rows = [
            {**series["metric"], "timestamp": str(at), "value": value}
            for series in found["data"]["result"]
            for at, value in series["values"]
        ]
    except (KeyError, TypeError, ValueError):
        raise ValueError("is no answer of /api/v1/query_range") from None
    names = sorted({name for row in rows for name in row})
    return pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in names]))


def _shaped(raw: pa.Table, columns: Columns) -> pa.Table:
    if columns.long is not None and columns.long[0] in raw.column_names:
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
        "node": _text(raw, word.get("node"), "node"),
        "uuid": _text(raw, word["gpu"], ""),
        "model": _text(raw, word.get("model"), "unknown"),
        "at": _times(raw.column(str(word["time"]))),
    }
    fields = [metric.name for metric in GPU.metrics if metric.name in chosen or metric.name == "up"]
    for name in fields:
        if name in chosen:
            column, factor = chosen[name]
            values[name] = _numbers(raw.column(column), factor, GPU.metric(name).integer)
    # A row is what a GPU said: it was there.
    values.setdefault("up", pa.array([1] * len(raw), pa.int64()))
    table = pa.table(
        [values[name] for name in latest_schema(GPU, fields).names], latest_schema(GPU, fields)
    )
    return table.filter(pc.and_(pc.is_valid(table["at"]), pc.not_equal(table["uuid"], "")))


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


def _text(raw: pa.Table, column: str | None, otherwise: str) -> pa.ChunkedArray:
    if column is None:
        return pa.array([otherwise] * len(raw), pa.string())
    return pc.fill_null(pc.utf8_trim_whitespace(raw.column(column).cast(pa.string())), otherwise)


def _numbers(column: pa.ChunkedArray, factor: float, whole: bool) -> pa.ChunkedArray:
    """Numbers, with or without a unit; whatever else stands there was not measured."""
    if pa.types.is_string(column.type):
        parts = pc.extract_regex(column, _VALUE_UNIT.replace("(-?", "(?P<n>-?", 1))
        column = pc.struct_field(parts, "n")
    scaled = pc.multiply(column.cast(pa.float64()), factor)
    return pc.round(scaled).cast(pa.int64()) if whole else scaled


def _times(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        zoned = column if column.type.tz else column.cast(pa.timestamp("us")).cast(TIME)
        return zoned.cast(TIME)
    return pa.array([_time(text) for text in column.cast(pa.string()).to_pylist()], TIME)


def _time(text: str | None) -> datetime | None:
    """A time as exporters write it: seconds or milliseconds since 1970, ISO 8601, nvidia-smi's.

    One without a zone is taken as UTC.
    """
    plain = (text or "").strip()
    if not plain:
        return None
    try:
        seconds = float(plain)
    except ValueError:
        pass
    else:
        return datetime.fromtimestamp(seconds / 1e3 if seconds > 1e11 else seconds, timezone.utc)
    for form in _TIME_FORMATS:
        try:
            return datetime.strptime(plain, form).replace(tzinfo=timezone.utc)
        except ValueError:
            continue
    try:
        found = datetime.fromisoformat(plain)
    except ValueError:
        raise ValueError(f"{plain!r} is no time") from None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
