"""What all pages of this process share, for the scripts that Streamlit runs."""

from dataclasses import dataclass, field

from gpuvigil.clock import SystemClock
from gpuvigil.config import Config

from . import freshness
from .change_feed import ChangeFeed
from .questions import Questions, Said
from .snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """One view of the fleet, and answers to what only some pages ask."""

    snapshot: Snapshot
    questions: Questions
    config: Config
    changes: ChangeFeed = field(default_factory=lambda: ChangeFeed(SystemClock()))


_installed: list[Shared] = []


def install(shared: Shared) -> None:
    """Make this what pages draw from."""
    _installed[:] = [shared]


def shared() -> Shared:
    """What pages draw from."""
    (found,) = _installed
    return found


def current() -> Snapshot:
    """The snapshot that pages draw from."""
    return shared().snapshot


def outdated(what: str, said: Said) -> list[str]:
    """See `contact.outdated`."""
    return freshness.outdated(what, said, current().silence())


def refresh_seconds() -> float:
    """How often an open page renews itself."""
    return current().refresh_seconds
