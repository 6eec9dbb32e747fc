"""Which rows of sealed files are whose, kept of those that were read whole, since they never change.

Two of the columns that every question needs are those of the subject and the time. A question about
all lines of a file needs of them only what is here, and reads its fields alone.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .line_arrays import Ints, Parts, one_after_another

# A file, and which of how many parts of it.
_Key = tuple[Path, tuple[int, int]]

_MOST_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Of so many rows of a file: where each subject's begin, and these runs without a field."""

    rows: int
    starts: Ints
    parts: Parts  # the subject as the file numbers it


class Heads:
    """Those of the files that were asked lately; any thread may call."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, Sequence[Head]] = OrderedDict()
        self._bytes = 0

    def of(self, path: Path, share: tuple[int, int]) -> Sequence[Head] | None:
        """The heads of a file's part, batch by batch; None when it was not read whole lately."""
        key = path, share
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def keep(self, path: Path, share: tuple[int, int], heads: Sequence[Head]) -> None:
        """Take in what was read of all of a part; what was asked longest ago goes for it."""
        key = path, share
        with self._lock:
            if key in self._known:
                return
            self._known[key] = heads
            self._bytes += _bytes(heads)
            while self._bytes > self._most_bytes:
                _, gone = self._known.popitem(last=False)
                self._bytes -= _bytes(gone)


def joined(heads: Sequence[Head]) -> Head:
    """Those of a file's batches as one of all their rows."""
    if len(heads) == 1:
        return heads[0]
    rows = [head.rows for head in heads]
    before = np.cumsum([0, *rows[:-1]])
    starts = [head.starts + count for head, count in zip(heads, before, strict=True)]
    return Head(
        rows=sum(rows),
        starts=np.concatenate(starts),
        parts=one_after_another([head.parts for head in heads]),
    )


def _bytes(heads: Sequence[Head]) -> int:
    return sum(head.parts.bytes + head.starts.nbytes for head in heads)
