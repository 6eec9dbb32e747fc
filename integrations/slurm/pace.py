"""Paces the questions to Slurm's controller: within the agreed rate, and less while it does not answer."""

from collections import deque

_LONGEST_SECONDS = 900.0
_MINUTE = 60.0


class Pace:
    """Times are seconds of one steady clock."""

    def __init__(self, interval_seconds: float, most_per_minute: int) -> None:
        """Rounds begin `interval_seconds` apart; of requests at most so many lie within any minute."""
        self._interval = interval_seconds
        self._most = most_per_minute
        self._asked: deque[float] = deque()
        self._begun: float | None = None
        self._failures = 0

    def wait_seconds(self, now: float) -> float:
        """Until the next round may begin; doubled with each that failed, to a quarter of an hour at most."""
        if self._begun is None:
            return 0.0
        longest = max(_LONGEST_SECONDS, self._interval)
        pause = min(self._interval * 2.0 ** min(self._failures, 16), longest)
        return max(self._begun + pause - now, 0.0)

    def begin(self, now: float) -> None:
        self._begun = now

    def may_ask(self, now: float) -> bool:
        """Whether one more request is within the limit; counts it when it is."""
        while self._asked and now - self._asked[0] >= _MINUTE:
            self._asked.popleft()
        if len(self._asked) >= self._most:
            return False
        self._asked.append(now)
        return True

    def end(self, *, answered: bool) -> None:
        self._failures = 0 if answered else self._failures + 1
