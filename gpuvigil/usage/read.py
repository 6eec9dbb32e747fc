"""What the count of usage needs from the hub: rows, and the records around them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from ..clock import EPOCH, from_text
from ..hub import Hub
from ..jobs import filled, jobs_since
from ..metrics import MEASUREMENTS
from ..model import Allocation, Inventory, RecordKind, readable
from ..reporting import left_after
from ..store import Store
from ..store.beside import store_of
from .count import SENT_WITHIN, Facts, Roster, count
from .grid import FIELDS, MINUTE
from .held import MOST_RECORDS, held_since
from .holding import Book, Gpu
from .model import BUCKET, Bucket, cluster_key
from .slices import SLICE_FIELDS


@dataclass(slots=True, kw_only=True)
class Reader:
    """Reads one cluster for counts between `oldest` and `now`; records are read once.

    Every method raises HubUnavailable, HubRefused or StoreError.
    """

    hub: Hub
    cluster: str
    oldest: datetime
    now: datetime
    _heard: dict[str, datetime] | None = None
    _inventories: Roster = field(default_factory=lambda: Roster.of(()))
    _allocations: Book = field(default_factory=lambda: Book.of(()))
    _looked: tuple[datetime, datetime] | None = None
    _senders: Mapping[datetime, set[Gpu]] = field(default_factory=dict)
    _store: Store = field(init=False)

    def __post_init__(self) -> None:
        self._store = store_of(self.hub)

    def count(self, start: datetime, watched_since: datetime | None) -> Bucket | None:
        """The bucket that begins at `start`; see `count.count`."""
        where, end = {"cluster": self.cluster}, start + BUCKET
        rows = self._store.series("gpu", FIELDS, where, (start, end), MINUTE)
        if not len(rows) and (watched_since is None or watched_since >= end):
            return None
        self._read_records()
        assert self._heard is not None
        return count(
            Facts(
                cluster=self.cluster,
                start=start,
                now=self.now,
                rows=rows,
                sent=self._sent(start),
                nodes_sent=self._nodes_sent(start),
                heard=self._heard,
                inventories=self._inventories,
                allocations=self._allocations,
                slices=self._store.series("mig", SLICE_FIELDS, where, (start, end), MINUTE),
                watched_since=watched_since,
            )
        )

    def quarters_with_rows(self, start: datetime, end: datetime) -> frozenset[datetime]:
        """The starts of the buckets in the range in which a GPU sent anything."""
        return frozenset(at for at in self._look(start, end) if start <= at < end)

    def _sent(self, start: datetime) -> frozenset[Gpu]:
        """The GPUs that sent in the hour before; a look serves all quarters of its range."""
        since = start - SENT_WITHIN
        if self._looked is None or not self._looked[0] <= since < start <= self._looked[1]:
            return gpus_of(senders(self._store, "gpu", self.cluster, (since, start)))
        before = (gpus for at, gpus in self._senders.items() if since <= at < start)
        return frozenset[Gpu]().union(*before)

    def _look(self, start: datetime, end: datetime) -> Mapping[datetime, set[Gpu]]:
        """Who sent in each quarter of the range and of the hour before it."""
        since = start - SENT_WITHIN
        found = self._store.series("gpu", (), {"cluster": self.cluster}, (since, end), BUCKET)
        at = found["at"].combine_chunks().dictionary_encode()
        quarters = at.dictionary.to_pylist()
        who: dict[datetime, set[Gpu]] = {quarter: set() for quarter in quarters}
        columns = at.indices, found["node"], found["uuid"]
        for number, node, uuid in zip(*(it.to_pylist() for it in columns), strict=True):
            who[quarters[number]].add((node, uuid))
        self._looked, self._senders = (since, end), who
        return who

    def _nodes_sent(self, start: datetime) -> frozenset[str]:
        span = (start - left_after(self.cluster), start)
        found = senders(self._store, "node", self.cluster, span)
        return frozenset(found["node"].unique().to_pylist())

    def _read_records(self) -> None:
        if self._heard is None:
            key = cluster_key(self.cluster)
            inventories = self.hub.records(RecordKind.INVENTORY, subject=key, limit=MOST_RECORDS)
            self._inventories = Roster.of(readable(inventories, Inventory.from_record))
            jobs = jobs_since(self.hub, key, self.oldest)
            told = readable(held_since(self.hub, key, self.oldest), Allocation.from_record)
            self._allocations = Book.of(filled(one, jobs) for one in told)
            self._heard = _heard(self.hub, self.cluster)


def senders(
    store: Store, measurement: str, cluster: str, span: tuple[datetime, datetime]
) -> pa.Table:
    """The tags of all in a cluster who sent in a range, some of them twice.

    The newest lines, which cost a store next to nothing, name everybody who may have. Most of them
    are found in the range's last minute; only for the others it is read as a whole.
    """
    tags, where, (since, end) = MEASUREMENTS[measurement].tags, {"cluster": cluster}, span
    newest = store.latest(measurement, (), since)
    newest = newest.filter(pc.equal(newest["cluster"], cluster))
    before = pc.less(newest["at"], pa.scalar(end, newest["at"].type))
    last = store.series(measurement, (), where, (max(since, end - MINUTE), end), _WHOLE)
    sure = pa.concat_tables([newest.filter(before).select(tags), last.select(tags)])
    if newest.select(tags).join(sure, list(tags), join_type="left anti").num_rows:
        return store.series(measurement, (), where, span, _WHOLE)
    return sure


def gpus_of(rows: pa.Table) -> frozenset[Gpu]:
    """The GPUs that have a row."""
    return frozenset(zip(rows["node"].to_pylist(), rows["uuid"].to_pylist(), strict=True))


# One step for any span that is asked about here.
_WHOLE = timedelta(days=365)


def _heard(hub: Hub, cluster: str) -> dict[str, datetime]:
    heard: dict[str, datetime] = {}
    for node in hub.status()["nodes"]:
        if node["cluster"] == cluster:
            at = from_text(node["received_at"])
            heard[node["node"]] = max(heard.get(node["node"], EPOCH), at)
    return heard
