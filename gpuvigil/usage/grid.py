"""Rows of a quarter as minutes of each GPU: what was measured in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa

from ..clock import EPOCH
from ..model import Unmeasured
from .holding import Bools, Floats, Ints
from .model import BUCKET

MINUTE = timedelta(minutes=1)
MINUTES = BUCKET // MINUTE
FIELDS = ("up", "utilization_percent", "compute_processes", "power_watts", "unmeasured_reason")
# What a GPU that is not up says of itself, when it is known to be of no use.
_UNAVAILABLE = (Unmeasured.LOST, Unmeasured.RELEASED_FOR_MAINTENANCE)
_MICRO = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Units (down) and minutes (across), NaN where nothing was measured."""

    start: datetime
    row: Bools  # something was sent
    lost: Bools
    measured: Bools  # it answered, with a utilisation
    answering: Bools
    used: Floats  # utilisation as a share, 0 where it was not measured
    processes: Floats
    power: Floats
    means: Mapping[str, Floats]

    @classmethod
    def of(
        cls, rows: pa.Table, of_row: Ints, start: datetime, units: int, fields: Sequence[str]
    ) -> "Grid":
        """`of_row` numbers the unit of each row; fields that are not asked for are not measured."""
        at = rows["at"].cast(pa.int64()).to_numpy()
        cells = of_row * MINUTES + (at - (start - EPOCH) // _MICRO) // (MINUTE // _MICRO)
        size = units * MINUTES
        blank = np.full((units, MINUTES), np.nan)
        means = {name: _mean(rows[name], cells, size).reshape(-1, MINUTES) for name in fields}
        up, reason = means.get("up", blank), means.get("unmeasured_reason", blank)
        utilization = means.get("utilization_percent", blank)
        measured: Bools = (up >= 0.5) & ~np.isnan(utilization)
        return cls(
            start=start,
            row=np.bincount(cells, minlength=size).reshape(-1, MINUTES) > 0,
            lost=(up < 0.5) | (np.isnan(up) & np.isin(reason, _UNAVAILABLE)),
            measured=measured,
            answering=up >= 0.5,
            used=np.where(measured, np.clip(utilization, 0.0, 100.0) / 100.0, 0.0),
            processes=means.get("compute_processes", blank),
            power=means.get("power_watts", blank),
            means=means,
        )


def _mean(column: pa.ChunkedArray, cells: Ints, size: int) -> Floats:
    values = column.cast(pa.float64()).to_numpy()
    good = np.isfinite(values)
    if not good.all():
        values, cells = values[good], cells[good]
    counts = np.bincount(cells, minlength=size)
    means = np.full(size, np.nan)
    np.divide(np.bincount(cells, values, size), counts, out=means, where=counts > 0)
    return means
