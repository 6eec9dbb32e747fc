"""The time-series store as a protocol: five methods whose docstrings are the specification.

Times are aware and in UTC; ranges are `[start, end)`. Answers are Arrow tables. Columns of tags are
strings; a value that was not measured is null, never 0. Simulated and real rows are stored together
and told apart by their `cluster` tag.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as value
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

import pyarrow as pa

# Lines with other times are refused: they come from a clock that was never set.
EARLIEST_NS = 0
LATEST_NS = 7_258_118_400_000_000_000  # 2200-01-01


class Function(str, Enum):
    """Functions of one field over a window, per subject."""

    COUNT = "count"  # samples in which the field was measured
    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    FIRST = "first"  # the oldest value in the window
    LAST = "last"  # the newest value in the window
    INCREASE = "increase"  # max - min: counters are monotone at the source


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Aggregate:
    """One function applied to one field."""

    function: Function
    field: str
    # Its column's name: `utilization_percent_mean`. Stored, since a pass asks for very many.
    column: str = value(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", f"{self.field}_{self.function.value}")


class Store(Protocol):
    """The store of telemetry. Methods raise StoreError for a measurement or field that is unknown."""

    def write(self, lines: bytes) -> None:
        """Store a body of line protocol in nanoseconds; return once it is committed.

        A line is refused when a field of the catalogue does not fit (`Metric.misfit`) or its time
        is not from 1970 to 2200; the good lines are kept, and StoreError says how many were refused.
        Measurements and fields that are not in the catalogue are ignored. A line without any known
        field does not count as a line of the measurement.
        """

    def window(
        self, measurement: str, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> pa.Table:
        """Return one row per subject with a line in the range, ordered by its tags.

        Columns: the measurement's tags; `samples` (int64, lines in the range); `first_at` and
        `last_at` (timestamp[us, UTC]); then one column per aggregate, named `Aggregate.column`.
        """

    def series(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
        step: timedelta,
    ) -> pa.Table:
        """Return means per subject and step, for charts: tags, `at` (start of the step), the fields.

        `offset_seconds` is how long after `at` the step's lines are on average: the time that the
        means stand for, even if only a part of the step was measured.
        Only subjects whose tags equal `where`. Steps without a line are absent: a gap is a gap.
        Ordered by tags, then `at`.
        """

    def latest(self, measurement: str, fields: Collection[str], since: datetime) -> pa.Table:
        """Return the newest line of every subject not older than `since`, ordered by tags.

        Columns: tags, `at`, and the fields as that line has them.
        """

    def forget(self, before: datetime) -> None:
        """Drop all lines older than `before`."""
