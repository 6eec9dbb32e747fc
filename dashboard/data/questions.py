"""Questions to the hub that only some pages ask; each is asked once and shared by all sessions.

Questions run in their own threads, so that no page waits for a hub that hangs. A hub client serves one
thread at a time.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gpuvigil.clock import Clock
from gpuvigil.errors import HubError, StoreError
from gpuvigil.hub_client import Hub
from gpuvigil.log import Log

MOST_KEPT = 256
# An answer that nobody asked for in so long is dropped, since answers may be large.
FORGOTTEN_SECONDS = 600.0
MOST_CLIENTS = 8
# Each question under way has a thread and a client; crafted addresses can ask questions, too.
MOST_UNDER_WAY = 32
# How long a page waits for a newer answer if there is an old one, and for a first answer.
PATIENCE_SECONDS, FIRST_SECONDS = 1.5, 5.0
# After a failure the hub is asked again so soon.
RETRY_SECONDS = 2.0
# A slow answer stays fresh for so many times as long as it took, so that asking takes a fifth of the time,
# and at most so long.
TIMES_AS_LONG, LONGEST_SECONDS = 4.0, 60.0
# An answer that takes longer is reported as late.
LATE_SECONDS = 5.0
# A first answer may take so long: it is large for a large cluster, and every page reports a hub that hangs.
FIRST_LATE_SECONDS = 20.0

_T = TypeVar("_T")


class AnswerPending(HubError):
    """The first answer is under way, or waits for its turn, and is not late yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAnswer:
    """An answer of the hub and its age; `error` says why there is no newer one."""

    value: Any
    age_seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class PersonKey:
    """The key of a question whose answer depends on who asks."""

    who: Hashable
    key: Hashable


@dataclass(slots=True, kw_only=True)
class _Entry:
    changed: threading.Condition = field(default_factory=threading.Condition)
    value: Any = None
    at: float | None = None  # monotonic seconds; None: never answered
    took: float = 0.0  # seconds that the last answer took
    error: str = ""
    failed_at: float | None = None
    began_at: float | None = None  # when the request under way began; None: none is
    asked_at: float = 0.0


class QueryCache:
    """A cache of answers, shared by all sessions of a process."""

    def __init__(self, connect: Callable[[], Hub], clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._log = Log("dashboard")
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._idle: list[Hub] = []
        self._under_way = 0
        self._closed = False

    def ask(
        self,
        key: Hashable,
        ask: Callable[[Hub], _T],
        fresh_seconds: float,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        first_seconds: float = FIRST_SECONDS,
    ) -> CachedAnswer:
        """Return what `ask` gave, at most `fresh_seconds` old, else the last answer and why it is old.

        A slow answer may be older: `TIMES_AS_LONG` times as old as it took, at most `LONGEST_SECONDS`.

        `key` names the question. Callers wait for an answer that is under way, also for another caller:
        `patience_seconds` if there is an older one, `first_seconds` if there is none. While
        `MOST_UNDER_WAY` questions are under way, no further one is asked and nobody waits for it.
        Raises HubError if the hub has never answered the question, StillAsking while that is not late.
        """
        entry = self._entry(key)
        with entry.changed:
            if entry.began_at is None and self._is_old(entry, fresh_seconds):
                self._begin(key, entry, ask)
            patience = first_seconds if entry.at is None else patience_seconds
            entry.changed.wait_for(lambda: entry.began_at is None, patience)
            return self._answer(entry)

    def _begin(self, key: Hashable, entry: _Entry, ask: Callable[[Hub], Any]) -> None:
        with self._lock:
            if self._under_way >= MOST_UNDER_WAY:
                return
            self._under_way += 1
        entry.began_at = self._clock.monotonic()
        renew = threading.Thread(
            target=self._renew, args=(key, entry, ask), name="question", daemon=True
        )
        renew.start()

    def _is_old(self, entry: _Entry, fresh_seconds: float) -> bool:
        now = self._clock.monotonic()
        if entry.failed_at is not None:
            return now - entry.failed_at >= min(fresh_seconds, RETRY_SECONDS)
        kept = max(fresh_seconds, min(TIMES_AS_LONG * entry.took, LONGEST_SECONDS))
        return entry.at is None or now - entry.at >= kept

    def _answer(self, entry: _Entry) -> CachedAnswer:
        now = self._clock.monotonic()
        waited = 0.0 if entry.began_at is None else now - entry.began_at
        allowed = FIRST_LATE_SECONDS if entry.at is None else LATE_SECONDS
        error = f"the hub has not answered for {waited:.0f} s" if waited > allowed else ""
        if entry.at is None:
            if why := entry.error or error:
                raise HubError(why)
            raise AnswerPending("the hub has not answered yet")
        return CachedAnswer(
            value=entry.value, age_seconds=now - entry.at, error=entry.error or error
        )

    def wrapped_by(self, seen: Callable[[Hub], Hub]) -> "QueryCache":
        """Return separate questions to the same hub, wrapped by `seen`."""
        return QueryCache(lambda: seen(self._connect()), self._clock)

    def call(self, ask: Callable[[Hub], _T]) -> _T:
        """Call `ask` with a hub client now and return its result; HubError if it fails."""
        hub = self._client()
        try:
            return ask(hub)
        finally:
            self._give(hub)

    def forget(self, key: Hashable) -> None:
        """Drop an answer whose subject has changed, so that the next caller gets a new one."""
        with self._lock:
            for kept in [one for one in self._entries if one == key or _asks(one) == key]:
                del self._entries[kept]

    def _renew(self, key: Hashable, entry: _Entry, ask: Callable[[Hub], Any]) -> None:
        value, error = None, ""
        try:
            value = self.call(ask)
        except (HubError, StoreError) as away:
            error = str(away)
        except Exception as broken:  # noqa: BLE001 - nobody but the page would hear of it
            error = f"the hub's answer cannot be read: {broken!r}"
            self._log.error("question failed", question=str(key), error=repr(broken))
        with self._lock:
            self._under_way -= 1
        with entry.changed:
            now = self._clock.monotonic()
            if error:
                entry.failed_at = now
            else:
                entry.value, entry.at, entry.failed_at = value, now, None
                entry.took = 0.0 if entry.began_at is None else now - entry.began_at
            entry.error, entry.began_at = error, None
            entry.changed.notify_all()

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

    def close(self) -> None:
        """Close the hub clients; those still in use are closed when they are done."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for hub in idle:
            hub.close()

    def _client(self) -> Hub:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _give(self, hub: Hub) -> None:
        with self._lock:
            if len(self._idle) < MOST_CLIENTS and not self._closed:
                self._idle.append(hub)
                return
        hub.close()


def _asks(key: Hashable) -> Hashable:
    return key.key if isinstance(key, PersonKey) else key
