"""A job's pace now against its pace within the hour before: pure.

By its own steps where its ranks tell of them; else by what its GPUs send each other, and where
that is nothing by what their multiprocessors do.
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
# Bytes a second that are work and no heartbeat; multiprocessors that do something.
_WORK_BYTES, _WORK_PERCENT = 1e6, 2.0
# Of the hour before, so many seconds have to be seen beyond the span.
_LEAST_BEFORE_SECONDS = 900.0
# In the time of so many steps none is a stop; of so many that were due one more or less is no other pace [ours].
_NONE_OF, _COUNTED_FROM = 5.0, 20.0


def pace(gpus: Sequence[tuple[Row | None, Row | None]]) -> float | None:
    """In percent of what it was, the middle of its GPUs; each with its row now and over the hour.

    None where too few of them tell, or the job does too little.
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
    """How many times as fast, as the others: by the steps that it made; by how long one takes where few were due.

    How long the last ones took says nothing of a job that makes none.
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
    """What the hour has beyond the span that it ends with."""
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
