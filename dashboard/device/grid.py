"""Measured values on a complete grid of time steps; pure. NaN is "not measured" and never becomes 0."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from gpuvigil.clock import EPOCH

from .window import cut

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A grid of `count` steps from `start` on; the window's end may cut the last one."""

    start: datetime
    step: timedelta
    count: int

    @property
    def times(self) -> tuple[datetime, ...]:
        """The start of each step."""
        return tuple(self.start + number * self.step for number in range(self.count))

    @property
    def milliseconds(self) -> Floats:
        """The start of each step, in ms since 1970."""
        began = (self.start - EPOCH) / timedelta(milliseconds=1)
        step = self.step / timedelta(milliseconds=1)
        return np.array([began + number * step for number in range(self.count)])


def grid(start: datetime, end: datetime, step: timedelta) -> Grid:
    """Return the grid that covers `[start, end)`; steps begin at multiples of `step` since 1970."""
    first = cut(start, step)
    count = max(-((first - end) // step), 1)
    return Grid(start=first, step=step, count=count)


def laid(at: Ints, values: Floats, onto: Grid) -> Floats:
    """Return the values of the steps at `at` (µs since 1970) on the grid; NaN where there is none."""
    began = (onto.start - EPOCH) // _MICROSECOND
    places = (at - began) // (onto.step // _MICROSECOND)
    inside = (places >= 0) & (places < onto.count)
    full = np.full(onto.count, np.nan)
    full[places[inside]] = values[inside]
    return full


def rates(counter: Floats, offsets: Floats, on: Grid) -> Floats:
    """Return a counter's growth per second from the previous step to each step.

    `offsets` says how many seconds after its start each step was measured on average: the mean of a
    partly measured step is not that of its middle. NaN at a gap, after one, and at a counter reset.
    """
    elapsed = on.step.total_seconds() + np.diff(offsets)
    difference = np.diff(counter)
    per_second = np.full(len(counter), np.nan)
    grows = (difference >= 0) & (elapsed > 0)
    per_second[1:][grows] = difference[grows] / elapsed[grows]
    return per_second


def increase(counter: Floats) -> float | None:
    """Return a counter's total growth, also over gaps; None if it was never measured.

    At a reset the growth since the last measurement is lost; the count since the reset is included.
    """
    measured = counter[np.isfinite(counter)]
    if not len(measured):
        return None
    difference = np.diff(measured)
    return float(np.where(difference >= 0, difference, measured[1:]).sum())


def median(lines: list[Floats], count: int) -> Floats:
    """Return the median of the lines in each step; NaN where none was measured."""
    middle = np.full(count, np.nan)
    if lines:
        stacked = np.stack(lines)
        some = np.isfinite(stacked).any(axis=0)
        middle[some] = np.nanmedian(stacked[:, some], axis=0)
    return middle
