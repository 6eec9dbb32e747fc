"""Dense arrays of steps and subjects: what is left of lines once it is known what will be asked.

Steps lie in a ring. Beside each step's cells stand those of each whole block of steps, worked out
when they are first asked for and again when a late line changed them: a span of many steps is a
few blocks and what sticks out of them.
"""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuvigil.metrics import Measurement
from gpuvigil.store import Aggregate, Function

Numbers = npt.NDArray[Any]
# Values and which of them were measured; None when all were.
Measured = tuple[Numbers, Numbers | None]
# Steps in a block.
_BLOCK = 12

NEVER = np.iinfo(np.int64).min
_FOREVER = np.iinfo(np.int64).max
_LEAST: Mapping[type, Any] = {np.int64: NEVER, np.float64: -np.inf}
_MOST: Mapping[type, Any] = {np.int64: _FOREVER, np.float64: np.inf}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Lines of one measurement as arrays of one length; subjects and steps are numbers."""

    subjects: Numbers
    at_us: Numbers
    steps: Numbers
    columns: Mapping[str, Measured]

    def __len__(self) -> int:
        return len(self.steps)

    def where(self, chosen: Numbers | slice) -> "Lines":
        """Those of a mask, or of places in this order."""
        return Lines(
            subjects=self.subjects[chosen],
            at_us=self.at_us[chosen],
            steps=self.steps[chosen],
            columns={
                name: (values[chosen], None if valid is None else valid[chosen])
                for name, (values, valid) in self.columns.items()
            },
        )

    def in_order(self) -> "Lines":
        """By subject, then time; of equal times what came first stays first."""
        return self.where(np.lexsort((self.at_us, self.subjects)))

    def by(self, keys: Numbers) -> Iterator[tuple[int, "Lines"]]:
        """Those of each key together."""
        order = np.argsort(keys, kind="stable")
        ordered, keys = self.where(order), keys[order]
        changes = np.append(True, keys[1:] != keys[:-1]) if len(keys) else keys
        begins = [int(it) for it in np.flatnonzero(changes)]
        for begin, end in zip(begins, [*begins[1:], len(keys)], strict=True):
            yield int(keys[begin]), ordered.where(slice(begin, end))


@dataclass(slots=True)
class _Field:
    """One field by step and subject; arrays that nobody asks for are empty."""

    kind: type
    parts: frozenset[str]
    arrays: dict[str, Numbers] = field(default_factory=dict)
    blocks: dict[str, Numbers] = field(default_factory=dict)  # the same of whole blocks

    def blank(self, part: str) -> Any:
        """What stands in a cell without a value."""
        return {
            "count": 0,
            "sum": 0.0,
            "min": _MOST[self.kind],
            "max": _LEAST[self.kind],
            "first_us": _FOREVER,
            "last_us": NEVER,
        }.get(part, 0)

    def type(self, part: str) -> type:
        if part in {"first_us", "last_us"}:
            return np.int64
        return {"count": np.int32, "sum": np.float64, "held": np.bool_}.get(part, self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """A span, by subject: its lines, and the aggregates."""

    samples: Numbers
    first_us: Numbers
    last_us: Numbers
    values: Mapping[Aggregate, Measured]


_PARTS: Mapping[Function, tuple[str, ...]] = {
    Function.COUNT: ("count",),
    Function.MEAN: ("count", "sum"),
    Function.MIN: ("count", "min"),
    Function.MAX: ("count", "max"),
    Function.FIRST: ("count", "first", "first_us"),
    Function.LAST: ("count", "last", "last_us"),
    Function.INCREASE: ("count", "min", "max"),
}
# The line that was the newest in its step, for `Store.latest`.
_NEWEST = ("newest", "held")


class Cells:
    """A ring of steps; which subject a column stands for is known elsewhere.

    `keep` steps can be asked for, `ahead` more may be filled before their time.
    """

    def __init__(
        self,
        catalogue: Measurement,
        newest: Collection[str],
        aggregates: Collection[Aggregate],
        keep: int,
        ahead: int,
    ) -> None:
        self._keep = keep  # steps that the longest span has
        self._steps = (-(-(keep + ahead + 2) // _BLOCK) + 1) * _BLOCK
        # Which block its cells were worked out for; none while they are not as the steps say.
        self._worked: Numbers = np.full(self._steps // _BLOCK, NEVER, np.int64)
        # What whole blocks came to, by part and blocks, for as long as none is worked out anew.
        self._whole: dict[tuple[int, str, int, int], Numbers] = {}
        self._width = 0
        self.first: int | None = None  # the oldest step with a line
        self._floor: int | None = None  # older ones are not kept any more
        parts: dict[str, set[str]] = {name: set(_NEWEST) for name in newest}
        for it in aggregates:
            parts.setdefault(it.field, set()).update(_PARTS[it.function])
        self.fields = {
            name: _Field(
                kind=np.int64 if catalogue.metric(name).integer else np.float64,
                parts=frozenset(them),
            )
            for name, them in parts.items()
        }
        self._lines = _Field(kind=np.int64, parts=frozenset({"count", "first_us", "last_us"}))
        self._newest: dict[str, tuple[Numbers, Numbers]] = {}
        self.newest_us: Numbers = np.empty(0, np.int64)
        self._names = tuple(newest)

    def grow(self, subjects: int) -> None:
        """Room for so many subjects."""
        if subjects <= self._width:
            return
        width = max(subjects, 2 * self._width)
        for it in (self._lines, *self.fields.values()):
            for part in it.parts:
                array: Numbers = np.full((self._steps, width), it.blank(part), it.type(part))
                if part in it.arrays:
                    array[:, : self._width] = it.arrays[part]
                it.arrays[part] = array
                if part not in _NEWEST:
                    it.blocks[part] = np.full(
                        (len(self._worked), width), it.blank(part), it.type(part)
                    )
        self._worked[:] = NEVER
        self._whole.clear()
        longer = np.full(width, NEVER, np.int64)
        longer[: self._width] = self.newest_us
        self.newest_us = longer
        for name in self._names:
            values: Numbers = np.zeros(width, self.fields[name].kind)
            held = np.zeros(width, np.bool_)
            if name in self._newest:
                values[: self._width], held[: self._width] = self._newest[name]
            self._newest[name] = (values, held)
        self._width = width

    def add(self, lines: Lines) -> None:
        """Lines into their cells; of equal times in one cell the last one counts as newer."""
        if self._floor is not None:
            # What is older than every span is not asked for any more.
            young = lines.steps >= self._floor
            lines = lines if young.all() else lines.where(young)
        if not len(lines):
            return
        oldest = int(lines.steps.min())
        self.first = oldest if self.first is None else min(self.first, oldest)
        if int(lines.steps.max()) - self.first >= self._steps:
            raise ValueError("lines come earlier than was said")
        places = (lines.steps % self._steps) * self._width + lines.subjects
        order = _order(places, lines.at_us)
        if order is not None:
            places, lines = places[order], lines.where(order)
        self._worked[np.unique(lines.steps // _BLOCK) % len(self._worked)] = NEVER
        self._newest_of(places, lines)
        self._put_all(places, lines)

    def _put_all(self, places: Numbers, lines: Lines) -> None:
        groups = _Groups.of(places)
        _put(self._lines, groups, lines.at_us, lines.at_us)
        for name, (values, valid) in lines.columns.items():
            it = self.fields[name]
            if not it.blocks:
                continue
            if valid is None or valid.all():
                _put(it, groups, values, lines.at_us)
            elif valid.any():
                _put(it, _Groups.of(places[valid]), values[valid], lines.at_us[valid])

    def _newest_of(self, places: Numbers, lines: Lines) -> None:
        """The newest line of each cell as it is, also where a field was not measured."""
        last = np.flatnonzero(np.append(places[1:] != places[:-1], True))
        known = self._lines.arrays["last_us"].reshape(-1)
        last = last[lines.at_us[last] >= known[places[last]]]
        for name in self._names:
            arrays = self.fields[name].arrays
            cells = (arrays["newest"].reshape(-1), arrays["held"].reshape(-1))
            _copy(lines.columns.get(name), last, cells, places[last])

    def say_newest(self, lines: Lines) -> None:
        """Lines in order that are known before their time, since their node's clock is fast."""
        last = np.flatnonzero(np.append(lines.subjects[1:] != lines.subjects[:-1], True))
        last = last[lines.at_us[last] >= self.newest_us[lines.subjects[last]]]
        places = lines.subjects[last]
        self.newest_us[places] = lines.at_us[last]
        for name in self._names:
            _copy(lines.columns.get(name), last, self._newest[name], places)

    def pass_over(self, step: int) -> None:
        """A step is over: its lines may be the newest ones."""
        if not self._width:
            return
        row = step % self._steps
        last_us = self._lines.arrays["last_us"][row]
        mask = (self._lines.arrays["count"][row] > 0) & (last_us >= self.newest_us)
        self.newest_us = np.where(mask, last_us, self.newest_us)
        for name in self._names:
            values, held = self._newest[name]
            arrays = self.fields[name].arrays
            values[mask] = arrays["newest"][row][mask]
            held[mask] = arrays["held"][row][mask]

    def newest(self, name: str) -> tuple[Numbers, Numbers]:
        """A field of every subject's newest line."""
        if name not in self._newest:
            return np.zeros(self._width), np.zeros(self._width, np.bool_)
        return self._newest[name]

    def forget(self, step: int) -> None:
        """Empty the rows of the ring that are needed next: what lies a whole ring back."""
        self._floor = step - self._keep
        if self.first is None:
            return
        for passed in range(self.first, min(self._floor, self.first + self._steps)):
            for it in (self._lines, *self.fields.values()):
                for part, array in it.arrays.items():
                    array[passed % self._steps] = it.blank(part)
            self._worked[passed // _BLOCK % len(self._worked)] = NEVER
        self.first = max(self.first, self._floor)

    def reduce(self, wanted: Sequence[Aggregate], first: int, last: int) -> Reduced:
        """The aggregates over the steps `[first, last)`."""
        if not self._width:
            return _nothing(wanted)
        first = max(first, self.first if self.first is not None else last)
        over = self._over(min(first, last), last)
        values: dict[Aggregate, Measured] = {}
        known: dict[tuple[str, str], Numbers] = {}

        def part(name: str, part: str) -> Numbers:
            if (name, part) not in known:
                known[name, part] = over(self.fields[name], part)
            return known[name, part]

        for it in wanted:
            values[it] = _aggregate(it.function, partial(part, it.field))
        return Reduced(
            samples=over(self._lines, "count").astype(np.int64),
            first_us=over(self._lines, "first_us"),
            last_us=over(self._lines, "last_us"),
            values=values,
        )

    def _over(self, first: int, last: int) -> Callable[[_Field, str], Numbers]:
        """A part over the steps `[first, last)`, by subject: whole blocks and what is beside them."""
        begin, end = -(-first // _BLOCK), last // _BLOCK
        if begin >= end:
            begin = end = 0
            steps = _in_ring(first, last, self._steps)
        else:
            steps = _in_ring(first, begin * _BLOCK, self._steps)
            steps += _in_ring(end * _BLOCK, last, self._steps)
        for block in range(begin, end):
            if self._worked[block % len(self._worked)] != block:
                self._work_out(block)
        blocks = _in_ring(begin, end, len(self._worked))

        def over(it: _Field, part: str) -> Numbers:
            if part in _TIME_OF:
                return _at_the_end(it, part, steps, blocks)
            key = (id(it), part, begin, end)
            whole = self._whole.get(key)
            if whole is None:
                whole = self._whole[key] = _reduced(it, part, it.blocks[part], blocks)
            found: Numbers = _REDUCE[part](whole, _reduced(it, part, it.arrays[part], steps))
            return found

        return over

    def _work_out(self, block: int) -> None:
        """The cells of a whole block from those of its steps."""
        self._whole.clear()
        rows = _in_ring(block * _BLOCK, (block + 1) * _BLOCK, self._steps)
        place = block % len(self._worked)
        for it in (self._lines, *self.fields.values()):
            for part, cells in it.blocks.items():
                if part in _TIME_OF:
                    cells[place] = _at_the_end(it, part, rows, [])
                else:
                    cells[place] = _REDUCE[part].reduce(it.arrays[part][rows[0]], axis=0)
        self._worked[place] = block


def _in_ring(first: int, last: int, size: int) -> list[slice]:
    """Where `[first, last)` lies in a ring."""
    if first >= last:
        return [slice(0, 0)]
    begin, end = first % size, (last - 1) % size + 1
    return [slice(begin, end)] if begin < end else [slice(begin, size), slice(0, end)]


def _nothing(wanted: Sequence[Aggregate]) -> Reduced:
    none = np.empty(0, np.int64)
    return Reduced(
        samples=none, first_us=none, last_us=none, values=dict.fromkeys(wanted, (none, None))
    )


def _copy(
    column: Measured | None, rows: Numbers, cells: tuple[Numbers, Numbers], places: Numbers
) -> None:
    """A column's values of some rows to their places; one that is absent was not measured."""
    values, held = cells
    if column is None:
        held[places] = False
        return
    values[places] = column[0][rows]
    held[places] = True if column[1] is None else column[1][rows]


def _order(places: Numbers, at_us: Numbers) -> Numbers | None:
    """By place, then time; None when they are so already, each place once."""
    if (places[1:] > places[:-1]).all():
        return None
    # Lines come in the order of time, which is nearly that of places.
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    if (ordered[1:] > ordered[:-1]).all():
        return order
    return np.lexsort((at_us, places))


@dataclass(frozen=True, slots=True)
class _Groups:
    """Lines in the order of place and time, by cell."""

    cells: Numbers
    begins: Numbers | None  # None when each cell has one line
    lines: int

    @classmethod
    def of(cls, places: Numbers) -> "_Groups":
        begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
        if len(begins) == len(places):
            return cls(places, None, len(places))
        return cls(places[begins], begins, len(places))

    def reduced(self, reduce: np.ufunc, values: Numbers) -> Numbers:
        """One value for each cell."""
        found: Numbers = values if self.begins is None else reduce.reduceat(values, self.begins)
        return found

    def first(self, values: Numbers) -> Numbers:
        found: Numbers = values if self.begins is None else values[self.begins]
        return found

    def last(self, values: Numbers) -> Numbers:
        if self.begins is None:
            return values
        found: Numbers = values[np.append(self.begins[1:], self.lines) - 1]
        return found

    def counts(self) -> Any:
        """How many lines each cell has."""
        if self.begins is None:
            return 1
        return np.diff(np.append(self.begins, self.lines)).astype(np.int32)


def _put(it: _Field, groups: _Groups, values: Numbers, at_us: Numbers) -> None:
    """Values in the order of place and time into their cells."""
    cells = groups.cells
    flat = {part: array.reshape(-1) for part, array in it.arrays.items()}
    if "min" in flat:
        flat["min"][cells] = np.minimum(flat["min"][cells], groups.reduced(np.minimum, values))
    if "max" in flat:
        flat["max"][cells] = np.maximum(flat["max"][cells], groups.reduced(np.maximum, values))
    if "sum" in flat:
        flat["sum"][cells] += groups.reduced(np.add, values.astype(np.float64))
    first_us, last_us = groups.first(at_us), groups.last(at_us)
    if "first" in flat:
        older = first_us < flat["first_us"][cells]
        flat["first"][cells[older]] = groups.first(values)[older]
    if "last" in flat:
        newer = last_us >= flat["last_us"][cells]
        flat["last"][cells[newer]] = groups.last(values)[newer]
    if "first_us" in flat:
        flat["first_us"][cells] = np.minimum(flat["first_us"][cells], first_us)
    if "last_us" in flat:
        flat["last_us"][cells] = np.maximum(flat["last_us"][cells], last_us)
    flat["count"][cells] += groups.counts()


_REDUCE: Mapping[str, np.ufunc] = {
    "count": np.add,
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "first_us": np.minimum,
    "last_us": np.maximum,
}


def _aggregate(function: Function, part: Callable[[str], Numbers]) -> Measured:
    count = part("count")
    if function is Function.COUNT:
        return count.astype(np.int64), None
    valid = count > 0
    if function is Function.MEAN:
        return part("sum") / np.maximum(count, 1), valid
    if function is Function.INCREASE:
        with np.errstate(over="ignore", invalid="ignore"):
            increase = part("max") - part("min")
        # A difference of two 64-bit numbers that does not fit into one wraps round.
        return increase, valid & (increase >= 0)
    return part(function.value), valid


def _reduced(it: _Field, part: str, array: Numbers, places: Sequence[slice]) -> Numbers:
    """One row of several; the initial value is what an empty cell has, so that none is one, too."""
    reduce, blank = _REDUCE[part], it.blank(part)
    found = [reduce.reduce(array[rows], axis=0, initial=blank) for rows in places]
    one: Numbers = functools.reduce(reduce, found)
    return one


# The oldest and the newest value: that of the cell with such a time.
_TIME_OF: Mapping[str, str] = {"first": "first_us", "last": "last_us"}


def _at_the_end(it: _Field, part: str, steps: Sequence[slice], blocks: Sequence[slice]) -> Numbers:
    time = _TIME_OF[part]
    pieces = [(it.arrays, rows) for rows in steps] + [(it.blocks, rows) for rows in blocks]
    times = np.concatenate([arrays[time][rows] for arrays, rows in pieces])
    values = np.concatenate([arrays[part][rows] for arrays, rows in pieces])
    if not len(times):
        return np.zeros(values.shape[1], it.kind)
    row = times.argmin(axis=0) if part == "first" else times.argmax(axis=0)
    found: Numbers = values[row, np.arange(values.shape[1])]
    return found
