"""The store query for inefficient GPUs, and how its rows are read."""

from dataclasses import replace
from datetime import datetime

from gpuvigil.store import Aggregate, Function

from .efficiency import COVERAGE, Work
from .idle_query import Row, values

_MEAN, _MAX = Function.MEAN, Function.MAX
_OF_GPUS = {
    "utilization_percent": Aggregate(function=_MEAN, field="utilization_percent"),
    "utilization_most_percent": Aggregate(function=_MAX, field="utilization_percent"),
    "sm_percent": Aggregate(function=_MEAN, field="sm_activity_percent"),
    "tensor_percent": Aggregate(function=_MEAN, field="tensor_activity_percent"),
    "dram_percent": Aggregate(function=_MEAN, field="dram_activity_percent"),
    "memory_most_bytes": Aggregate(function=_MAX, field="memory_used_bytes"),
    "memory_total_bytes": Aggregate(function=_MAX, field="memory_total_bytes"),
}
COUNTED = Aggregate(function=Function.COUNT, field="utilization_percent")
ASKED = (*_OF_GPUS.values(), COUNTED)


def worked(row: Row, span: tuple[datetime, datetime], tick_seconds: float) -> Work:
    """Return the work in a row of `ASKED` over a span; a row that begins late has a coverage of 0."""
    length = span[1] - span[0]
    expected = max(length.total_seconds() / tick_seconds, 1.0)
    late = row["first_at"] > span[0] + (1.0 - COVERAGE) * length
    coverage = 0.0 if late else (row[COUNTED.column] or 0) / expected
    return replace(work(row), coverage=coverage)


def work(row: Row) -> Work:
    """Return the work in a row of `ASKED`; the caller sets how much of the span it covers."""
    return Work(**values(_OF_GPUS, row))
