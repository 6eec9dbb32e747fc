"""Conversion of parsed columns into the store's tables: what fits the catalogue, what goes into the
table of extra fields, and what is refused.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, cast

import pyarrow as pa

from gpuvigil.lineprotocol import Column, ColumnBlock, ParsedColumns, Refusal
from gpuvigil.metrics import MEASUREMENTS, Measurement, Metric
from gpuvigil.store import EARLIEST_NS, LATEST_NS

# The table of fields that the catalogue does not know, one row each.
EXTRA = "extra"

TIME = pa.timestamp("ns")
_EXTRA_SCHEMA = pa.schema(
    [
        ("at", TIME),
        ("measurement", pa.string()),
        ("tags", pa.string()),
        ("field", pa.string()),
        ("value", pa.float64()),
        ("text", pa.string()),
    ]
)
_INT64 = range(-(2**63), 2**63)


def arrow_type(metric: Metric) -> pa.DataType:
    """Return the Arrow type of a metric: int64 for whole numbers, float64 for all others."""
    return pa.int64() if metric.integer else pa.float64()


def fit(parsed: ParsedColumns, received_ns: int) -> tuple[list[ColumnBlock], list[Refusal]]:
    """Return blocks with times in all rows and catalogue fields in their types, and all refusals.

    A row without a time gets `received_ns`. The refusals are in the order of the body.
    """
    refused = list(parsed.refused)
    blocks = []
    for block in parsed.tables:
        at_ns = [received_ns if at is None else at for at in block.at_ns]
        timed = replace(block, at_ns=cast("list[int | None]", at_ns))
        reasons = _reasons(timed)
        refused += [Refusal(number=block.numbers[i], reason=reasons[i]) for i in sorted(reasons)]
        kept = without(timed, reasons) if reasons else timed
        if kept.numbers:
            blocks.append(_converted(kept))
    return blocks, sorted(refused, key=lambda refusal: refusal.number)


def _reasons(block: ColumnBlock) -> dict[int, str]:
    """Return the first reason for each row that cannot be kept, by row index."""
    reasons: dict[int, str] = {}
    times = cast("list[int]", block.at_ns)
    if min(times) < EARLIEST_NS or max(times) > LATEST_NS:
        for i, at in enumerate(times):
            if not EARLIEST_NS <= at <= LATEST_NS:
                reasons[i] = "the time is before 1970 or after 2200"
    for metric, kind, column in _catalogued(block):
        if not _surely_fits(metric, kind, column):
            for i, value in enumerate(column):
                reason = metric.misfit(value)
                if reason is not None:
                    reasons.setdefault(i, reason)
    return reasons


def _surely_fits(metric: Metric, kind: type, column: Any) -> bool:
    """Return whether a column's type and range prove that all its values fit the metric."""
    if kind is float:
        return not metric.integer
    return kind is int and min(column) in _INT64 and max(column) in _INT64


def _catalogued(block: ColumnBlock) -> Iterable[tuple[Metric, type, Any]]:
    """Yield metric, value type and column of each field that the catalogue knows."""
    measurement = MEASUREMENTS.get(block.measurement)
    if measurement is None:
        return
    metrics = {metric.name: metric for metric in measurement.metrics}
    for key, kind, column in zip(block.field_keys, block.field_types, block.fields, strict=True):
        if key in metrics:
            yield metrics[key], kind, column


def without(block: ColumnBlock, dropped: Iterable[int]) -> ColumnBlock:
    """Return the block without the rows at some indexes."""
    keep = [True] * len(block.numbers)
    for index in dropped:
        keep[index] = False
    return replace(
        block,
        tags=[list(compress(column, keep)) for column in block.tags],
        fields=[cast("Column", list(compress(column, keep))) for column in block.fields],
        at_ns=list(compress(block.at_ns, keep)),
        numbers=list(compress(block.numbers, keep)),
    )


def _converted(block: ColumnBlock) -> ColumnBlock:
    """Return the block with catalogue fields as int where the catalogue says so, else as float."""
    known = {id(column): metric for metric, _, column in _catalogued(block)}
    types, fields = [], []
    for kind, column in zip(block.field_types, block.fields, strict=True):
        metric = known.get(id(column))
        wanted: Callable[[Any], Any] = kind if metric is None else int if metric.integer else float
        types.append(cast("type[float]", wanted))
        fields.append(column if wanted is kind else cast("Column", list(map(wanted, column))))
    return replace(block, field_types=tuple(types), fields=fields)


_Key = tuple[str, tuple[str, ...], tuple[str, ...], tuple[type, ...]]


class Assembly:
    """Blocks of many bodies, put together for one commit."""

    def __init__(self) -> None:
        self._blocks: dict[_Key, ColumnBlock] = {}

    def add(self, blocks: Iterable[ColumnBlock]) -> None:
        """Add fitted blocks; their columns may be extended in place afterwards."""
        for block in blocks:
            key = (block.measurement, block.tag_keys, block.field_keys, block.field_types)
            known = self._blocks.setdefault(key, block)
            if known is not block:
                for mine, more in zip(_columns(known), _columns(block), strict=True):
                    mine.extend(more)

    def tables(self) -> dict[str, pa.Table]:
        """Return one Arrow table per table of the store, with the columns that the rows have."""
        pieces: dict[str, list[pa.Table]] = {}
        for block in self._blocks.values():
            measurement = MEASUREMENTS.get(block.measurement)
            known = set() if measurement is None else {m.name for m in measurement.metrics}
            if measurement is not None and known & set(block.field_keys):
                pieces.setdefault(measurement.name, []).append(_wide(block, measurement))
            if not known >= set(block.field_keys):
                pieces.setdefault(EXTRA, []).append(_narrow(block, known))
        return {
            name: pa.concat_tables(tables, promote_options="default")
            for name, tables in pieces.items()
        }


def _columns(block: ColumnBlock) -> list[list[Any]]:
    return [*block.tags, *cast("list[list[Any]]", block.fields), block.at_ns, block.numbers]


def _times(at_ns: Sequence[int | None]) -> pa.Array:
    return pa.array(at_ns, pa.int64()).cast(TIME)


def _wide(block: ColumnBlock, measurement: Measurement) -> pa.Table:
    """Return the rows of a measurement's own table.

    A tag that the catalogue does not know is left out: a collector of the next version may send
    one.
    """
    given = dict(zip(block.tag_keys, block.tags, strict=True))
    empty = [""] * len(block.numbers)
    columns = {tag: pa.array(given.get(tag, empty), pa.string()) for tag in measurement.tags}
    columns["at"] = _times(block.at_ns)
    for metric, _, column in _catalogued(block):
        columns[metric.name] = pa.array(column, arrow_type(metric))
    return pa.table(columns)


def _narrow(block: ColumnBlock, known: set[str]) -> pa.Table:
    """Return every field outside `known` as a row: numbers as `value`, texts as `text`."""
    rows = len(block.numbers)
    tags = [
        json.dumps(dict(zip(block.tag_keys, values, strict=True)))
        for values in (zip(*block.tags, strict=True) if block.tags else [()] * rows)
    ]
    fields: list[str] = []
    values: list[float | None] = []
    texts: list[str | None] = []
    for key, kind, column in zip(block.field_keys, block.field_types, block.fields, strict=True):
        if key not in known:
            fields += [key] * rows
            nothing = [None] * rows
            values += nothing if kind is str else [float(value) for value in column]
            texts += cast("list[str]", column) if kind is str else nothing
    # One chunk: to the store, each of many small chunks costs as much as a large one.
    times, times_each = _times(block.at_ns), len(fields) // rows
    return pa.table(
        [
            pa.concat_arrays([times] * times_each),
            [block.measurement] * len(fields),
            tags * times_each,
            fields,
            values,
            texts,
        ],
        schema=_EXTRA_SCHEMA,
    )
