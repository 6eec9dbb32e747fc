"""Limits that all clients share, so that none can use them up alone."""

import threading
from collections.abc import Hashable


class Shares:
    """Shares of one resource, such as bytes or connections, under a common limit; thread-safe.

    A holder gets more only while at least as much as it would then hold is left for others: alone it
    can get a half, two can get a third each. A client that holds nothing gets what is free.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_holder: dict[Hashable, int] = {}
        self._lock = threading.Lock()
        self.held = 0

    def fits(self, who: Hashable, size: int) -> bool:
        """Return whether `who` may hold `size` more; any size fits while nobody holds anything.

        Another may take it before `who` does.
        """
        with self._lock:
            return self._fits(who, size)

    def acquire(self, who: Hashable, size: int) -> bool:
        """Hold `size` more if that fits; return whether it did."""
        with self._lock:
            if not self._fits(who, size):
                return False
            self.held += size
            self._by_holder[who] = self._by_holder.get(who, 0) + size
            return True

    def has(self, who: Hashable) -> bool:
        """Return whether `who` holds any."""
        with self._lock:
            return who in self._by_holder

    def give_back(self, who: Hashable, size: int) -> None:
        with self._lock:
            self.held -= size
            left = self._by_holder.pop(who, 0) - size
            if left:
                self._by_holder[who] = left

    def _fits(self, who: Hashable, size: int) -> bool:
        if not self.held:
            return True
        left = self._most - self.held - size
        held = self._by_holder.get(who, 0)
        return left >= 0 and (not held or held + size <= left)
