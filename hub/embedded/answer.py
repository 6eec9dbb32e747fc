"""The answer to a question: its columns, ordered by subject and step."""

from typing import Any

import numpy as np
import pyarrow as pa

from gpuvigil.store import Aggregate, Function

from .aggregates import Piece
from .line_arrays import Ints, PartialAggregates, Values
from .question import Series, Window
from .subjects import Subjects

_TIME = pa.timestamp("us", "UTC")
_ENDS = {
    Function.FIRST: (Piece.FIRST, Piece.FIRST_AT, np.iinfo(np.int64).max),
    Function.LAST: (Piece.LAST, Piece.LAST_AT, np.iinfo(np.int64).min),
}


def table_of(
    question: Window | Series, parts: PartialAggregates | None, subjects: Subjects
) -> pa.Table:
    """Return the answer as the table that `gpuvigil.store.Store` describes."""
    schema = _schema(question)
    if parts is None or not len(parts.subject):
        return schema.empty_table()
    place = pa.array(parts.subject)
    columns: list[Any] = [tags.take(place) for tags in subjects.columns]
    if isinstance(question, Series):
        assert parts.step_ns is not None
        assert parts.offset_ns is not None
        columns += [_times(parts.step_ns), pa.array(parts.offset_ns / parts.lines / 1e9)]
        columns += [_mean(parts, field) for field in question.fields]
    else:
        columns += [pa.array(parts.lines), _times(parts.first_ns), _times(parts.last_ns)]
        columns += [_aggregated(parts, it) for it in question.aggregates]
    return pa.table(columns, schema=schema)


def _schema(question: Window | Series) -> pa.Schema:
    fields = [(tag, pa.string()) for tag in question.measurement.tags]
    if isinstance(question, Series):
        fields += [("at", _TIME), ("offset_seconds", pa.float64())]
        fields += [(name, pa.float64()) for name in question.fields]
    else:
        fields += [("samples", pa.int64()), ("first_at", _TIME), ("last_at", _TIME)]
        fields += [(it.column, _kind(it, question)) for it in question.aggregates]
    return pa.schema(fields)


def _kind(aggregate: Aggregate, question: Window) -> pa.DataType:
    if aggregate.function is Function.COUNT:
        return pa.int64()
    whole = question.measurement.metric(aggregate.field).integer
    return pa.int64() if whole and aggregate.function is not Function.MEAN else pa.float64()


def _aggregated(parts: PartialAggregates, aggregate: Aggregate) -> pa.Array:
    pieces, function = parts.fields[aggregate.field], aggregate.function
    count = pieces[Piece.COUNT]
    if function is Function.COUNT:
        return pa.array(count)
    if function is Function.MEAN:
        return _mean(parts, aggregate.field)
    if function is Function.INCREASE:
        return _increase(pieces[Piece.MIN], pieces[Piece.MAX], count)
    if function in _ENDS:
        # Roll-ups have lines, but neither a first nor a last value.
        value, time, never = _ENDS[function]
        return pa.array(pieces[value], mask=pieces[time] == never)
    return pa.array(pieces[Piece(function.value)], mask=count == 0)


def _mean(parts: PartialAggregates, field: str) -> pa.Array:
    pieces = parts.fields[field]
    count = pieces[Piece.COUNT]
    return pa.array(pieces[Piece.SUM] / np.maximum(count, 1), mask=count == 0)


def _increase(least: Values, most: Values, count: Ints) -> pa.Array:
    """Return the maximum minus the minimum; null where that does not fit into 64 bits."""
    known = most - least
    return pa.array(known, mask=(count == 0) | (known < 0))


def _times(at_ns: Ints) -> pa.Array:
    """Return times in nanoseconds as timestamps, truncated to microseconds."""
    return pa.array(at_ns // 1000).cast(_TIME)
