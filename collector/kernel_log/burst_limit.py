"""Rate limit for events: the first of each sort is reported at once, later ones by their count.

The reporter defines the sort: an Xid's code, its decoded gravity, unit and link. When there are
more sorts at once than are kept apart, those of one kind, subject, code and gravity count as one.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace

from gpuvigil.clock import Clock
from gpuvigil.model import Event, EventKind, Subject

BURST_SECONDS = 10.0
# A GPU has 18 NVLinks and a dozen units that report on each: a node in a bad state has hundreds.
MOST_SORTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort:
    """What tells events of one kind, subject and code apart: their gravity, and the rest."""

    gravity: str = ""
    rest: Hashable = None


_Key = tuple[EventKind, str, int | None, Sort]


@dataclass(slots=True, kw_only=True)
class _Burst:
    """A sort that was reported: until when it is only counted, and how often it came since."""

    until: float
    count: int = 0
    last: Event | None = None


class Bursts:
    """All bursts of a node; for one thread."""

    def __init__(self, clock: Clock, most_sorts: int = MOST_SORTS) -> None:
        self._clock = clock
        self._most = most_sorts
        self._bursts: dict[_Key, _Burst] = {}

    def tell(self, event: Event, sort: Sort) -> list[Event]:
        """Return the event; if it comes too soon after one of its sort, only count it."""
        key = self._key(event, sort)
        burst, now = self._bursts.get(key), self._clock.monotonic()
        if burst is not None and now < burst.until:
            burst.count, burst.last = burst.count + 1, event
            return []
        before = [] if burst is None else _counted(burst)
        self._bursts[key] = _Burst(until=now + BURST_SECONDS)
        return [*before, event]

    def begin(self, event: Event, sort: Sort) -> None:
        """Start a burst for a sort that was reported already; events that follow are counted."""
        until = self._clock.monotonic() + BURST_SECONDS
        self._bursts.setdefault(self._key(event, sort), _Burst(until=until))

    def take_back(self, event: Event, sort: Sort) -> None:
        """Uncount one event, which turned out to be of another sort."""
        burst = self._bursts.get(self._key(event, sort))
        if burst is not None and burst.count:
            burst.count -= 1

    def due(self) -> list[Event]:
        """Return repeated events, one per sort with its count, once per burst interval."""
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

    def _key(self, event: Event, sort: Sort) -> _Key:
        code = event.sxid if event.xid is None else event.xid
        key = (event.kind, event.subject.key, code, sort)
        if key in self._bursts or len(self._bursts) < self._most:
            return key
        return (event.kind, event.subject.key, code, Sort(gravity=sort.gravity))


def _counted(burst: _Burst) -> list[Event]:
    return (
        [] if burst.last is None or burst.count == 0 else [replace(burst.last, count=burst.count)]
    )
