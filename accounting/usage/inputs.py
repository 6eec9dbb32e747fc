"""The inputs of counting usage, from the hub: rows, and the records around them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.clock import EPOCH, from_text
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import (
    SIMULATED_CLUSTER,
    Allocation,
    Incident,
    Inventory,
    RecordKind,
    Retirement,
    Rma,
    Scheduler,
    Subject,
    readable,
)
from gpuvigil.schedulers.jobs import jobs_since, with_job_details
from gpuvigil.schedulers.out_of_service import USUAL, Checks
from gpuvigil.store import Store
from gpuvigil.store.external import store_of

from .allocations import MOST_RECORDS, held_since
from .count import SENT_WITHIN, Facts, Roster, count
from .grid import FIELDS, MINUTE, STILL_FIELDS
from .model import BUCKET, Bucket, cluster_key
from .out_of_service import Out, Words, out_of
from .ownership import AllocationTable, Gpu
from .slices import SLICE_FIELDS
from .spells import LONGEST, minutes_before

# A node that sent within this time before a quarter was there in it, however young its inventory is; a
# simulated node may have been another one by the same name.
_THERE, _PLAYED = timedelta(hours=24), timedelta(minutes=10)


@dataclass(slots=True, kw_only=True)
class Reader:
    """A reader of one cluster for counts between `oldest` and `now`; records are read once.

    Every method raises HubUnavailable, HubRefused or StoreError.
    """

    hub: Hub
    cluster: str
    oldest: datetime
    now: datetime
    checks: Checks = USUAL
    idle_after: timedelta | None = None  # as in `Facts`
    _last_seen: dict[str, datetime] | None = None
    _inventories: Roster = field(default_factory=lambda: Roster.of(()))
    _allocations: AllocationTable = field(default_factory=lambda: AllocationTable.of(()))
    _retired: Mapping[str, datetime] = field(default_factory=dict)
    _words: Words = field(default_factory=Words)
    _listening_since: datetime | None = None
    _read_span: tuple[datetime, datetime] | None = None
    _senders: Mapping[datetime, set[Gpu]] = field(default_factory=dict)
    _store: Store = field(init=False)

    def __post_init__(self) -> None:
        self._store = store_of(self.hub)

    def count(
        self,
        start: datetime,
        watched_since: datetime | None,
        before: Bucket | None = None,
        last_out: Out | None = None,
    ) -> Bucket | None:
        """Count the bucket that begins at `start`; see `count.count`.

        `before` is an earlier count of it; `last_out` is what was out of service in the quarter before.
        """
        where, end = {"cluster": self.cluster}, start + BUCKET
        rows = self._store.series("gpu", FIELDS, where, (start, end), MINUTE)
        if not len(rows) and (watched_since is None or watched_since >= end):
            return None
        # A long idle threshold is judged by whole quarters; rows for it would be far more to read.
        after = None if self.idle_after is None or self.idle_after > LONGEST else self.idle_after
        earlier = (start - minutes_before(after) * MINUTE, start) if after else None
        self._read_records()
        assert self._last_seen is not None
        counted = {place.node for place in before.places} if before is not None else set()
        return count(
            Facts(
                cluster=self.cluster,
                start=start,
                now=self.now,
                rows=rows,
                sent=self._sent(start),
                nodes_sent=self._nodes_sent(start) | counted,
                last_seen=self._last_seen,
                retired=self._retired,
                listening_since=self._listening_since,
                out=self._out(start, last_out) if before is None else before.out,
                inventories=self._inventories,
                allocations=self._allocations,
                slices=self._store.series("mig", SLICE_FIELDS, where, (start, end), MINUTE),
                watched_since=watched_since,
                idle_after=after,
                before=earlier and self._store.series("gpu", STILL_FIELDS, where, earlier, MINUTE),
                slices_before=earlier
                and self._store.series("mig", SLICE_FIELDS, where, earlier, MINUTE),
            )
        )

    def quarters_with_rows(self, start: datetime, end: datetime) -> frozenset[datetime]:
        """Return the starts of the buckets in the range in which a GPU sent anything."""
        return frozenset(at for at in self._read_senders(start, end) if start <= at < end)

    def _sent(self, start: datetime) -> frozenset[Gpu]:
        """Return the GPUs that sent in the hour before; one query serves all quarters of its range."""
        since = start - SENT_WITHIN
        if self._read_span is None or not (
            self._read_span[0] <= since and start <= self._read_span[1]
        ):
            return gpus_of(senders(self._store, "gpu", self.cluster, (since, start)))
        before = (gpus for at, gpus in self._senders.items() if since <= at < start)
        return frozenset[Gpu]().union(*before)

    def _read_senders(self, start: datetime, end: datetime) -> Mapping[datetime, set[Gpu]]:
        """Return the GPUs that sent in each quarter of the range and of the hour before it."""
        since = start - SENT_WITHIN
        found = self._store.series("gpu", (), {"cluster": self.cluster}, (since, end), BUCKET)
        at = found["at"].combine_chunks().dictionary_encode()
        quarters = at.dictionary.to_pylist()
        who: dict[datetime, set[Gpu]] = {quarter: set() for quarter in quarters}
        columns = at.indices, found["node"], found["uuid"]
        for number, node, uuid in zip(*(it.to_pylist() for it in columns), strict=True):
            who[quarters[number]].add((node, uuid))
        self._read_span, self._senders = (since, end), who
        return who

    def _nodes_sent(self, start: datetime) -> frozenset[str]:
        length = _PLAYED if self.cluster == SIMULATED_CLUSTER else _THERE
        span = (start - length, start)
        found = senders(self._store, "node", self.cluster, span)
        return frozenset(found["node"].unique().to_pylist())

    def _out(self, start: datetime, before: Out | None) -> Out | None:
        names = {name for name, *_ in self._inventories.nodes} | (self._last_seen or {}).keys()
        nodes = [Subject(cluster=self.cluster, node=name) for name in names]
        return out_of(self._words, nodes, start, min(start + BUCKET, self.now), before)

    def _read_records(self) -> None:
        if self._last_seen is None:
            key = cluster_key(self.cluster)
            inventories = self.hub.records(RecordKind.INVENTORY, subject=key, limit=MOST_RECORDS)
            self._inventories = Roster.of(readable(inventories, Inventory.from_record))
            jobs = jobs_since(self.hub, key, self.oldest)
            told = readable(held_since(self.hub, key, self.oldest), Allocation.from_record)
            self._allocations = AllocationTable.of(with_job_details(one, jobs) for one in told)
            retired = self.hub.records(RecordKind.RETIREMENT, subject=key, limit=MOST_RECORDS)
            self._retired = {
                one.node.node: one.at for one in readable(retired, Retirement.from_record)
            }
            self._words = _words(self.hub, key, self.oldest, self.checks)
            status = self.hub.status()
            self._listening_since = from_text(status["started_at"])
            self._last_seen = _last_seen_of(status["nodes"], self.cluster)


def senders(
    store: Store, measurement: str, cluster: str, span: tuple[datetime, datetime]
) -> pa.Table:
    """Return the tags of everything in a cluster that sent in a range of minutes, some of them twice.

    The newest rows, which cost a store next to nothing, name every possible sender. Most of these appear in
    the last minute of the range; the whole range is read only when others are left.
    """
    tags, where, (since, end) = MEASUREMENTS[measurement].tags, {"cluster": cluster}, span
    newest = store.latest(measurement, (), since)
    newest = newest.filter(pc.equal(newest["cluster"], cluster))
    before = pc.less(newest["at"], pa.scalar(end, newest["at"].type))
    last = store.series(measurement, (), where, (end - MINUTE, end), _WHOLE)
    sure = pa.concat_tables([newest.filter(before).select(tags), last.select(tags)])
    if newest.select(tags).join(sure, list(tags), join_type="left anti").num_rows:
        return store.series(measurement, (), where, span, _WHOLE)
    return sure


def gpus_of(rows: pa.Table) -> frozenset[Gpu]:
    """Return the GPUs that have a row."""
    return frozenset(zip(rows["node"].to_pylist(), rows["uuid"].to_pylist(), strict=True))


# One step for any span queried here.
_WHOLE = timedelta(days=365)


def _words(hub: Hub, key: str, oldest: datetime, checks: Checks) -> Words:
    """Return the records on what is out of service in a cluster, now and since `oldest`."""
    active = [state.value for state in ACTIVE]
    incidents = [
        *hub.records(RecordKind.INCIDENT, subject=key, states=active, limit=MOST_RECORDS),
        *hub.records(
            RecordKind.INCIDENT,
            subject=key,
            states=[State.RESOLVED.value],
            since=oldest - _THERE,
            limit=MOST_RECORDS,
        ),
    ]
    schedulers = hub.records(RecordKind.SCHEDULER, subject=key)
    rmas = hub.records(RecordKind.RMA, subject=key, limit=MOST_RECORDS)
    return Words(
        schedulers=tuple(readable(schedulers, Scheduler.from_record)),
        incidents=tuple(readable(incidents, Incident.from_record)),
        rmas=tuple(readable(rmas, Rma.from_record)),
        checks=checks,
    )


def _last_seen_of(nodes: Iterable[Mapping[str, Any]], cluster: str) -> dict[str, datetime]:
    heard: dict[str, datetime] = {}
    for node in nodes:
        if node["cluster"] == cluster:
            at = from_text(node["received_at"])
            heard[node["node"]] = max(heard.get(node["node"], EPOCH), at)
    return heard
