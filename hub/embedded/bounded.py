"""An answer is taken piece by piece, so that none is larger than what one may take of the memory."""

import duckdb
import pyarrow as pa

from .question import TooLarge

# Of one answer; whoever asks for a fortnight of a fleet, line by line, may take all memory there is.
ANSWER_BYTES = 256 * 1024 * 1024
_ROWS_AT_ONCE = 100_000


def bounded(executed: duckdb.DuckDBPyConnection, most_bytes: int) -> pa.Table:
    """The whole answer; TooLarge as soon as it is larger than that."""
    reader = executed.to_arrow_reader(_ROWS_AT_ONCE)
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in reader:
        size += batch.nbytes
        if size > most_bytes:
            raise TooLarge(
                f"the answer has more than {most_bytes} bytes; ask for a shorter span, a longer"
                " step, fewer fields or fewer subjects"
            )
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)
