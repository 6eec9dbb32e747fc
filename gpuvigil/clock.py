"""Sources of time, which tests can replace."""

import re
import threading
import time
from datetime import datetime, timedelta, timezone
from typing import Protocol


class Clock(Protocol):
    """Wall time in UTC, a monotonic reading that never steps back, and a way to wait."""

    def now(self) -> datetime:
        """Return the wall clock as an aware UTC time. It may step when an operator or NTP sets it."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; only differences are meaningful."""

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Wait until `stop` is set or `seconds` have passed; return whether `stop` is set."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        return stop.wait(max(seconds, 0.0))


class ManualClock:
    """A clock that moves only when told to. Waiting advances it, so loops run without delay."""

    def __init__(self, start: datetime) -> None:
        self._now = start
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.advance(seconds)
        return stop.is_set()

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._elapsed += seconds

    def step(self, seconds: float) -> None:
        """Step the wall clock as if somebody had set it; the monotonic clock stays."""
        self._now += timedelta(seconds=seconds)


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Return a time as whole microseconds since 1970."""
    return (at - EPOCH) // _MICROSECOND


def to_ns(at: datetime) -> int:
    """Return an aware time as nanoseconds since 1970, exact to the microsecond."""
    delta = at - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000_000 + delta.microseconds * 1_000


def from_ns(nanoseconds: int) -> datetime:
    """Return the aware UTC time for nanoseconds since 1970, truncated to microseconds."""
    return EPOCH + timedelta(microseconds=nanoseconds // 1_000)


_WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


def to_text(at: datetime) -> str:
    """Format a time as RFC 3339 in UTC with microseconds: `2026-01-31T12:00:00.000000Z`. Sorts as text."""
    return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_text(text: str) -> datetime:
    """Parse a time that `to_text` wrote, with or without a fraction; raise ValueError for other text."""
    if _WRITTEN.fullmatch(text):
        # Thirty times as fast as strptime; the pattern keeps out the other forms that fromisoformat
        # accepts.
        return datetime.fromisoformat(text[:-1] + "+00:00")
    form = "%Y-%m-%dT%H:%M:%S.%fZ" if "." in text else "%Y-%m-%dT%H:%M:%SZ"
    return datetime.strptime(text, form).replace(tzinfo=timezone.utc)


def moment(at: datetime) -> str:
    """Format a time for people: `07:15:15 UTC on 21 Nov`."""
    utc = at.astimezone(timezone.utc)
    return f"{utc:%H:%M:%S} UTC on {utc.day} {utc:%b}"


def duration(span: timedelta) -> str:
    """Format a time span for people: `42 s`, `4 min`, `3 h 10 min`, `2 d 4 h`; negative spans as `0 s`."""
    seconds = max(int(span.total_seconds()), 0)
    if seconds < 120:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if hours == 0:
        return f"{minutes} min"
    big, small = (days, hours % 24) if days else (hours, minutes % 60)
    units = ("d", "h") if days else ("h", "min")
    return f"{big} {units[0]} {small} {units[1]}" if small else f"{big} {units[0]}"
