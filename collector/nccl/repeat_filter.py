"""Decides which ranks that others wait for are reported: found at two looks in a row, and rarely.

A rank that was found for the first time is looked at again as soon as there is something new to read.
"""

from collections.abc import Hashable, Iterable
from typing import TypeVar

TOLD_AGAIN_SECONDS = 600.0
# The look after the first one that found a rank comes this much later at least, and this many times what
# that one read of: the two read different lines [ours].
SECOND_LOOK_SECONDS, SECOND_LOOK_TIMES = 30.0, 1.2

_Key = TypeVar("_Key", bound=Hashable)


class RepeatFilter:
    """Remembers one node's looks; a look that finds no rank counts, too."""

    def __init__(self) -> None:
        self._seen: frozenset[Hashable] = frozenset()
        self._again: dict[Hashable, float] = {}
        self._is_first = self._is_early = False

    def news(self, found: Iterable[_Key], now: float) -> frozenset[_Key]:
        """Return which of a look's keys are to be reported; `now` is in monotonic seconds."""
        keys = frozenset(found)
        self._again = {key: at for key, at in self._again.items() if now < at}
        told = frozenset(key for key in keys if key in self._seen and key not in self._again)
        self._again |= dict.fromkeys(told, now + TOLD_AGAIN_SECONDS)
        self._seen = keys
        self._is_first = not keys <= self._again.keys()
        return told

    def rest(self, usual: float, read: float) -> float:
        """Return the seconds until the next look: fewer if the last one found a rank for the first time.

        `read` is the time in seconds that it came last for. Every other look at most is early, as
        some jobs have another rank last at each.
        """
        self._is_early = self._is_first and not self._is_early
        soon = max(SECOND_LOOK_SECONDS, SECOND_LOOK_TIMES * read)
        return min(soon, usual) if self._is_early else usual
