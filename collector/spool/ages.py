"""How long bodies wait: by a clock that nobody sets, since a node's wall clock may be years off."""

from collections import deque

_MARKS = 1000


class Ages:
    """Which numbers were given longer ago than a limit, to a thousandth of it, never early."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit = limit_seconds
        self._step = limit_seconds / _MARKS
        # When a range of numbers began, and its last number.
        self._marks: deque[tuple[float, int]] = deque()
        self._outdated = -1

    def note(self, number: int, now: float) -> None:
        """Note that all numbers up to this one are given; `now` never steps back."""
        began = now
        if self._marks and now - self._marks[-1][0] < self._step:
            began, _ = self._marks.pop()
        self._marks.append((began, number))

    def outdated(self, now: float) -> int:
        """Return the last number that is older than the limit, as are all before; -1 for none."""
        while self._marks and now - self._marks[0][0] > self._limit + self._step:
            self._outdated = self._marks.popleft()[1]
        return self._outdated
