"""Back-off while the hub is away: one sender tries at a time, with growing delays."""

import threading
from collections.abc import Callable

from gpuvigil.clock import Clock

TIMEOUT_SECONDS = 10.0  # of one request
_SHORTEST_DELAY_SECONDS = 0.25
_LONGEST_DELAY_SECONDS = 5.0
_LONGEST_RETRY_AFTER_SECONDS = 60.0
_IDLE_SECONDS = 1.0  # how soon a thread that waits for the hub notices that it must stop


class Backoff:
    """Holds all senders back while the hub is away, and lets one at a time try again."""

    def __init__(self, clock: Clock, chance: Callable[[], float]) -> None:
        self._clock = clock
        self._chance = chance
        self._changed = threading.Condition()
        self._failures = 0
        self._not_before = 0.0

    @property
    def open(self) -> bool:
        """Whether the last attempt was answered."""
        return self._failures == 0

    def enter(self) -> bool:
        """Return whether the caller may try now; if not, it has waited a moment."""
        with self._changed:
            now = self._clock.monotonic()
            if self._failures and now < self._not_before:
                self._changed.wait(min(self._not_before - now, _IDLE_SECONDS))
                return False
            # A sender that tries while the hub is away keeps the others out until its answer is in.
            self._not_before = now + 2 * TIMEOUT_SECONDS
            return True

    def leave(self) -> None:
        """End an attempt without a body to send."""
        with self._changed:
            self._not_before = 0.0

    def succeeded(self) -> bool:
        """Note that the hub answered; return true when it did not before."""
        with self._changed:
            was_away, self._failures, self._not_before = self._failures > 0, 0, 0.0
            self._changed.notify_all()
        return was_away

    def failed(self, retry_after_seconds: float | None) -> bool:
        """Note that the hub did not answer; return true for the first time in a row."""
        with self._changed:
            delay = min(_SHORTEST_DELAY_SECONDS * 2**self._failures, _LONGEST_DELAY_SECONDS)
            asked = min(retry_after_seconds or 0.0, _LONGEST_RETRY_AFTER_SECONDS)
            # Spread, so that a thousand nodes do not come back in the same second.
            wait = max(delay, asked) * (1.0 + 0.5 * self._chance())
            self._failures = min(self._failures + 1, 16)
            self._not_before = self._clock.monotonic() + wait
            self._changed.notify_all()
            return self._failures == 1
