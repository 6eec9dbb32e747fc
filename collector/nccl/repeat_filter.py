"""Decides which ranks that others wait for are reported: found at two looks in a row, and rarely."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

TOLD_AGAIN_SECONDS = 600.0

_Key = TypeVar("_Key", bound=Hashable)


class RepeatFilter:
    """Remembers one node's looks; a look that finds no rank counts, too."""

    def __init__(self) -> None:
        self._seen: frozenset[Hashable] = frozenset()
        self._again: dict[Hashable, float] = {}

    def news(self, found: Iterable[_Key], now: float) -> frozenset[_Key]:
        """Return which of a look's keys are to be reported; `now` is in monotonic seconds."""
        keys = frozenset(found)
        self._again = {key: at for key, at in self._again.items() if now < at}
        told = frozenset(key for key in keys if key in self._seen and key not in self._again)
        self._again |= dict.fromkeys(told, now + TOLD_AGAIN_SECONDS)
        self._seen = keys
        return told
