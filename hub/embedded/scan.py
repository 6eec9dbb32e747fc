"""Reads sealed files for a question: only the row groups and columns that it needs.

Their lines are sorted by subject and time, so that they are reduced run by run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from .aggregates import Piece, pieces_of
from .damage import OF_SCAN, Unreadable
from .footer_cache import Footer, FooterCache
from .line_arrays import (
    Ints,
    Known,
    PartialAggregates,
    Values,
    known_of_lines,
    nothing,
    ones,
    reduced,
    reduced_fields,
    runs,
)
from .line_columns import LineColumns, ints_of, of_values, zeros_of
from .question import Series, Window
from .sql import Span
from .subject_run_cache import SubjectRunCache, SubjectRuns, joined
from .subjects import Subjects

# Rows in memory at a time, for each thread that reads: few enough for the processor's cache.
_ROWS = 65_536
_FEW = 2  # columns
_INTS = {Piece.COUNT, Piece.FIRST_AT, Piece.LAST_AT}
_AT_A_TIME = {Piece.FIRST, Piece.FIRST_AT, Piece.LAST, Piece.LAST_AT}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRange:
    """The rows of one file with times in the spans, each `[start_ns, end_ns)`."""

    path: Path
    rolled: bool
    spans: tuple[Span, ...]
    whole: bool  # whether every row of the file is in the spans
    share: tuple[int, int] = (0, 1)  # which of how many equal parts of the row groups


class SealedFileScan:
    """Reads what a question needs from sealed files, by subject; any thread may call."""

    def __init__(
        self,
        question: Window | Series,
        subjects: Subjects,
        footers: FooterCache,
        heads: SubjectRunCache,
    ) -> None:
        self._question = question
        self._step_ns = question.step_ns if isinstance(question, Series) else None
        self._pieces = pieces_of(question)
        self._zeros = zeros_of(question)
        where = question.where if isinstance(question, Series) else ()
        wanted = subjects.wanted(question.measurement, where)
        self._all = wanted is None
        self._place_of = subjects.by_number if wanted is None else wanted
        # How many wanted subjects there are before each number.
        self._before = np.concatenate([[0], np.cumsum(self._place_of >= 0)])
        self._footers = footers
        self._heads = heads
        pieces = {piece for them in self._pieces.values() for piece in them}
        # Whether the fields alone need to be read, once it is known where each run begins.
        self._by_heads = self._all and self._step_ns is None and pieces.isdisjoint(_AT_A_TIME)

    def read(self, stretch: ScanRange) -> Iterator[PartialAggregates]:
        """Yield the parts of a stretch, batch by batch; Unreadable when its file cannot be read."""
        try:
            yield from self._read(stretch)
        except OF_SCAN as error:
            raise Unreadable(str(error)) from error

    def _read(self, stretch: ScanRange) -> Iterator[PartialAggregates]:
        time = "bucket" if stretch.rolled else "at"
        footer = self._footers.of(stretch.path, time)
        groups = self._groups(footer, stretch)
        whole = self._by_heads and stretch.whole and len(groups) == len(footer.rows)
        part, parts = stretch.share
        groups = groups[part * len(groups) // parts : (part + 1) * len(groups) // parts]
        if not groups:
            return
        heads = self._heads.of(stretch.path, stretch.share) if whole else None
        if heads is not None and not footer.columns.isdisjoint(self._of_fields(stretch)):
            fields = self._of_fields(stretch)
            # For few columns, all rows at once are still few bytes, and fewer steps in Python,
            # which the threads take in turns.
            heads = [joined(heads)] if len(fields) <= _FEW else heads
            rows = max(head.rows for head in heads)
            batches = self._batches(stretch, footer, groups, fields, rows)
            for head, batch in zip(heads, batches, strict=True):
                yield self._with_fields(head, LineColumns(batch, None), stretch)
            return
        made: list[SubjectRuns] = []
        columns = self._of_rows(stretch) + self._of_fields(stretch)
        for batch in self._batches(stretch, footer, groups, columns):
            yield from self._parts(batch, stretch, time, made)
        if whole and heads is None:
            self._heads.keep(stretch.path, stretch.share, made)

    def _batches(
        self,
        stretch: ScanRange,
        footer: Footer,
        groups: list[int],
        columns: list[str],
        rows: int = _ROWS,
    ) -> Iterator[pa.RecordBatch]:
        there = [name for name in columns if name in footer.columns]
        # With read-ahead into its own buffer, a local file takes half as long again.
        with (
            pa.OSFile(str(stretch.path)) as source,
            pq.ParquetFile(source, metadata=footer.metadata, pre_buffer=False) as file,
        ):
            yield from file.iter_batches(rows, row_groups=groups, columns=there, use_threads=False)

    def _of_rows(self, stretch: ScanRange) -> list[str]:
        """Return the columns that hold the rows' subjects and times."""
        if not stretch.rolled:
            return ["subject", "at"]
        named = ["subject", "lines", "first_at", "last_at"]
        # Their buckets do not matter where all of them count, as one.
        named += [] if stretch.whole and self._step_ns is None else ["bucket"]
        return named + ([] if self._step_ns is None else ["offset_ns"])

    def _of_fields(self, stretch: ScanRange) -> list[str]:
        if not stretch.rolled:
            return list(self._pieces)
        return [p.of(field) for field, pieces in self._pieces.items() for p in pieces]

    def _groups(self, footer: Footer, stretch: ScanRange) -> list[int]:
        """Return the row groups that may hold rows of a stretch."""
        if self._all and stretch.whole:
            return list(range(len(footer.rows)))
        (least, most), (earliest, latest) = footer.numbers, footer.times_ns
        end = len(self._before) - 1
        chosen = self._before[np.minimum(most, end - 1) + 1] > self._before[np.clip(least, 0, end)]
        inside = [(earliest < span[1]) & (latest >= span[0]) for span in stretch.spans]
        return np.flatnonzero(chosen & np.logical_or.reduce(inside)).tolist()

    def _parts(
        self, batch: pa.RecordBatch, stretch: ScanRange, time: str, made: list[SubjectRuns]
    ) -> Iterator[PartialAggregates]:
        kept = self._kept(batch, stretch, time)
        if kept is not None and not len(kept):
            return
        if kept is not None:
            batch = batch.slice(int(kept[0]), int(kept[-1] - kept[0]) + 1)
            kept = None if batch.num_rows == len(kept) else kept - kept[0]
        rows = LineColumns(batch, kept)
        known: Known = {}
        if stretch.rolled:
            parts = self._of_rolled(rows)
            starts = runs(parts.subject, parts.step_ns)
        else:
            parts = self._of_lines(rows)
            starts = runs(parts.subject, parts.step_ns)
            known = known_of_lines(parts.lines, starts, parts.first_ns)
        found = reduced(parts, starts, known)
        if self._by_heads:
            made.append(
                SubjectRuns(rows=rows.count, starts=starts, parts=replace(found, fields={}))
            )
        yield self._placed(found)

    def _with_fields(
        self, head: SubjectRuns, rows: LineColumns, stretch: ScanRange
    ) -> PartialAggregates:
        """Return what `_parts` gives, for rows of which all but the fields is known."""
        if rows.count != head.rows:
            raise Unreadable(f"{stretch.path} has other rows than it had")
        known: Known = {}
        if stretch.rolled:
            fields = self._fields_of_rolled(rows)
        else:
            lines = ones(rows.count)
            fields = self._fields_of_lines(rows, lines, lines)
            known = known_of_lines(lines, head.starts)
        return self._placed(replace(head.parts, fields=reduced_fields(fields, head.starts, known)))

    def _placed(self, parts: PartialAggregates) -> PartialAggregates:
        # Numbers are looked up once for all lines of a subject.
        return replace(parts, subject=self._place_of[parts.subject])

    def _kept(self, batch: pa.RecordBatch, stretch: ScanRange, time: str) -> Ints | None:
        """Return the indexes of the rows that count; None when all do."""
        mask: npt.NDArray[np.bool_] | None = None
        if not stretch.whole:
            at = ints_of(batch.column(time))
            inside = [(at >= start) & (at < end) for start, end in stretch.spans]
            mask = np.logical_or.reduce(inside)
        if not self._all:
            ours = self._place_of[ints_of(batch.column("subject"))] >= 0
            mask = ours if mask is None else mask & ours
        return None if mask is None or mask.all() else np.flatnonzero(mask)

    def _of_lines(self, rows: LineColumns) -> PartialAggregates:
        at = rows.ints("at")
        lines = ones(rows.count)
        step, offset = self._steps(at)
        return PartialAggregates(
            subject=rows.ints("subject"),
            step_ns=step,
            lines=lines,
            first_ns=at,
            last_ns=at,
            offset_ns=None if offset is None else offset.astype(np.float64),
            fields=self._fields_of_lines(rows, at, lines),
        )

    def _fields_of_lines(
        self, rows: LineColumns, at: Ints, lines: Ints
    ) -> Mapping[str, Mapping[Piece, Values]]:
        return {
            field: of_values(rows.known(field, self._zeros[field]), pieces, (at, lines))
            for field, pieces in self._pieces.items()
        }

    def _of_rolled(self, rows: LineColumns) -> PartialAggregates:
        lines, step, offset = rows.ints("lines"), None, None
        if self._step_ns is not None:
            step, into = self._steps(rows.ints("bucket"))
            offset = into.astype(np.float64) * lines + rows.ints("offset_ns")
        return PartialAggregates(
            subject=rows.ints("subject"),
            step_ns=step,
            lines=lines,
            first_ns=rows.ints("first_at"),
            last_ns=rows.ints("last_at"),
            offset_ns=offset,
            fields=self._fields_of_rolled(rows),
        )

    def _fields_of_rolled(self, rows: LineColumns) -> Mapping[str, Mapping[Piece, Values]]:
        return {field: self._rolled(rows, field, p) for field, p in self._pieces.items()}

    def _rolled(
        self, rows: LineColumns, field: str, pieces: Sequence[Piece]
    ) -> Mapping[Piece, Values]:
        return {
            piece: rows.known(piece.of(field), nothing(piece, self._kind(field, piece)))[0]
            for piece in pieces
        }

    def _kind(self, field: str, piece: Piece) -> Any:
        if piece in _INTS:
            return np.int64
        return np.float64 if piece is Piece.SUM else type(self._zeros[field])

    def _steps(self, at: Ints) -> tuple[Ints | None, Any]:
        """Return the start of each time's step, and the time's offset from it; None without steps."""
        if self._step_ns is None:
            return None, None
        offset = at % self._step_ns
        return at - offset, offset
