"""What is said in the log again only after a while, however often it happens."""

import math


class Seldom:
    """Times are seconds of one steady clock."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._told_at = -math.inf

    def is_time(self, now: float) -> bool:
        """Whether it is to be said at `now`, and is then taken for said."""
        if now - self._told_at < self._seconds:
            return False
        self._told_at = now
        return True
