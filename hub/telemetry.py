"""Telemetry out: the questions of `gpuvigil.store.Store` as SQL, the answers as Arrow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuvigil.clock import from_text, to_ns
from gpuvigil.config import HubSettings
from gpuvigil.errors import StoreError
from gpuvigil.metrics import MEASUREMENTS, Measurement
from gpuvigil.store import EARLIEST_NS, LATEST_NS, Aggregate, Function

from .answers import Refused, question_of
from .embedded import Embedded
from .rows import arrow_type

_ARROW = "application/vnd.apache.arrow.stream"
_TIME = pa.timestamp("us", "UTC")
# The difference of two 64-bit numbers may not fit into one; then it is not known.
_WHOLE_INCREASE = "TRY_CAST(max({0})::HUGEINT - min({0})::HUGEINT AS BIGINT)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """SQL whose names all come from the catalogue, its parameters, and the answer's columns."""

    text: str
    parameters: tuple[Any, ...]
    schema: pa.Schema


def window(question: Mapping[str, Any]) -> Query:
    """See `Store.window`."""
    measurement = _measurement(question)
    aggregates = dict.fromkeys(_aggregates(question.get("aggregates"), measurement))
    columns = [_quoted(tag) for tag in measurement.tags]
    columns += ["count(*) AS samples", 'min("at") AS first_at', 'max("at") AS last_at']
    for it in aggregates:
        reduced = _SQL[it.function](_quoted(it.field))
        if it.function is Function.INCREASE and measurement.metric(it.field).integer:
            reduced = _WHOLE_INCREASE.format(_quoted(it.field))
        columns.append(f"{reduced} AS {_quoted(it.column)}")
    kinds = [("samples", pa.int64()), ("first_at", _TIME), ("last_at", _TIME)]
    kinds += [(it.column, _kind(it, measurement)) for it in aggregates]
    return _grouped(measurement, columns, kinds, (_range(question), {}))


def series(question: Mapping[str, Any]) -> Query:
    """See `Store.series`."""
    measurement = _measurement(question)
    fields = _fields(question.get("fields"), measurement)
    where = question.get("where", {})
    if not isinstance(where, Mapping) or not all(isinstance(it, str) for it in where.values()):
        raise Refused(400, "where must be an object of texts")
    for tag in where:
        if tag not in measurement.tags:
            raise Refused(400, f"{measurement.name} has no tag {tag!r}")
    seconds = question.get("step_seconds")
    if not isinstance(seconds, int | float) or not 0.001 <= seconds <= 1e9:
        raise Refused(400, "step_seconds must be a number from 0.001 to 1e9")
    # A whole number that we made, not text from outside.
    step = round(seconds * 1_000_000) * 1_000
    start_of_step = f'make_timestamp_ns(epoch_ns("at") // {step} * {step})'
    columns = [_quoted(tag) for tag in measurement.tags] + [f"{start_of_step} AS step_at"]
    columns.append(f'avg(epoch_ns("at") % {step}) / 1e9 AS offset_seconds')
    columns += [f"avg({_quoted(field)}) AS {_quoted(field)}" for field in fields]
    kinds = [("at", _TIME), ("offset_seconds", pa.float64())]
    kinds += [(field, pa.float64()) for field in fields]
    return _grouped(measurement, columns, kinds, (_range(question), where), by=", step_at")


def latest(question: Mapping[str, Any]) -> Query:
    """See `Store.latest`."""
    measurement = _measurement(question)
    fields = _fields(question.get("fields"), measurement)
    since = _time(question.get("since"), "since")
    columns = [_quoted(tag) for tag in measurement.tags] + ['max("at") AS newest_at']
    if fields:
        # One struct, so that all fields are those of the same line.
        packed = ", ".join(f"{_quoted(field)} := {_quoted(field)}" for field in fields)
        columns.append(f'unnest(arg_max(struct_pack({packed}), "at"))')
    kinds = [("at", _TIME)]
    kinds += [(field, arrow_type(measurement.metric(field))) for field in fields]
    return _grouped(measurement, columns, kinds, ((since, LATEST_NS + 1), {}))


QUERIES: dict[str, Callable[[Mapping[str, Any]], Query]] = {
    "window": window,
    "series": series,
    "latest": latest,
}


_SQL: dict[Function, Callable[[str], str]] = {
    Function.COUNT: "count({})".format,
    Function.MEAN: "avg({})".format,
    Function.MIN: "min({})".format,
    Function.MAX: "max({})".format,
    Function.FIRST: 'arg_min({}, "at")'.format,
    Function.LAST: 'arg_max({}, "at")'.format,
    Function.INCREASE: "max({0}) - min({0})".format,
}


def _grouped(
    measurement: Measurement,
    columns: Sequence[str],
    kinds: Sequence[tuple[str, pa.DataType]],
    lines: tuple[tuple[int, int], Mapping[str, str]],
    by: str = "",
) -> Query:
    """`columns` per subject over the lines of a range and with certain tags, in order."""
    (start, end), where = lines
    conditions = [
        '"at" >= make_timestamp_ns(?::BIGINT)',
        '"at" < make_timestamp_ns(?::BIGINT)',
        *(f"{_quoted(tag)} = ?" for tag in where),
    ]
    tags = ", ".join(_quoted(tag) for tag in measurement.tags)
    text = (
        f"SELECT {', '.join(columns)} FROM {_quoted(measurement.name)}"
        f" WHERE {' AND '.join(conditions)} GROUP BY {tags}{by} ORDER BY {tags}{by}"
    )
    schema = pa.schema([(tag, pa.string()) for tag in measurement.tags] + list(kinds))
    return Query(text=text, parameters=(start, end, *where.values()), schema=schema)


def _kind(aggregate: Aggregate, measurement: Measurement) -> pa.DataType:
    if aggregate.function is Function.COUNT:
        return pa.int64()
    if aggregate.function is Function.MEAN:
        return pa.float64()
    return arrow_type(measurement.metric(aggregate.field))


def _quoted(name: str) -> str:
    return f'"{name}"'


def _measurement(question: Mapping[str, Any]) -> Measurement:
    name = question.get("measurement")
    if not isinstance(name, str) or name not in MEASUREMENTS:
        raise Refused(400, f"measurement {name!r} is none of {', '.join(MEASUREMENTS)}")
    return MEASUREMENTS[name]


def _fields(names: object, measurement: Measurement) -> list[str]:
    if not isinstance(names, list):
        raise Refused(400, "fields must be a list")
    known = {metric.name for metric in measurement.metrics}
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise Refused(400, f"{measurement.name} has no field {name!r}")
    return list(dict.fromkeys(names))


def _aggregates(pairs: object, measurement: Measurement) -> list[Aggregate]:
    if not isinstance(pairs, list) or not all(
        isinstance(it, list) and len(it) == 2 for it in pairs
    ):
        raise Refused(400, "aggregates must be a list of [function, field]")
    _fields([field for _, field in pairs], measurement)
    try:
        return [Aggregate(function=Function(name), field=field) for name, field in pairs]
    except ValueError as error:
        raise Refused(400, f"aggregates: {error}") from None


def _range(question: Mapping[str, Any]) -> tuple[int, int]:
    return _time(question.get("start"), "start"), _time(question.get("end"), "end")


def _time(text: object, key: str) -> int:
    """Nanoseconds, held within the times that lines can have."""
    try:
        at: datetime = from_text(text) if isinstance(text, str) else from_text("")
    except ValueError:
        raise Refused(400, f"{key} must be a time like 2026-01-31T12:00:00Z") from None
    return min(max(to_ns(at), EARLIEST_NS), LATEST_NS + 1)


class Telemetry:
    """The questions over HTTP."""

    def __init__(self, store: Embedded, settings: HubSettings) -> None:
        self._store = store
        self._settings = settings

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/telemetry/forget", self.forget, methods=["POST"]),
            Route("/api/v1/telemetry/{verb}", self.answer, methods=["POST"]),
        ]

    async def answer(self, request: Request) -> Response:
        verb = request.path_params["verb"]
        if verb not in QUERIES:
            raise Refused(404, f"no question {verb!r}; there are {', '.join(QUERIES)}, forget")
        query = QUERIES[verb](await question_of(request, self._settings.body_bytes))
        return Response(await run_in_threadpool(self._stream, query), media_type=_ARROW)

    async def forget(self, request: Request) -> Response:
        question = await question_of(request, self._settings.body_bytes)
        before = _time(question.get("before"), "before")
        try:
            await run_in_threadpool(self._store.forget, before)
        except StoreError as error:
            raise Refused(503, str(error), 5) from error
        return Response(status_code=204)

    def _stream(self, query: Query) -> bytes:
        try:
            found = self._store.ask(query.text, query.parameters)
        except StoreError as error:
            raise Refused(503, str(error), 5) from error
        # Nanoseconds are cut to microseconds.
        columns = [
            column.cast(field.type, safe=False)
            for column, field in zip(found.columns, query.schema, strict=True)
        ]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, query.schema) as writer:
            writer.write_table(pa.table(columns, schema=query.schema))
        return bytes(sink.getvalue())
