"""What is asked of the store about GPUs that may be idle, and how its rows are read."""

from collections.abc import Mapping
from typing import Any

from .idleness import Measured
from .store import Aggregate, Function

ASKED = (
    Aggregate(function=Function.COUNT, field="utilization_percent"),
    Aggregate(function=Function.MAX, field="utilization_percent"),
    Aggregate(function=Function.MAX, field="memory_utilization_percent"),
    Aggregate(function=Function.MAX, field="compute_processes"),
    Aggregate(function=Function.MIN, field="memory_used_bytes"),
    Aggregate(function=Function.MAX, field="memory_total_bytes"),
    Aggregate(function=Function.MIN, field="power_watts"),
    Aggregate(function=Function.MAX, field="power_limit_watts"),
    Aggregate(function=Function.LAST, field="clock_event_reasons"),
)
SAMPLES, MOST_USED = ASKED[0].column, ASKED[1].column
Row = Mapping[str, Any]


def measured(row: Row, expected: float) -> Measured:
    """A row of `ASKED`; `expected` is how many samples there should be."""
    names = [one.column for one in ASKED]
    return Measured(
        coverage=row[names[0]] / expected if expected else 0.0,
        utilization_most_percent=row[names[1]],
        memory_utilization_most_percent=row[names[2]],
        processes_most=row[names[3]],
        memory_least_bytes=row[names[4]],
        memory_total_bytes=row[names[5]],
        power_least_watts=row[names[6]],
        power_limit_watts=row[names[7]],
        clock_event_reasons=None if row[names[8]] is None else int(row[names[8]]),
    )
