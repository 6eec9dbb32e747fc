"""Counts usage: every quarter of an hour once it is over, and again an hour later.

Late data drains from spools for a while: a quarter of which something is unknown after that is
counted three times more, the last time after four days, and one of which a cluster said nothing is
looked at again and again, ever more rarely. Its hour and its day are added up anew with
each count, in the same commit. Whatever was missed is counted at the next chance, newest first, from what the store still has. All clusters of
a quarter are written together: a kill in the middle leaves neither half a quarter nor a double.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from accounting.usage import BUCKET, Bucket
from accounting.usage.allocations import MOST_RECORDS
from accounting.usage.inputs import Reader
from accounting.usage.model import floor
from accounting.usage.query import clusters, recorded
from accounting.usage.rollup import SETTLE, rolled
from gpuvigil.clock import Clock, from_text
from gpuvigil.errors import HubUnavailable, StoreUnavailable
from gpuvigil.hub_client import Hub
from gpuvigil.log import Log
from gpuvigil.model import UNREADABLE, Record, RecordKind
from gpuvigil.schedulers.out_of_service import USUAL, Checks

# Rows of a quarter arrive a little after its end.
GRACE = timedelta(minutes=2)
# Then, after its end, while something of it is unknown: a node may have been cut off for days.
_AGAIN = (timedelta(hours=6), timedelta(hours=24), timedelta(hours=96))
# A quarter that cannot be counted is in nobody's way meanwhile.
_RETRY = timedelta(minutes=5)
# Whoever was not awake for longer than this did not watch: the machine slept.
_AWAKE = timedelta(minutes=3)
# A young quarter without a row may get some yet: a node's first spool, a history that is read in.
_EMPTY_FOR = timedelta(hours=6)
# A cluster of which nothing came for longer sends nothing any more.
_HEARD = timedelta(hours=24)
# So far back one question tells of which quarters there are rows.
_DAY = timedelta(hours=24)
_LOOK_SECONDS = 20.0
_LONGEST_REST_SECONDS = 60.0
# However long telemetry is kept: what is older was counted, or is nobody's any more.
_LOOK_BACK = timedelta(days=14)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """How far a quarter is: whether it was counted, and when to count it next."""

    counted: bool
    due_at: datetime | None  # None once it is settled
    empty_since: datetime | None = None  # when it was first found without a row of somebody's

    def emptied(self, start: datetime, now: datetime) -> "Known":
        """When it was found without a row once more."""
        since = self.empty_since or now
        return Known(counted=False, due_at=due_when_empty(start, now, since), empty_since=since)


def due_again(start: datetime, counted_at: datetime, unknown: float) -> datetime | None:
    """When to count a quarter next that was counted twice or more; None when it stays so.

    `unknown`: its GPU-seconds of which nothing is known.
    """
    if unknown <= 0:
        return None
    ends = start + BUCKET
    return next((ends + after for after in _AGAIN if ends + after > counted_at), None)


def due_when_empty(start: datetime, now: datetime, empty_since: datetime) -> datetime:
    """When to look next at a quarter of which a cluster said nothing, as `due_again`.

    After an outage collectors bring what they kept for hours, and the past of a week may come: it is
    looked for after minutes while it is young, and then each time after twice as long.
    """
    if now - start < _EMPTY_FOR:
        return now + _RETRY
    return now + max(SETTLE, now - empty_since)


def next_quarter(
    known: Mapping[datetime, Known], now: datetime, oldest: datetime
) -> datetime | None:
    """The quarter to count now, those never counted first and the newest of them; None for none."""
    newest = floor(now - GRACE) - BUCKET
    again = None
    start = newest
    while start >= oldest:
        state = known.get(start)
        if state is None:
            return start
        if again is None and state.due_at is not None and state.due_at <= now:
            again = start
        start -= BUCKET
    return again


class UsageCounter:
    """One step after another in a thread of its own, so that no pass ever waits for a count."""

    def __init__(
        self,
        hub: Hub,
        clock: Clock,
        stop: threading.Event,
        retention: timedelta,
        checks: Checks = USUAL,
        idle_after: timedelta | None = None,
    ) -> None:
        self._hub = hub
        self._clock = clock
        self._stop = stop
        # The oldest hour is being forgotten while it is looked at.
        self._kept = min(retention, _LOOK_BACK) - SETTLE
        self._checks = checks
        self._idle_after = idle_after
        self._log = Log("analyzer")
        self._known: dict[datetime, Known] | None = None
        self._sequence = 0
        self._with_rows: set[datetime] = set()  # quarters in which somebody sent
        self._watched_since: datetime | None = None
        self._awake_at: datetime | None = None

    def step(self) -> None:
        """Count the quarter that is due, or wait a little; raises HubError or StoreUnavailable."""
        now = self._clock.now()
        if self._awake_at is None or not timedelta() <= now - self._awake_at <= _AWAKE:
            self._watched_since = now
        self._awake_at = now
        if self._known is None:
            self._known = self._recorded(now)
        start = next_quarter(self._known, now, floor(now - self._kept) + BUCKET)
        if start is None:
            self._clock.wait(self._stop, _LOOK_SECONDS)
            return
        began = self._clock.monotonic()
        if not self._is_empty(self._known, start, now):
            self._count(self._known, start, now)
        # Half of the time is everybody else's.
        self._awake_at = self._clock.now()
        self._clock.wait(self._stop, min(self._clock.monotonic() - began, _LONGEST_REST_SECONDS))

    def _is_empty(self, known: dict[datetime, Known], start: datetime, now: datetime) -> bool:
        """Whether nobody sent anything in a quarter that nobody watched.

        One question tells it of all such quarters of the day before, too, so that a past of which
        there is nothing costs next to nothing.
        """
        watched, oldest = self._watched_since, max(floor(now - self._kept) + BUCKET, start - _DAY)
        if start in self._with_rows or (watched is not None and watched < start + BUCKET):
            return False
        asked = [oldest + number * BUCKET for number in range((start - oldest) // BUCKET + 1)]
        asked = [at for at in asked if _is_open(known.get(at), now)]
        if start not in asked:
            return False
        for name in clusters(self._hub):
            reader = Reader(hub=self._hub, cluster=name, oldest=oldest, now=now)
            self._with_rows |= reader.quarters_with_rows(asked[0], start + BUCKET)
        for at in asked:
            if at not in self._with_rows:
                known[at] = (known.get(at) or _NEW).emptied(at, now)
        return start not in self._with_rows

    def _count(self, known: dict[datetime, Known], start: datetime, now: datetime) -> None:
        before = known.get(start)
        again = before is not None and before.counted
        try:
            names = clusters(self._hub)
            buckets = [
                bucket
                for cluster in names
                if (bucket := self._bucket(cluster, start, now, again)) is not None
            ]
            spans = [one for bucket in buckets for one in rolled(self._hub, bucket, now)]
            records = [
                *(bucket.to_record() for bucket in buckets),
                *(one.to_record() for one in spans),
            ]
            if records and not self._write(records):
                return
        except (HubUnavailable, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - one bad quarter must not hold up the others
            self._log.warning("quarter cannot be counted", start=str(start), error=repr(error))
            known[start] = Known(counted=again, due_at=now + _RETRY)
            return
        unknown = sum(bucket.seconds.unknown for bucket in buckets)
        due_at = due_again(start, now, unknown) if again else now + SETTLE
        known[start] = Known(counted=True, due_at=due_at)
        if not self._all_there(buckets, names, now):
            since = now if before is None else before.empty_since or now
            due_at = due_when_empty(start, now, since)
            known[start] = Known(counted=bool(buckets), due_at=due_at, empty_since=since)
        for bucket in buckets:
            self._log.info(
                "usage counted", cluster=bucket.cluster, start=str(start), gpus=bucket.gpus
            )

    def _all_there(self, buckets: list[Bucket], names: Sequence[str], now: datetime) -> bool:
        """Whether every cluster that is still heard of has something in the quarter."""
        absent = set(names).difference(bucket.cluster for bucket in buckets)
        if not absent:
            return bool(buckets)
        nodes = self._hub.status()["nodes"]
        heard = (from_text(one["received_at"]) for one in nodes if one["cluster"] in absent)
        return bool(buckets) and not any(now - at < _HEARD for at in heard)

    def _bucket(self, cluster: str, start: datetime, now: datetime, again: bool) -> Bucket | None:
        """The count, or what was counted before when nothing is left to count."""
        known = {
            one.start: one
            for one in recorded(self._hub, cluster, start - BUCKET, start + BUCKET, places=True)
        }
        before, last = known.get(start), known.get(start - BUCKET)
        watched = [at for at in (self._watched_since, before and before.watched_since) if at]
        reader = Reader(
            hub=self._hub,
            cluster=cluster,
            oldest=start,
            now=now,
            checks=self._checks,
            idle_after=self._idle_after,
        )
        bucket = (
            reader.count(
                start, min(watched, default=None), before, None if last is None else last.out
            )
            or before
        )
        if bucket is None:
            return None
        settled = again and due_again(start, now, bucket.seconds.unknown) is None
        return replace(bucket, settled=settled, counted_at=now)

    def _write(self, records: list[Record]) -> bool:
        """False when the hub's records are older than ours: they are read again."""
        sequence = self._hub.write_records(records)
        if sequence < self._sequence:
            self._known = None
        self._sequence = sequence
        return self._known is not None

    def _recorded(self, now: datetime) -> dict[datetime, Known]:
        """What is recorded; a quarter is as far as the cluster that is the least far."""
        since = floor(now - self._kept)
        found: dict[datetime, Known] = {}
        for record in self._hub.records(RecordKind.USAGE, since=since, limit=MOST_RECORDS):
            try:
                bucket = Bucket.from_record(record)
            except UNREADABLE:
                continue
            due_at = None if bucket.settled else _due(bucket)
            before = found.get(bucket.start)
            if before is not None and (due_at is None or before.due_at is not None):
                continue
            found[bucket.start] = Known(counted=True, due_at=due_at)
        return found


_NEW = Known(counted=False, due_at=None)


def _is_open(known: Known | None, now: datetime) -> bool:
    """Whether it was never counted and is due."""
    return known is None or (not known.counted and known.due_at is not None and known.due_at <= now)


def _due(bucket: Bucket) -> datetime:
    """Of one that is not settled: its second count, or the next of those for what is unknown."""
    second = bucket.counted_at + SETTLE
    if bucket.counted_at < bucket.start + BUCKET + SETTLE:
        return second
    return due_again(bucket.start, bucket.counted_at, bucket.seconds.unknown) or second
