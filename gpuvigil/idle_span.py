"""What is asked of the store about GPUs that may be idle, and how its rows are read."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .idleness import Measured
from .model import Subject
from .store import Aggregate, Function

_OF_GPUS = {
    "utilization_most_percent": Aggregate(function=Function.MAX, field="utilization_percent"),
    "memory_utilization_most_percent": Aggregate(
        function=Function.MAX, field="memory_utilization_percent"
    ),
    "processes_most": Aggregate(function=Function.MAX, field="compute_processes"),
    "memory_least_bytes": Aggregate(function=Function.MIN, field="memory_used_bytes"),
    "memory_total_bytes": Aggregate(function=Function.MAX, field="memory_total_bytes"),
    "power_least_watts": Aggregate(function=Function.MIN, field="power_watts"),
    "power_limit_watts": Aggregate(function=Function.MAX, field="power_limit_watts"),
}
_REASONS = Aggregate(function=Function.LAST, field="clock_event_reasons")
_COUNTED = Aggregate(function=Function.COUNT, field="utilization_percent")
ASKED = (_COUNTED, *_OF_GPUS.values(), _REASONS)
SAMPLES, MOST_USED = _COUNTED.column, _OF_GPUS["utilization_most_percent"].column
# Of inference servers, over the same span.
_ANSWERED = Aggregate(function=Function.INCREASE, field="requests")
_RAN = Aggregate(function=Function.MAX, field="requests_running")
_WAITED = Aggregate(function=Function.MAX, field="requests_waiting")
_SEEN = Aggregate(function=Function.COUNT, field="requests_running")
_COUNTS = Aggregate(function=Function.COUNT, field="requests")
ASKED_OF_SERVERS = (_ANSWERED, _RAN, _WAITED, _SEEN, _COUNTS)
# Its server was asked for this much of the ticks in which its GPU was.
_COVERAGE = 0.8
_REQUESTS = "inference_requests"
Row = Mapping[str, Any]


def values(asked: Mapping[str, Aggregate], row: Row) -> dict[str, Any]:
    """What a row says, under the names of those who ask."""
    return {name: row[one.column] for name, one in asked.items()}


def measured(row: Row, expected: float) -> Measured:
    """A row of `ASKED`, `with_requests` or without; `expected` is how many samples there should be."""
    reasons = row[_REASONS.column]
    return Measured(
        coverage=row[SAMPLES] / expected if expected else 0.0,
        clock_event_reasons=None if reasons is None else int(reasons),
        requests=row.get(_REQUESTS),
        **values(_OF_GPUS, row),
    )


def with_requests(rows: Mapping[str, Row], servers: Iterable[Row]) -> dict[str, Row]:
    """Rows of GPUs with how many requests their inference servers had, as far as that is known.

    `servers` are those of `ASKED_OF_SERVERS`. Of one that was asked more rarely than its GPU was
    measured it is not known that it had none.
    """
    found: dict[str, list[Row]] = {}
    for row in servers:
        if row["uuid"]:
            subject = Subject(cluster=row["cluster"], node=row["node"], gpu=row["uuid"])
            found.setdefault(subject.key, []).append(row)
    return {
        key: {**row, _REQUESTS: _requests(found[key], row[SAMPLES] or 0)} if key in found else row
        for key, row in rows.items()
    }


def _requests(rows: Sequence[Row], samples: float) -> float | None:
    """Of all servers on one GPU; one request is enough to know that there were some."""
    names = (_ANSWERED.column, _RAN.column, _WAITED.column)
    some = sum(max((row[name] or 0.0 for name in names), default=0.0) for row in rows)
    if some > 0:
        return some
    asked = min(max(row[_SEEN.column] or 0, row[_COUNTS.column] or 0) for row in rows)
    return 0.0 if samples and asked >= _COVERAGE * samples else None
