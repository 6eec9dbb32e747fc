"""Telemetry in InfluxDB 1, 2 or 3: written as line protocol, queried in InfluxQL at `/query`.

InfluxQL is the one language that all three support. The lines have a mark (`MARK`), since
InfluxQL counts values of fields, not lines. Long spans are queried in pieces.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ..clock import Clock, SystemClock, to_ns
from ..config import StoreSettings
from ..errors import StoreError
from ..lineprotocol.mark import MARK
from ..metrics import MEASUREMENTS, Measurement
from . import LATEST_NS, Aggregate, Function, reduction
from .http import Web
from .schema import (
    TIME,
    aggregate_type,
    fields_of,
    latest_schema,
    measurement_of,
    series_schema,
    tags_of,
)
from .writer import Writer

_MICROSECOND = timedelta(microseconds=1)
_LINES = [("samples", pa.int64()), ("first_at", TIME), ("last_at", TIME)]

Span = tuple[datetime, datetime]


class InfluxStore:
    """`gpuvigil.store.Store` in one InfluxDB database."""

    def __init__(self, settings: StoreSettings, clock: Clock | None = None) -> None:
        """Open the store; ConfigError when a file of the settings cannot be read."""
        self._url = settings.url.rstrip("/")
        self._database = settings.bucket
        self._longest = timedelta(hours=settings.span_hours)
        self._web = Web(settings)
        self._writer = Writer(settings, clock or SystemClock(), self._web)

    def write(self, lines: bytes) -> None:
        """See `Store.write`; for lines with the same tags and time, the last one's fields are kept."""
        self._writer.write(lines)

    def window(
        self, measurement: str, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> pa.Table:
        """See `Store.window`."""
        catalogue = measurement_of(measurement)
        fields_of(catalogue, [it.field for it in aggregates])
        wanted = reduction.asked(aggregates)
        pieces = list(_pieces((start, end), self._longest))
        if len(pieces) > 1:
            means = [it for it in wanted if it.function is Function.MEAN]
            counts = (Aggregate(function=Function.COUNT, field=it.field) for it in means)
            wanted = list(dict.fromkeys([*wanted, *counts]))
        kinds = [*_LINES, *((it.column, aggregate_type(catalogue, it)) for it in wanted)]
        asked = [_call("count", MARK), _call("min", MARK), _call("max", MARK)]
        asked += [_call(it.function.value, it.field) for it in wanted]
        tables = [
            _table(catalogue, kinds, self._select(catalogue, asked, {}, piece)) for piece in pieces
        ]
        table = (
            tables[0] if len(tables) == 1 else reduction.joined_windows(catalogue, tables, wanted)
        )
        return reduction.finished_window(catalogue, aggregates, table)

    def series(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Mapping[str, str],
        span: Span,
        step: timedelta,
    ) -> pa.Table:
        """See `Store.series`."""
        catalogue = measurement_of(measurement)
        names = fields_of(catalogue, fields)
        wanted = tags_of(catalogue, where)
        asked = [_call(how, name) for name in (MARK, *names) for how in ("mean", "count")]
        kinds = [("at", TIME)]
        for name in ("offset_seconds", *names):
            kinds += [(name, pa.float64()), (f"{name}_count", pa.int64())]
        every = f",time({step // _MICROSECOND}u) fill(none)"
        rows = []
        for piece in _pieces(span, self._longest):
            for row in self._select(catalogue, asked, wanted, piece, every, timed=True):
                place = len(catalogue.tags)
                row[place + 1] = (row[place + 1] - row[place]) / 1e6
                rows.append(row)
        keys = [*catalogue.tags, "at"]
        weights = {name: f"{name}_count" for name in ("offset_seconds", *names)}
        found = reduction.joined_means(_table(catalogue, kinds, rows), keys, weights)
        order = [(name, "ascending") for name in keys]
        schema = series_schema(catalogue, names)
        return found.select(schema.names).cast(schema).sort_by(order).combine_chunks()

    def latest(self, measurement: str, fields: Collection[str], since: datetime) -> pa.Table:
        """See `Store.latest`."""
        catalogue = measurement_of(measurement)
        names = fields_of(catalogue, fields)
        asked = [_identifier(name) for name in (MARK, *names)]
        bounds = f"time >= {max(to_ns(since), 0)} AND time <= {LATEST_NS}"
        found = self._rows(
            f"SELECT {','.join(asked)} FROM {_identifier(catalogue.name)} WHERE {bounds}"
            f" GROUP BY {_tags(catalogue)} ORDER BY time DESC LIMIT 1",
            catalogue,
        )
        schema = latest_schema(catalogue, names)
        kinds = [(name, schema.field(name).type) for name in ("at", *names)]
        lines = _table(catalogue, kinds, [row for row in found if row[len(catalogue.tags)]])
        return reduction.latest(catalogue, names, lines)

    def forget(self, before: datetime) -> None:
        """See `Store.forget`; StoreError from InfluxDB 3, which cannot delete by time."""
        bound = min(to_ns(before), LATEST_NS + 1)
        for name in MEASUREMENTS:
            self._ask(f"DELETE FROM {_identifier(name)} WHERE time < {bound}")

    def _select(
        self,
        catalogue: Measurement,
        asked: Sequence[str],
        where: Mapping[str, str],
        span: Span,
        every: str = "",
        *,
        timed: bool = False,
    ) -> list[list[Any]]:
        """Return rows of tags, the time if `timed`, and the requested values.

        Rows without a mark, which somebody else wrote, have null as their first value and are left
        out.
        """
        bounds = [f"time >= {max(to_ns(span[0]), 0)}", f"time < {to_ns(span[1])}"]
        bounds += [f"{_identifier(tag)} = {_literal(value)}" for tag, value in where.items()]
        query = (
            f"SELECT {','.join(asked)} FROM {_identifier(catalogue.name)}"
            f" WHERE {' AND '.join(bounds)} GROUP BY {_tags(catalogue)}{every}"
        )
        mark = len(catalogue.tags) + timed
        return [row for row in self._rows(query, catalogue, timed=timed) if row[mark] is not None]

    def _rows(self, query: str, catalogue: Measurement, *, timed: bool = False) -> list[list[Any]]:
        rows = []
        for one in self._ask(query):
            if one.get("partial"):
                raise StoreError("InfluxDB gave a part of the answer: raise its max-row-limit")
            # InfluxDB 3 leaves empty tags out.
            tags = [one.get("tags", {}).get(tag) or "" for tag in catalogue.tags]
            rows += [[*tags, *values[0 if timed else 1 :]] for values in one["values"]]
        return rows

    def _ask(self, query: str) -> list[Any]:
        """Return the series of the answer to one statement; times are microseconds."""
        form = {"q": query, "db": self._database, "epoch": "u"}
        answer = self._web.post(f"{self._url}/query", form)
        (result,) = answer["results"]
        if "error" in result:
            raise StoreError(f"influxdb at {self._url}: {result['error']}")
        series: list[Any] = result.get("series", [])
        return series


def _pieces(span: Span, longest: timedelta) -> Iterator[Span]:
    """Split the span into pieces, oldest first; at least one, which may be empty."""
    start, end = span
    while end - start > longest:
        yield start, start + longest
        start += longest
    yield start, end


def _table(
    catalogue: Measurement, kinds: Sequence[tuple[str, pa.DataType]], rows: Sequence[Sequence[Any]]
) -> pa.Table:
    """Return rows as columns; the server writes a float without its fraction if that is 0."""
    schema = pa.schema([*((tag, pa.string()) for tag in catalogue.tags), *kinds])
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = []
    for column, kind in zip(columns, schema.types, strict=True):
        fraction = kind == pa.float64()
        values = [None if it is None else float(it) for it in column] if fraction else column
        arrays.append(pa.array(values, kind))
    return pa.Table.from_arrays(arrays, schema=schema)


def _call(function: str, field: str) -> str:
    return f"{function}({_identifier(field)})"


def _tags(catalogue: Measurement) -> str:
    return ",".join(map(_identifier, catalogue.tags))


def _identifier(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _literal(text: str) -> str:
    """Return a string literal of InfluxQL (the specification, "Strings")."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"
