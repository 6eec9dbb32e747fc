"""A job's pace now against its pace within the hour before: pure.

The pace is measured by the job's own steps where its ranks report them; else by the traffic between its
GPUs, and where there is none by the activity of their multiprocessors.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from gpuvigil.store import Aggregate, Function

from .bound import COVERAGE

Row = Mapping[str, Any]
_MEAN, _INCREASE = Function.MEAN, Function.INCREASE
_STEPS = Aggregate(function=_MEAN, field="step_seconds")
_ACTIVE = Aggregate(function=_MEAN, field="sm_activity_percent")
_MADE = Aggregate(function=_INCREASE, field="step")
_MOVED = Aggregate(function=_INCREASE, field="nvlink_receive_bytes")
ASKED_BEFORE = (_ACTIVE, _MOVED, _MADE, _STEPS)
# Above these, traffic (bytes a second) is work and no heartbeat, and multiprocessors do something.
_WORK_BYTES, _WORK_PERCENT = 1e6, 2.0
# The hour before must be seen for this many seconds beyond the span.
_LEAST_BEFORE_SECONDS = 900.0
# No step in the time of this many is a stop; with this many due, one more or less is no other pace [ours].
_NONE_OF, _COUNTED_FROM = 5.0, 20.0


def pace(gpus: Sequence[tuple[Row | None, Row | None]]) -> float | None:
    """Return the pace in percent of the hour before, the median of its GPUs; each has its row now and over the hour.

    None where too few of them have values, or the job does too little.
    """
    for measure in (_of_steps, _of_traffic, _of_activity):
        found = [
            it
            for now, hour in gpus
            if now is not None and hour is not None and (it := measure(now, hour)) is not None
        ]
        if found and len(found) >= COVERAGE * len(gpus):
            return 100.0 * median(found)
    return None


def _of_steps(now: Row, hour: Row) -> float | None:
    """Return the ratio of speeds, by the steps made, or by the length of a step where few were due.

    The length of the last steps says nothing about a job that makes none.
    """
    made, whole = now.get(_MADE.column), hour.get(_MADE.column)
    lately, length = now.get(_STEPS.column), _length(now)
    if made is not None and made <= 0.0:
        return 0.0 if lately and length >= _NONE_OF * lately else None
    more = _length(hour) - length
    if made is not None and whole is not None and more >= _LEAST_BEFORE_SECONDS:
        due = length * (whole - made) / more
        if due >= _COUNTED_FROM:
            share: float = made / due
            return share
    before = _mean_before(now, hour, _STEPS.column)
    return before / lately if before and lately else None


def _of_traffic(now: Row, hour: Row) -> float | None:
    lately, all_of_it = now.get(_MOVED.column), hour.get(_MOVED.column)
    if lately is None or all_of_it is None:
        return None
    length, whole = _length(now), _length(hour)
    if length <= 0.0 or whole - length < _LEAST_BEFORE_SECONDS:
        return None
    first, last = (all_of_it - lately) / (whole - length), lately / length
    return last / first if first > _WORK_BYTES and last > _WORK_BYTES else None


def _of_activity(now: Row, hour: Row) -> float | None:
    before, lately = _mean_before(now, hour, _ACTIVE.column), now.get(_ACTIVE.column)
    if before is None or lately is None or before <= _WORK_PERCENT or lately <= _WORK_PERCENT:
        return None
    share: float = lately / before
    return share


def _mean_before(now: Row, hour: Row, column: str) -> float | None:
    """Return the mean over the part of the hour before the span that ends it."""
    lately, whole = now.get(column), hour.get(column)
    lines, more = now["samples"], hour["samples"] - now["samples"]
    if lately is None or whole is None or more <= 0:
        return None
    if _length(hour) - _length(now) < _LEAST_BEFORE_SECONDS:
        return None
    found = (whole * hour["samples"] - lately * lines) / more
    return found if found > 0.0 else None


def _length(row: Row) -> float:
    seconds: float = (row["last_at"] - row["first_at"]).total_seconds()
    return seconds
