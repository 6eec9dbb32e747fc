"""Telemetry in VictoriaMetrics: written as line protocol, queried in MetricsQL.

A field of a measurement is a series `<measurement>_<field>`; times are milliseconds, values floats.
Facts about lines come from their mark (`MARK`), a series like any other. A cluster is
the same under other addresses (docs.victoriametrics.com/cluster-victoriametrics, "URL format").
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..clock import EPOCH, Clock, SystemClock
from ..config import StoreSettings
from ..errors import StoreError
from ..lineprotocol.mark import MARK
from ..metrics import Measurement
from . import Aggregate, Function, reduction
from .http import Web
from .promql import Selector, Tags, number, seconds, selector, subject
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

_ROLLUPS: Mapping[Function, str] = {
    Function.COUNT: "count_over_time",
    Function.MEAN: "avg_over_time",
    Function.MIN: "min_over_time",
    Function.MAX: "max_over_time",
    Function.FIRST: "first_over_time",
    Function.LAST: "last_over_time",
}
_MILLISECOND = timedelta(milliseconds=1)
# The server returns no more points of a series at once (-search.maxPointsPerTimeseries, 30,000).
_MOST_POINTS = 20_000
# The server accepts no time further ahead than this (lib/storage of 1.79).
_AHEAD_MS = 2 * 86_400_000
# Fields per query: 300,000 series may be in one answer (-search.maxUniqueTimeseries).
_FIELDS_AT_ONCE = 16
# For recent times the server distrusts its data and repeats an older point (-search.latencyOffset, 30
# s).
_DOUBTED_MS = 120_000

# If a part of a cluster is away, the query must fail, not return the rest.
_WHOLE = {"deny_partial_response": "1"}
# How a line of an export begins; the name of the series follows.
_NAMED = b'{"metric":{"__name__":"'

# The values found for each field, as the server writes them.
_Texts = dict[str, str]


class VictoriaMetricsStore:
    """`gpuvigil.store.Store` in VictoriaMetrics, a single server or a cluster.

    Integers beyond 2^53 are not exact, and null where they do not fit into 64 bits.
    """

    def __init__(self, settings: StoreSettings, clock: Clock | None = None) -> None:
        """Open the store; ConfigError when a file of the settings cannot be read."""
        self._clock = clock or SystemClock()
        self._url = settings.url.rstrip("/")
        self._bucket = settings.bucket
        self._web = Web(settings)
        self._writer = Writer(settings, self._clock, self._web)

    def write(self, lines: bytes) -> None:
        """See `Store.write`; lines are acknowledged before they are on disk, and visible seconds later."""
        self._writer.write(lines)

    def window(
        self, measurement: str, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> pa.Table:
        """See `Store.window`."""
        catalogue = measurement_of(measurement)
        fields_of(catalogue, [it.field for it in aggregates])
        wanted, span = reduction.asked(aggregates), (_ms(start), _ms(end))
        marks = {
            column: self._rolled(catalogue, rollup, [MARK], span)
            for column, rollup in (
                ("samples", "count_over_time"),
                ("first_at", "min_over_time"),
                ("last_at", "max_over_time"),
            )
        }
        rows: dict[Tags, dict[str, Any]] = {
            tags: dict(zip(catalogue.tags, tags, strict=True)) for tags in marks["samples"]
        }
        kinds = [("samples", pa.int64()), ("first_at", TIME), ("last_at", TIME)]
        for (name, kind), found in zip(kinds, marks.values(), strict=True):
            _fill(rows, {tags: texts[MARK] for tags, texts in found.items()}, name, kind)
        for function, rollup in _ROLLUPS.items():
            parts = {it.field: it for it in wanted if it.function is function}
            found = self._rolled(catalogue, rollup, list(parts), span)
            for name, part in parts.items():
                texts = {tags: it[name] for tags, it in found.items() if name in it}
                kinds.append((part.column, aggregate_type(catalogue, part)))
                _fill(rows, texts, *kinds[-1])
        schema = pa.schema([*((tag, pa.string()) for tag in catalogue.tags), *kinds])
        table = pa.Table.from_pylist(list(rows.values()), schema=schema)
        return reduction.finished_window(catalogue, aggregates, table)

    def series(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
        step: timedelta,
    ) -> pa.Table:
        """See `Store.series`."""
        catalogue = measurement_of(measurement)
        names, wanted = fields_of(catalogue, fields), tags_of(catalogue, where)
        start, end, step_ms = _ms(span[0]), _ms(span[1]), step // _MILLISECOND
        # The server averages whole steps; partial steps at the ends, and steps as fine as lines, are
        # averaged here.
        first, last = -(-start // max(step_ms, 1)), end // max(step_ms, 1)
        until = max(last, (_ms(self._clock.now()) // max(step_ms, 1)) + 3)
        doubted = last * step_ms > _ms(self._clock.now()) - _DOUBTED_MS
        points = (until if doubted else last) - first
        if step % _MILLISECOND or first >= last or points > _MOST_POINTS:
            lines = self._lines(catalogue, names, wanted, (start, end))
            return reduction.series(catalogue, names, lines, step)
        cut = [(start, first * step_ms), (last * step_ms, end)]
        edges = [self._lines(catalogue, names, wanted, it) for it in cut if it[0] < it[1]]
        parts = [reduction.series(catalogue, names, it, step) for it in edges]
        whole = self._steps(catalogue, names, wanted, (first, last, first + points), step_ms)
        keys = [(name, "ascending") for name in (*catalogue.tags, "at")]
        return pa.concat_tables([whole, *parts]).sort_by(keys).combine_chunks()

    def latest(self, measurement: str, fields: Collection[str], since: datetime) -> pa.Table:
        """See `Store.latest`."""
        catalogue = measurement_of(measurement)
        names = fields_of(catalogue, fields)
        span = (_ms(since), _ms(self._clock.now()) + _AHEAD_MS)
        newest: dict[str, dict[Tags, tuple[int, float | int | None]]] = defaultdict(dict)
        for tags, name, times, values in self._exported(catalogue, names, {}, span):
            if times[-1] >= newest[name].get(tags, (0, None))[0]:
                newest[name][tags] = (times[-1], values[-1])
        marks = newest[MARK]
        columns: dict[str, list[Any]] = {"at": [mark for _, mark in marks.values()]}
        for name in names:
            told, whole = newest[name], catalogue.metric(name).integer
            columns[name] = [
                _kept(told[tags][1], whole) if tags in told and told[tags][0] == at else None
                for tags, (at, _) in marks.items()
            ]
        lines = _table(latest_schema(catalogue, names), list(marks), columns)
        lines = lines.filter(pc.greater_equal(lines.column("at"), pa.scalar(since, TIME)))
        return reduction.latest(catalogue, names, lines)

    def forget(self, before: datetime) -> None:
        """Refuse with StoreError: the server forgets by itself, after its -retentionPeriod."""
        raise StoreError(
            "VictoriaMetrics drops no time range: set -retentionPeriod where it is started"
        )

    def _selector(
        self, catalogue: Measurement, names: Sequence[str], where: Mapping[str, str]
    ) -> Selector:
        labels = {**where, **({"db": self._bucket} if self._bucket else {})}
        return selector([f"{catalogue.name}_{name}" for name in names], labels)

    def _rolled(
        self, catalogue: Measurement, rollup: str, names: Sequence[str], span: tuple[int, int]
    ) -> dict[Tags, _Texts]:
        """Return a rollup of each field over `[start, end)` in milliseconds, by subject."""
        found: dict[Tags, _Texts] = {}
        start, end = span
        for few in _few(names) if start < end else ():
            # The server's windows exclude their start and include their end.
            query = f"{rollup}({self._selector(catalogue, few, {})}[{end - start}ms])"
            answer = self._ask("query", f"{query} keep_metric_names", time=seconds(end - 1))
            for one in answer:
                tags, name = subject(catalogue, one["metric"])
                found.setdefault(tags, {})[name] = one["value"][1]
        return found

    def _steps(
        self,
        catalogue: Measurement,
        names: Sequence[str],
        where: Mapping[str, str],
        steps: tuple[int, int, int],
        step_ms: int,
    ) -> pa.Table:
        """Return the means of steps from the first to before the second; the query extends to the third."""
        first, last, until = steps
        rows: dict[tuple[Tags, int], dict[str, Any]] = {}
        for few in _few([MARK, *names]):
            query = f"avg_over_time({self._selector(catalogue, few, where)}[{step_ms}ms])"
            answer = self._ask(
                "query_range",
                f"{query} keep_metric_names",
                start=seconds((first + 1) * step_ms - 1),
                end=seconds(until * step_ms - 1),
                step=f"{step_ms}ms",
            )
            for one in answer:
                tags, name = subject(catalogue, one["metric"])
                for at_seconds, text in one["values"]:
                    step = round(at_seconds * 1000) // step_ms
                    if step < last:
                        rows.setdefault((tags, step), {})[name] = float(text)
        found = []
        for (tags, step), values in rows.items():
            if MARK in values:
                at = step * step_ms * 1000
                offset = (values.pop(MARK) - at) / 1e6
                subject_tags = dict(zip(catalogue.tags, tags, strict=True))
                found.append({**subject_tags, "at": at, "offset_seconds": offset, **values})
        return pa.Table.from_pylist(found, schema=series_schema(catalogue, names))

    def _lines(
        self,
        catalogue: Measurement,
        names: Sequence[str],
        where: Mapping[str, str],
        span: tuple[int, int],
    ) -> pa.Table:
        """Return the lines in `[start, end)` as they were written."""
        rows: dict[tuple[Tags, int], dict[str, Any]] = {}
        for tags, name, times, values in self._exported(catalogue, names, where, span):
            whole = name == MARK or catalogue.metric(name).integer
            for at, value in zip(times, values, strict=True):
                rows.setdefault((tags, at), {})[name] = _kept(value, whole)
        marked = {key: row for key, row in rows.items() if row.get(MARK) is not None}
        columns = {name: [row.get(name) for row in marked.values()] for name in (MARK, *names)}
        columns = {"at": columns.pop(MARK), **columns}
        return _table(latest_schema(catalogue, names), [tags for tags, _ in marked], columns)

    def _exported(
        self,
        catalogue: Measurement,
        names: Sequence[str],
        where: Mapping[str, str],
        span: tuple[int, int],
    ) -> Iterator[tuple[Tags, str, list[int], list[float | int | None]]]:
        """Yield each series of the fields and of the mark, with its times and values, oldest first."""
        known: dict[bytes, Tags] = {}
        for few in _few([MARK, *names]) if span[0] < span[1] else ():
            form = {
                "match[]": self._selector(catalogue, few, where),
                "start": seconds(span[0]),
                "end": seconds(span[1] - 1),
                **_WHOLE,
            }
            for line in self._web.request(
                "POST", f"{self._url}/api/v1/export", fields=form
            ).splitlines():
                # Quotes are escaped inside strings, so this separator is unique. Most of a line are
                # labels, which are the same for all fields of a subject: they are parsed once.
                head, _, rest = line.rpartition(b',"values":')
                values, _, times = rest.rpartition(b',"timestamps":')
                named, _, labels = head.partition(b'",')
                tags = known.get(labels)
                name = named.removeprefix(_NAMED + catalogue.name.encode() + b"_").decode()
                if tags is None or name not in few:
                    tags, name = subject(catalogue, json.loads(head + b"}")["metric"])
                    known[labels] = tags
                yield tags, name, json.loads(times.removesuffix(b"}")), json.loads(values)

    def _ask(self, what: str, query: str, **given: str) -> list[Any]:
        """Return the results of a query, without the server's cache and its rounding of times."""
        form = {"query": query, "nocache": "1", **_WHOLE, **given}
        answer = self._web.post(f"{self._url}/api/v1/{what}", form)
        if answer.get("isPartial"):
            raise StoreError("a part of VictoriaMetrics did not answer: the result is not whole")
        results: list[Any] = answer["data"]["result"]
        return results


def _ms(at: datetime) -> int:
    """Return milliseconds since 1970, truncated as the server truncates times of lines."""
    return (at - EPOCH) // _MILLISECOND


def _few(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for place in range(0, len(names), _FIELDS_AT_ONCE):
        yield names[place : place + _FIELDS_AT_ONCE]


def _fill(
    rows: Mapping[Tags, dict[str, Any]], texts: Mapping[Tags, str], column: str, kind: pa.DataType
) -> None:
    """Put the values found into a column of the rows."""
    for tags, text in texts.items():
        if tags in rows:
            rows[tags][column] = number(text, whole=kind != pa.float64())


def _kept(value: float | int | None, whole: bool) -> float | int | None:
    """Return a value of an export in its column's type; None where it does not fit."""
    if value is None:
        return None
    if not whole:
        return float(value)
    return int(value) if -(2**63) <= value < 2**63 else None


def _table(
    schema: pa.Schema, subjects: Sequence[Tags], columns: Mapping[str, Sequence[Any]]
) -> pa.Table:
    """Return a table of the schema: the subjects' tags, then the given columns."""
    tags: Sequence[Sequence[str]] = list(zip(*subjects, strict=True))
    given = [*(tags or [()] * (len(schema) - len(columns))), *columns.values()]
    arrays = [pa.array(it, kind) for it, kind in zip(given, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
