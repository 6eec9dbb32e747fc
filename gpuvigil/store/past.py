"""A store as of a past time: later measurements are hidden."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import StoreError
from ..metrics import Measurement
from . import Aggregate, Store, reduction
from .schema import fields_of, latest_schema, measurement_of

# Bounds of ranges are exclusive.
_JUST_AFTER = timedelta(microseconds=1)
# Most nodes tick within this: their newest lines are read one by one. Newest lines of other nodes are
# read in coarser steps, since a large fleet has very many lines.
_NEAR, _LINE, _COARSE = timedelta(seconds=12), timedelta(seconds=1), timedelta(seconds=5)


class PastStore:
    """`gpuvigil.store.Store` without lines after `at`; it cannot be written to."""

    def __init__(self, behind: Store, at: datetime) -> None:
        self._behind = behind
        self._end = at + _JUST_AFTER

    def write(self, lines: bytes) -> None:
        """Refuse: the past cannot be changed."""
        raise StoreError("what was measured is not changed afterwards")

    def forget(self, before: datetime) -> None:
        """Refuse: the past cannot be changed."""
        raise StoreError("what was measured is not changed afterwards")

    def window(
        self, measurement: str, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> pa.Table:
        """See `Store.window`."""
        start, end = self._cut((start, end))
        return self._behind.window(measurement, aggregates, start, end)

    def series(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
        step: timedelta,
    ) -> pa.Table:
        """See `Store.series`."""
        return self._behind.series(measurement, fields, where, self._cut(span), step)

    def latest(self, measurement: str, fields: Collection[str], since: datetime) -> pa.Table:
        """See `Store.latest`: each subject's newest line as of that time."""
        catalogue = measurement_of(measurement)
        names = fields_of(catalogue, fields)
        near = max(since, self._end - _NEAR)
        found = [self._lines(catalogue, names, (near, self._end), _LINE)]
        subjects = self._behind.window(measurement, (), since, self._end).num_rows
        if since < near and subjects > _subjects(found[0], catalogue):
            found.insert(0, self._lines(catalogue, names, (since, near), _COARSE))
        return reduction.latest(catalogue, names, pa.concat_tables(found))

    def _lines(
        self,
        catalogue: Measurement,
        names: Sequence[str],
        span: tuple[datetime, datetime],
        step: timedelta,
    ) -> pa.Table:
        """Return means per step as if each were a line: for a step with one line they equal that line."""
        table = self._behind.series(catalogue.name, names, {}, span, step)
        micros = pc.multiply(pc.coalesce(table["offset_seconds"], pa.scalar(0.0)), 1e6)
        at = pc.add(table["at"].cast(pa.int64()), pc.cast(pc.round(micros), pa.int64()))
        columns = {"at": at.cast(table.schema.field("at").type)}
        for field in latest_schema(catalogue, names):
            column = columns.get(field.name, table[field.name])
            whole = pa.types.is_integer(field.type)
            columns[field.name] = (pc.round(column) if whole else column).cast(field.type)
        return pa.table(columns).select(latest_schema(catalogue, names).names)

    def _cut(self, span: tuple[datetime, datetime]) -> tuple[datetime, datetime]:
        return min(span[0], self._end), min(span[1], self._end)


def _subjects(lines: pa.Table, catalogue: Measurement) -> int:
    tags = list(catalogue.tags)
    return int(lines.group_by(tags, use_threads=False).aggregate([]).num_rows)
