"""A slot number for each subject of hot lines, stable while others are added."""

import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .line_arrays import Ints
from .subjects import Subjects, Tags

# Separates the tags of a subject, which are looked up as one text; collisions are checked for.
_BETWEEN = "\x1f"


class SubjectSlots:
    """The subjects of one measurement in the order in which they came; any thread may call."""

    def __init__(self, tags: int) -> None:
        self._tags = tags
        self._lock = threading.Lock()
        self._numbers: dict[Tags, int] = {}
        self._columns = [pa.array([], pa.string()) for _ in range(tags)]
        self._texts = pa.array([], pa.string())
        self._placed: tuple[Subjects, Subjects, Ints] | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, table: pa.Table, tags: Sequence[str]) -> Ints:
        """Return the slot of each row; a new subject gets the next one."""
        columns = [_whole(table[tag]) for tag in tags]
        texts = _joined(columns)
        with self._lock:
            found = pc.index_in(texts, value_set=self._texts)
            if found.null_count:
                new = pc.is_null(found)
                self._add(list(_names([column.filter(new) for column in columns])))
                found = pc.index_in(texts, value_set=self._texts)
            there = zip(self._columns, columns, strict=True)
            if all(known.take(found).equals(given) for known, given in there):
                slots: Ints = found.to_numpy().astype(np.int64)
                return slots
            # Different tags have made the same text.
            names = list(_names(columns))
            self._add(names)
            return np.fromiter((self._numbers[name] for name in names), np.int64, len(names))

    def places(self, subjects: Subjects) -> tuple[Subjects, Ints]:
        """Return the subjects, with those that have no number yet, and the place of each slot."""
        with self._lock:
            if self._placed is None or self._placed[0] is not subjects:
                self._placed = (subjects, subjects, np.array([], np.int64))
            _, known, places = self._placed
            if len(places) != len(self._numbers):
                unknown = [name for name in self._numbers if name not in known.place_of]
                known = known.with_more(unknown) if unknown else known
                of_slots = (known.place_of[name] for name in self._numbers)
                places = np.fromiter(of_slots, np.int64, len(self._numbers))
                self._placed = (subjects, known, places)
            return known, places

    def _add(self, names: Sequence[Tags]) -> None:
        before = len(self._numbers)
        for name in names:
            self._numbers.setdefault(name, len(self._numbers))
        if len(self._numbers) > before:
            columns = zip(*self._numbers, strict=True)
            self._columns = [pa.array(column, pa.string()) for column in columns]
            self._texts = _joined(self._columns)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if not column.num_chunks:
        return pa.array([], pa.string())
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _joined(columns: Sequence[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*columns, _BETWEEN)


def _names(columns: Sequence[pa.Array]) -> "zip[Tags]":
    return zip(*(column.to_pylist() for column in columns), strict=True)
