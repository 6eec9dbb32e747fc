"""Telemetry queries: those of `gpuvigil.store.Store` over HTTP, answered in Arrow."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuvigil.clock import from_text, to_ns
from gpuvigil.errors import StoreError
from gpuvigil.metrics import MEASUREMENTS, Measurement
from gpuvigil.store import EARLIEST_NS, LATEST_NS, Aggregate, Function

from ..embedded import Embedded, Latest, Question, Series, TooLarge, Window
from ..http.bearer import Bearer
from ..http.limits import FairQueue
from ..http.responses import MemoryBudget, Refused, answer_of, question_of

# Largest query: it names fields and tags, each from a small catalogue.
_LARGEST_BYTES = 256 * 1024
_MOST_ASKING_BYTES = 4 * 1024 * 1024

# Longest tag value that a query may name.
_LONGEST_NAME = 256

# Queries answered at a time; others wait, and readers take turns.
_READING = 8
_ARROW = "application/vnd.apache.arrow.stream"

# A cached answer up to this size is sent at once: a thread would cost more.
_AT_ONCE_BYTES = 1024 * 1024


def window(question: Mapping[str, Any]) -> Window:
    """Return the checked query for a window; see `Store.window`."""
    measurement = _measurement(question)
    aggregates = _aggregates(question.get("aggregates"), measurement)
    start_ns, end_ns = _range(question)
    return Window(
        measurement=measurement,
        aggregates=tuple(dict.fromkeys(aggregates)),
        start_ns=start_ns,
        end_ns=end_ns,
    )


def series(question: Mapping[str, Any]) -> Series:
    """Return the checked query for a series; see `Store.series`."""
    measurement = _measurement(question)
    fields = _fields(question.get("fields"), measurement)
    where = question.get("where", {})
    if not isinstance(where, Mapping):
        raise Refused(400, "where must be an object of texts")
    for tag, value in where.items():
        if tag not in measurement.tags:
            raise Refused(400, f"{measurement.name} has no tag {tag!r}")
        if not _is_a_name(value):
            raise Refused(400, f"where: {tag} must be a text of at most {_LONGEST_NAME} signs")
    seconds = question.get("step_seconds")
    if not isinstance(seconds, int | float) or not 0.001 <= seconds <= 1e9:
        raise Refused(400, "step_seconds must be a number from 0.001 to 1e9")
    start_ns, end_ns = _range(question)
    return Series(
        measurement=measurement,
        fields=tuple(fields),
        where=tuple(where.items()),
        start_ns=start_ns,
        end_ns=end_ns,
        step_ns=round(seconds * 1_000_000) * 1_000,
    )


def latest(question: Mapping[str, Any]) -> Latest:
    """Return the checked query for latest values; see `Store.latest`."""
    measurement = _measurement(question)
    fields = _fields(question.get("fields"), measurement)
    since_ns = _time(question.get("since"), "since")
    return Latest(measurement=measurement, fields=tuple(fields), since_ns=since_ns)


QUESTIONS: dict[str, Callable[[Mapping[str, Any]], Question]] = {
    "window": window,
    "series": series,
    "latest": latest,
}


def _measurement(question: Mapping[str, Any]) -> Measurement:
    name = question.get("measurement")
    if not isinstance(name, str) or name not in MEASUREMENTS:
        raise Refused(400, f"measurement {name!r} is none of {', '.join(MEASUREMENTS)}")
    return MEASUREMENTS[name]


def _is_a_name(value: object) -> bool:
    """Return whether a value may be a tag's; half of a surrogate pair is no text that any line has."""
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        return False
    return not any("\ud800" <= sign <= "\udfff" for sign in value)


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
    """Return a time in nanoseconds, clamped to the times that lines can have."""
    try:
        at: datetime = from_text(text) if isinstance(text, str) else from_text("")
    except ValueError:
        raise Refused(400, f"{key} must be a time like 2026-01-31T12:00:00Z") from None
    return min(max(to_ns(at), EARLIEST_NS), LATEST_NS + 1)


class Telemetry:
    """The endpoints that answer telemetry queries."""

    def __init__(self, store: Embedded, leaving: MemoryBudget) -> None:
        """`leaving` bounds the memory for answers that are being sent."""
        self._store = store
        self._leaving = leaving
        self._asking = MemoryBudget(_MOST_ASKING_BYTES)
        self._reading = FairQueue(_READING)
        self._forgetting = FairQueue(1)

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/telemetry/forget", self.forget, methods=["POST"]),
            Route("/api/v1/telemetry/{verb}", self.answer, methods=["POST"]),
        ]

    async def answer(self, request: Request) -> Response:
        verb = request.path_params["verb"]
        if verb not in QUESTIONS:
            raise Refused(404, f"no question {verb!r}; there are {', '.join(QUESTIONS)}, forget")
        bearer: Bearer = request.state.bearer
        with self._asking.of(bearer) as held:
            question = QUESTIONS[verb](await question_of(request, _LARGEST_BYTES, held))
            known = self._store.remembered(question)
            if known is not None and known.nbytes <= _AT_ONCE_BYTES:
                return answer_of(_streamed(known), _ARROW, self._leaving.held(bearer))
            async with self._reading.turn(bearer):
                answer = await run_in_threadpool(self._answered, question)
        return answer_of(answer, _ARROW, self._leaving.held(bearer))

    async def forget(self, request: Request) -> Response:
        bearer: Bearer = request.state.bearer
        with self._asking.of(bearer) as held:
            question = await question_of(request, _LARGEST_BYTES, held)
        before = _time(question.get("before"), "before")
        try:
            async with self._forgetting.turn(bearer):
                await run_in_threadpool(self._store.forget, before)
        except StoreError as error:
            raise Refused(503, str(error), 5) from error
        return Response(status_code=204)

    def _answered(self, question: Question) -> bytes:
        try:
            return _streamed(self._store.answer(question))
        except TooLarge as error:
            raise Refused(413, str(error)) from error
        except StoreError as error:
            raise Refused(503, str(error), 5) from error


def _streamed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(memoryview(sink.getvalue()))
