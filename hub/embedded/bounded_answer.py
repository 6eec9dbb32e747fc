"""Answers built piece by piece, so that none exceeds its share of memory."""

import threading

import duckdb
import pyarrow as pa

from .line_arrays import PartialAggregates, together
from .question import TooLarge

# Limit of one answer: a fortnight of a fleet, line by line, may take all memory there is.
ANSWER_BYTES = 256 * 1024 * 1024
ROWS_AT_ONCE = 100_000


def bounded(executed: duckdb.DuckDBPyConnection, most_bytes: int) -> pa.Table:
    """Return the whole answer; TooLarge as soon as it has more than `most_bytes`."""
    reader = executed.to_arrow_reader(ROWS_AT_ONCE)
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in reader:
        size += batch.nbytes
        if size > most_bytes:
            raise too_large(most_bytes)
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


class BoundedAnswer:
    """Collects an answer's parts from several threads, never much more than an answer may take."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._parts: list[PartialAggregates] = []
        self._bytes = 0
        self._together_from = most_bytes // 2

    def add(self, parts: PartialAggregates) -> None:
        """Add parts; TooLarge when all of them, merged, are too large."""
        with self._lock:
            self._parts.append(parts)
            self._bytes += parts.bytes
            if self._bytes > self._together_from:
                self._put_together()
                self._together_from = self._bytes + self._most_bytes // 2

    def together(self) -> PartialAggregates | None:
        """Return all parts merged; None if there are none."""
        with self._lock:
            self._put_together()
            return self._parts[0] if self._parts else None

    def _put_together(self) -> None:
        whole = together(self._parts)
        if whole is not None:
            self._parts, self._bytes = [whole], whole.bytes
            if self._bytes > self._most_bytes:
                raise too_large(self._most_bytes)


def too_large(most_bytes: int) -> TooLarge:
    return TooLarge(
        f"the answer has more than {most_bytes} bytes; ask for a shorter span, a longer"
        " step, fewer fields or fewer subjects"
    )
