"""Rate limit for events: the first of each key is reported at once, later ones by their count.

The reporter defines the key: an Xid's code, its decoded gravity, unit and link. When there are
more keys at once than are kept apart, those of one kind, subject, code and gravity count as one.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace

from gpuvigil.clock import Clock
from gpuvigil.model import Event, EventKind, Subject

BURST_SECONDS = 10.0
# A GPU has 18 NVLinks and a dozen units that report on each: a node in a bad state has hundreds.
MOST_BURSTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstKey:
    """What tells events of one kind, subject and code apart: their gravity, and the rest."""

    gravity: str = ""
    rest: Hashable = None


_FullKey = tuple[EventKind, str, int | None, BurstKey]


@dataclass(slots=True, kw_only=True)
class _Burst:
    """A key that was reported: until when it is only counted, and how often it came since."""

    until: float
    count: int = 0
    last: Event | None = None


class BurstLimit:
    """All bursts of a node; for one thread."""

    def __init__(self, clock: Clock, most_bursts: int = MOST_BURSTS) -> None:
        self._clock = clock
        self._most = most_bursts
        self._bursts: dict[_FullKey, _Burst] = {}

    def limit(self, event: Event, key: BurstKey) -> list[Event]:
        """Return the event; if it comes too soon after one with its key, only count it."""
        full = self._full_key(event, key)
        burst, now = self._bursts.get(full), self._clock.monotonic()
        if burst is not None and now < burst.until:
            burst.count, burst.last = burst.count + 1, event
            return []
        before = [] if burst is None else _counted(burst)
        self._bursts[full] = _Burst(until=now + BURST_SECONDS)
        return [*before, event]

    def begin(self, event: Event, key: BurstKey) -> None:
        """Start a burst for a key that was reported already; events that follow are counted."""
        until = self._clock.monotonic() + BURST_SECONDS
        self._bursts.setdefault(self._full_key(event, key), _Burst(until=until))

    def uncount(self, event: Event, key: BurstKey) -> None:
        """Uncount one event, which turned out to be of another key."""
        burst = self._bursts.get(self._full_key(event, key))
        if burst is not None and burst.count:
            burst.count -= 1

    def due(self) -> list[Event]:
        """Return repeated events, one per key with its count, once per burst interval."""
        now, found = self._clock.monotonic(), list[Event]()
        for key, burst in list(self._bursts.items()):
            if now >= burst.until:
                found += _counted(burst)
                if burst.count == 0:
                    del self._bursts[key]
                burst.until, burst.count = now + BURST_SECONDS, 0
        return found

    def untold(self) -> list[Event]:
        """Return the events that were counted and not yet reported."""
        return [event for burst in self._bursts.values() for event in _counted(burst)]

    def end(self, subject: Subject | None = None) -> list[Event]:
        """End all bursts, or those of a subject; return what they had counted."""
        ended = [key for key in self._bursts if subject is None or key[1] == subject.key]
        return [event for key in ended for event in _counted(self._bursts.pop(key))]

    def _full_key(self, event: Event, key: BurstKey) -> _FullKey:
        code = event.sxid if event.xid is None else event.xid
        full = (event.kind, event.subject.key, code, key)
        if full in self._bursts or len(self._bursts) < self._most:
            return full
        return (event.kind, event.subject.key, code, BurstKey(gravity=key.gravity))


def _counted(burst: _Burst) -> list[Event]:
    return (
        [] if burst.last is None or burst.count == 0 else [replace(burst.last, count=burst.count)]
    )
