"""Wrong tries to sign in, which slow down who makes them."""

from collections import OrderedDict

from gpuvigil.web.connections import sender


class Tries:
    """Wrong tries per address (of IPv6 per /64): the fourth in a row waits 1 s, each later one twice as long.

    Of an account, which others may try, more are free: who owns it is not to be kept out by one typing error of theirs.
    """

    FREE, FREE_OF_AN_ACCOUNT = 3, 10
    LONGEST_SECONDS = 60
    FORGOTTEN_AFTER_SECONDS = 600.0
    MOST_ADDRESSES = 1000

    def __init__(self, free: int = FREE) -> None:
        self._free = free
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def add(self, address: str, now: float) -> None:
        """One more wrong try, at monotonic `now`."""
        who = sender(address)
        count, at = self._wrong.pop(who, (0, now))
        fresh = now - at > self.FORGOTTEN_AFTER_SECONDS
        self._wrong[who] = (1 if fresh else count + 1, now)
        if len(self._wrong) > self.MOST_ADDRESSES:
            self._wrong.popitem(last=False)

    def wait_seconds(self, address: str, now: float) -> int:
        """Whole seconds until this address may try again; 0 when it may now."""
        count, at = self._wrong.get(sender(address), (0, now))
        if count < self._free:
            return 0
        pause: int = min(2 ** min(count - self._free, 10), self.LONGEST_SECONDS)
        left = at + pause - now
        return 0 if left <= 0 else int(left) + 1

    def forget(self, address: str) -> None:
        """It was the right one."""
        self._wrong.pop(sender(address), None)
