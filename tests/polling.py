"""Waiting for something to become true, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(what: str, look: Callable[[], T | None], timeout_seconds: float = 40.0) -> T:
    """What `look` returns once it is neither None nor false; AssertionError names `what`."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_seconds} s, last seen {found!r}")
        time.sleep(0.02)
