"""The store protocol in plain Python: small and slow, the reference for every other store."""

import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ..clock import EPOCH, Clock, SystemClock, from_ns, to_ns
from ..errors import StoreError
from ..metrics import MEASUREMENTS, Measurement
from . import LATEST_NS, Aggregate, Function
from .accepted_lines import Row, read
from .schema import fields_of, latest_schema, measurement_of, series_schema, tags_of, window_schema

_Tags = tuple[str, ...]
_Number = int | float


@dataclass(slots=True)
class MemoryStore:
    """`gpuvigil.store.Store` in memory; lost when the process ends."""

    clock: Clock = field(default_factory=SystemClock)
    _rows: dict[str, list[Row]] = field(default_factory=lambda: {it: [] for it in MEASUREMENTS})
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, lines: bytes) -> None:
        """See `Store.write`."""
        rows, refused = read(lines, to_ns(self.clock.now()))
        with self._lock:
            for row in rows:
                self._rows[row.measurement].append(row)
        if refused:
            raise StoreError(f"{len(refused)} lines refused: {refused[0]}")

    def window(
        self, measurement: str, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> pa.Table:
        """See `Store.window`."""
        catalogue = measurement_of(measurement)
        wanted = tuple(dict.fromkeys(aggregates))
        fields_of(catalogue, [it.field for it in wanted])
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
        return pa.Table.from_pylist(answer, schema=window_schema(catalogue, wanted))

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
        names = fields_of(catalogue, fields)
        tags_of(catalogue, where)
        answer = []
        for tags, rows in self._subjects(catalogue, to_ns(span[0]), to_ns(span[1])):
            subject = dict(zip(catalogue.tags, tags, strict=True))
            if any(subject[tag] != value for tag, value in where.items()):
                continue
            steps: dict[datetime, list[Row]] = {}
            for row in rows:
                at = EPOCH + (from_ns(row.at_ns) - EPOCH) // step * step
                steps.setdefault(at, []).append(row)
            for at, inside in steps.items():
                means = {name: _mean(_measured(inside, name)) for name in names}
                offset = _mean([(from_ns(row.at_ns) - at).total_seconds() for row in inside])
                answer.append({**subject, "at": at, "offset_seconds": offset, **means})
        return pa.Table.from_pylist(answer, schema=series_schema(catalogue, names))

    def latest(self, measurement: str, fields: Collection[str], since: datetime) -> pa.Table:
        """See `Store.latest`."""
        catalogue = measurement_of(measurement)
        names = fields_of(catalogue, fields)
        answer = []
        for tags, rows in self._subjects(catalogue, to_ns(since), LATEST_NS + 1):
            newest = rows[-1]
            values = {name: newest.fields.get(name) for name in names}
            subject = dict(zip(catalogue.tags, tags, strict=True))
            answer.append({**subject, "at": from_ns(newest.at_ns), **values})
        return pa.Table.from_pylist(answer, schema=latest_schema(catalogue, names))

    def forget(self, before: datetime) -> None:
        """See `Store.forget`."""
        with self._lock:
            for name, rows in self._rows.items():
                self._rows[name] = [row for row in rows if row.at_ns >= to_ns(before)]

    def _subjects(
        self, catalogue: Measurement, start_ns: int, end_ns: int
    ) -> Iterable[tuple[_Tags, list[Row]]]:
        """Return subjects in order, each with its lines in `[start, end)`, oldest first."""
        with self._lock:
            rows = [row for row in self._rows[catalogue.name] if start_ns <= row.at_ns < end_ns]
        found: dict[_Tags, list[Row]] = {}
        for row in sorted(rows, key=lambda row: (row.tags, row.at_ns)):
            found.setdefault(row.tags, []).append(row)
        return found.items()


def _measured(rows: Iterable[Row], name: str) -> list[_Number]:
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


def _aggregated(aggregate: Aggregate, rows: Iterable[Row]) -> _Number | None:
    value = _FUNCTIONS[aggregate.function](_measured(rows, aggregate.field))
    # A difference of two 64-bit integers that does not fit into 64 bits is not known.
    return None if isinstance(value, int) and value >= 2**63 else value
