"""Rows of a quarter as minutes of each GPU: what was measured in them."""

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
# Those that tell whether somebody held a GPU that did nothing.
STILL_FIELDS = ("up", "utilization_percent", "compute_processes")
# No board draws more (NVIDIA's largest modules draw 1,400 W): a counter that was set back, or jumps.
_MOST_WATTS = 5_000.0
# What a GPU that is not up says of itself, when it is known to be of no use.
_LOST, _RELEASED = int(Unmeasured.LOST), int(Unmeasured.RELEASED_FOR_MAINTENANCE)
_MICRO = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Units (down) and minutes (across), NaN where nothing was measured."""

    start: datetime
    row: Bools  # something was sent
    lost: Bools
    released: Bools  # lost, and only for maintenance
    measured: Bools  # it answered, with a utilisation
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
        """`of_row` numbers the unit of each row; fields that are not asked for are not measured."""
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
    """Mean power of each minute: by the energy counter where there is one, else as it was sampled.

    A minute's mean of a counter is its value in the middle: what it grew from the minute before to
    the one after are two minutes' energy, and at an edge half of that. Samples miss what lies between.
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
    # A counter that stands still beside a board that draws is not kept up.
    return np.where(trusted & ((rate > 0) | ~(power > 0)), rate, power)


def runs(rows: pa.Table, names: Sequence[str]) -> tuple[pa.Table, Ints]:
    """The first of all rows that follow each other with the same texts, and how many each has.

    Rows come ordered by their tags, so that a table of minutes has few; in any order all is right.
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
    """The different pairs of two columns of texts, and of each row the number of its pair."""
    ones, of_one = coded(rows[first])
    others, of_other = coded(rows[second])
    one, other, of_row = paired(of_one, of_other, len(others))
    return [(ones[a], others[b]) for a, b in zip(one.tolist(), other.tolist(), strict=True)], of_row


def paired(first: Ints, second: Ints, seconds: int) -> tuple[Ints, Ints, Ints]:
    """The different pairs of two columns of numbers, and of each row the number of its pair.

    `second` is below `seconds`. Mostly each of those goes with one of the first only, as a UUID does
    with a node: then nothing needs to be sorted.
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
    """The different numbers, ordered: sorted they are found in a fraction of the time of hashing them."""
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def coded(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """The different texts of a column, and of each row the number of its own."""
    found = _whole(column).dictionary_encode()
    return found.dictionary.to_pylist(), found.indices.to_numpy().astype(np.int64)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _mean(column: pa.ChunkedArray, cells: Ints, counts: Ints, once: bool) -> Floats:
    """`once`: each cell has one row at most, as a store gives them."""
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
