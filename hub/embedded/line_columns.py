"""The columns of lines as arrays, and the aggregates of each line alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .aggregates import Piece, pieces_of
from .line_arrays import Ints, Values, nothing
from .question import Series, Window

# Values, and which of them are not null; None when all are.
Column = tuple[Values, npt.NDArray[np.bool_] | None]

_PLAIN = {Piece.SUM, Piece.MIN, Piece.MAX, Piece.FIRST, Piece.LAST}


def zeros_of(question: Window | Series) -> Mapping[str, Any]:
    """Return a zero of the type of each field that the question asks for."""
    metrics = {field: question.measurement.metric(field) for field in pieces_of(question)}
    return {
        field: np.int64(0) if metric.integer else np.float64(0) for field, metric in metrics.items()
    }


class LineColumns:
    """The rows of a batch that count, as arrays."""

    def __init__(self, batch: pa.RecordBatch, kept: Ints | None) -> None:
        self._batch = batch
        self._there = frozenset(batch.schema.names)
        self._kept = kept
        self.count = batch.num_rows if kept is None else len(kept)

    def ints(self, name: str) -> Ints:
        return self._chosen(ints_of(self._batch.column(name)))

    def known(self, name: str, instead: Any) -> Column:
        """Return a column with `instead` for nulls, or for every row if the file does not have it."""
        if name not in self._there:
            return np.full(self.count, instead), np.zeros(self.count, np.bool_)
        column = self._batch.column(name)
        if not column.null_count:
            return self._chosen(column.to_numpy()), None
        known = self._chosen(column.is_valid().to_numpy(zero_copy_only=False))
        return self._chosen(column.fill_null(instead.item()).to_numpy()), known

    def _chosen(self, values: Values) -> Values:
        return values if self._kept is None else values[self._kept]


def of_values(
    column: Column, pieces: Sequence[Piece], at_and_ones: tuple[Ints, Ints]
) -> Mapping[Piece, Values]:
    """Return the pieces of a field in lines, one value for each line."""
    values, known = column
    at, ones = at_and_ones
    found: dict[Piece, Values] = {}
    for piece in pieces:
        if piece is Piece.COUNT:
            found[piece] = ones if known is None else known.astype(np.int64)
        elif piece is Piece.SUM:
            # The sum of whole numbers may not fit into 64 bits.
            found[piece] = values.astype(np.float64, copy=False)
        else:
            told = values if piece in _PLAIN else at
            none = nothing(piece, told.dtype)
            found[piece] = told if known is None else np.where(known, told, none)
    return found


def ints_of(column: pa.Array) -> Ints:
    """Return a column without nulls as integers; times in nanoseconds."""
    found: Ints = column.view(pa.int64()).to_numpy()
    return found
