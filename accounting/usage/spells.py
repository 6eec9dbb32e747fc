"""Idle spells: how long each holder's GPUs computed nothing without a break, across quarters too.

A spell is idle by the rule once it has lasted the idle threshold. A quarter is judged by its own minutes and
those before it. `idle_long` are the seconds within the quarter of spells that reached the threshold by its
end; `idle_long_before` are the seconds right before it of spells that reached the threshold within it.
Together they count each spell once, wherever in a quarter it begins.

The minute in which a GPU stops or begins to compute is idle in proportion to the load missing from it,
compared with the minute beside it. A few minutes without data do not end a spell, and are not idle.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import numpy as np

from .grid import MINUTE, different
from .ownership import Bools, Floats, Ints
from .sharing import IDLE_BELOW, Held, Units

# A quarter reads no more of the store than this: a longer idle threshold is judged by whole quarters.
LONGEST = timedelta(hours=2)
# A hub or a collector that restarts is away for less.
_GAP_MINUTES = 5
# Tolerance, so that minutes that add up to exactly the threshold have reached it.
_ROUNDING_SECONDS = 0.5
# A smaller part of a minute is a load that varies, and not idle.
_LEAST_PART = 0.15
_Values = TypeVar("_Values", Floats, Bools)


def minutes_before(after: timedelta) -> int:
    """Return the minutes needed before a quarter: the threshold, a gap in it, and the load before it began."""
    return -(-after // MINUTE) + _GAP_MINUTES + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some minutes: who held which unit in them, and what it did."""

    held: Held
    units: Units


def idle_spell_seconds(
    before: Stretch, now: Stretch, same: Ints, after: timedelta
) -> Mapping[str, Floats]:
    """Return the GPU-seconds of idle spells of each row of `now.held`.

    Of several rows for one unit and holder the first has their sum, the others 0.
    `same` has each unit's number in `before`, -1 where it was not there.
    """
    size, names = len(now.units.used), dict[tuple[str, str], int]()
    code = _holders(now.held, names) * size + now.held.gpu
    under_limit = now.units.under_limit
    # A spell may end with the quarter's first minute or the one before it, which are not under the limit themselves;
    # right before them may be minutes without data.
    was = before.units.under_limit[:, -_GAP_MINUTES - 2 :]
    under_limit[:, 0] |= _of(was, same).any(axis=1)
    some = np.nonzero(((now.held.parts > 0) & under_limit[now.held.gpu]).any(axis=1))[0]
    wanted = different(code[some])
    unit = wanted % size
    back = np.full(len(before.units.used), -1, np.int64)
    back[same[same >= 0]] = np.nonzero(same >= 0)[0]
    then = back[before.held.gpu]
    earlier = np.where(then >= 0, _holders(before.held, names) * size + then, -1)
    minutes = _MinutesByHolder(
        parts=np.hstack([_parts(before.held, earlier, wanted), _parts(now.held, code, wanted)]),
        known=np.hstack([_of(before.units.known, same[unit]), now.units.known[unit]]),
        measured=np.hstack([_of(before.units.measured, same[unit]), now.units.measured[unit]]),
        used=np.hstack([_of(before.units.used, same[unit]), now.units.used[unit]]),
    )
    found = minutes.idle(before.units.used.shape[1], after.total_seconds())
    first = np.zeros(len(wanted), np.int64)
    first[np.searchsorted(wanted, code[some])[::-1]] = some[::-1]
    sums = {name: np.zeros(len(code)) for name in ("idle_long", "idle_long_before")}
    for values, of_row in zip(sums.values(), found, strict=True):
        values[first] = of_row
    return sums


def _holders(held: Held, names: dict[tuple[str, str], int]) -> Ints:
    """Return the holder number of each row, whatever its command."""
    number = np.zeros(len(held.owners), np.int64)
    for one in different(held.owner).tolist() if len(held.owner) else ():
        number[one] = names.setdefault(held.owners[one].key, len(names))
    return number[held.owner]


def _parts(held: Held, code: Ints, wanted: Ints) -> Floats:
    """Return the seconds per minute of the wanted rows."""
    found = np.zeros((len(wanted), held.parts.shape[1]))
    some = np.isin(code, wanted)
    np.add.at(found, np.searchsorted(wanted, code[some]), held.parts[some])
    return found


def _of(values: _Values, number: Ints) -> _Values:
    """Return the values of those with a number; 0 for the others."""
    found = np.zeros((len(number), values.shape[1]), values.dtype)
    found[number >= 0] = values[number[number >= 0]]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _MinutesByHolder:
    """A row per holder of a unit, a column per minute."""

    parts: Floats  # seconds held, weighted
    known: Bools
    measured: Bools
    used: Floats

    def idle(self, first: int, after: float) -> tuple[Floats, Floats]:
        """Return the weighted idle seconds from minute `first` on, and those before it, by row."""
        on, begins, ends, share = self._minutes()
        size = on.shape[1]
        where = np.nonzero(on.ravel())[0]
        row, minute = np.divmod(where, size)
        spell = np.cumsum(begins.ravel()[where])
        seconds = (self._lasted() * np.where(share < 0, 1.0, share)).ravel()[where]
        idle = (self.parts * np.maximum(share, 0.0)).ravel()[where]
        # How much of the last minute was idle depends on the minute after it, and so on the next quarter.
        left = (minute == first - 1) & ends.ravel()[where]
        early = (minute < first) & ~left
        lasted, before = (np.bincount(spell, seconds * part) for part in (1.0, early))
        enough = lasted > after - _ROUNDING_SECONDS
        fresh = enough & (before <= after - _ROUNDING_SECONDS)
        late = np.where((minute >= first) & enough[spell], idle, 0.0)
        owed = np.where((early & fresh[spell]) | (left & enough[spell]), idle, 0.0)
        found = [np.bincount(row, one, len(on)).astype(np.float64) for one in (late, owed)]
        return found[0], found[1]

    def _minutes(self) -> tuple[Bools, Bools, Bools, Floats]:
        """Return which minutes are in a spell, begin or end one, and the idle part of each; below 0 if unknown."""
        held = self.parts > 0
        under_limit = held & self.measured & (self.used < IDLE_BELOW)
        bridged = _bridged(under_limit, held & ~self.known)
        whole = under_limit | bridged
        busy = held & self.measured & ~under_limit
        starts = busy & _next(under_limit) & ~_last(whole)
        ends = busy & _last(whole) & ~_next(whole)
        ends[:, -1] = False
        level = np.where(starts, _last(busy) * _last(self.used), _next(busy) * _next(self.used))
        # Without a minute beside it, half of it on average.
        part = np.full(level.shape, 0.5)
        np.divide(self.used, level, out=part, where=level > 0)
        part = 1.0 - part
        part[part < _LEAST_PART] = 0.0
        share = np.where(under_limit, 1.0, np.where(bridged, -np.inf, part))
        on = whole | starts | ends
        return on, on & (starts | ~_last(on)), ends, share

    def _lasted(self) -> Floats:
        """Return the held seconds of each minute, whatever part of the unit that is."""
        most = np.maximum(np.maximum(_last(self.parts), _next(self.parts)), self.parts)
        found: Floats = 60.0 * np.divide(self.parts, most, out=np.zeros_like(most), where=most > 0)
        return found


def _bridged(under_limit: Bools, missing: Bools) -> Bools:
    """Return the minutes without data that follow one under the limit within the allowed gap."""
    column = np.arange(under_limit.shape[1])
    # Without one before the first minute that minute is taken, which is missing itself.
    last = np.maximum.accumulate(np.where(missing, 0, column), axis=1)
    after_low = np.take_along_axis(under_limit, last, axis=1)
    found: Bools = missing & after_low & (column - last <= _GAP_MINUTES)
    return found


def _last(values: _Values) -> _Values:
    """Return the value of the minute before, for each minute."""
    found = np.zeros_like(values)
    found[:, 1:] = values[:, :-1]
    return found


def _next(values: _Values) -> _Values:
    """Return the value of the minute after, for each minute."""
    found = np.zeros_like(values)
    found[:, :-1] = values[:, 1:]
    return found
