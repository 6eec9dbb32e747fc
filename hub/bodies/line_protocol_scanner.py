"""Line protocol split into names and values without a Python object for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpuvigil.lineprotocol import MAX_LINE_BYTES

_NEWLINE, _SPACE, _EQUALS, _SUFFIX, _ESCAPE = b"\n =i\\"
# Table with which `bytes.translate` makes every separator 1 and all else 0.
_MARKS = bytes(sign in b"\n ,=" for sign in range(256))

Indexes = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of each row: the index of its text, and its line number in it."""

    texts: Indexes
    numbers: Indexes

    @classmethod
    def of(cls, texts: Sequence[bytes], cut: "SplitLines") -> "Origin":
        """Return the origins for texts joined by newlines, with one newline at either end."""
        before = np.cumsum([0, *(len(text) + 1 for text in texts)])[:-1]
        first = np.searchsorted(cut.edges, before)
        of_row = np.repeat(np.arange(len(texts)), np.diff(np.append(first, len(cut.edges) - 1)))
        return cls(of_row, np.arange(len(of_row)) - first[of_row] + 1)

    def only(self, rows: Indexes) -> "Origin":
        return Origin(self.texts[rows], self.numbers[rows])


class SplitLines:
    """Rows cut alternately into two kinds of pieces: names with separators, and values between.

    `edges` are the offsets of the newlines around the rows. `regular` says which rows can be cut
    into pairs of a name and a value, of which the last is the time. The suffix of an integer goes
    with the names after it, so that the names of a row identify its schema.
    """

    def __init__(self, text: bytes) -> None:
        self.text = text
        signs = np.frombuffer(text, np.uint8)
        marks = np.flatnonzero(np.frombuffer(text.translate(_MARKS), bool))
        kinds = signs[marks]
        if b"\\" in text:
            bare = (signs[marks - 1] != _ESCAPE) | (kinds == _NEWLINE)
            marks, kinds = marks[bare], kinds[bare]
        newlines = np.flatnonzero(kinds == _NEWLINE)
        self.edges = marks[newlines]
        times = newlines[1:] - 1
        self.regular = (kinds[times] == _SPACE) & (np.diff(self.edges) <= MAX_LINE_BYTES // 2)
        self._signs, self._marks, self._kinds, self._times = signs, marks, kinds, times

    def heads(self) -> pa.DictionaryArray:
        """Return the part of each row before its first space."""
        starts, ends = self.edges[:-1] + 1, self.edges[1:]
        spaces = self._marks[self._kinds == _SPACE]
        first = np.searchsorted(spaces, starts)
        ends = np.minimum(ends, np.append(spaces, len(self.text))[first])
        offsets = np.empty(2 * len(starts) + 1, np.int32)
        offsets[:-1:2], offsets[1::2], offsets[-1] = starts, ends, len(self.text)
        pieces = strings(offsets, pa.py_buffer(self.text))
        return pieces.take(pa.array(np.arange(0, 2 * len(starts), 2))).dictionary_encode()

    def rows(self, indexes: Indexes) -> list[bytes]:
        edges = zip(self.edges[indexes] + 1, self.edges[indexes + 1], strict=True)
        return [self.text[start:end] for start, end in edges]

    def schemas(self) -> pa.DictionaryArray:
        """Return each row without its values, and find these; every row must be regular."""
        starts_value = self._kinds == _EQUALS
        starts_value[self._times] = True
        pairs = np.flatnonzero(starts_value)
        kinds = self._kinds[pairs]
        starts, ends = self._marks[pairs] + 1, self._marks[pairs + 1]
        ends = ends - ((kinds == _EQUALS) & (self._signs[ends - 1] == _SUFFIX))
        offsets = np.empty(2 * len(pairs) + 2, np.int32)
        offsets[0], offsets[-1] = 0, len(self.text)
        offsets[1:-1:2], offsets[2:-1:2] = starts, ends
        self._pieces = strings(offsets, pa.py_buffer(self.text))
        self._first = np.concatenate(([0], np.flatnonzero(kinds == _SPACE)[:-1] + 1))
        names = self._pieces.take(pa.array(np.arange(0, 2 * len(pairs), 2)))
        _, offsets, content = names.buffers()
        edges = np.frombuffer(offsets, np.int32)[np.append(self._first, len(pairs))]
        return strings(edges, content).dictionary_encode()

    def values(self, rows: Indexes, index: int) -> pa.StringArray:
        """Return the value at `index` in each of some rows of one schema; after `schemas`."""
        return self._pieces.take(pa.array(2 * (self._first[rows] + index) + 1))


def strings(offsets: Any, content: Any) -> pa.StringArray:
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), content)
