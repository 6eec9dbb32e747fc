"""The words of usage. All amounts are GPU-seconds: ten GPUs for a minute are 600.

A GPU is *allocated* while a process or a job holds it; it is *used* to the share of its measured
utilisation. Simulated and real clusters are never in one value: a bucket is of one cluster.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from urllib.parse import quote, unquote

from ..clock import EPOCH, from_text, to_text
from ..model import SIMULATED_CLUSTER, GpuState, Record, RecordKind

# Every time zone's days can be cut from quarters of an hour.
BUCKET = timedelta(minutes=15)


# A bucket with very many holders has the smallest of each user as one, so that its record stays readable.
OTHERS = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """GPU-seconds of a cluster in a span; the states add up to `installed`."""

    installed: float = 0.0
    active: float = 0.0
    idle: float = 0.0  # held and at 0 % at that moment, however short that lasted
    free: float = 0.0
    unavailable: float = 0.0
    unknown: float = 0.0
    allocated: float = 0.0  # held by a process or a job, while the state was known
    measured: float = 0.0  # of those, with a measured utilisation
    used: float = 0.0  # of those, utilisation as a share of them
    powered: float = 0.0  # with a measured power
    energy_joules: float = 0.0  # of those: power summed over time; no GPU-seconds

    @property
    def known(self) -> float:
        """Those whose state was known: shares are of these."""
        return self.installed - self.unknown

    def of(self, state: GpuState) -> float:
        """GPU-seconds in that state."""
        value: float = getattr(self, state.value)
        return value

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Seconds)}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one holder had; GPUs that several hold at once count in equal parts."""

    holder: str  # "job 1042"; processes of one user are one holder, "processes"
    user: str | None
    command: str | None
    gpus: int  # different GPUs that it held at any time of the span, at most
    allocated: float
    measured: float
    used: float
    idle: float
    partition: str | None = None  # of a job, as far as its node was told
    account: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.user or "", self.holder

    @property
    def is_rest(self) -> bool:
        """Whether it stands for many small holders."""
        return self.holder == OTHERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One cluster in one quarter of an hour that began at `start`."""

    cluster: str
    start: datetime
    gpus: int  # installed in it
    nodes: int
    seconds: Seconds
    shares: tuple[Share, ...] = ()
    models: Mapping[str, int] = field(default_factory=dict)  # GPUs by model
    counted_at: datetime
    settled: bool = False  # counted again once late data had its time to come
    # From then on minutes in which nothing at all was heard are unknown; before, nobody counted.
    watched_since: datetime | None = None

    def to_record(self) -> Record:
        """Kind `usage`; a later count replaces an earlier one."""
        seconds = {f.name: round(getattr(self.seconds, f.name), 3) for f in fields(Seconds)}
        shares = [[_plain(getattr(share, f.name)) for f in fields(Share)] for share in self.shares]
        return Record(
            kind=RecordKind.USAGE,
            id=f"{cluster_key(self.cluster)}|{to_text(self.start)}",
            at=self.start,
            subject=cluster_key(self.cluster),
            version=int(self.counted_at.timestamp() * 1_000_000),
            body={
                "gpus": self.gpus,
                "nodes": self.nodes,
                "seconds": seconds,
                "shares": shares,
                "models": dict(self.models),
                "counted_at": to_text(self.counted_at),
                "settled": self.settled,
                "watched_since": to_text(watched) if (watched := self.watched_since) else None,
            },
        )

    @classmethod
    def from_record(cls, record: Record) -> "Bucket":
        """The bucket that `to_record` wrote; ValueError, KeyError or TypeError when it is none."""
        body = record.body
        names = [f.name for f in fields(Share)]
        known = {f.name for f in fields(Seconds)}
        watched = body.get("watched_since")
        return cls(
            cluster=unquote(record.subject),
            start=record.at,
            gpus=int(body["gpus"]),
            nodes=int(body["nodes"]),
            seconds=Seconds(**{k: float(v) for k, v in body["seconds"].items() if k in known}),
            shares=tuple(Share(**dict(zip(names, row, strict=False))) for row in body["shares"]),
            models=dict(body.get("models", {})),
            counted_at=from_text(body["counted_at"]),
            settled=bool(body.get("settled")),
            watched_since=None if watched is None else from_text(watched),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One cluster from `start` to `end`, both on a quarter of an hour or cut at now.

    `buckets` are ordered; a quarter of which nothing was ever counted is absent, not zero.
    """

    cluster: str
    start: datetime
    end: datetime
    buckets: tuple[Bucket, ...]

    @property
    def simulated(self) -> bool:
        return self.cluster == SIMULATED_CLUSTER

    @property
    def seconds(self) -> Seconds:
        """All of it."""
        return sum((bucket.seconds for bucket in self.buckets), Seconds())

    @property
    def gpus(self) -> int:
        """The most that were installed at once."""
        return max((bucket.gpus for bucket in self.buckets), default=0)

    @property
    def nodes(self) -> int:
        return max((bucket.nodes for bucket in self.buckets), default=0)

    @property
    def allocated_percent(self) -> float | None:
        """Allocated, of the GPU-hours whose state was known; None when there are none."""
        return share_percent(self.seconds.allocated, self.seconds.known)

    @property
    def used_percent(self) -> float | None:
        """Used, of the allocated GPU-hours that were measured."""
        return share_percent(self.seconds.used, self.seconds.measured)

    @property
    def coverage_percent(self) -> float | None:
        """GPU-hours whose state was known, of those that were installed while anybody counted."""
        return share_percent(self.seconds.known, self.seconds.installed)

    @property
    def shares(self) -> tuple[Share, ...]:
        """Holders over the whole span, those that had most first."""
        found: defaultdict[tuple[str, ...], list[Share]] = defaultdict(list)
        for bucket in self.buckets:
            for share in bucket.shares:
                # What is left of a user is one for each of its accounts.
                of = (share.account or "", share.partition or "") if share.is_rest else ()
                found[(*share.key, *of)].append(share)
        joined = map(_joined, found.values())
        return tuple(sorted(joined, key=lambda one: (-one.allocated, one.key)))


def cluster_key(cluster: str) -> str:
    """A cluster as a subject that records are asked for by: its nodes lie below it."""
    return quote(cluster, safe=":._-")


def floor(at: datetime) -> datetime:
    """The start of the quarter of an hour that a time lies in."""
    return EPOCH + (at - EPOCH) // BUCKET * BUCKET


def share_percent(part: float, whole: float) -> float | None:
    """`part` in percent of `whole`; None when there is no whole."""
    return 100.0 * part / whole if whole > 0 else None


def _plain(value: str | float | None) -> str | float | None:
    return round(value, 3) if isinstance(value, float) else value


def _joined(shares: Sequence[Share]) -> Share:
    """What one holder had of several quarters."""
    return Share(
        holder=shares[0].holder,
        user=shares[0].user,
        command=next((share.command for share in shares if share.command), None),
        gpus=max(share.gpus for share in shares),
        allocated=sum(share.allocated for share in shares),
        measured=sum(share.measured for share in shares),
        used=sum(share.used for share in shares),
        idle=sum(share.idle for share in shares),
        partition=next((share.partition for share in shares if share.partition), None),
        account=next((share.account for share in shares if share.account), None),
    )
