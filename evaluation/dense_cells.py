"""Dense arrays of steps and subjects: what is left of lines once it is known what will be asked.

Steps lie in a ring. Beside each step's cells stand those of each whole block of steps, worked out
when they are first asked for and again when a late line changed them: a span of many steps is a
few blocks and what sticks out of them.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuvigil.metrics import Measurement
from gpuvigil.store import Aggregate, Function

from .lines import Groups, Lines, Measured, order_of, put
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

# Steps in a block.
_BLOCK = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """A span, by subject: its lines, and the aggregates."""

    samples: Numbers
    first_us: Numbers
    last_us: Numbers
    values: Mapping[Aggregate, Measured]


class Cells:
    """A ring of steps; which subject a column stands for is known elsewhere.

    `asked`: the aggregates of each span. `keep` steps can be asked for, `ahead` more may be filled
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
        self._keep = keep  # steps that the longest span has
        self._steps = (-(-(keep + ahead + 2) // _BLOCK) + 1) * _BLOCK
        # Which block its cells were worked out for; none while they are not as the steps say.
        self._worked: Numbers = np.full(self._steps // _BLOCK, NEVER, np.int64)
        # What whole blocks came to, by part, fields and blocks, while none is worked out anew.
        self._whole: dict[tuple[Kind, int, int, int, int], Numbers] = {}
        # What the steps before and after whole blocks came to; see `_from` and `_until`.
        self._sides: dict[tuple[Kind, int], Numbers] = {}
        self._ends: dict[tuple[Kind, int], tuple[int, Numbers]] = {}
        self._begun: int | None = None  # the block that the spans end in
        self._width = 0
        self.first: int | None = None  # the oldest step with a line
        self._floor: int | None = None  # older ones are not kept any more
        self.fields, self._lines = fields_of(catalogue, newest, asked)
        self._tables = tables_of({LINES: self._lines, **self.fields})
        self._plans: dict[tuple[Aggregate, ...], _Plan] = {}
        # Of every subject's newest line, and by field.
        self._latest: dict[Kind, Numbers] = {}
        self._newest: dict[str, tuple[Numbers, Numbers]] = {}
        self.newest_us: Numbers = np.empty(0, np.int64)
        self._names = tuple(newest)

    def grow(self, subjects: int) -> None:
        """Room for so many subjects."""
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
        self._sides.clear()
        self._ends.clear()
        longer = np.full(width, NEVER, np.int64)
        longer[:before] = self.newest_us
        self.newest_us = longer
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
        order = order_of(places, lines.at_us)
        if order is not None:
            places, lines = places[order], lines.where(order)
        changed = np.unique(lines.steps // _BLOCK)
        self._worked[changed % len(self._worked)] = NEVER
        blocks = set(changed.tolist())
        for known in (self._sides, self._ends):
            for key in [key for key in known if key[1] in blocks]:
                del known[key]
        self._newest_of(places, lines)
        self._put_all(places, lines)

    def _put_all(self, places: Numbers, lines: Lines) -> None:
        groups = Groups.of(places)
        put(self._lines, groups, lines.at_us, lines.at_us)
        for name, (values, valid) in lines.columns.items():
            it = self.fields[name]
            if not it.blocks:
                continue
            if valid is None or valid.all():
                put(it, groups, values, lines.at_us)
            elif valid.any():
                put(it, Groups.of(places[valid]), values[valid], lines.at_us[valid])

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
        for key, latest in self._latest.items():
            np.copyto(latest, self._tables[key].cells[:, row], where=mask)

    def newest(self, subjects: Numbers | slice) -> dict[str, tuple[Numbers, Numbers]]:
        """Every field of these subjects' newest lines, and whether it was measured; copies."""
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
        """Empty the rows of the ring that are needed next, whole blocks: what lies a ring back."""
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
        """The aggregates over the steps `[first, last)`."""
        if not self._width:
            return _nothing(wanted)
        first = max(first, self.first if self.first is not None else last)
        span = self._span(min(first, last), last)
        found: dict[tuple[str, str], Numbers] = {}
        measured: dict[str, Numbers] = {}
        for table, fields, names in self._plan(wanted):
            reduced = self._over(table, fields, span)
            found.update({(name, table.part): reduced[n] for n, name in enumerate(names)})
            if table.part == "count":
                told = reduced > 0
                measured = {name: told[n] for n, name in enumerate(names)}
        values: dict[Aggregate, Measured] = {}
        with np.errstate(over="ignore", invalid="ignore"):
            for it in wanted:
                name, part = it.field, it.function.value
                if part in TIME_OF:
                    pieces = span.pieces(self.fields[name])
                    told = measured[name]
                    found[name, part] = _at_the_end(self.fields[name], part, pieces, told)
                values[it] = _aggregate(it.function, name, found, measured[name])
        return Reduced(
            samples=found[LINES, "count"].astype(np.int64),
            first_us=found[LINES, "first_us"],
            last_us=found[LINES, "last_us"],
            values=values,
        )

    def _plan(self, wanted: Sequence[Aggregate]) -> "_Plan":
        """Which fields of which tables are asked for; it depends on nothing that changes."""
        key = tuple(wanted)
        if key not in self._plans:
            parts = {(it.field, part) for it in wanted for part in PARTS[it.function]}
            parts |= {(LINES, part) for part in self._lines.parts}
            plan = []
            for table in self._tables.values():
                names = {name for name in table.places if (name, table.part) in parts}
                if names and table.part in REDUCE:
                    plan.append((table, *table.around(names)))
            self._plans[key] = plan
        return self._plans[key]

    def _over(self, table: Table, fields: slice, span: "_Span") -> Numbers:
        """Some fields of a table over a span, by subject; never what is remembered itself."""
        if span.begin > span.end:
            return table.reduced(table.cells, fields, span.before)
        reduce = REDUCE[table.part]
        sides = []
        if span.first % _BLOCK:
            sides.append(self._from(table, span.first)[fields])
        if span.last % _BLOCK:
            sides.append(self._until(table, span.last)[fields])
        if span.begin == span.end:
            if not sides:
                return table.reduced(table.cells, fields, [slice(0, 0)])
            return reduce(*sides) if len(sides) > 1 else sides[0].copy()
        key = (table.key, fields.start, fields.stop, span.begin, span.end)
        whole = self._whole.get(key)
        if whole is None:
            whole = self._whole[key] = table.reduced(table.blocks, fields, span.blocks)
        return reduce(whole, functools.reduce(reduce, sides)) if sides else whole.copy()

    def _from(self, table: Table, step: int) -> Numbers:
        """All fields of a table from a step to the end of its block: worked out once for each."""
        block, place = divmod(step, _BLOCK)
        known = self._sides.get((table.key, block))
        if known is None:
            (rows,) = _in_ring(block * _BLOCK, (block + 1) * _BLOCK, self._steps)
            known = self._sides[table.key, block] = table.to_the_end(rows)
        found: Numbers = known[:, place]
        return found

    def _until(self, table: Table, step: int) -> Numbers:
        """All fields of a table from the beginning of a block to a step: one more in each pass."""
        block = step // _BLOCK
        until, known = self._ends.get((table.key, block), (block * _BLOCK, None))
        if known is None or until > step:
            rows = _in_ring(block * _BLOCK, step, self._steps)
            known = table.reduced(table.cells, slice(None), rows)
        elif until < step:
            rows = _in_ring(until, step, self._steps)
            known = REDUCE[table.part](known, table.reduced(table.cells, slice(None), rows))
        self._ends[table.key, block] = step, known
        return known

    def _span(self, first: int, last: int) -> "_Span":
        """The steps `[first, last)`: whole blocks, worked out, and what is beside them."""
        begin, end = -(-first // _BLOCK), last // _BLOCK
        if self._begun != end:
            self._begun = end
            self._sides.clear()
            self._ends.clear()
        if begin > end:
            return _Span(first, last, begin, end, _in_ring(first, last, self._steps), [], [])
        for block in range(begin, end):
            if self._worked[block % len(self._worked)] != block:
                self._work_out(block)
        before = _in_ring(first, begin * _BLOCK, self._steps)
        after = _in_ring(end * _BLOCK, last, self._steps)
        blocks = _in_ring(begin, end, len(self._worked))
        return _Span(first, last, begin, end, before, blocks, after)

    def _work_out(self, block: int) -> None:
        """The cells of a whole block from those of its steps."""
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
    """Where a span lies: whole blocks, and the steps before and after them; all in their order."""

    first: int  # of the steps
    last: int
    begin: int  # of the blocks, as numbers of blocks; after the end where it lies in one of them
    end: int
    before: Sequence[slice]
    blocks: Sequence[slice]
    after: Sequence[slice]

    def pieces(self, it: Field) -> "list[_Piece]":
        """The field's arrays of all of it, the oldest first."""
        return [
            *((it.arrays, rows) for rows in self.before),
            *((it.blocks, rows) for rows in self.blocks),
            *((it.arrays, rows) for rows in self.after),
        ]


_Piece = tuple[Mapping[str, Numbers], slice]
_Plan = list[tuple[Table, slice, list[str]]]


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


def _aggregate(
    function: Function, name: str, found: Mapping[tuple[str, str], Numbers], valid: Numbers
) -> Measured:
    """One aggregate of a field; `found` are its parts, `valid` says who has any."""
    if function is Function.COUNT:
        return found[name, "count"].astype(np.int64), None
    if function is Function.MEAN:
        return found[name, "sum"] / np.maximum(found[name, "count"], 1), valid
    if function is Function.INCREASE:
        increase = found[name, "max"] - found[name, "min"]
        # A difference of two 64-bit numbers that does not fit into one wraps round.
        return increase, valid & (increase >= 0)
    return found[name, function.value], valid


def _at_the_end(it: Field, part: str, pieces: Sequence[_Piece], told: Numbers) -> Numbers:
    """The field's oldest or newest value; `told`: which subjects have one at all."""
    found: Numbers = np.zeros(len(told), it.kind)
    cells = [(arrays, row) for arrays, rows in pieces for row in range(rows.start, rows.stop)]
    missing = told.copy()
    # Mostly the first one has them all.
    for arrays, row in cells if part == "first" else reversed(cells):
        if not missing.any():
            break
        here = missing & (arrays["count"][row] > 0)
        np.copyto(found, arrays[part][row], where=here)
        missing &= ~here
    return found
