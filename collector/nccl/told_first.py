"""Which of the ranks that came last are told: such as did at two looks, one after the other, and seldom again."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

TOLD_AGAIN_SECONDS = 600.0

_Key = TypeVar("_Key", bound=Hashable)


class ToldFirst:
    """Of the looks of one node; one that finds nobody counts, too."""

    def __init__(self) -> None:
        self._seen: frozenset[Hashable] = frozenset()
        self._again: dict[Hashable, float] = {}

    def news(self, found: Iterable[_Key], now: float) -> frozenset[_Key]:
        """Of whom a look found, at that moment, who is told."""
        keys = frozenset(found)
        self._again = {key: at for key, at in self._again.items() if now < at}
        told = frozenset(key for key in keys if key in self._seen and key not in self._again)
        self._again |= dict.fromkeys(told, now + TOLD_AGAIN_SECONDS)
        self._seen = keys
        return told
