"""Numbers in a unit other than the column's name says, recognised by their size."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuvigil.metrics import MEASUREMENTS, Kind

Values = npt.NDArray[np.float64]  # measured values, without NaN


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """A value that does not fit, and what it looks like."""

    position: int
    text: str


def misfit(measurement: str, field: str, values: Values) -> Misfit | None:
    """Return the first value of a field that cannot be in its unit; None when all may be."""
    if not len(values):
        return None
    for suffix, check in _CHECKS.items():
        if field.endswith(suffix) and (found := check(field, values)) is not None:
            return found
    metric = MEASUREMENTS[measurement].metric(field)
    if (metric.kind is Kind.COUNTER or field.endswith(_NEVER_NEGATIVE)) and values.min() < 0:
        return _first(values < 0, values, "is less than 0")
    if field in _YES and not np.isin(values, (0.0, 1.0)).all():
        return _first(~np.isin(values, (0.0, 1.0)), values, "is neither 0 nor 1")
    return None


_YES = frozenset({"up", "enabled", "pcie_present", "driver_answering", "spool_writable"})
_NEVER_NEGATIVE = ("_percent", "_bytes", "_watts", "_hertz", "_seconds", "_per_second", "_share")


def _first(bad: npt.NDArray[np.bool_], values: Values, text: str) -> Misfit:
    position = int(np.argmax(bad))
    return Misfit(position=position, text=f"{values[position]:g} {text}")


# Limits between units are wide, so that no real GPU comes near one: a core is between -20 and 125 °C, memory is
# counted in MiB or more, clocks are over 1 MHz, a board draws under 5 kW. Half of a fleet soon exceeds 35 °C (95 °F),
# but never 95 °C, while no core and no memory of any GPU reaches 115 °C; 257 °F are 125 °C.
_WARM_FAHRENHEIT, _HOTTEST, _HOTTEST_FAHRENHEIT = 95, 115, 257
# A GPU has some GiB, and a recording in MiB exceeds a thousand once a GPU is in use; no GPU draws less than 2 W all
# the time, and none more than 2 kW.
_MOST_GIB, _MOST_KILOWATTS, _MOST_GIGAHERTZ = 1024, 2, 10
# A value that any single reading may have proves something only where this many readings are alike.
_ALIKE = 100


def _celsius(field: str, values: Values) -> Misfit | None:
    if "tlimit" in field or "margin" in field:
        return None
    hot = values > 150
    are_warm = len(values) >= _ALIKE and np.median(values) > _WARM_FAHRENHEIT
    if are_warm and _HOTTEST < values.max() <= _HOTTEST_FAHRENHEIT:
        text = "looks like Fahrenheit: subtract 32, then multiply by 5/9"
        return _first(values > _HOTTEST, values, text)
    if hot.any() and values[hot].max() < 450 and np.median(values) > 250:
        return _first(hot, values, "looks like Kelvin: subtract 273.15")
    if hot.any():
        return _first(hot, values, "is no temperature of a GPU in degrees Celsius")
    cold = values < -50
    return _first(cold, values, "is no temperature of a GPU") if cold.any() else None


def _percent(field: str, values: Values) -> Misfit | None:
    over = values > 101.0
    if over.any():
        return _first(over, values, "is more than 100 %")
    parts = (values > 0.0) & (values < 1.0)
    # An idle GPU may be active for 0.3 %; a whole recording of nothing but parts of 1 holds shares.
    if values.max() <= 1.0 and (values[parts] >= 0.05).any():
        return _first(parts & (values >= 0.05), values, "looks like a share of 1: multiply by 100")
    return None


def _share(field: str, values: Values) -> Misfit | None:
    over = values > 1.0
    return _first(over, values, "looks like percent: divide by 100") if over.any() else None


def _memory(field: str, values: Values) -> Misfit | None:
    small = (values > 0) & (values < 1e6)
    if small.any() and values.max() < _MOST_GIB:
        text = "looks like MiB or GiB: multiply by 1048576 or 1073741824"
        if not (values == np.round(values)).all():
            text = "looks like GiB: multiply by 1073741824"
        return _first(small, values, text)
    if small.any() and values.max() < 1e7:
        return _first(small, values, "looks like MiB: multiply by 1048576")
    return None


def _hertz(field: str, values: Values) -> Misfit | None:
    small = (values > 0) & (values < 1e6)
    text = "looks like MHz: multiply by 1000000"
    if values.max() < _MOST_GIGAHERTZ:
        text = "looks like GHz: multiply by 1000000000"
    return _first(small, values, text) if small.any() else None


def _watts(field: str, values: Values) -> Misfit | None:
    large = values > 5000
    parts = values != np.round(values)
    if len(values) >= _ALIKE and parts.any() and values.max() < _MOST_KILOWATTS:
        return _first(parts, values, "looks like kilowatts: multiply by 1000")
    return _first(large, values, "looks like milliwatts: divide by 1000") if large.any() else None


def _speed(field: str, values: Values) -> Misfit | None:
    small = (values > 0) & (values < 1e6)
    text = "looks like Gbit/s or Mbit/s: write bits per second, 400000000000 for 400 Gbit/s"
    return _first(small, values, text) if small.any() else None


_CHECKS: Mapping[str, Callable[[str, Values], Misfit | None]] = {
    "_celsius": _celsius,
    "_percent": _percent,
    "_share": _share,
    "memory_used_bytes": _memory,
    "memory_total_bytes": _memory,
    "memory_reserved_bytes": _memory,
    "memory_available_bytes": _memory,
    "bar1_total_bytes": _memory,
    "_hertz": _hertz,
    "_watts": _watts,
    "speed_bits_per_second": _speed,
}
