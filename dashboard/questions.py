"""Questions to the hub that only some pages ask: each is asked once for everybody who wonders.

Pages run in threads of Streamlit's; a client of the hub serves one thread at a time.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gpuvigil.clock import Clock
from gpuvigil.errors import HubError, StoreError
from gpuvigil.hub import Hub

MOST_KEPT = 256
# Nobody wonders any more when nobody asked for so long; answers may be large.
FORGOTTEN_SECONDS = 600.0
MOST_CLIENTS = 8

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An answer of the hub and how old it is; `error` says why there is none that is newer."""

    value: Any
    age_seconds: float
    error: str = ""


@dataclass(slots=True, kw_only=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    value: Any = None
    at: float | None = None  # monotonic; None: never answered
    error: str = ""
    failed_at: float | None = None
    asked_at: float = 0.0


class Questions:
    """A memory of answers, shared by all sessions of a process."""

    def __init__(self, connect: Callable[[], Hub], clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._idle: list[Hub] = []

    def ask(self, key: Hashable, ask: Callable[[Hub], _T], fresh_seconds: float) -> Said:
        """What `ask` gave, at most `fresh_seconds` old; after a failure the last answer, and why.

        `key` names the question. Who asks while another waits for the same answer waits for it too.
        HubError when the hub has never answered it.
        """
        entry = self._entry(key)
        with entry.lock:
            now = self._clock.monotonic()
            newest = max((t for t in (entry.at, entry.failed_at) if t is not None), default=None)
            if newest is None or now - newest >= fresh_seconds:
                self._renew(entry, ask)
            if entry.at is None:
                raise HubError(entry.error)
            age = self._clock.monotonic() - entry.at
            return Said(value=entry.value, age_seconds=age, error=entry.error)

    def tell(self, tell: Callable[[Hub], _T]) -> _T:
        """Do something with the hub, now; HubError when it cannot be done."""
        hub = self._take()
        try:
            return tell(hub)
        finally:
            self._give(hub)

    def forget(self, key: Hashable) -> None:
        """The next to ask gets a new answer: what it is about has changed."""
        with self._lock:
            self._entries.pop(key, None)

    def _renew(self, entry: _Entry, ask: Callable[[Hub], Any]) -> None:
        try:
            entry.value = self.tell(ask)
        except (HubError, StoreError) as error:
            entry.error, entry.failed_at = str(error), self._clock.monotonic()
        else:
            entry.at, entry.error, entry.failed_at = self._clock.monotonic(), "", None

    def _entry(self, key: Hashable) -> _Entry:
        with self._lock:
            now = self._clock.monotonic()
            entry = self._entries.setdefault(key, _Entry())
            entry.asked_at = now
            self._entries.move_to_end(key)
            oldest = next(iter(self._entries.values()))
            while len(self._entries) > MOST_KEPT or now - oldest.asked_at > FORGOTTEN_SECONDS:
                self._entries.popitem(last=False)
                oldest = next(iter(self._entries.values()))
            return entry

    def _take(self) -> Hub:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _give(self, hub: Hub) -> None:
        with self._lock:
            if len(self._idle) < MOST_CLIENTS:
                self._idle.append(hub)
                return
        hub.close()
