"""A queue of bodies that lie on disk: 24 bytes of memory for each, however long an outage lasts."""

from array import array
from bisect import bisect_left
from typing import NamedTuple

_TIDY_AFTER = 1024


class SpoolEntry(NamedTuple):
    """One body: its number, when it was measured (microseconds since 1970), its bytes on disk."""

    number: int
    microseconds: int
    bytes: int


class DiskQueue:
    """Places in the order of their numbers; the lowest comes first, whenever it was added."""

    def __init__(self) -> None:
        self._columns = (array("q"), array("q"), array("q"))
        self._head = 0

    def __len__(self) -> int:
        return len(self._columns[0]) - self._head

    @property
    def first(self) -> SpoolEntry | None:
        """The entry with the lowest number, None when there is none."""
        if self._head == len(self._columns[0]):
            return None
        number, microseconds, size = (column[self._head] for column in self._columns)
        return SpoolEntry(number, microseconds, size)

    def add(self, entry: SpoolEntry) -> None:
        """Insert an entry where its number belongs: nearly always at the end, or at the front.

        Raises OverflowError when a number does not fit into 64 bits.
        """
        numbers = self._columns[0]
        if not numbers or entry.number > numbers[-1]:
            where = len(numbers)
        else:
            where = bisect_left(numbers, entry.number, lo=self._head)
        for value in entry:
            array("q", [value])  # all or none
        for column, value in zip(self._columns, entry, strict=True):
            column.insert(where, value)

    def pop(self) -> SpoolEntry:
        """Remove and return the first entry; IndexError when there is none."""
        entry = self.first
        if entry is None:
            raise IndexError("the queue is empty")
        self._head += 1
        if self._head >= max(_TIDY_AFTER, len(self._columns[0]) // 2):
            for column in self._columns:
                del column[: self._head]
            self._head = 0
        return entry
