"""Telemetry of dcgm-exporter and node_exporter, read from any server with Prometheus' API.

Nothing is written. Raw samples are read and reduced here: their times are those of scrapes, so the
metrics of a target that were scraped together form one line.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from ..clock import EPOCH, Clock, SystemClock
from ..config import StoreSettings
from ..errors import StoreError
from ..metrics import Measurement
from ..model import Holder
from . import Aggregate, reduction
from .exporter_names import DCGM, EXPORTERS, Column, Exporter, Labels, holder_of, node_of
from .http import Web
from .promql import Tags, seconds, selector
from .schema import fields_of, latest_schema, measurement_of, series_schema, tags_of

_MILLISECOND = timedelta(milliseconds=1)
# A scrape has the server's own time, which may be ahead of ours by this much.
_AHEAD = timedelta(minutes=5)
# Steps of a series that are queried one by one.
_LONG_STEP, _FEW_STEPS = timedelta(minutes=1), 100
_READ_ONLY = "Prometheus is only read: it scrapes what it keeps, and forgets by its own retention"

# For one subject: by field, times in milliseconds and values.
_Samples = dict[str, tuple[np.ndarray, np.ndarray]]


class PrometheusStore:
    """A read-only `gpuvigil.store.Store`; `write` and `forget` raise StoreError."""

    def __init__(self, settings: StoreSettings, clock: Clock | None = None) -> None:
        """Open the store; ConfigError when a file of the settings cannot be read."""
        self._clock = clock or SystemClock()
        self._url = settings.url.rstrip("/")
        self._cluster = settings.cluster
        self._web = Web(settings)

    def write(self, lines: bytes) -> None:
        """Refuse: the store is read-only."""
        raise StoreError(_READ_ONLY)

    def window(
        self, measurement: str, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> pa.Table:
        """See `Store.window`."""
        catalogue = measurement_of(measurement)
        names = fields_of(catalogue, [it.field for it in aggregates])
        lines = self._lines(catalogue, names, {}, (start, end))
        return reduction.window(catalogue, aggregates, lines)

    def series(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
        step: timedelta,
    ) -> pa.Table:
        """See `Store.series`.

        Without fields and with few long steps, the server says which subjects are present; then
        `offset_seconds` is the middle of the step's part within the span.
        """
        catalogue = measurement_of(measurement)
        names, wanted = fields_of(catalogue, fields), tags_of(catalogue, where)
        if not names and step >= _LONG_STEP and (span[1] - span[0]) / step <= _FEW_STEPS:
            return self._presence(catalogue, wanted, span, step)
        lines = self._lines(catalogue, names, wanted, span)
        return reduction.series(catalogue, names, lines, step)

    def latest(self, measurement: str, fields: Collection[str], since: datetime) -> pa.Table:
        """See `Store.latest`."""
        catalogue = measurement_of(measurement)
        names = fields_of(catalogue, fields)
        lines = self._lines(catalogue, names, {}, (since, self._clock.now() + _AHEAD))
        return reduction.latest(catalogue, names, lines)

    def forget(self, before: datetime) -> None:
        """Refuse: the store is read-only."""
        raise StoreError(_READ_ONLY)

    def holders(self, now: datetime) -> Mapping[Tags, frozenset[tuple[Holder, str | None]]]:
        """Return the holders that dcgm-exporter names now, by cluster, node, UUID and model of every GPU.

        A GPU that it reports without naming anybody has no holder.
        """
        matchers = selector(DCGM.presence, {}, DCGM.matchers)
        found: dict[Tags, set[tuple[Holder, str | None]]] = defaultdict(set)
        for one in self._ask(matchers, (now - EPOCH) // _MILLISECOND):
            named = holder_of(one["metric"])
            found[self._tags(DCGM, one["metric"])].update(() if named is None else (named,))
        return {tags: frozenset(named) for tags, named in found.items()}

    def _presence(
        self,
        catalogue: Measurement,
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
        step: timedelta,
    ) -> pa.Table:
        rows = []
        start, end = span
        while start < end:
            at = EPOCH + (start - EPOCH) // step * step
            until = min(at + step, end)
            offset = ((start - at) + (until - at)).total_seconds() / 2
            for tags in self._present(catalogue, (start, until)):
                subject = dict(zip(catalogue.tags, tags, strict=True))
                if all(subject[tag] == value for tag, value in where.items()):
                    rows.append({**subject, "at": at, "offset_seconds": offset})
            start = until
        keys = [(name, "ascending") for name in (*catalogue.tags, "at")]
        return pa.Table.from_pylist(rows, schema=series_schema(catalogue, ())).sort_by(keys)

    def _present(self, catalogue: Measurement, span: tuple[datetime, datetime]) -> set[Tags]:
        """Return the subjects with a line in `[start, end)`."""
        start, end = ((at - EPOCH) // _MILLISECOND for at in span)
        found: set[Tags] = set()
        for exporter in EXPORTERS:
            for metric in exporter.presence if exporter.measurement is catalogue else ():
                matchers = selector([metric], {}, exporter.matchers)
                # Up to version 2 a range includes both ends.
                query = f"count_over_time({matchers}[{max(end - start - 1, 1)}ms])"
                for one in self._ask(query, end - 1):
                    found.add(self._tags(exporter, one["metric"]))
        return found

    def _tags(self, exporter: Exporter, labels: Labels) -> Tags:
        cluster = labels.get("cluster") or self._cluster
        return (cluster, node_of(labels), *exporter.subject(labels))

    def _ask(self, query: str, at_ms: int) -> list[Any]:
        form = {"query": query, "time": seconds(at_ms)}
        answer = self._web.post(f"{self._url}/api/v1/query", form)
        results: list[Any] = answer["data"]["result"]
        return results

    def _lines(
        self,
        catalogue: Measurement,
        names: Sequence[str],
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
    ) -> pa.Table:
        """Return the lines in `[start, end)` as they were scraped."""
        found: dict[Tags, _Samples] = {}
        for exporter in EXPORTERS:
            if exporter.measurement is not catalogue:
                continue
            told = self._read_samples(exporter, names, where, span)
            known = set(found) if exporter.fallback else set()
            found |= {tags: samples for tags, samples in told.items() if tags not in known}
        wanted = [(catalogue.tags.index(tag), value) for tag, value in where.items()]
        tables = [
            _table(catalogue, names, tags, samples)
            for tags, samples in found.items()
            if all(tags[place] == value for place, value in wanted)
        ]
        return pa.concat_tables([latest_schema(catalogue, names).empty_table(), *tables])

    def _read_samples(
        self,
        exporter: Exporter,
        names: Sequence[str],
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
    ) -> dict[Tags, _Samples]:
        """Return samples by subject and field; presence is the field `""`."""
        columns = {name: exporter.columns[name] for name in names if name in exporter.columns}
        derived = {name: exporter.derived[name] for name in names if name in exporter.derived}
        fields: dict[str, list[str]] = defaultdict(list)
        for name, column in columns.items():
            fields[column.metric].append(name)
        found: dict[Tags, _Samples] = defaultdict(dict)
        metrics = sorted({*exporter.presence, *fields})
        for labels, times, values in self._raw(exporter, metrics, where, span):
            samples = found[self._tags(exporter, labels)]
            for name in fields.get(labels["__name__"], ()):
                _put(samples, name, times, _converted(columns[name], values))
            if labels["__name__"] in exporter.presence:
                _put(samples, "", times, values)
                for name, of in derived.items():
                    if (value := of(labels)) is not None:
                        _put(samples, name, times, np.full(len(times), float(value)))
        return found

    def _raw(
        self,
        exporter: Exporter,
        metrics: Sequence[str],
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
    ) -> list[tuple[Labels, np.ndarray, np.ndarray]]:
        start, end = ((at - EPOCH) // _MILLISECOND for at in span)
        if start >= end:
            return []
        equal = {
            exporter.labels[tag]: value for tag, value in where.items() if tag in exporter.labels
        }
        matchers = selector(metrics, equal, exporter.matchers)
        # From version 3 on a range excludes its start, before it included it: the excess is cut.
        found = []
        for one in self._ask(f"{matchers}[{end - start}ms]", end - 1):
            times = np.array([round(at * 1000) for at, _ in one["values"]], dtype=np.int64)
            values = np.array([text for _, text in one["values"]]).astype(np.float64)
            kept = times >= start
            found.append((one["metric"], times[kept], values[kept]))
        return found


def _put(samples: _Samples, name: str, times: np.ndarray, values: np.ndarray) -> None:
    """Add samples; if two series have a value for one time, the earlier one is kept."""
    if name in samples:
        before, known = samples[name]
        times, values = np.concatenate([before, times]), np.concatenate([known, values])
        times, first = np.unique(times, return_index=True)
        values = values[first]
    samples[name] = (times, values)


def _converted(column: Column, values: np.ndarray) -> np.ndarray:
    if column.equals is None:
        return values * column.times
    return np.where(np.isnan(values), np.nan, values == column.equals)


def _table(catalogue: Measurement, names: Sequence[str], tags: Tags, samples: _Samples) -> pa.Table:
    """Return the lines of one subject: for each time the values scraped then."""
    schema = latest_schema(catalogue, names)
    times = np.unique(np.concatenate([at for at, _ in samples.values()]))
    arrays = [pa.array([tag] * len(times), pa.string()) for tag in tags]
    arrays.append(pa.array(times * 1000, schema.field("at").type))
    for name in names:
        values = np.full(len(times), np.nan)
        if name in samples:
            at, found = samples[name]
            values[np.searchsorted(times, at)] = found
        missing = ~np.isfinite(values)
        kind = schema.field(name).type
        if kind == pa.int64():
            missing |= np.abs(values) >= 2.0**63
            values = np.where(missing, 0, np.round(values)).astype(np.int64)
        arrays.append(pa.array(values, kind, mask=missing))
    return pa.Table.from_arrays(arrays, schema=schema)
