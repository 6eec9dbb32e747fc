"""A cache of which rows of a sealed file belong to which subject, for files that were read whole.

Sealed files never change. Every question needs the columns of the subject and the time; a question
about all lines of a file needs of them only what is here, and reads its fields alone.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .line_arrays import Ints, PartialAggregates, one_after_another

# A file, and which of how many parts of it.
_Key = tuple[Path, tuple[int, int]]

_MOST_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRuns:
    """Some rows of a file: where each subject's run begins, and these runs without any field."""

    rows: int
    starts: Ints
    parts: PartialAggregates  # the subject as the file numbers it


class SubjectRunCache:
    """The heads of recently used files; any thread may call."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, Sequence[SubjectRuns]] = OrderedDict()
        self._bytes = 0

    def of(self, path: Path, share: tuple[int, int]) -> Sequence[SubjectRuns] | None:
        """Return the heads of a part of a file, batch by batch; None if not read whole lately."""
        key = path, share
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def keep(self, path: Path, share: tuple[int, int], heads: Sequence[SubjectRuns]) -> None:
        """Keep the heads of a whole part; those used longest ago are evicted for it."""
        key = path, share
        with self._lock:
            if key in self._known:
                return
            self._known[key] = heads
            self._bytes += _bytes(heads)
            while self._bytes > self._most_bytes:
                _, gone = self._known.popitem(last=False)
                self._bytes -= _bytes(gone)


def joined(heads: Sequence[SubjectRuns]) -> SubjectRuns:
    """Join the heads of a file's batches into one of all their rows."""
    if len(heads) == 1:
        return heads[0]
    rows = [head.rows for head in heads]
    before = np.cumsum([0, *rows[:-1]])
    starts = [head.starts + count for head, count in zip(heads, before, strict=True)]
    return SubjectRuns(
        rows=sum(rows),
        starts=np.concatenate(starts),
        parts=one_after_another([head.parts for head in heads]),
    )


def _bytes(heads: Sequence[SubjectRuns]) -> int:
    return sum(head.parts.bytes + head.starts.nbytes for head in heads)
