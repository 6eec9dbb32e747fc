"""Checks the names in a query, and builds the schemas of answers."""

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from ..errors import StoreError
from ..metrics import MEASUREMENTS, Measurement
from . import Aggregate, Function

TIME = pa.timestamp("us", "UTC")


def measurement_of(name: str) -> Measurement:
    """Return the measurement of that name; raise StoreError when the catalogue has none."""
    if name not in MEASUREMENTS:
        raise StoreError(f"measurement {name!r} is none of {', '.join(MEASUREMENTS)}")
    return MEASUREMENTS[name]


def fields_of(catalogue: Measurement, names: Iterable[str]) -> list[str]:
    """Return the names, each once; raise StoreError for one that is not in the catalogue."""
    known = {metric.name for metric in catalogue.metrics}
    unique = list(dict.fromkeys(names))
    for name in unique:
        if name not in known:
            raise StoreError(f"{catalogue.name} has no field {name!r}")
    return unique


def tags_of(catalogue: Measurement, where: Mapping[str, str]) -> dict[str, str]:
    """Return the requested tags; raise StoreError for one that the measurement does not have."""
    for tag in where:
        if tag not in catalogue.tags:
            raise StoreError(f"{catalogue.name} has no tag {tag!r}")
    return dict(where)


def type_of(catalogue: Measurement, field: str) -> pa.DataType:
    """Return the type of a field's column."""
    return pa.int64() if catalogue.metric(field).integer else pa.float64()


def aggregate_type(catalogue: Measurement, aggregate: Aggregate) -> pa.DataType:
    """Return the type of an aggregate's column: a mean is a float, a count an integer."""
    if aggregate.function is Function.COUNT:
        return pa.int64()
    if aggregate.function is Function.MEAN:
        return pa.float64()
    return type_of(catalogue, aggregate.field)


def window_schema(catalogue: Measurement, aggregates: Sequence[Aggregate]) -> pa.Schema:
    """Return the schema of an answer to `Store.window`."""
    kinds = [("samples", pa.int64()), ("first_at", TIME), ("last_at", TIME)]
    kinds += [(it.column, aggregate_type(catalogue, it)) for it in aggregates]
    return _schema(catalogue, kinds)


def series_schema(catalogue: Measurement, fields: Sequence[str]) -> pa.Schema:
    """Return the schema of an answer to `Store.series`."""
    kinds = [("at", TIME), ("offset_seconds", pa.float64())]
    return _schema(catalogue, [*kinds, *((it, pa.float64()) for it in fields)])


def latest_schema(catalogue: Measurement, fields: Sequence[str]) -> pa.Schema:
    """Return the schema of an answer to `Store.latest`, which is also that of lines."""
    return _schema(catalogue, [("at", TIME), *((it, type_of(catalogue, it)) for it in fields)])


def _schema(catalogue: Measurement, kinds: Sequence[tuple[str, pa.DataType]]) -> pa.Schema:
    return pa.schema([*((tag, pa.string()) for tag in catalogue.tags), *kinds])
