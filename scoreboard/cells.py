"""Dense arrays of steps and subjects: what is left of lines once it is known what will be asked."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuvigil.metrics import Measurement
from gpuvigil.store import Aggregate, Function

Numbers = npt.NDArray[Any]
# Values and which of them were measured; None when all were.
Measured = tuple[Numbers, Numbers | None]

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
        self._steps = keep + ahead + 2
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
        """Lines in the order of subject and time into their cells."""
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
        self._newest_of(places, lines)
        _put(self._lines, places, lines.at_us, lines.at_us)
        for name, (values, valid) in lines.columns.items():
            it = self.fields[name]
            if it.parts <= set(_NEWEST):
                continue
            if valid is None:
                _put(it, places, values, lines.at_us)
            elif valid.any():
                _put(it, places[valid], values[valid], lines.at_us[valid])

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
        self.first = max(self.first, self._floor)

    def reduce(self, wanted: Sequence[Aggregate], first: int, last: int) -> Reduced:
        """The aggregates over the steps `[first, last)`."""
        if not self._width:
            return _nothing(wanted)
        first = max(first, self.first if self.first is not None else last)
        rows = [slice(0, 0)]
        if first < last:
            begin, end = first % self._steps, (last - 1) % self._steps + 1
            rows = (
                [slice(begin, end)] if begin < end else [slice(begin, self._steps), slice(0, end)]
            )
        lines = self._lines
        values = {it: _aggregate(it.function, self.fields[it.field], rows) for it in wanted}
        return Reduced(
            samples=_over(lines, "count", rows).astype(np.int64),
            first_us=_over(lines, "first_us", rows),
            last_us=_over(lines, "last_us", rows),
            values=values,
        )


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


def _put(it: _Field, places: Numbers, values: Numbers, at_us: Numbers) -> None:
    """Values in the order of place and time into their cells."""
    begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
    cells = places[begins]
    ends = np.append(begins[1:], len(places))
    flat = {part: array.reshape(-1) for part, array in it.arrays.items()}
    if "min" in flat:
        flat["min"][cells] = np.minimum(flat["min"][cells], np.minimum.reduceat(values, begins))
    if "max" in flat:
        flat["max"][cells] = np.maximum(flat["max"][cells], np.maximum.reduceat(values, begins))
    if "sum" in flat:
        flat["sum"][cells] += np.add.reduceat(values.astype(np.float64), begins)
    first_us, last_us = at_us[begins], at_us[ends - 1]
    if "first" in flat:
        older = first_us < flat["first_us"][cells]
        flat["first"][cells[older]] = values[begins[older]]
    if "last" in flat:
        newer = last_us >= flat["last_us"][cells]
        flat["last"][cells[newer]] = values[ends[newer] - 1]
    if "first_us" in flat:
        flat["first_us"][cells] = np.minimum(flat["first_us"][cells], first_us)
    if "last_us" in flat:
        flat["last_us"][cells] = np.maximum(flat["last_us"][cells], last_us)
    flat["count"][cells] += (ends - begins).astype(np.int32)


_REDUCE: Mapping[str, np.ufunc] = {
    "count": np.add,
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "first_us": np.minimum,
    "last_us": np.maximum,
}


def _over(it: _Field, part: str, rows: Sequence[slice]) -> Numbers:
    """A part over the rows, by subject."""
    array, reduce = it.arrays[part], _REDUCE[part]
    # The initial value is what an empty cell has, so that no row at all is one, too.
    blank = it.blank(part)
    found: list[Numbers] = [reduce.reduce(array[it], axis=0, initial=blank) for it in rows]
    joined: Numbers = found[0] if len(found) == 1 else reduce(*found)
    return joined


def _aggregate(function: Function, it: _Field, rows: Sequence[slice]) -> Measured:
    count = _over(it, "count", rows)
    if function is Function.COUNT:
        return count.astype(np.int64), None
    valid = count > 0
    if function is Function.MEAN:
        return _over(it, "sum", rows) / np.maximum(count, 1), valid
    if function in {Function.MIN, Function.MAX}:
        return _over(it, function.value, rows), valid
    if function is Function.INCREASE:
        with np.errstate(over="ignore", invalid="ignore"):
            increase = _over(it, "max", rows) - _over(it, "min", rows)
        # A difference of two 64-bit numbers that does not fit into one wraps round.
        return increase, valid & (increase >= 0)
    return _at_the_end(function.value, it, rows), valid


def _at_the_end(which: str, it: _Field, rows: Sequence[slice]) -> Numbers:
    """The oldest or the newest value of each subject: that of the cell with such a time."""
    times = np.concatenate([it.arrays[f"{which}_us"][them] for them in rows])
    values = np.concatenate([it.arrays[which][them] for them in rows])
    if not len(times):
        return np.zeros(values.shape[1], it.kind)
    row = times.argmin(axis=0) if which == "first" else times.argmax(axis=0)
    found: Numbers = values[row, np.arange(values.shape[1])]
    return found
