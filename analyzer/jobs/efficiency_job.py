"""Judges each hour once it is over: who was busy and got little out of their GPUs. For reports.

And again hours later, since after an outage collectors bring what they kept. What was missed, as
while nobody analyzed, is judged later from what the store has, newest first.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.efficiency.efficiency_query import ASKED
from accounting.efficiency.idle_query import Row
from accounting.efficiency.inefficient_hours import (
    HOUR,
    Span,
    WasteHour,
    parts_of,
    waste_hour,
)
from accounting.efficiency.recent_incidents import active_since
from gpuvigil.clock import EPOCH, Clock, to_text
from gpuvigil.hub_client import Hub
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
from gpuvigil.schedulers.jobs import jobs_since, with_job_details
from gpuvigil.store.external import store_of

# How long after its end an hour is judged; what comes later than the last is in nobody's sum. All
# at the same minute, so that one reading of the records does for the three hours that are due then.
_AFTER = tuple(timedelta(hours=hours, minutes=10) for hours in (0, 2, 8))
_LOOK_BACK = timedelta(hours=24)
_LOOK_SECONDS = 60.0
_MOST_RECORDS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _HourRecords:
    """The records behind all hours that are judged in one step."""

    held: Sequence[Allocation]  # that had not ended when the oldest of them began
    inventories: Sequence[Inventory]
    incidents: Sequence[Incident]
    whole_from: datetime | None  # of hours before it allocations are missing; None where none are


class EfficiencyJob:
    """One hour after another, in a thread of its own."""

    def __init__(self, hub: Hub, clock: Clock, stop: threading.Event) -> None:
        self._hub = hub
        self._clock = clock
        self._stop = stop
        self._log = Log("analyzer")
        self._judged: dict[datetime, int] | None = None  # how often

    def step(self) -> None:
        """Judge all hours that are due, or wait a little; HubError or StoreError."""
        now = self._clock.now()
        if self._judged is None:
            self._judged = self._recorded(now)
        due = hours_due(self._judged, now)
        if not due:
            self._clock.wait(self._stop, _LOOK_SECONDS)
            return
        began = self._clock.monotonic()
        told = self._hour_records(due[-1])
        for start in due:
            if self._stop.is_set():
                return
            self._judge(start, _due(start, now), told)
            # Half of the time is everybody else's.
            self._clock.wait(self._stop, self._clock.monotonic() - began)
            began = self._clock.monotonic()

    def _judge(self, start: datetime, times: int, records: _HourRecords) -> None:
        """For the `times`-th time; an hour of which records are missing keeps its earlier judgement."""
        assert self._judged is not None
        if records.whole_from is not None and start < records.whole_from:
            self._log.warning(
                "hour not judged: more jobs ended since than the hub gives in one answer",
                hour=to_text(start),
                most=_MOST_RECORDS,
            )
            found = []
        else:
            found = list(self._hours(start, records))
        if found:
            self._hub.write_records([one.to_record(times) for one in found])
        self._judged[start] = times
        for one in found:
            self._log.info("hour judged", cluster=one.cluster, holders=len(one.wastes))

    def _hours(self, start: datetime, records: _HourRecords) -> Iterator[WasteHour]:
        """The hour from `start` on, of each cluster of which anything was measured in it."""
        span = start, start + HOUR
        rows = {part: self._rows(part) for part in (span, *parts_of(records.held, start))}
        for cluster in sorted(rows[span]):
            yield waste_hour(
                cluster,
                start,
                [one for one in records.held if one.subject.cluster == cluster],
                [one for one in records.inventories if one.subject.cluster == cluster],
                {part: them.get(cluster, {}) for part, them in rows.items()},
                records.incidents,
            )

    def _rows(self, span: Span) -> Mapping[str, Mapping[str, Row]]:
        """By cluster and GPU."""
        rows: defaultdict[str, dict[str, Row]] = defaultdict(dict)
        for row in store_of(self._hub).window("gpu", ASKED, *span).to_pylist():
            subject = Subject(cluster=row["cluster"], node=row["node"], gpu=row["uuid"])
            if not subject.marked:
                rows[subject.cluster][subject.key] = row
        return rows

    def _hour_records(self, oldest: datetime) -> _HourRecords:
        """What hours from `oldest` on are judged by."""
        jobs = jobs_since(self._hub, None, oldest)
        held, whole_from = [], None
        for state in AllocationState:
            records = self._hub.records(RecordKind.ALLOCATION, states=[state], limit=_MOST_RECORDS)
            them = list(readable(records, Allocation.from_record))
            if len(records) >= _MOST_RECORDS and state is not AllocationState.HELD:
                whole_from = missing_until(them)
            held += [
                with_job_details(one, jobs)
                for one in them
                if one.ended_at is None or one.ended_at > oldest
            ]
        inventories = self._hub.records(RecordKind.INVENTORY, limit=_MOST_RECORDS)
        return _HourRecords(
            held=held,
            inventories=list(readable(inventories, Inventory.from_record)),
            incidents=active_since(self._hub, oldest),
            whole_from=whole_from,
        )

    def _recorded(self, now: datetime) -> dict[datetime, int]:
        """How often each hour was judged; of several clusters that which was the least often."""
        found: dict[datetime, int] = {}
        records = self._hub.records(
            RecordKind.WASTE, since=now - _LOOK_BACK - 2 * HOUR, limit=_MOST_RECORDS
        )
        for record in records:
            found[record.at] = min(record.version, found.get(record.at, record.version))
        return found


def hours_due(judged: dict[datetime, int], now: datetime) -> list[datetime]:
    """The hours that are to be judged now, newest first. Those that are long over are forgotten."""
    newest = EPOCH + (now - EPOCH) // HOUR * HOUR - HOUR
    oldest = newest - _LOOK_BACK
    for start in [start for start in judged if start < oldest]:
        del judged[start]
    hours = (newest - place * HOUR for place in range(_LOOK_BACK // HOUR))
    return [at for at in hours if judged.get(at, 0) < _due(at, now)]


def missing_until(ended: Sequence[Allocation]) -> datetime | None:
    """Of the newest that ended, in the order in which they were told: before when others may be missing.

    That order is the one of their ends, but for what a cluster that was away told late: so the latest
    end among the first tenth counts. None of none.
    """
    first = ended[: len(ended) // 10 + 1]
    return max((one.ended_at for one in first if one.ended_at is not None), default=None)


def _due(start: datetime, now: datetime) -> int:
    """How often an hour should have been judged by now."""
    return sum(start + HOUR + after <= now for after in _AFTER)
