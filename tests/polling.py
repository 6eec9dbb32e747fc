"""Waiting for something to become true, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Each look may be a request. A quick result is seen at once, and one that takes long a twentieth of that time
# later.
_FIRST_SECONDS, _MOST_SECONDS, _LATER = 0.02, 0.1, 20
# A look into a container is a process or more, which takes its time from what is waited for: a third of a core at most.
_REST, _MOST_REST_SECONDS = 2, 1.5


def wait_until(what: str, look: Callable[[], T | None], timeout_seconds: float = 40.0) -> T:
    """Return what `look` returns once that is truthy; raise AssertionError with `what` after the timeout."""
    begun = time.monotonic()
    while True:
        asked = time.monotonic()
        found = look()
        if found:
            return found
        now = time.monotonic()
        waited = now - begun
        if waited > timeout_seconds:
            raise AssertionError(f"{what}: not within {timeout_seconds} s, last seen {found!r}")
        usual = min(max(_FIRST_SECONDS, waited / _LATER), _MOST_SECONDS)
        time.sleep(max(usual, min(_REST * (now - asked), _MOST_REST_SECONDS)))
