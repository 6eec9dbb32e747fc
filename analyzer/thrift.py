"""Judges each hour once it is over: who was busy and got little out of their GPUs. For reports.

And again hours later, since after an outage collectors bring what they kept. What was missed, as
while nobody analyzed, is judged later from what the store has, newest first.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from gpuvigil.clock import EPOCH, Clock
from gpuvigil.hub import Hub
from gpuvigil.idle_span import Row
from gpuvigil.jobs import filled, jobs_since
from gpuvigil.log import Log
from gpuvigil.model import (
    Allocation,
    AllocationState,
    Incident,
    Inventory,
    RecordKind,
    Subject,
    readable,
)
from gpuvigil.store.beside import store_of
from gpuvigil.wasted import HOUR, WasteHour, faulty_in, waste_hour
from gpuvigil.work_span import ASKED

# How long after its end an hour is judged; what comes later than the last is in nobody's sum.
_AFTER = (timedelta(minutes=10), timedelta(hours=2), timedelta(hours=8))
_LOOK_BACK = timedelta(hours=24)
_LOOK_SECONDS = 60.0
_MOST_RECORDS = 100_000


class Thrift:
    """One hour after another, in a thread of its own."""

    def __init__(self, hub: Hub, clock: Clock, stop: threading.Event) -> None:
        self._hub = hub
        self._clock = clock
        self._stop = stop
        self._log = Log("analyzer")
        self._judged: dict[datetime, int] | None = None  # how often

    def step(self) -> None:
        """Judge the newest hour that nobody has judged, or wait a little; HubError or StoreError."""
        now = self._clock.now()
        if self._judged is None:
            self._judged = self._recorded(now)
        start = next_hour(self._judged, now)
        if start is None:
            self._clock.wait(self._stop, _LOOK_SECONDS)
            return
        times = _due(start, now)
        began = self._clock.monotonic()
        found = list(self.hours(start))
        if found:
            self._hub.write_records([one.to_record(times) for one in found])
        self._judged[start] = times
        for one in found:
            self._log.info("hour judged", cluster=one.cluster, holders=len(one.wastes))
        # Half of the time is everybody else's.
        self._clock.wait(self._stop, self._clock.monotonic() - began)

    def hours(self, start: datetime) -> Iterator[WasteHour]:
        """The hour from `start` on, of each cluster of which anything was measured in it."""
        span = start, start + HOUR
        rows: defaultdict[str, dict[str, Row]] = defaultdict(dict)
        for row in store_of(self._hub).window("gpu", ASKED, *span).to_pylist():
            subject = Subject(cluster=row["cluster"], node=row["node"], gpu=row["uuid"])
            if not subject.marked:
                rows[subject.cluster][subject.key] = row
        if not rows:
            return
        held = list(self._held(start))
        records = self._hub.records(RecordKind.INVENTORY, limit=_MOST_RECORDS)
        inventories = list(readable(records, Inventory.from_record))
        incidents = self._hub.records(
            RecordKind.INCIDENT, since=start - timedelta(days=30), limit=_MOST_RECORDS
        )
        faulty = faulty_in(readable(incidents, Incident.from_record), span)
        for cluster, of_cluster in sorted(rows.items()):
            yield waste_hour(
                cluster,
                start,
                [one for one in held if one.subject.cluster == cluster],
                [one for one in inventories if one.subject.cluster == cluster],
                of_cluster,
                faulty,
            )

    def _held(self, start: datetime) -> Iterator[Allocation]:
        jobs = jobs_since(self._hub, None, start)
        for state in AllocationState:
            records = self._hub.records(RecordKind.ALLOCATION, states=[state], limit=_MOST_RECORDS)
            for one in readable(records, Allocation.from_record):
                if one.ended_at is None or one.ended_at > start:
                    yield filled(one, jobs)

    def _recorded(self, now: datetime) -> dict[datetime, int]:
        """How often each hour was judged; of several clusters that which was the least often."""
        found: dict[datetime, int] = {}
        records = self._hub.records(
            RecordKind.WASTE, since=now - _LOOK_BACK - 2 * HOUR, limit=_MOST_RECORDS
        )
        for record in records:
            found[record.at] = min(record.version, found.get(record.at, record.version))
        return found


def next_hour(judged: dict[datetime, int], now: datetime) -> datetime | None:
    """The newest hour that is to be judged now; None for none. Those that are long over are forgotten."""
    newest = EPOCH + (now - EPOCH) // HOUR * HOUR - HOUR
    oldest = newest - _LOOK_BACK
    for start in [start for start in judged if start < oldest]:
        del judged[start]
    hours = (newest - place * HOUR for place in range(_LOOK_BACK // HOUR))
    return next((at for at in hours if judged.get(at, 0) < _due(at, now)), None)


def _due(start: datetime, now: datetime) -> int:
    """How often an hour should have been judged by now."""
    return sum(start + HOUR + after <= now for after in _AFTER)
