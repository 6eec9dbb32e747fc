"""The channel protocol: a channel takes a message and returns its outcome."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpuvigil.errors import ConfigError

from ..routing.case import ChannelProfile
from .message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The receiver accepted it. `receipt` is its name for the message, where it gives one."""

    receipt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The receiver cannot take it now. `after_seconds` is what it asked for; None without a word."""

    reason: str
    after_seconds: float | None = None
    perhaps_received: bool = False  # no clear answer: it may have arrived all the same
    for_some: bool = False  # other readers have it: the receiver works, and is not left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The receiver will never take it: the same message would be refused again."""

    reason: str
    lost: bool = False  # the message to be updated is gone, or may not be changed
    for_nobody: bool = False  # its readers cannot be reached there: says nothing about the receiver


Outcome = Delivered | Retry | Refused


def tried(attempt: Callable[[], Outcome]) -> Outcome:
    """Return an attempt's outcome, whatever goes wrong in it: a channel must not fail silently.

    For an unexpected error only its type and place are reported; its text may hold a secret.
    """
    try:
        return attempt()
    except ConfigError as error:  # a secret's file may be in the middle of a rotation
        return Retry(reason=str(error))
    except Exception as error:  # noqa: BLE001 - else it would be tried for ever, and count as well
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        return Retry(reason=said, perhaps_received=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A receiver's rate limit: a token bucket of `burst` messages, refilled at `per_second`."""

    burst: int = 10
    per_second: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The tokens that were left at monotonic `at`; pure."""

    pace: Pace
    tokens: float
    at: float

    @classmethod
    def full(cls, pace: Pace, now: float) -> "Bucket":
        return cls(pace=pace, tokens=pace.burst, at=now)

    def wait_seconds(self, now: float) -> float:
        """Return how long until a message may go out; 0 when it may now."""
        return max(1.0 - self._left(now), 0.0) / self.pace.per_second

    def take(self, now: float) -> "Bucket":
        """Return the bucket after a message went out at `now`."""
        return Bucket(pace=self.pace, tokens=self._left(now) - 1.0, at=now)

    def _left(self, now: float) -> float:
        grown = self.tokens + (now - self.at) * self.pace.per_second
        return min(grown, float(self.pace.burst))


class Channel(Protocol):
    """A way to notify people; used by one thread at a time.

    `deliver` makes one attempt, ends within `timeout_seconds`, and raises nothing for a receiver's
    fault. Reasons are one line and hold no secret.
    """

    @property
    def profile(self) -> ChannelProfile:
        """The messages that this channel wants to receive."""

    @property
    def timeout_seconds(self) -> float:
        """The longest that `deliver` takes."""

    @property
    def pace(self) -> Pace:
        """The rate at which messages may follow each other, counted from the end of each attempt."""

    def deliver(self, message: Message) -> Outcome:
        """Make one attempt."""

    def close(self) -> None:
        """Close all connections."""
