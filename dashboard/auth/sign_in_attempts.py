"""Wrong sign-in tries, which slow down further ones."""

from collections import OrderedDict

from gpuvigil.web.connections import sender


class FailedAttempts:
    """Wrong tries per address (IPv6: per /64). The fourth in a row waits 1 s, each later one twice as long.

    An account has more free tries, since others may try it too: one typing error must not lock its owner out.
    """

    FREE, FREE_OF_AN_ACCOUNT = 3, 10
    LONGEST_SECONDS = 60
    FORGOTTEN_AFTER_SECONDS = 600.0
    MOST_ADDRESSES = 1000

    def __init__(self, free: int = FREE) -> None:
        self._free = free
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def add(self, address: str, now: float) -> None:
        """Count one more wrong try at `now`, in monotonic seconds."""
        who = sender(address)
        count, at = self._wrong.pop(who, (0, now))
        fresh = now - at > self.FORGOTTEN_AFTER_SECONDS
        self._wrong[who] = (1 if fresh else count + 1, now)
        if len(self._wrong) > self.MOST_ADDRESSES:
            self._wrong.popitem(last=False)

    def wait_seconds(self, address: str, now: float) -> int:
        """Return the whole seconds until this address may try again; 0 if it may now."""
        count, at = self._wrong.get(sender(address), (0, now))
        if count < self._free:
            return 0
        pause: int = min(2 ** min(count - self._free, 10), self.LONGEST_SECONDS)
        left = at + pause - now
        return 0 if left <= 0 else int(left) + 1

    def forget(self, address: str) -> None:
        """Forget an address's wrong tries after a right one."""
        self._wrong.pop(sender(address), None)
