"""Lines of the last minutes, read from the hot table unchanged and aggregated in numpy.

SQL is good at many lines of few subjects. In the last minutes each subject has only a few lines, of
which many aggregates are asked: there a group costs SQL more than its lines cost here.
"""

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa

from .aggregates import pieces_of
from .bounded_answer import ROWS_AT_ONCE, BoundedAnswer
from .line_arrays import PartialAggregates, known_of_lines, ones, reduced, runs
from .line_columns import LineColumns, of_values, zeros_of
from .question import Window
from .sql import Span, lines_of_hot
from .subject_slots import SubjectSlots

# Longer ranges are reduced in SQL.
_LONGEST_NS = 300_000_000_000


def are_short(spans: Sequence[Span]) -> bool:
    """Return whether lines of these times are few enough to be reduced here."""
    return sum(end - start for start, end in spans) < _LONGEST_NS


def lines_reduced(
    cursor: duckdb.DuckDBPyConnection,
    question: Window,
    spans: Sequence[Span],
    slots: SubjectSlots,
    most_bytes: int,
) -> PartialAggregates:
    """Return one row for each subject with a line in these times, by slot."""
    reader = cursor.execute(lines_of_hot(question, spans)).to_arrow_reader(ROWS_AT_ONCE)
    found = BoundedAnswer(most_bytes)
    for batch in reader:
        found.add(_reduced(question, batch, slots))
    nothing = pa.RecordBatch.from_pylist([], reader.schema)
    return found.together() or _reduced(question, nothing, slots)


def _reduced(question: Window, batch: pa.RecordBatch, slots: SubjectSlots) -> PartialAggregates:
    slot = slots.of(pa.Table.from_batches([batch]), question.measurement.tags)
    order = np.argsort(slot, kind="stable")
    rows, zeros = LineColumns(batch, order), zeros_of(question)
    at, lines, subject = rows.ints("at"), ones(len(order)), slot[order]
    parts = PartialAggregates(
        subject=subject,
        step_ns=None,
        lines=lines,
        first_ns=at,
        last_ns=at,
        offset_ns=None,
        fields={
            field: of_values(rows.known(field, zeros[field]), pieces, (at, lines))
            for field, pieces in pieces_of(question).items()
        },
    )
    starts = runs(subject, None)
    return reduced(parts, starts, known_of_lines(lines, starts))
