"""Incidents that are over: links in messages lead to them long after they left the page."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from gpuvigil.clock import Clock
from gpuvigil.errors import HubRefused
from gpuvigil.hub import Hub
from gpuvigil.model import Incident, Record, RecordKind

# An answer is asked for anew after this long: an incident may come back, a notice may be sent.
FRESH_SECONDS = 10.0
MOST_KEPT = 64
LONGEST_ID = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the hub knows of one incident; `incident` is None when it knows none of that id."""

    incident: Incident | None = None
    notices: tuple[Record, ...] = ()
    reason: str = ""  # of its last transition


def past(hub: Hub, id_: str) -> Past:
    """The incident of that id, whatever its state."""
    try:
        record = hub.record(RecordKind.INCIDENT, id_)
        incident = None if record is None else Incident.from_record(record)
    except (HubRefused, KeyError, TypeError, ValueError):
        # An id that cannot be one, or a record that a newer version wrote.
        incident = None
    if incident is None:
        return Past()
    steps = hub.records(RecordKind.TRANSITION, parent=id_)
    last = max(steps, key=lambda step: int(step.body.get("number") or 0), default=None)
    return Past(
        incident=incident,
        notices=hub.records(RecordKind.NOTICE, parent=id_),
        reason="" if last is None else str(last.body.get("reason") or ""),
    )


class Lookups:
    """Pages ask here; the thread that has the hub's client answers."""

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._answered = threading.Condition()
        self._wanted: set[str] = set()
        self._found: dict[str, tuple[float, Past]] = {}

    def ask(self, id_: str, patience_seconds: float) -> Past | None:
        """What is known of the incident; None when the hub has not said it in time."""
        if not id_ or len(id_) > LONGEST_ID:
            return Past()
        with self._answered:
            known = self._found.get(id_)
            if known is None or self._clock.monotonic() - known[0] > FRESH_SECONDS:
                self._wanted.add(id_)
                self._wake()
            if known is None:
                self._answered.wait_for(lambda: id_ in self._found, patience_seconds)
            known = self._found.get(id_)
        return None if known is None else known[1]

    def answer(self, hub: Hub) -> None:
        """Look up what pages wait for; HubUnavailable leaves it wanted."""
        for id_ in tuple(self._wanted):
            found = past(hub, id_)
            with self._answered:
                self._wanted.discard(id_)
                self._found.pop(id_, None)
                self._found[id_] = self._clock.monotonic(), found
                while len(self._found) > MOST_KEPT:
                    del self._found[next(iter(self._found))]
                self._answered.notify_all()
