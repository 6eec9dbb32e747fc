"""Measured values on the full grid of steps: pure. NaN is "not measured", and never becomes 0."""

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
    """`count` steps from `start` on; the last may be cut by the end of the window."""

    start: datetime
    step: timedelta
    count: int

    @property
    def times(self) -> tuple[datetime, ...]:
        """When each step begins."""
        return tuple(self.start + number * self.step for number in range(self.count))

    @property
    def milliseconds(self) -> Floats:
        """When each step begins, in ms since 1970."""
        began = (self.start - EPOCH) / timedelta(milliseconds=1)
        step = self.step / timedelta(milliseconds=1)
        return np.array([began + number * step for number in range(self.count)])


def grid(start: datetime, end: datetime, step: timedelta) -> Grid:
    """The steps that cover `[start, end)`; they begin at multiples of `step` since 1970."""
    first = cut(start, step)
    count = max(-((first - end) // step), 1)
    return Grid(start=first, step=step, count=count)


def laid(at: Ints, values: Floats, onto: Grid) -> Floats:
    """Values of steps that begin at `at` (µs since 1970) on the grid; NaN where there is none."""
    began = (onto.start - EPOCH) // _MICROSECOND
    places = (at - began) // (onto.step // _MICROSECOND)
    inside = (places >= 0) & (places < onto.count)
    full = np.full(onto.count, np.nan)
    full[places[inside]] = values[inside]
    return full


def rates(counter: Floats, offsets: Floats, on: Grid) -> Floats:
    """What a counter grew by per second from the step before to each step.

    `offsets` says how many seconds after its start each step was measured on average: a step that
    was measured in part only has its mean of another moment than its middle. NaN at a gap, after
    one, and where the counter was reset.
    """
    elapsed = on.step.total_seconds() + np.diff(offsets)
    difference = np.diff(counter)
    per_second = np.full(len(counter), np.nan)
    grows = (difference >= 0) & (elapsed > 0)
    per_second[1:][grows] = difference[grows] / elapsed[grows]
    return per_second


def increase(counter: Floats) -> float | None:
    """What a counter grew by in all, also while nothing was measured; None: never measured.

    What it had counted when it was reset is lost, and what it counted since is in the answer.
    """
    measured = counter[np.isfinite(counter)]
    if not len(measured):
        return None
    difference = np.diff(measured)
    return float(np.where(difference >= 0, difference, measured[1:]).sum())


def median(lines: list[Floats], count: int) -> Floats:
    """The median of the lines in each step; NaN where none of them was measured."""
    middle = np.full(count, np.nan)
    if lines:
        stacked = np.stack(lines)
        some = np.isfinite(stacked).any(axis=0)
        middle[some] = np.nanmedian(stacked[:, some], axis=0)
    return middle
