"""The store protocol in plain Python: small, slow, and what every other store is held against."""

import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ..clock import EPOCH, Clock, SystemClock, from_ns, to_ns
from ..errors import StoreError
from ..lineprotocol import Line, parse
from ..metrics import MEASUREMENTS, Measurement
from . import EARLIEST_NS, LATEST_NS, Aggregate, Function

_Tags = tuple[str, ...]
_Number = int | float
_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One line: its subject, its time, and the fields that were measured."""

    tags: _Tags
    at_ns: int
    fields: Mapping[str, _Number]


@dataclass(slots=True)
class MemoryStore:
    """`gpuvigil.store.Store` in memory; it is gone with its process."""

    clock: Clock = field(default_factory=SystemClock)
    _rows: dict[str, list[_Row]] = field(default_factory=lambda: {it: [] for it in MEASUREMENTS})
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, lines: bytes) -> None:
        """See `Store.write`."""
        parsed = parse(lines, "ns")
        refused = [refusal.reason for refusal in parsed.refused]
        now_ns = to_ns(self.clock.now())
        with self._lock:
            for line in parsed.lines:
                reason = _why_not(line)
                if reason is not None:
                    refused.append(reason)
                    continue
                row = _row(line, now_ns)
                if row is not None:
                    self._rows[line.measurement].append(row)
        if refused:
            raise StoreError(f"{len(refused)} lines refused: {refused[0]}")

    def window(
        self, measurement: str, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> pa.Table:
        """See `Store.window`."""
        catalogue = _measurement(measurement)
        wanted = tuple(dict.fromkeys(aggregates))
        _check_fields(catalogue, [it.field for it in wanted])
        answer = []
        for tags, rows in self._subjects(catalogue, to_ns(start), to_ns(end)):
            values: dict[str, Any] = {
                **dict(zip(catalogue.tags, tags, strict=True)),
                "samples": len(rows),
                "first_at": from_ns(rows[0].at_ns),
                "last_at": from_ns(rows[-1].at_ns),
            }
            values |= {it.column: _aggregated(it, rows) for it in wanted}
            answer.append(values)
        kinds = [("samples", pa.int64()), ("first_at", _TIME), ("last_at", _TIME)]
        kinds += [(it.column, _type_of(it, catalogue)) for it in wanted]
        return _table(catalogue, kinds, answer)

    def series(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
        step: timedelta,
    ) -> pa.Table:
        """See `Store.series`."""
        catalogue = _measurement(measurement)
        names = _check_fields(catalogue, fields)
        for tag in where:
            if tag not in catalogue.tags:
                raise StoreError(f"{measurement} has no tag {tag!r}")
        answer = []
        for tags, rows in self._subjects(catalogue, to_ns(span[0]), to_ns(span[1])):
            subject = dict(zip(catalogue.tags, tags, strict=True))
            if any(subject[tag] != value for tag, value in where.items()):
                continue
            steps: dict[datetime, list[_Row]] = {}
            for row in rows:
                at = EPOCH + (from_ns(row.at_ns) - EPOCH) // step * step
                steps.setdefault(at, []).append(row)
            for at, inside in steps.items():
                means = {name: _mean(_measured(inside, name)) for name in names}
                offset = _mean([(from_ns(row.at_ns) - at).total_seconds() for row in inside])
                answer.append({**subject, "at": at, "offset_seconds": offset, **means})
        kinds = [("at", _TIME), ("offset_seconds", pa.float64())]
        return _table(catalogue, [*kinds, *((it, pa.float64()) for it in names)], answer)

    def latest(self, measurement: str, fields: Collection[str], since: datetime) -> pa.Table:
        """See `Store.latest`."""
        catalogue = _measurement(measurement)
        names = _check_fields(catalogue, fields)
        answer = []
        for tags, rows in self._subjects(catalogue, to_ns(since), LATEST_NS + 1):
            newest = rows[-1]
            values = {name: newest.fields.get(name) for name in names}
            subject = dict(zip(catalogue.tags, tags, strict=True))
            answer.append({**subject, "at": from_ns(newest.at_ns), **values})
        kinds = [("at", _TIME), *((it, _type(catalogue, it)) for it in names)]
        return _table(catalogue, kinds, answer)

    def forget(self, before: datetime) -> None:
        """See `Store.forget`."""
        with self._lock:
            for name, rows in self._rows.items():
                self._rows[name] = [row for row in rows if row.at_ns >= to_ns(before)]

    def _subjects(
        self, catalogue: Measurement, start_ns: int, end_ns: int
    ) -> Iterable[tuple[_Tags, list[_Row]]]:
        """Subjects in order, each with its lines of `[start, end)`, oldest first."""
        with self._lock:
            rows = [row for row in self._rows[catalogue.name] if start_ns <= row.at_ns < end_ns]
        found: dict[_Tags, list[_Row]] = {}
        for row in sorted(rows, key=lambda row: (row.tags, row.at_ns)):
            found.setdefault(row.tags, []).append(row)
        return found.items()


def _why_not(line: Line) -> str | None:
    if line.at_ns is not None and not EARLIEST_NS <= line.at_ns <= LATEST_NS:
        return "the time is before 1970 or after 2200"
    catalogue = MEASUREMENTS.get(line.measurement)
    metrics = {} if catalogue is None else {it.name: it for it in catalogue.metrics}
    reasons = (metrics[name].misfit(value) for name, value in line.fields if name in metrics)
    return next((reason for reason in reasons if reason is not None), None)


def _row(line: Line, now_ns: int) -> _Row | None:
    """The line as the catalogue knows it; None when it knows nothing of it."""
    catalogue = MEASUREMENTS.get(line.measurement)
    if catalogue is None:
        return None
    given = dict(line.tags)
    integer = {metric.name: metric.integer for metric in catalogue.metrics}
    fields = {
        name: int(value) if integer[name] else float(value)
        for name, value in line.fields
        if name in integer
    }
    if not fields:
        return None
    return _Row(
        tags=tuple(given.get(tag, "") for tag in catalogue.tags),
        at_ns=now_ns if line.at_ns is None else line.at_ns,
        fields=fields,
    )


def _measured(rows: Iterable[_Row], name: str) -> list[_Number]:
    return [row.fields[name] for row in rows if name in row.fields]


def _mean(values: Sequence[_Number]) -> float | None:
    return math.fsum(values) / len(values) if values else None


_FUNCTIONS: dict[Function, Callable[[Sequence[_Number]], _Number | None]] = {
    Function.COUNT: len,
    Function.MEAN: _mean,
    Function.MIN: lambda values: min(values, default=None),
    Function.MAX: lambda values: max(values, default=None),
    Function.FIRST: lambda values: values[0] if values else None,
    Function.LAST: lambda values: values[-1] if values else None,
    Function.INCREASE: lambda values: max(values) - min(values) if values else None,
}


def _aggregated(aggregate: Aggregate, rows: Iterable[_Row]) -> _Number | None:
    value = _FUNCTIONS[aggregate.function](_measured(rows, aggregate.field))
    # A difference of two 64-bit numbers that does not fit into one is not known.
    return None if isinstance(value, int) and value >= 2**63 else value


def _measurement(name: str) -> Measurement:
    if name not in MEASUREMENTS:
        raise StoreError(f"measurement {name!r} is none of {', '.join(MEASUREMENTS)}")
    return MEASUREMENTS[name]


def _check_fields(catalogue: Measurement, names: Iterable[str]) -> list[str]:
    """The names, each once; StoreError for one that the catalogue does not know."""
    known = {metric.name for metric in catalogue.metrics}
    unique = list(dict.fromkeys(names))
    for name in unique:
        if name not in known:
            raise StoreError(f"{catalogue.name} has no field {name!r}")
    return unique


def _type(catalogue: Measurement, name: str) -> pa.DataType:
    return pa.int64() if catalogue.metric(name).integer else pa.float64()


def _type_of(aggregate: Aggregate, catalogue: Measurement) -> pa.DataType:
    if aggregate.function is Function.COUNT:
        return pa.int64()
    if aggregate.function is Function.MEAN:
        return pa.float64()
    return _type(catalogue, aggregate.field)


def _table(
    catalogue: Measurement, kinds: Sequence[tuple[str, pa.DataType]], rows: list[dict[str, Any]]
) -> pa.Table:
    schema = pa.schema([(tag, pa.string()) for tag in catalogue.tags] + list(kinds))
    return pa.Table.from_pylist(rows, schema=schema)
