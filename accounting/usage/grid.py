"""The rows of a quarter as a grid of units and minutes: what was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.clock import EPOCH
from gpuvigil.model import Unmeasured

from .model import BUCKET
from .ownership import Bools, Floats, Ints

MINUTE = timedelta(minutes=1)
MINUTES = BUCKET // MINUTE
FIELDS = (
    *("up", "utilization_percent", "compute_processes", "power_watts", "energy_joules"),
    "unmeasured_reason",
)
# The fields that show whether somebody held a GPU that did nothing.
STILL_FIELDS = ("up", "utilization_percent", "compute_processes")
# More than any board draws (NVIDIA's largest modules draw 1,400 W): a counter was reset, or jumps.
_MOST_WATTS = 5_000.0
# The reasons that a GPU which is not up reports when it is known to be unusable.
_LOST, _RELEASED = int(Unmeasured.LOST), int(Unmeasured.RELEASED_FOR_MAINTENANCE)
_MICRO = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Units (rows) and minutes (columns), NaN where nothing was measured."""

    start: datetime
    row: Bools  # a row was sent
    lost: Bools
    released: Bools  # lost only because of maintenance
    measured: Bools  # answered, with a utilisation
    answering: Bools
    used: Floats  # utilisation as a share, 0 where it was not measured
    processes: Floats
    power: Floats  # W
    means: Mapping[str, Floats]

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        of_row: Ints,
        start: datetime,
        units: int,
        fields: Sequence[str],
        minutes: int = MINUTES,
    ) -> "Grid":
        """Build the grid; `of_row` is the unit number of each row, and fields not asked for count as unmeasured."""
        at = rows["at"].cast(pa.int64()).to_numpy()
        cells = of_row * minutes + (at - (start - EPOCH) // _MICRO) // (MINUTE // _MICRO)
        counts = np.bincount(cells, minlength=units * minutes)
        blank = np.full((units, minutes), np.nan)
        once = not (counts > 1).any()
        means = {
            name: _mean(rows[name], cells, counts, once).reshape(units, minutes) for name in fields
        }
        up, reason = means.get("up", blank), means.get("unmeasured_reason", blank)
        utilization = means.get("utilization_percent", blank)
        measured: Bools = (up >= 0.5) & ~np.isnan(utilization)
        return cls(
            start=start,
            row=counts.reshape(units, minutes) > 0,
            lost=(up < 0.5) | (np.isnan(up) & ((reason == _LOST) | (reason == _RELEASED))),
            released=reason == _RELEASED,
            measured=measured,
            answering=up >= 0.5,
            used=np.where(measured, np.clip(utilization, 0.0, 100.0) / 100.0, 0.0),
            processes=means.get("compute_processes", blank),
            power=_power(means.get("energy_joules", blank), means.get("power_watts", blank)),
            means=means,
        )


def _power(energy: Floats, power: Floats) -> Floats:
    """Return the mean power of each minute: from the energy counter where there is one, else from samples.

    A minute's mean of a counter is its value in the middle: what it grew from the minute before to the one
    after is two minutes' energy, and at an edge half of that. Samples miss what lies between them.
    """
    if np.isnan(energy).all():
        return power
    grown = np.diff(energy, axis=1) / 60.0
    rate = np.full(energy.shape, np.nan)
    rate[:, 1:-1] = (grown[:, :-1] + grown[:, 1:]) / 2.0
    rate[:, 0], rate[:, -1] = grown[:, 0], grown[:, -1]
    right = (grown >= 0) & (grown <= _MOST_WATTS)  # and not NaN
    trusted = np.ones(energy.shape, np.bool_)
    trusted[:, 1:] &= right
    trusted[:, :-1] &= right
    # A counter that stands still while the board draws power is not maintained.
    return np.where(trusted & ((rate > 0) | ~(power > 0)), rate, power)


def runs(rows: pa.Table, names: Sequence[str]) -> tuple[pa.Table, Ints]:
    """Return the first row of each run with the same texts, and the length of each run.

    Rows come ordered by their tags, so a table of minutes has few runs; any other order is correct as well.
    """
    heads = rows.select(list(names)).combine_chunks()
    if not len(rows):
        return heads, np.zeros(0, np.int64)
    changed = np.zeros(len(rows), np.bool_)
    changed[0] = True
    for column in map(_whole, heads.columns):
        other = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
        changed[1:] |= other.to_numpy(zero_copy_only=False)
    first = np.nonzero(changed)[0]
    return heads.take(pa.array(first)), np.diff(first, append=len(rows))


def numbered(rows: pa.Table, first: str, second: str) -> tuple[list[tuple[str, str]], Ints]:
    """Return the distinct pairs of two text columns, and the pair number of each row."""
    ones, of_one = coded(rows[first])
    others, of_other = coded(rows[second])
    one, other, of_row = paired(of_one, of_other, len(others))
    return [(ones[a], others[b]) for a, b in zip(one.tolist(), other.tolist(), strict=True)], of_row


def paired(first: Ints, second: Ints, seconds: int) -> tuple[Ints, Ints, Ints]:
    """Return the distinct pairs of two number columns, and the pair number of each row.

    `second` is below `seconds`. Usually each second number goes with only one first number, as a UUID with a
    node: then nothing has to be sorted.
    """
    partner = np.zeros(seconds, np.int64)
    partner[second] = first
    if np.array_equal(partner[second], first):
        there = np.zeros(seconds, np.bool_)
        there[second] = True
        found = np.nonzero(there)[0]
        return partner[found], found, (np.cumsum(there) - 1)[second]
    codes, of_row = np.unique(first * seconds + second, return_inverse=True)
    return codes // seconds, codes % seconds, of_row.astype(np.int64)


def different(numbers: Ints) -> Ints:
    """Return the distinct numbers in order; sorting finds them in a fraction of the time of hashing."""
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def coded(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """Return the distinct texts of a column, and the text number of each row."""
    found = _whole(column).dictionary_encode()
    return found.dictionary.to_pylist(), found.indices.to_numpy().astype(np.int64)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _mean(column: pa.ChunkedArray, cells: Ints, counts: Ints, once: bool) -> Floats:
    """Return the mean of each cell, NaN without a value; `once`: a cell has at most one row, as from a store."""
    means = np.full(len(counts), np.nan)
    if column.null_count == len(column):
        return means
    values = column.cast(pa.float64()).to_numpy()
    if once:
        means[cells] = values
        if np.isinf(means).any():
            means[np.isinf(means)] = np.nan
        return means
    good = np.isfinite(values)
    measured = np.bincount(cells[good], minlength=len(counts))
    sums = np.bincount(cells[good], values[good], len(counts))
    np.divide(sums, measured, out=means, where=measured > 0)
    return means
