"""Idle spells: how long each holder's GPUs computed nothing at a stretch, over the edges of quarters too.

A spell is idle by the rule once it has lasted the idle span. Until a quarter's end that is told by its minutes
and by those before it: `idle_long` are the seconds in it of spells that have lasted so long by then, and
`idle_long_before` are those right before it of spells that came to last so long in it. Together they
are counted once, whatever moment of the quarter a spell begins at.

The minute in which a GPU stops or begins to compute is idle by the part of the load that is missing in it, by
that of the minute beside it. Some minutes of which nothing is known end no spell, and are not idle.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import numpy as np

from .grid import MINUTE, different
from .ownership import Bools, Floats, Ints
from .sharing import QUIET_BELOW, Held, Units

# Far more of the store is not read for a quarter: of a longer idle span whole quarters tell.
LONGEST = timedelta(hours=2)
# A hub or a collector that begins again is away for less.
_GAP_MINUTES = 5
# Of a span, so that sums of minutes that come to exactly it have lasted it.
_ROUNDING_SECONDS = 0.5
# Of a minute: a load that only varies is no idle part of it.
_LEAST_PART = 0.15
_Values = TypeVar("_Values", Floats, Bools)


def minutes_before(after: timedelta) -> int:
    """How much is to be known before a quarter: the span, a gap in it, and the load before it began."""
    return -(-after // MINUTE) + _GAP_MINUTES + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some minutes: who held which unit in them, and what that was."""

    held: Held
    units: Units


def spells(before: Stretch, now: Stretch, same: Ints, after: timedelta) -> Mapping[str, Floats]:
    """GPU-seconds of each row of `now.held`; of several of one unit and holder the first has all.

    `same`: of each unit of `now` its number in `before`, -1 where it was not there.
    """
    size, names = len(now.units.used), dict[tuple[str, str], int]()
    code = _holders(now.held, names) * size + now.held.gpu
    still = now.units.still
    # A spell may end with the quarter's first minute, or the one before it, and those are no still ones;
    # right before them may be minutes of which nothing is known.
    was = before.units.still[:, -_GAP_MINUTES - 2 :]
    still[:, 0] |= _of(was, same).any(axis=1)
    some = np.nonzero(((now.held.parts > 0) & still[now.held.gpu]).any(axis=1))[0]
    wanted = different(code[some])
    unit = wanted % size
    back = np.full(len(before.units.used), -1, np.int64)
    back[same[same >= 0]] = np.nonzero(same >= 0)[0]
    then = back[before.held.gpu]
    earlier = np.where(then >= 0, _holders(before.held, names) * size + then, -1)
    row = _Row(
        parts=np.hstack([_parts(before.held, earlier, wanted), _parts(now.held, code, wanted)]),
        known=np.hstack([_of(before.units.known, same[unit]), now.units.known[unit]]),
        measured=np.hstack([_of(before.units.measured, same[unit]), now.units.measured[unit]]),
        used=np.hstack([_of(before.units.used, same[unit]), now.units.used[unit]]),
    )
    found = row.idle(before.units.used.shape[1], after.total_seconds())
    first = np.zeros(len(wanted), np.int64)
    first[np.searchsorted(wanted, code[some])[::-1]] = some[::-1]
    sums = {name: np.zeros(len(code)) for name in ("idle_long", "idle_long_before")}
    for values, of_row in zip(sums.values(), found, strict=True):
        values[first] = of_row
    return sums


def _holders(held: Held, names: dict[tuple[str, str], int]) -> Ints:
    """Of each row the number of its holder, whatever its command."""
    number = np.zeros(len(held.owners), np.int64)
    for one in different(held.owner).tolist() if len(held.owner) else ():
        number[one] = names.setdefault(held.owners[one].key, len(names))
    return number[held.owner]


def _parts(held: Held, code: Ints, wanted: Ints) -> Floats:
    """The seconds of each minute that are of the wanted ones."""
    found = np.zeros((len(wanted), held.parts.shape[1]))
    some = np.isin(code, wanted)
    np.add.at(found, np.searchsorted(wanted, code[some]), held.parts[some])
    return found


def _of(values: _Values, number: Ints) -> _Values:
    """Those with a number; 0 of what has none."""
    found = np.zeros((len(number), values.shape[1]), values.dtype)
    found[number >= 0] = values[number[number >= 0]]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """Holders of units (down) and minutes (across)."""

    parts: Floats  # seconds that were theirs, weighted
    known: Bools
    measured: Bools
    used: Floats

    def idle(self, first: int, after: float) -> tuple[Floats, Floats]:
        """Weighted seconds from minute `first` on, and those before it, by row."""
        on, begins, ends, share = self._minutes()
        size = on.shape[1]
        where = np.nonzero(on.ravel())[0]
        row, minute = np.divmod(where, size)
        spell = np.cumsum(begins.ravel()[where])
        seconds = (self._lasted() * np.where(share < 0, 1.0, share)).ravel()[where]
        idle = (self.parts * np.maximum(share, 0.0)).ravel()[where]
        # How much of its last minute was idle is told by the minute after it, and so by the next quarter.
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
        """Which minutes belong to a spell, begin or end one, and the idle part of each; below 0 for unknown ones."""
        held = self.parts > 0
        still = held & self.measured & (self.used < QUIET_BELOW)
        bridged = _bridged(still, held & ~self.known)
        whole = still | bridged
        busy = held & self.measured & ~still
        starts = busy & _next(still) & ~_last(whole)
        ends = busy & _last(whole) & ~_next(whole)
        ends[:, -1] = False
        level = np.where(starts, _last(busy) * _last(self.used), _next(busy) * _next(self.used))
        # Without a minute beside it nobody knows: half of it in the mean.
        part = np.full(level.shape, 0.5)
        np.divide(self.used, level, out=part, where=level > 0)
        part = 1.0 - part
        part[part < _LEAST_PART] = 0.0
        share = np.where(still, 1.0, np.where(bridged, -np.inf, part))
        on = whole | starts | ends
        return on, on & (starts | ~_last(on)), ends, share

    def _lasted(self) -> Floats:
        """Seconds of each minute in which it was held, whatever part of the unit that is."""
        most = np.maximum(np.maximum(_last(self.parts), _next(self.parts)), self.parts)
        found: Floats = 60.0 * np.divide(self.parts, most, out=np.zeros_like(most), where=most > 0)
        return found


def _bridged(still: Bools, missing: Bools) -> Bools:
    """Of minutes of which nothing is known those that follow a still one closely."""
    column = np.arange(still.shape[1])
    # None is before the first minute: then it is that one, which is missing itself.
    last = np.maximum.accumulate(np.where(missing, 0, column), axis=1)
    after_still = np.take_along_axis(still, last, axis=1)
    found: Bools = missing & after_still & (column - last <= _GAP_MINUTES)
    return found


def _last(values: _Values) -> _Values:
    """Of each minute what the one before it is."""
    found = np.zeros_like(values)
    found[:, 1:] = values[:, :-1]
    return found


def _next(values: _Values) -> _Values:
    """Of each minute what the one after it is."""
    found = np.zeros_like(values)
    found[:, :-1] = values[:, 1:]
    return found
