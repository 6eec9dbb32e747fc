"""The data model of usage. All amounts are GPU-seconds: ten GPUs for a minute are 600.

A GPU is *allocated* while a process or a job holds it; it is *used* to the share of its measured
utilisation. Simulated and real clusters are never mixed in one value: a bucket has one cluster.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

from gpuvigil.clock import EPOCH, from_text, micros, to_text
from gpuvigil.model import SIMULATED_CLUSTER, Record, RecordKind

from .amounts import Place, Seconds, Share, share_percent, summed
from .columns import (
    PLACES,
    SHARES,
    Rows,
    packed,
    places_of,
    shares_of,
    table_of,
    together,
    unpacked,
)
from .out_of_service import Out, read, written, written_parts

# The days of every time zone can be cut from quarters of an hour.
BUCKET = timedelta(minutes=15)
_NAMED = pa.schema([SHARES.field(name) for name in ("holder", "user")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The usage of one cluster in the quarter of an hour that began at `start`."""

    cluster: str
    start: datetime
    gpus: int  # installed in it
    nodes: int
    seconds: Seconds
    shares: Sequence[Share] = ()
    places: Sequence[Place] = ()  # ordered; they add up to `seconds`
    models: Mapping[str, int] = field(default_factory=dict)  # GPUs by model
    counted_at: datetime
    settled: bool = False  # counted again after late data had time to arrive
    # From this time on, minutes in which nothing was heard are unknown; before it nobody counted.
    watched_since: datetime | None = None
    # What was out of service when the quarter was first counted; None where nobody could say.
    out: Out | None = None
    idle_after: timedelta | None = None  # the idle threshold that its spells were counted by

    @property
    def counted(self) -> timedelta:
        """The time of the quarter for which GPUs were counted; less than all in the first and the last quarter."""
        seconds = self.seconds.installed / self.gpus if self.gpus else 0.0
        return min(timedelta(seconds=seconds), BUCKET)

    @property
    def began(self) -> datetime:
        """The start of counting, in the quarter in which counting began."""
        return max(min(self.start + BUCKET, self.counted_at) - self.counted, self.start)

    def to_record(self) -> Record:
        """Return a record of kind `usage`; a later count replaces an earlier one. Places and holders are packed."""
        seconds = {f.name: round(getattr(self.seconds, f.name), 3) for f in fields(Seconds)}
        return Record(
            kind=RecordKind.USAGE,
            id=f"{cluster_key(self.cluster)}|{to_text(self.start)}",
            at=self.start,
            subject=cluster_key(self.cluster),
            version=micros(self.counted_at),
            body={
                "gpus": self.gpus,
                "nodes": self.nodes,
                "seconds": seconds,
                "places": packed(table_of(self.places, PLACES)),
                "holders": packed(table_of(self.shares, SHARES)),
                "models": dict(self.models),
                "counted_at": to_text(self.counted_at),
                "settled": self.settled,
                "watched_since": to_text(watched) if (watched := self.watched_since) else None,
                "out_of_service": None if self.out is None else written(self.out),
                "out_of_service_parts": written_parts(self.out or {}),
                "idle_after_seconds": self.idle_after and self.idle_after.total_seconds(),
            },
        )

    @classmethod
    def from_record(cls, record: Record, *, places: bool = True) -> "Bucket":
        """Read what `to_record` wrote; ValueError, KeyError or TypeError for any other record.

        Without `places` these are left out: over many buckets they are large, and sums do not need them.
        """
        body = record.body
        known = {f.name for f in fields(Seconds)}
        watched = body.get("watched_since")
        return cls(
            cluster=unquote(record.subject),
            start=record.at,
            gpus=int(body["gpus"]),
            nodes=int(body["nodes"]),
            seconds=Seconds(**{k: float(v) for k, v in body["seconds"].items() if k in known}),
            shares=_shares(body),
            places=places_of(unpacked(body["places"], PLACES))
            if places and "places" in body
            else (),
            models=dict(body.get("models", {})),
            counted_at=from_text(body["counted_at"]),
            settled=bool(body.get("settled")),
            watched_since=None if watched is None else from_text(watched),
            out=None
            if (out := body.get("out_of_service")) is None
            else read(out, body.get("out_of_service_parts", ())),
            idle_after=None
            if (after := body.get("idle_after_seconds")) is None
            else timedelta(seconds=float(after)),
        )


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The usage of one cluster from `start` to `end`, both on a quarter of an hour or cut at now.

    `buckets` are ordered; a quarter that was never counted is absent, not zero.
    """

    cluster: str
    start: datetime
    end: datetime
    buckets: tuple[Bucket, ...]

    @property
    def simulated(self) -> bool:
        return self.cluster == SIMULATED_CLUSTER

    @cached_property
    def seconds(self) -> Seconds:
        """The sum over all buckets; cached, since adding up months of quarters takes long."""
        return sum((bucket.seconds for bucket in self.buckets), Seconds())

    @cached_property
    def gpus(self) -> int:
        """The most GPUs installed at once."""
        return max((bucket.gpus for bucket in self.buckets), default=0)

    @cached_property
    def nodes(self) -> int:
        return max((bucket.nodes for bucket in self.buckets), default=0)

    @property
    def allocated_percent(self) -> float | None:
        """The allocated percent; see `Seconds.allocated_percent`."""
        return self.seconds.allocated_percent

    @property
    def used_percent(self) -> float | None:
        """The percent used, of the allocated GPU-hours with a measured utilisation."""
        return share_percent(self.seconds.used, self.seconds.measured)

    @property
    def time(self) -> timedelta:
        """The part of the span that was counted at all."""
        return sum((bucket.counted for bucket in self.buckets), timedelta())

    @property
    def holders(self) -> int:
        """The number of distinct pairs of holder and user; counted in columns, as weeks have a million rows."""
        rows = together((table_of(bucket.shares, SHARES) for bucket in self.buckets), _NAMED)
        named: pa.Table = rows.group_by(_NAMED.names, use_threads=False).aggregate([])
        return int(named.num_rows)

    @property
    def shares(self) -> tuple[Share, ...]:
        """The holders over the whole span, the largest allocation first."""
        found: defaultdict[tuple[str, ...], list[Share]] = defaultdict(list)
        for bucket in self.buckets:
            models: defaultdict[tuple[str, ...], list[Share]] = defaultdict(list)
            for share in bucket.shares:
                # The rest of a user has one row for each of its accounts and partitions.
                of = (share.account or "", share.partition or "") if share.is_rest else ()
                models[(*share.key, *of)].append(share)
            for key, them in models.items():
                gpus = sum(share.gpus for share in them)
                found[key].append(replace(summed(them), gpus=gpus) if them[1:] else them[0])
        joined = map(summed, found.values())
        return tuple(sorted(joined, key=lambda one: (-one.allocated, one.key)))


def cluster_key(cluster: str) -> str:
    """Return the cluster's name as a record subject; its nodes lie below it."""
    return quote(cluster, safe=":._-")


def floor(at: datetime) -> datetime:
    """Return the start of the quarter of an hour that a time lies in."""
    return EPOCH + (at - EPOCH) // BUCKET * BUCKET


# The columns of `shares` in versions before holders were packed.
_BEFORE = ("holder", "user", "command", "gpus", "allocated", "measured", "used", "idle")


def _shares(body: Mapping[str, Any]) -> Sequence[Share]:
    """Return the shares; packed ones become values on first access, which sums over weeks never need."""
    if "holders" in body:
        return Rows(unpacked(body["holders"], SHARES), shares_of)
    names = (*_BEFORE, "partition", "account")
    return tuple(Share(**dict(zip(names, row, strict=False))) for row in body["shares"])
