"""Answers questions from sealed files, their roll-ups and the hot table."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from .aggregates import BUCKET_NS, Piece, can_be_rolled, pieces_of
from .answer import table_of
from .bounded_answer import BoundedAnswer, bounded
from .dense_arrays import SlotAggregates, dense, summed, together
from .footer_cache import FooterCache
from .hot_lines import are_short, lines_reduced
from .line_arrays import Ints, PartialAggregates, Values, nothing
from .manifest import Contents, Manifest, ManifestView, read_contents
from .open_readers import OpenReaders
from .question import Series, Window
from .rollup_cache import Plan, RollupCache
from .scan import ScanRange, SealedFileScan
from .sealed_files import Unit
from .sql import Span, of_hot
from .subject_run_cache import SubjectRunCache
from .subjects import Subjects
from .thread_pool import WorkerPool

Cursor = duckdb.DuckDBPyConnection

# With this many files per thread there is no need to split them.
_MANY = 4
# Shorter ranges are read line by line.
ROLLED_FROM_NS = 24 * 3_600_000_000_000


class QueryEngine:
    """Answers from the sealed files below `folder` and the hot tables; any thread may call."""

    def __init__(
        self,
        folder: Path,
        limits: tuple[int, int],
        cursor: Callable[[], Cursor],
        manifest: Manifest,
        readers: OpenReaders,
        slices: RollupCache,
    ) -> None:
        """`limits`: threads that read, and bytes that an answer may take."""
        self._threads, self._answer_bytes = limits
        self._folder = folder
        self._cursor = cursor
        self._manifest = manifest
        self._readers = readers
        self._slices = slices
        self._footers = FooterCache()
        self._heads = SubjectRunCache()
        self._pool = WorkerPool(self._threads)

    def answer(self, question: Window | Series) -> pa.Table:
        """See `Embedded.answer`; duckdb.Error or Unreadable when a file cannot be read."""
        name = question.measurement.name
        with self._readers.reading():
            sight = self._manifest.view(name)
            contents, found = sight.contents, BoundedAnswer(self._answer_bytes)
            subjects = contents.subjects[name]
            if _touched(sight.hot, question):
                contents, subjects, hot = self._hot(question, sight)
                found.add(hot)
            scan = SealedFileScan(question, subjects, self._footers, self._heads)
            due = list(stretches(contents.units[name], self._folder, question))

            def read(stretch: ScanRange) -> None:
                for parts in scan.read(stretch):
                    found.add(parts)

            if len(due) > 1:
                self._pool.each(read, _shared(due, self._threads))
            else:
                # A single one is not worth another thread.
                list(map(read, due))
        return table_of(question, found.together(), subjects)

    def close(self) -> None:
        """Stop the threads; the next question starts new ones."""
        self._pool.close()

    def _hot(
        self, question: Window | Series, sight: ManifestView
    ) -> tuple[Contents, Subjects, PartialAggregates]:
        """Return the contents, all subjects, those without a number included, and what the hot
        table holds for a question, all of one snapshot.
        """
        with self._slices.planned(question) as plan, self._cursor() as cursor:
            cursor.begin()
            read = self._of_slices if plan.kind is not None else self._of_lines
            parts = read(cursor, question, plan)
            # The snapshot was taken by the first statement.
            same = self._manifest.is_current(sight.version)
            contents = sight.contents if same else read_contents(cursor)
            cursor.commit()
        subjects, places = plan.slots.places(contents.subjects[question.measurement.name])
        if isinstance(parts, SlotAggregates):
            return contents, subjects, parts.parts(places)
        return contents, subjects, replace(parts, subject=places[parts.subject])

    def _of_slices(self, cursor: Cursor, question: Window | Series, plan: Plan) -> SlotAggregates:
        """Return hot lines aggregated by slot, without reading again what the plan knows."""
        made = [self._of_lines(cursor, question, plan, [span]) for span in plan.making]
        rest = self._of_lines(cursor, question, plan)
        # Checked only now, as the snapshot has been taken.
        if not self._slices.holds(plan):
            plan.summed = None
            return dense(
                self._of_lines(cursor, question, plan, [_range(question)]), len(plan.slots)
            )
        size = len(plan.slots)
        whole, others = dense(rest, size), [dense(it, size) for it in made]
        if plan.summed is None and plan.known:
            plan.summed = summed(whole, plan.known)
        together(whole, others if plan.summed is None else [plan.summed, *others])
        if others:
            starts = (start for start, _ in plan.making)
            plan.made = dict(zip(starts, (it.packed() for it in others), strict=True))
        return whole

    def _of_lines(
        self,
        cursor: Cursor,
        question: Window | Series,
        plan: Plan,
        spans: Sequence[Span] | None = None,
    ) -> PartialAggregates:
        """Return the hot lines of some spans aggregated by slot; without spans, of the plan's rest."""
        spans = plan.rest if spans is None else spans
        if isinstance(question, Window) and are_short(spans):
            return lines_reduced(cursor, question, spans, plan.slots, self._answer_bytes)
        text, parameters = of_hot(question, spans)
        found = bounded(cursor.execute(text, parameters), self._answer_bytes)
        return _parts_of(found, question, plan.slots.of(found, question.measurement.tags))


def _shared(due: Sequence[ScanRange], threads: int) -> list[ScanRange]:
    """Split few files into halves, so that no thread waits long while another reads the last."""
    if len(due) >= _MANY * threads:
        return list(due)
    return [replace(it, share=(half, 2)) for it in due for half in (0, 1)]


def stretches(
    units: Sequence[Unit], folder: Path, question: Window | Series
) -> Iterator[ScanRange]:
    """Yield the stretches to be read of sealed files.

    For more than a day, whole buckets come from the roll-ups and the two ends from the lines, where
    roll-ups can answer at all. A unit whose lines are gone is always read as roll-ups.
    """
    whole = _range(question)
    inner = _whole_buckets(*whole)
    long = whole[1] - whole[0] > ROLLED_FROM_NS and can_be_rolled(question)
    ends = ((whole[0], inner[0]), (inner[1], whole[1])) if long else (whole,)
    for unit in units:
        if not unit.touches(*whole) or not _has_node(unit, question):
            continue
        if unit.lines_bytes is not None and any(unit.touches(*end) for end in ends):
            yield ScanRange(
                path=unit.lines_file(folder),
                rolled=False,
                spans=ends,
                whole=any(_holds(end, unit) for end in ends),
            )
        rolled = (long or unit.lines_bytes is None) and inner[0] < inner[1]
        if rolled and unit.touches(*inner):
            yield ScanRange(
                path=unit.rolled_file(folder),
                rolled=True,
                spans=(inner,),
                whole=_holds(inner, unit),
            )


def _range(question: Window | Series) -> Span:
    return question.start_ns, question.end_ns


def _whole_buckets(start_ns: int, end_ns: int) -> Span:
    return -(-start_ns // BUCKET_NS) * BUCKET_NS, end_ns // BUCKET_NS * BUCKET_NS


def _holds(span: Span, unit: Unit) -> bool:
    """Return whether a span contains all lines of a unit, from the start of their first bucket on."""
    return span[0] <= unit.first_ns // BUCKET_NS * BUCKET_NS and unit.last_ns < span[1]


def _has_node(unit: Unit, question: Window | Series) -> bool:
    node = dict(question.where).get("node") if isinstance(question, Series) else None
    return node is None or unit.first_node <= node <= unit.last_node


def _touched(hot: Span | None, question: Window | Series) -> bool:
    return hot is not None and hot[0] < question.end_ns and hot[1] >= question.start_ns


def _parts_of(hot: pa.Table, question: Window | Series, slots: Ints) -> PartialAggregates:
    """Return rows of the hot table as parts, with these slots as subjects."""
    stepped = isinstance(question, Series)
    return PartialAggregates(
        subject=slots,
        step_ns=hot["step_ns"].to_numpy() if stepped else None,
        lines=hot["lines"].to_numpy(),
        first_ns=hot["first_ns"].to_numpy(),
        last_ns=hot["last_ns"].to_numpy(),
        offset_ns=hot["offset_ns"].to_numpy() if stepped else None,
        fields={
            field: {piece: _column(hot, piece, field) for piece in pieces}
            for field, pieces in pieces_of(question).items()
        },
    )


def _column(hot: pa.Table, piece: Piece, field: str) -> Values:
    column = hot[piece.of(field)]
    kind = np.float64 if column.type == pa.float64() else np.int64
    found: Values = column.fill_null(nothing(piece, kind).item()).to_numpy()
    return found
