"""The seam to the people's side: a channel takes a message and says how that went."""

from dataclasses import dataclass
from typing import Protocol

from .case import Route
from .message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The receiver took it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Not now. `after_seconds` is what the receiver asked for; None when it did not say."""

    reason: str
    after_seconds: float | None = None
    perhaps_received: bool = False  # no clear answer: it may have arrived all the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Never: the same message would be refused again."""

    reason: str


Outcome = Delivered | Retry | Refused


class Channel(Protocol):
    """One way to tell people; used by one thread at a time.

    `deliver` makes one attempt, ends within `timeout_seconds`, and raises nothing for a receiver's
    fault. Reasons are one line and hold no secret.
    """

    @property
    def route(self) -> Route:
        """What this channel wants to hear."""

    @property
    def timeout_seconds(self) -> float:
        """The longest that `deliver` takes."""

    @property
    def spacing_seconds(self) -> float:
        """The least time between the end of one attempt and the next."""

    def deliver(self, message: Message) -> Outcome:
        """Try once."""

    def close(self) -> None:
        """Let go of connections."""
