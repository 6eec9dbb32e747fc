"""Rounding, done once: numbers that belong together still add up afterwards."""

import math
from collections.abc import Sequence

HOUR = 3600.0


def rounded(value: float | None, digits: int = 0) -> float | None:
    """Return `value` rounded; None stays None, and there is no minus zero."""
    return None if value is None else near(value, digits)


def near(value: float, digits: int = 0) -> float:
    """Return `value` rounded to `digits` decimals."""
    return round(value, digits) + 0.0


def down(value: float, digits: int = 0) -> float:
    """Return `value` rounded down: 99.96 % is not 100 %."""
    grid = float(10**digits)
    return math.floor(value * grid + 1e-9) / grid


def shared(values: Sequence[float], total: float, digits: int = 0) -> tuple[float, ...]:
    """Round `values` so that they add up to `total`, which is rounded and near their sum.

    Each is rounded down, and those that lost most get a step back: the method of largest
    remainders.
    """
    grid = 10**digits
    cut = [math.floor(value * grid + 1e-9) for value in values]
    left = round(total * grid) - sum(cut)
    order = sorted(range(len(values)), key=lambda i: cut[i] - values[i] * grid)
    for step in range(max(left, 0)):
        cut[order[step % len(order)]] += 1
    for step in range(max(-left, 0)):
        cut[max(range(len(cut)), key=lambda i: (cut[i], -step))] -= 1
    return tuple(one / grid + 0.0 for one in cut)


def decimals(total_gpu_hours: float) -> int:
    """Return how many decimals of a GPU-hour are meaningful in a report with this total."""
    if total_gpu_hours >= 5_000:
        return 0
    return 1 if total_gpu_hours >= 20 else 2


def energy_kwh(joules: float) -> float:
    """Return kWh with four digits, or two decimals: within 0.05 % from 10 kWh on."""
    kwh = joules / 3.6e6
    for limit, digits in ((100, 2), (1_000, 1), (10_000, 0), (100_000, -1)):
        if kwh < limit:
            return near(kwh, digits)
    return near(kwh, -2)
