"""Completes in Arrow what a storage engine cannot answer by itself.

Lines are a table of a measurement's tags, `at`, and fields, in any order; a value that was not
measured is null. Answers have the shapes that `gpuvigil.store.Store` specifies.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from ..metrics import Measurement
from . import Aggregate, Function
from .schema import TIME, latest_schema, series_schema, window_schema

_ARROW: Mapping[Function, str] = {
    Function.COUNT: "count",
    Function.MEAN: "mean",
    Function.MIN: "min",
    Function.MAX: "max",
    Function.FIRST: "first",
    Function.LAST: "last",
}
_MICROSECOND = timedelta(microseconds=1)


def asked(aggregates: Sequence[Aggregate]) -> list[Aggregate]:
    """Return the aggregates to request from an engine: an increase needs two of them."""
    wanted: dict[Aggregate, None] = {}
    for it in aggregates:
        functions = [it.function]
        if it.function is Function.INCREASE:
            functions = [Function.MIN, Function.MAX]
        wanted |= {Aggregate(function=function, field=it.field): None for function in functions}
    return list(wanted)


def window(catalogue: Measurement, aggregates: Sequence[Aggregate], lines: pa.Table) -> pa.Table:
    """Return the answer to `Store.window` from the lines of the range."""
    tags = list(catalogue.tags)
    ordered = lines.sort_by([(name, "ascending") for name in (*tags, "at")])
    parts = asked(aggregates)
    found = ordered.group_by(tags, use_threads=False).aggregate(
        [("at", "count"), ("at", "min"), ("at", "max")]
        + [(it.field, _ARROW[it.function]) for it in parts]
    )
    names = {"at_count": "samples", "at_min": "first_at", "at_max": "last_at"}
    found = found.rename_columns([names.get(name, name) for name in found.column_names])
    return finished_window(catalogue, aggregates, found)


def finished_window(
    catalogue: Measurement, aggregates: Sequence[Aggregate], parts: pa.Table
) -> pa.Table:
    """Return the answer to `Store.window` from the columns of `asked` aggregates, subjects in any order."""
    wanted = list(dict.fromkeys(aggregates))
    for it in wanted:
        if it.function is Function.INCREASE:
            parts = parts.append_column(it.column, _increase(parts, it.field))
        elif it.function is Function.COUNT:
            place = parts.column_names.index(it.column)
            counted = pc.fill_null(parts.column(it.column), 0)
            parts = parts.set_column(place, it.column, counted)
    return _shaped(parts, window_schema(catalogue, wanted), catalogue.tags)


def series(
    catalogue: Measurement, fields: Sequence[str], lines: pa.Table, step: timedelta
) -> pa.Table:
    """Return the answer to `Store.series` from the lines of the span."""
    step_us = pa.scalar(step // _MICROSECOND, pa.int64())
    at_us = lines.column("at").cast(pa.int64())
    start_us = pc.multiply(pc.divide(at_us, step_us), step_us)
    offset = pc.divide(pc.subtract(at_us, start_us).cast(pa.float64()), 1e6)
    place = lines.column_names.index("at")
    lines = lines.set_column(place, "at", start_us.cast(TIME))
    lines = lines.append_column("offset_seconds", offset)
    keys = [*catalogue.tags, "at"]
    found = lines.group_by(keys, use_threads=False).aggregate(
        [(name, "mean") for name in ("offset_seconds", *fields)]
    )
    found = found.rename_columns([name.removesuffix("_mean") for name in found.column_names])
    return _shaped(found, series_schema(catalogue, fields), keys)


def latest(catalogue: Measurement, fields: Sequence[str], lines: pa.Table) -> pa.Table:
    """Return the answer to `Store.latest` from lines that are recent enough."""
    tags = list(catalogue.tags)
    ordered = lines.sort_by([(name, "ascending") for name in (*tags, "at")])
    numbered = ordered.append_column("number", pa.array(range(len(ordered)), pa.int64()))
    newest = numbered.group_by(tags, use_threads=False).aggregate([("number", "max")])
    found = ordered.take(newest.column("number_max"))
    return _shaped(found, latest_schema(catalogue, fields), tags)


def joined_means(parts: pa.Table, keys: Sequence[str], weights: Mapping[str, str]) -> pa.Table:
    """Join rows with the same key into one.

    `weights` names, for each column of means, the column with the number of values; these
    counts are added up. A mean is null where nothing was counted.
    """
    counts = list(dict.fromkeys(weights.values()))
    for mean, count in weights.items():
        total = pc.multiply(parts.column(mean), parts.column(count).cast(pa.float64()))
        parts = parts.set_column(parts.column_names.index(mean), mean, total)
    found = parts.group_by(list(keys), use_threads=False).aggregate(
        [(name, "sum") for name in (*weights, *counts)]
    )
    found = found.rename_columns([name.removesuffix("_sum") for name in found.column_names])
    for mean, count in weights.items():
        divided = pc.divide(found.column(mean), found.column(count).cast(pa.float64()))
        found = found.set_column(found.column_names.index(mean), mean, divided)
    return found


def joined_windows(
    catalogue: Measurement, parts: Sequence[pa.Table], wanted: Sequence[Aggregate]
) -> pa.Table:
    """Join consecutive windows, oldest first, into one row per subject.

    `wanted` must have a count for each mean.
    """
    tags, table = list(catalogue.tags), pa.concat_tables(parts)
    rules = [("samples", "sum"), ("first_at", "min"), ("last_at", "max")]
    means = {}
    for it in wanted:
        if it.function is Function.MEAN:
            means[it.column] = Aggregate(function=Function.COUNT, field=it.field).column
        else:
            how = "sum" if it.function is Function.COUNT else _ARROW[it.function]
            rules.append((it.column, how))
    found = table.group_by(tags, use_threads=False).aggregate(rules)
    found = found.rename_columns([*tags, *(name for name, _ in rules)])
    if not means:
        return found
    joined = joined_means(table, tags, means)
    return found.join(joined.select([*tags, *means]), tags)


def _increase(parts: pa.Table, field: str) -> pa.ChunkedArray:
    """Return max - min; null where a difference of two 64-bit integers does not fit into 64 bits."""
    least, most = (
        parts.column(Aggregate(function=function, field=field).column)
        for function in (Function.MIN, Function.MAX)
    )
    difference = pc.subtract(most, least)  # may wrap round
    return pc.if_else(pc.less(difference, 0), None, difference)


def _shaped(table: pa.Table, schema: pa.Schema, keys: Sequence[str]) -> pa.Table:
    """Return the schema's columns, sorted by the keys."""
    found = table.select(schema.names).cast(schema)
    return found.sort_by([(name, "ascending") for name in keys]).combine_chunks()
