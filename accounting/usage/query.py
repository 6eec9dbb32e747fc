"""The one query for usage: pages and reports take their numbers from here."""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial

from gpuvigil.clock import from_text
from gpuvigil.hub_client import Hub
from gpuvigil.model import SIMULATED_CLUSTER, Inventory, RecordKind, readable
from gpuvigil.model.selftest_nodes import without_marked

from .allocations import MOST_RECORDS
from .inputs import Reader
from .model import BUCKET, Bucket, Usage, cluster_key, floor

# A query itself counts quarters of this past that no record has; the analyzer counts further back.
COUNTED_HERE = timedelta(hours=48)
# Span of quarters checked at once for rows.
_CHUNK = timedelta(hours=6)
# This few quarters are counted without a check: the newest ones mostly have rows.
_FEW = 8
# A bound on the work of one query: a minute of a GPU is a row.
_MOST_ROWS = 1_000_000


def usage(
    hub: Hub,
    cluster: str,
    start: datetime,
    end: datetime,
    now: datetime,
    most_rows: int = _MOST_ROWS,
) -> Usage:
    """Return the usage of a cluster over whole quarters of an hour, the running one cut at `now`.

    Takes recorded buckets, and counts missing ones from the store by the same rules, newest first, until it has
    `most_rows` minutes of GPUs. Raises HubUnavailable, HubRefused or StoreError when the hub does not answer.
    """
    start, until = floor(start), min(_ceiling(end), now)
    found = {bucket.start: bucket for bucket in recorded(hub, cluster, start, until)}
    oldest = max(start, floor(now - COUNTED_HERE))
    missing = [at for at in _quarters(oldest, until) if at not in found]
    found |= {bucket.start: bucket for bucket in _from_store(hub, cluster, missing, now, most_rows)}
    buckets = tuple(found[at] for at in sorted(found))
    return Usage(cluster=cluster, start=start, end=max(until, start), buckets=buckets)


def quarters_from_store(
    hub: Hub,
    cluster: str,
    span: tuple[datetime, datetime],
    known: Collection[datetime],
    now: datetime,
) -> Iterator[Bucket]:
    """Yield the quarters of a span that are not in `known`, counted by the rules of `usage`."""
    oldest = max(span[0], floor(now - COUNTED_HERE))
    missing = [at for at in _quarters(oldest, span[1]) if at not in known]
    return _from_store(hub, cluster, missing, now, _MOST_ROWS)


def _from_store(
    hub: Hub, cluster: str, missing: list[datetime], now: datetime, most_rows: int
) -> Iterator[Bucket]:
    if missing:
        reader = Reader(hub=hub, cluster=cluster, oldest=missing[0], now=now)
        yield from _counted(reader, missing, most_rows)


def recorded(
    hub: Hub, cluster: str, start: datetime, end: datetime, *, places: bool = False
) -> Iterator[Bucket]:
    """Yield the recorded buckets that begin in `[start, end)`; unreadable ones are left out."""
    records = hub.records(
        RecordKind.USAGE, subject=cluster_key(cluster), since=start, until=end, limit=MOST_RECORDS
    )
    for bucket in readable(records, partial(Bucket.from_record, places=places)):
        if bucket.cluster == cluster and bucket.start == floor(bucket.start):
            yield bucket


def clusters(hub: Hub) -> tuple[str, ...]:
    """Return the clusters with usage or GPUs to count: real ones by name, the simulated one last.

    The selftest's cluster is left out.
    """
    named = {str(node["cluster"]) for node in without_marked(hub.status())["nodes"]}
    found = [name for name in named if _has_usage(hub, name) or _has_gpus(hub, name)]
    return tuple(sorted(found, key=lambda name: (name == SIMULATED_CLUSTER, name)))


def _has_usage(hub: Hub, cluster: str) -> bool:
    return bool(hub.records(RecordKind.USAGE, subject=cluster_key(cluster), limit=1))


def _has_gpus(hub: Hub, cluster: str) -> bool:
    records = hub.records(RecordKind.INVENTORY, subject=cluster_key(cluster))
    return any(one.gpus for one in readable(records, Inventory.from_record))


def _counted(reader: Reader, missing: list[datetime], most_rows: int) -> Iterator[Bucket]:
    """Count quarters newest first; minutes without rows count from when the hub listened."""
    listened_since = from_text(reader.hub.status()["started_at"])
    rows = 0
    for look in _chunks(missing):
        few = len(look) <= _FEW
        heard = look if few else reader.quarters_with_rows(look[-1], look[0] + BUCKET)
        for start in look:
            if rows >= most_rows:
                return
            if start in heard or start + BUCKET > listened_since:
                bucket = reader.count(start, listened_since)
                if bucket is not None:
                    rows += int(bucket.seconds.installed / 60.0)
                    yield bucket


def _chunks(missing: Iterable[datetime]) -> Iterator[list[datetime]]:
    """Yield the quarters newest first, in parts of a few hours."""
    part: list[datetime] = []
    for start in sorted(missing, reverse=True):
        if part and part[0] - start >= _CHUNK:
            yield part
            part = []
        part.append(start)
    if part:
        yield part


def _quarters(start: datetime, end: datetime) -> Iterator[datetime]:
    while start < end:
        yield start
        start += BUCKET


def _ceiling(at: datetime) -> datetime:
    down = floor(at)
    return down if down == at else down + BUCKET
