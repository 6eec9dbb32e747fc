"""Dense arrays of steps and subjects: lines reduced to what will be asked of them.

Steps form a ring. Beside each step's cells are those of each whole block of steps, computed when first
asked for and again after a late line changed them: a span of many steps is a few blocks and the steps
beside them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuvigil.metrics import Measurement
from gpuvigil.store import Aggregate, Function

from .tables import (
    LINES,
    NEVER,
    NEWEST,
    PARTS,
    REDUCE,
    TIME_OF,
    Field,
    Kind,
    Numbers,
    Table,
    fields_of,
    tables_of,
)

# Values and which of them were measured; None when all were.
Measured = tuple[Numbers, Numbers | None]
# Steps in a block.
_BLOCK = 12
_OF_LINES = {"samples": "count", "first_at": "first_us", "last_at": "last_us"}


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
        """Return the lines of a mask, or at these places in this order."""
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
        """Return the lines by subject, then time; lines at equal times keep their order."""
        return self.where(np.lexsort((self.at_us, self.subjects)))

    def by(self, keys: Numbers) -> Iterator[tuple[int, "Lines"]]:
        """Yield each key with its lines."""
        order = np.argsort(keys, kind="stable")
        ordered, keys = self.where(order), keys[order]
        changes = np.append(True, keys[1:] != keys[:-1]) if len(keys) else keys
        begins = [int(it) for it in np.flatnonzero(changes)]
        for begin, end in zip(begins, [*begins[1:], len(keys)], strict=True):
            yield int(keys[begin]), ordered.where(slice(begin, end))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """A span by subject: its lines, and the parts of its fields; read-only."""

    parts: Mapping[tuple[str, str], Numbers]

    @property
    def samples(self) -> Numbers:
        return self.parts[LINES, "count"]

    def column(self, name: str) -> Measured:
        """Return a column of the lines themselves: `samples`, `first_at` or `last_at`."""
        return self.parts[LINES, _OF_LINES[name]].astype(np.int64, copy=False), None

    def aggregate(self, it: Aggregate) -> Measured:
        """Return one aggregate, computed now: in most passes nobody looks at most of them."""
        return _aggregate(it.function, it.field, self.parts)


class Cells:
    """A ring of steps; the caller knows which subject a column stands for.

    `asked` has the aggregates of each span. `keep` steps can be asked for, and `ahead` more may be filled
    before their time.
    """

    def __init__(
        self,
        catalogue: Measurement,
        newest: Collection[str],
        asked: Sequence[Collection[Aggregate]],
        keep: int,
        ahead: int,
    ) -> None:
        self._keep = keep  # steps of the longest span
        self._steps = (-(-(keep + ahead + 2) // _BLOCK) + 1) * _BLOCK
        # The block that each place was computed for; `NEVER` while it differs from its steps.
        self._worked: Numbers = np.full(self._steps // _BLOCK, NEVER, np.int64)
        # Results over whole blocks, by part, fields and blocks, until one is computed anew.
        self._whole: dict[tuple[Kind, int, int, int, int], Numbers] = {}
        self._width = 0
        self.first: int | None = None  # the oldest step with a line
        self._floor: int | None = None  # older steps are no longer kept
        self.fields, self._lines = fields_of(catalogue, newest, asked)
        self._tables = tables_of({LINES: self._lines, **self.fields})
        self._plans: dict[tuple[Aggregate, ...], _Plan] = {}
        # The values of every subject's newest line, and by field.
        self._latest: dict[Kind, Numbers] = {}
        self._newest: dict[str, tuple[Numbers, Numbers]] = {}
        self.newest_us: Numbers = np.empty(0, np.int64)
        self._names = tuple(newest)

    def grow(self, subjects: int) -> None:
        """Make room for so many subjects."""
        if subjects <= self._width:
            return
        before, width = self._width, max(subjects, 2 * self._width)
        for key, table in self._tables.items():
            is_newest = table.part in NEWEST
            table.grow(self._steps, 0 if is_newest else len(self._worked), width)
            if is_newest:
                latest: Numbers = np.zeros((len(table.places), width), table.kind)
                if before:
                    latest[:, :before] = self._latest[key]
                self._latest[key] = latest
            for name, place in table.places.items():
                it = self._lines if name == LINES else self.fields[name]
                it.arrays[table.part] = table.cells[place]
                if not is_newest:
                    it.blocks[table.part] = table.blocks[place]
        for name in self._names:
            kinds = (("newest", self.fields[name].kind), ("held", np.bool_))
            values, held = (self._latest[key][self._tables[key].places[name]] for key in kinds)
            self._newest[name] = (values, held)
        self._worked[:] = NEVER
        self._whole.clear()
        longer = np.full(width, NEVER, np.int64)
        longer[:before] = self.newest_us
        self.newest_us = longer
        self._width = width

    def add(self, lines: Lines) -> None:
        """Put lines into their cells; of equal times in one cell the last one counts as newer."""
        if self._floor is not None:
            # Steps older than every span are no longer asked for.
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
        """Keep the newest line of each cell as it is, also where a field was not measured."""
        last = np.flatnonzero(np.append(places[1:] != places[:-1], True))
        known = self._lines.arrays["last_us"].reshape(-1)
        last = last[lines.at_us[last] >= known[places[last]]]
        for name in self._names:
            arrays = self.fields[name].arrays
            cells = (arrays["newest"].reshape(-1), arrays["held"].reshape(-1))
            _copy(lines.columns.get(name), last, cells, places[last])

    def say_newest(self, lines: Lines) -> None:
        """Take lines, in order, that are known before their time because their node's clock is fast."""
        last = np.flatnonzero(np.append(lines.subjects[1:] != lines.subjects[:-1], True))
        last = last[lines.at_us[last] >= self.newest_us[lines.subjects[last]]]
        places = lines.subjects[last]
        self.newest_us[places] = lines.at_us[last]
        for name in self._names:
            _copy(lines.columns.get(name), last, self._newest[name], places)

    def pass_over(self, step: int) -> None:
        """Pass a step: its lines may be the newest ones, unless they came so late that none was kept."""
        if not self._width or (self._floor is not None and step < self._floor):
            return
        row = step % self._steps
        last_us = self._lines.arrays["last_us"][row]
        mask = (self._lines.arrays["count"][row] > 0) & (last_us >= self.newest_us)
        self.newest_us = np.where(mask, last_us, self.newest_us)
        for key, latest in self._latest.items():
            np.copyto(latest, self._tables[key].cells[:, row], where=mask)

    def newest(self, subjects: Numbers | slice) -> dict[str, tuple[Numbers, Numbers]]:
        """Return every field of these subjects' newest lines, and whether it was measured; copies."""
        if not self._width:
            return {name: (np.zeros(0), np.zeros(0, np.bool_)) for name in self._names}
        copies = {key: latest[:, subjects].copy() for key, latest in self._latest.items()}
        held = ("held", np.bool_)
        found = {}
        for name in self._names:
            key = ("newest", self.fields[name].kind)
            value, measured = (self._tables[it].places[name] for it in (key, held))
            found[name] = (copies[key][value], copies[held][measured])
        return found

    def forget(self, step: int) -> None:
        """Empty the rows of the ring that are needed next, in whole blocks."""
        self._floor = step - self._keep
        if self.first is None:
            return
        over = self._floor // _BLOCK * _BLOCK
        if over <= self.first:
            return
        for rows in _in_ring(self.first, min(over, self.first + self._steps), self._steps):
            for table in self._tables.values():
                table.cells[:, rows] = table.blank
        gone = np.arange(self.first, over) // _BLOCK
        self._worked[np.unique(gone) % len(self._worked)] = NEVER
        self.first = over

    def reduce(self, wanted: Sequence[Aggregate], first: int, last: int) -> Reduced:
        """Return the aggregates over the steps `[first, last)`."""
        if not self._width:
            return Reduced(parts=defaultdict(_none))
        first = max(first, self.first if self.first is not None else last)
        span = self._span(min(first, last), last)
        found: dict[tuple[str, str], Numbers] = {}
        for table, runs in self._plan(wanted):
            for fields, names in runs:
                reduced = self._over(table, fields, span)
                found.update({(name, table.part): reduced[n] for n, name in enumerate(names)})
        for it in wanted:
            name, part = it.field, it.function.value
            if part in TIME_OF:
                told = found[name, "count"] > 0
                pieces = span.pieces(self.fields[name])
                found[name, part] = _at_the_end(self.fields[name], part, pieces, told)
        return Reduced(parts=found)

    def _plan(self, wanted: Sequence[Aggregate]) -> "_Plan":
        """Return which fields of which tables are asked for; cached, since nothing changes it."""
        key = tuple(wanted)
        if key not in self._plans:
            parts = {(it.field, part) for it in wanted for part in PARTS[it.function]}
            parts |= {(LINES, part) for part in self._lines.parts}
            plan = []
            for table in self._tables.values():
                names = {name for name in table.places if (name, table.part) in parts}
                if names and table.part in REDUCE:
                    plan.append((table, table.runs(names)))
            self._plans[key] = plan
        return self._plans[key]

    def _over(self, table: Table, fields: slice, span: "_Span") -> Numbers:
        """Return some fields of a table over a span, by subject."""
        key = (table.key, fields.start, fields.stop, span.begin, span.end)
        whole = self._whole.get(key)
        if whole is None:
            whole = self._whole[key] = table.reduced(table.blocks, fields, span.blocks)
        beside = table.reduced(table.cells, fields, [*span.before, *span.after])
        found: Numbers = REDUCE[table.part](whole, beside)
        return found

    def _span(self, first: int, last: int) -> "_Span":
        """Return the span `[first, last)`: computed whole blocks, and the steps beside them."""
        begin, end = -(-first // _BLOCK), last // _BLOCK
        if begin >= end:
            return _Span(0, 0, _in_ring(first, last, self._steps), [slice(0, 0)], [])
        for block in range(begin, end):
            if self._worked[block % len(self._worked)] != block:
                self._work_out(block)
        before = _in_ring(first, begin * _BLOCK, self._steps)
        after = _in_ring(end * _BLOCK, last, self._steps)
        return _Span(begin, end, before, _in_ring(begin, end, len(self._worked)), after)

    def _work_out(self, block: int) -> None:
        """Compute the cells of a whole block from those of its steps."""
        self._whole.clear()
        (rows,) = _in_ring(block * _BLOCK, (block + 1) * _BLOCK, self._steps)
        place = block % len(self._worked)
        for table in self._tables.values():
            if table.part in REDUCE:
                steps = table.cells[:, rows]
                REDUCE[table.part].reduce(
                    steps, axis=1, dtype=table.kind, out=table.blocks[:, place]
                )
        for it in self.fields.values():
            for part in it.parts & TIME_OF:
                told = it.blocks["count"][place] > 0
                it.blocks[part][place] = _at_the_end(it, part, [(it.arrays, rows)], told)
        self._worked[place] = block


@dataclass(frozen=True, slots=True)
class _Span:
    """The parts of a span: whole blocks, and the steps before and after them, in order."""

    begin: int  # of the blocks, as block numbers
    end: int
    before: Sequence[slice]
    blocks: Sequence[slice]
    after: Sequence[slice]

    def pieces(self, it: Field) -> "list[_Piece]":
        """Return the field's arrays of all parts, oldest first."""
        return [
            *((it.arrays, rows) for rows in self.before),
            *((it.blocks, rows) for rows in self.blocks),
            *((it.arrays, rows) for rows in self.after),
        ]


_Piece = tuple[Mapping[str, Numbers], slice]
_Plan = list[tuple[Table, list[tuple[slice, list[str]]]]]


def _in_ring(first: int, last: int, size: int) -> list[slice]:
    """Return where `[first, last)` is in a ring."""
    if first >= last:
        return [slice(0, 0)]
    begin, end = first % size, (last - 1) % size + 1
    return [slice(begin, end)] if begin < end else [slice(begin, size), slice(0, end)]


def _none() -> Numbers:
    return np.empty(0, np.int64)


def _copy(
    column: Measured | None, rows: Numbers, cells: tuple[Numbers, Numbers], places: Numbers
) -> None:
    """Copy a column's values of some rows to their places; a missing column was not measured."""
    values, held = cells
    if column is None:
        held[places] = False
        return
    values[places] = column[0][rows]
    held[places] = True if column[1] is None else column[1][rows]


def _order(places: Numbers, at_us: Numbers) -> Numbers | None:
    """Return the order by place, then time; None when they are in order already, each place once."""
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
    ends: Numbers | None  # the last line of each cell
    counts: Any  # number of lines per cell

    @classmethod
    def of(cls, places: Numbers) -> "_Groups":
        begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
        if len(begins) == len(places):
            return cls(places, None, None, 1)
        ends = np.append(begins[1:], len(places)) - 1
        return cls(places[begins], begins, ends, (ends - begins + 1).astype(np.int32))

    def reduced(self, reduce: np.ufunc, values: Numbers) -> Numbers:
        """Return one value for each cell."""
        found: Numbers = values if self.begins is None else reduce.reduceat(values, self.begins)
        return found

    def first(self, values: Numbers) -> Numbers:
        found: Numbers = values if self.begins is None else values[self.begins]
        return found

    def last(self, values: Numbers) -> Numbers:
        found: Numbers = values if self.ends is None else values[self.ends]
        return found


def _put(it: Field, groups: _Groups, values: Numbers, at_us: Numbers) -> None:
    """Put values in the order of place and time into their cells."""
    cells = groups.cells
    flat = {part: array.reshape(-1) for part, array in it.arrays.items()}
    if "min" in flat:
        flat["min"][cells] = np.minimum(flat["min"][cells], groups.reduced(np.minimum, values))
    if "max" in flat:
        flat["max"][cells] = np.maximum(flat["max"][cells], groups.reduced(np.maximum, values))
    if "sum" in flat:
        flat["sum"][cells] += groups.reduced(np.add, values.astype(np.float64))
    if "first" in flat:
        older = groups.first(at_us) < flat["first_us"][cells]
        flat["first"][cells[older]] = groups.first(values)[older]
    if "last" in flat:
        newer = groups.last(at_us) >= flat["last_us"][cells]
        flat["last"][cells[newer]] = groups.last(values)[newer]
    if "first_us" in flat:
        flat["first_us"][cells] = np.minimum(flat["first_us"][cells], groups.first(at_us))
    if "last_us" in flat:
        flat["last_us"][cells] = np.maximum(flat["last_us"][cells], groups.last(at_us))
    flat["count"][cells] += groups.counts


def _aggregate(function: Function, name: str, found: Mapping[tuple[str, str], Numbers]) -> Measured:
    """Return one aggregate of a field from its parts in `found`."""
    count = found[name, "count"]
    if function is Function.COUNT:
        return count.astype(np.int64), None
    valid = count > 0
    if function is Function.MEAN:
        return found[name, "sum"] / np.maximum(count, 1), valid
    if function is Function.INCREASE:
        with np.errstate(over="ignore", invalid="ignore"):
            increase = found[name, "max"] - found[name, "min"]
        # A difference of two 64-bit numbers that does not fit into one wraps around.
        return increase, valid & (increase >= 0)
    return found[name, function.value], valid


def _at_the_end(it: Field, part: str, pieces: Sequence[_Piece], told: Numbers) -> Numbers:
    """Return the field's oldest or newest value; `told` says which subjects have one at all."""
    found: Numbers = np.zeros(len(told), it.kind)
    cells = [(arrays, row) for arrays, rows in pieces for row in range(rows.start, rows.stop)]
    missing = told.copy()
    # Usually the first one has them all.
    for arrays, row in cells if part == "first" else reversed(cells):
        if not missing.any():
            break
        here = missing & (arrays["count"][row] > 0)
        np.copyto(found, arrays[part][row], where=here)
        missing &= ~here
    return found
