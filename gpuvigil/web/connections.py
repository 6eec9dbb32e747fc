"""Limits on the connections of a web server: on time, memory and number."""

import resource
import sys
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

from ..log import Log
from .limits import Shares

# Open files that are not connections: those of stores, records and libraries.
_OTHER_FILES = 256
# Extra connections beyond the limit, for the one path that is always answered.
_CROWD_COUNT = 64
_LOG_AGAIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on one connection; None: the application sets the limit."""

    # From a request's first byte, or from the connection's start, to the end of the headers.
    head_seconds: float = 10.0
    # The request line and the headers, with their line ends; also the framing around a body's chunks.
    head_bytes: int = 64 * 1024
    # From the headers to the end of the body.
    body_seconds: float | None = None
    body_bytes: int | None = None
    # For the rest of a body that was answered before its end.
    rest_seconds: float = 10.0
    # For a piece of an answer to be read by a client that reads slowly, or has stopped reading.
    drain_seconds: float = 10.0
    # Requests sent before the previous answer: without a limit, a packet could hold very many.
    pipelined_count: int = 16


@dataclass(slots=True, eq=False)
class Place:
    """A connection's slot; if `crowded`, only the path that is always answered is served."""

    crowded: bool
    who: Hashable
    _shares: Shares
    _silent: dict["Place", None]
    _end: Callable[[], None]
    _left: bool = False

    def mark_active(self) -> None:
        """Mark that the client has sent a request: the slot is kept for it."""
        self._silent.pop(self, None)

    def leave(self) -> None:
        """Free the slot."""
        self.mark_active()
        if not self._left:
            self._left = True
            self._shares.give_back(self.who, 1)

    def end(self) -> None:
        """Free the slot, and end the connection."""
        self.leave()
        self._end()

    def hand_over(self) -> None:
        """End the connection; another one of the same address gets its slot."""
        self.mark_active()
        self._left = True
        self._end()


@dataclass(slots=True)
class Places:
    """Up to `most` simultaneous connections; one address gets at most as many as it leaves for others.

    When all are taken, the client that has been silent longest is ended, so that half-sent requests keep
    nobody out. An address that is `exempt` has no share: a proxy's, from which everybody comes.
    """

    most: int
    exempt: Callable[[str], bool]
    log: Log
    _all: Shares = field(init=False)
    _crowd: Shares = field(init=False)
    _silent: dict[Place, None] = field(init=False, default_factory=dict)
    _silent_crowd: dict[Place, None] = field(init=False, default_factory=dict)
    _logged_at: float = -_LOG_AGAIN_SECONDS

    def __post_init__(self) -> None:
        self._all = Shares(self.most)
        self._crowd = Shares(_CROWD_COUNT)

    def acquire(self, address: str, end: Callable[[], None]) -> Place | None:
        """Return a slot for one more connection from `address`; `end` ends the connection.

        None when not even a crowded slot is free.
        """
        exempt = self.exempt(address)
        who: Hashable = object() if exempt else sender(address)
        if _made_room(self._all, self._silent, who, self.most, exempt=exempt):
            place = Place(False, who, self._all, self._silent, end)
            self._silent[place] = None
            return place
        self._log_full(address)
        if _made_room(self._crowd, self._silent_crowd, who, _CROWD_COUNT, exempt=exempt):
            place = Place(True, who, self._crowd, self._silent_crowd, end)
            self._silent_crowd[place] = None
            return place
        return None

    def _log_full(self, address: str) -> None:
        now = time.monotonic()
        if now - self._logged_at >= _LOG_AGAIN_SECONDS:
            self._logged_at = now
            self.log.warning("too many connections", most=self.most, refused=address)


def _made_room(
    shares: Shares, silent: dict[Place, None], who: Hashable, most: int, *, exempt: bool
) -> bool:
    """Return whether `who` got one more share, if need be that of a client which has sent nothing yet."""
    if shares.acquire(who, 1):
        return True
    if not exempt and (own := next((place for place in silent if place.who == who), None)):
        own.hand_over()
        return True
    if shares.held < most or shares.has(who) or not silent:
        return False
    next(iter(silent)).end()
    return shares.acquire(who, 1)


def sender(address: str) -> str:
    """Return the sender of an address: for IPv6 the /64, since its owner has all of it (RFC 6177)."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return f"{IPv6Address(int(found) >> 64 << 64)}/64"
    return str(found)


def raise_open_files() -> None:
    """Raise the limit of open files as far as the system allows: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def most_connections(wanted: int) -> int:
    """Return `wanted`, or fewer if the limit of open files, less other files, does not allow it."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    granted = sys.maxsize if allowed == resource.RLIM_INFINITY else max(allowed - _OTHER_FILES, 64)
    return min(wanted, granted)
