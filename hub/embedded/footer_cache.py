"""A cache of the footers of sealed files, which never change."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from .line_arrays import Ints

# Size of footers as in their files; they take ten times that in memory.
_MOST_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """A file's columns and row groups, with the bounds of subject number and time in each."""

    metadata: pq.FileMetaData
    columns: frozenset[str]
    rows: Ints
    numbers: tuple[Ints, Ints]  # the least and the greatest subject of each row group
    times_ns: tuple[Ints, Ints]


class FooterCache:
    """The footers of recently used files; any thread may call."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[Path, Footer] = OrderedDict()
        self._bytes = 0

    def of(self, path: Path, time: str) -> Footer:
        """Return the footer of a file whose time is in the column `time`.

        OSError or pyarrow.ArrowException when the file cannot be read.
        """
        with self._lock:
            known = self._known.get(path)
            if known is not None:
                self._known.move_to_end(path)
                return known
        found = _read(path, time)
        with self._lock:
            if path not in self._known:
                self._known[path] = found
                self._bytes += found.metadata.serialized_size
            while self._bytes > self._most_bytes:
                _, gone = self._known.popitem(last=False)
                self._bytes -= gone.metadata.serialized_size
        return found


def _read(path: Path, time: str) -> Footer:
    metadata = pq.read_metadata(path)
    names = metadata.schema.names
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    rows = np.array([group.num_rows for group in groups], np.int64)
    return Footer(
        metadata=metadata,
        columns=frozenset(names),
        rows=rows,
        numbers=_bounds(groups, names.index("subject")),
        times_ns=_bounds(groups, names.index(time)),
    )


def _bounds(groups: list[pq.RowGroupMetaData], column: int) -> tuple[Ints, Ints]:
    """Return the least and greatest value in each row group; the whole range if unknown."""
    whole = np.iinfo(np.int64)
    least = np.full(len(groups), whole.min, np.int64)
    most = np.full(len(groups), whole.max, np.int64)
    for index, group in enumerate(groups):
        told = group.column(column).statistics
        if told is not None and told.has_min_max:
            least[index], most[index] = told.min_raw, told.max_raw
    return least, most
