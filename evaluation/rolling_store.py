"""A store for fast time: it answers what `analyzer.hub_queries.rows` asks a store, at one moment.

Rows are kept by steps of time, each reduced to what will be asked; an answer is a reduction over the steps of its
span. Time only goes forward, and every span is a whole number of steps. The answers equal those of
`gpuvigil.store.memory.MemoryStore`, which a property test checks.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analyzer.hub_queries import ASKED_RARELY, Question, question_of, span_of, together
from analyzer.window.index import Index, subject_of
from analyzer.window.rows import Column, Rows
from analyzer.window.window import Key, Need, Span
from gpuvigil.clock import micros
from gpuvigil.config import AnalyzerSettings
from gpuvigil.metrics import Measurement
from gpuvigil.model import Subject
from gpuvigil.store import Aggregate
from gpuvigil.store.schema import measurement_of

from .dense_cells import Cells, Lines, Measured
from .tables import NEVER, Numbers

_MICROSECOND = timedelta(microseconds=1)
# Answers of one pass differ in which subjects have a row in their span; so many of these sets are remembered.
_CHOICES = 16


class RollingStore:
    """The rows that a pass of the analyzer reads, for the needs given at the start.

    `ahead` is how far beyond now rows may be given: they become visible when their time has come.
    """

    def __init__(
        self,
        needs: Mapping[Key, Need],
        settings: AnalyzerSettings,
        step: timedelta,
        ahead: timedelta,
    ) -> None:
        self._asked, self._settings = together(needs.values(), settings), settings
        self._questions = {key: question_of(need, settings) for key, need in needs.items()}
        self._step_us = step // _MICROSECOND
        self._now_us: int | None = None
        # Few fields are asked for spans of hours: the others are not kept for so long.
        grouped: dict[tuple[str, bool], list[Need]] = defaultdict(list)
        for need in self._asked.values():
            grouped[_group(need)].append(need)
        self._lines = {}
        for (measurement, of_hours), them in grouped.items():
            longest = max(span_of(need.span, settings) for need in them)
            keep, more = -(-longest // step), -(-ahead // step)
            catalogue = measurement_of(measurement)
            self._lines[measurement, of_hours] = _Lines(catalogue, them, keep, more)

    def take(self, measurement: str, lines: pa.Table, arrived_us: Numbers | None = None) -> None:
        """Take in rows of one measurement, with its tags, `at` and fields; null is not measured.

        `arrived_us` holds when each row became known; None means at once. No row may be known already. Fields that no
        detector asks for are not kept.
        """
        for of_hours in (False, True):
            kept = self._lines.get((measurement, of_hours))
            if kept is not None and len(lines):
                kept.take(lines, self._step_us, arrived_us)

    def forward(self, now: datetime) -> None:
        """Go on to `now`, which must be a whole step and not before the last one."""
        now_us = self._whole(now)
        if self._now_us is not None and now_us < self._now_us:
            raise ValueError(f"time goes back to {now}")
        for kept in self._lines.values():
            kept.forward(now_us // self._step_us)
        self._now_us = now_us

    def rows(self) -> dict[Key, Rows]:
        """Return what a pass reads now; rows given later do not change the result."""
        if self._now_us is None:
            raise ValueError("nobody said what time it is")
        found: dict[Question, Rows] = {}
        for question, need in self._asked.items():
            start_us = self._now_us - span_of(need.span, self._settings) // _MICROSECOND
            lines = self._lines[_group(need)]
            if need.span is Span.NOW:
                found[question] = lines.latest(need.fields, start_us)
                continue
            first, rest = divmod(start_us, self._step_us)
            if rest:
                raise ValueError(f"a span is no multiple of {self._step_us / 1e6:g} s")
            last = self._now_us // self._step_us
            found[question] = lines.window(need.aggregates, first, last)
        return {key: found[question] for key, question in self._questions.items()}

    def _whole(self, at: datetime) -> int:
        us = micros(at)
        if us % self._step_us:
            raise ValueError(f"{at} is no multiple of {self._step_us / 1e6:g} s")
        return us


def _group(need: Need) -> tuple[str, bool]:
    return need.measurement, need.span in ASKED_RARELY


class _Lines:
    """The rows of one measurement, by step and subject."""

    def __init__(
        self, catalogue: Measurement, needs: Iterable[Need], keep: int, ahead: int
    ) -> None:
        self._catalogue = catalogue
        needs = list(needs)
        newest = {name for need in needs if need.span is Span.NOW for name in need.fields}
        asked = [need.aggregates for need in needs]
        self._cells = Cells(catalogue, newest, asked, keep, ahead)
        self._ahead = ahead
        self._subjects = Subjects(catalogue.tags)
        self._step: int | None = None
        # By the first pass that knows them: late rows, and rows of a clock that is fast.
        self._later: dict[int, list[Lines]] = defaultdict(list)
        self._fast: dict[int, list[Lines]] = defaultdict(list)

    def take(self, table: pa.Table, step_us: int, arrived_us: Numbers | None) -> None:
        """Put rows into the steps of their times, or aside until they are known."""
        lines = self._read(table, step_us)
        self._cells.grow(len(self._subjects))
        if arrived_us is None:
            self._cells.add(lines)
            return
        known = arrived_us // step_us + 1
        fast = known <= lines.steps
        if fast.any():
            for passed, some in lines.where(fast).by(known[fast]):
                self._fast[passed].append(some)
        # A pass reads what is before its own moment. Rows too far ahead wait for their time.
        if self._step is not None or fast.any():
            here = int(known.min()) if self._step is None else self._step
            far = lines.steps - self._ahead > here
            known = np.where(far, np.maximum(known, lines.steps - self._ahead), known)
            aside = far | (known > lines.steps + 1)
        else:
            aside = known > lines.steps + 1
        if aside.any():
            for passed, some in lines.where(aside).by(known[aside]):
                self._later[passed].append(some)
            lines = lines.where(~aside)
        self._cells.add(lines)

    def _read(self, table: pa.Table, step_us: int) -> Lines:
        at_us = table.column("at").cast(pa.int64()).to_numpy()
        names = [name for name in self._cells.fields if name in table.column_names]
        return Lines(
            subjects=self._subjects.numbers(table),
            at_us=at_us,
            steps=at_us // step_us,
            columns={name: _column(table.column(name)) for name in names},
        )

    def forward(self, step: int) -> None:
        """Close the steps before `step`."""
        begin = self._cells.first if self._step is None else self._step
        for passed in sorted(it for it in self._later if it <= step):
            for lines in self._later.pop(passed):
                self._cells.add(lines)
                for late in np.unique(lines.steps[lines.steps < (begin or 0)]):
                    self._cells.pass_over(int(late))
        for over in range(step if begin is None else begin, step):
            self._cells.pass_over(over)
        for passed in sorted(it for it in self._fast if it <= step):
            for lines in self._fast.pop(passed):
                self._cells.say_newest(lines.in_order())
        self._step = step
        self._cells.forget(step)

    def window(self, aggregates: Sequence[Aggregate], first: int, last: int) -> Rows:
        found = self._cells.reduce(aggregates, first, last)
        index, chosen = self._subjects.chosen(found.samples > 0)
        asked = {it.column: it for it in aggregates}

        def read(name: str) -> Column:
            it = asked.get(name)
            values, valid = found.column(name) if it is None else found.aggregate(it)
            return values[chosen], None if valid is None else valid[chosen]

        return Rows.of_columns(index, read)

    def latest(self, fields: Sequence[str], since_us: int) -> Rows:
        at_us = self._cells.newest_us
        index, chosen = self._subjects.chosen(at_us >= max(since_us, NEVER + 1))
        newest = self._cells.newest(chosen)
        columns: dict[str, Column] = {name: newest[name] for name in fields}
        # Copied, since the next pass changes the times in place.
        columns["at"] = (at_us[chosen].copy(), None)
        return Rows.of_columns(index, columns.__getitem__)


@dataclass(slots=True)
class _Choice:
    """The subjects of an earlier answer, which are most often those of the next."""

    mask: Numbers
    index: Index
    numbers: Numbers | slice


class Subjects:
    """Numbers for tags, in order of arrival; answers are in the order of the tags."""

    def __init__(self, tags: Sequence[str]) -> None:
        self._tags = tags
        self._numbers: dict[tuple[str, ...], int] = {}
        self._order: Numbers = np.empty(0, np.int64)
        self._subjects: list[Subject] = []
        self.keys: list[str] = []  # of the subjects, by number
        self._choices: dict[int, _Choice] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, lines: pa.Table) -> Numbers:
        """Return the number of each row's subject."""
        codes = np.zeros(len(lines), np.int64)
        names: list[list[str]] = []
        for tag in self._tags:
            column = lines.column(tag).combine_chunks()
            if not pa.types.is_dictionary(column.type):
                column = column.dictionary_encode()
            names.append(column.dictionary.to_pylist())
            codes = codes * len(names[-1]) + column.indices.to_numpy()
        unique, inverse = np.unique(codes, return_inverse=True)
        those = []
        for code in unique.tolist():
            tags, rest = [], code
            for known in reversed(names):
                rest, index = divmod(rest, len(known))
                tags.append(known[index])
            those.append(tuple(reversed(tags)))
        # New subjects are sorted, so that the numbers of a fleet that stays the same are in order, too.
        for new in sorted(tags for tags in those if tags not in self._numbers):
            self._numbers[new] = len(self._numbers)
        if len(self._order) != len(self._numbers):
            self._sort()
        found = np.array([self._numbers[tags] for tags in those], np.int64)
        return found[inverse]

    def chosen(self, mask: Numbers) -> tuple[Index, Numbers | slice]:
        """Return the subjects in the mask and their numbers, in the order of the tags.

        Consecutive numbers are returned as a slice, which copies nothing.
        """
        key = int(mask.sum())
        before = self._choices.get(key)
        if before is not None and np.array_equal(before.mask, mask):
            return before.index, before.numbers
        numbers = self._order[mask[self._order]]
        index = Index(self._subjects[number] for number in numbers.tolist())
        chosen = slice(int(numbers[0]), int(numbers[-1]) + 1) if len(numbers) else numbers
        if isinstance(chosen, slice) and (numbers[1:] - numbers[:-1] != 1).any():
            chosen = numbers
        if len(self._choices) > _CHOICES:
            self._choices.clear()
        self._choices[key] = _Choice(mask=mask, index=index, numbers=chosen)
        return index, chosen

    def _sort(self) -> None:
        names = list(self._numbers)
        for tags in names[len(self._subjects) :]:
            self._subjects.append(subject_of(dict(zip(self._tags, tags, strict=True))))
            self.keys.append(self._subjects[-1].key)
        self._order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
        self._choices = {}


def _column(column: pa.ChunkedArray) -> Measured:
    if column.null_count == 0:
        return column.to_numpy(), None
    return pc.fill_null(column, 0).to_numpy(), pc.is_valid(column).to_numpy()
