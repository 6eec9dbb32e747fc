"""Invented usage and incidents for the tests of the report."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from accounting.cost.money import Prices
from accounting.usage import BUCKET, Bucket, Seconds, Share, Usage
from gpuvigil.config import CostSettings, PriceSettings
from gpuvigil.model import (
    Evidence,
    GpuIdentity,
    Impact,
    Incident,
    Inventory,
    Opinion,
    Severity,
    Subject,
    fingerprint,
)
from report.inputs.facts import Facts, SpanData

END = datetime(2026, 11, 21, tzinfo=timezone.utc)
WEEK = timedelta(days=7)
START = END - WEEK
QUARTER = BUCKET.total_seconds()


def priced(per_hour: float = 2.0) -> Prices:
    return Prices(
        settings=CostSettings(currency="CHF", prices=(PriceSettings(per_gpu_hour=per_hour),))
    )


def share(
    holder: str = "job 1",
    user: str | None = "ann",
    gpus: int = 4,
    used: float = 0.8,
    idle: float = 0.1,
    seconds: float | None = None,
    quiet: float | None = 0.0,
    **more: Any,
) -> Share:
    """What a holder had of one quarter; `used`, `idle` and `quiet` are parts of it, None is not known."""
    held = gpus * QUARTER if seconds is None else seconds
    return Share(
        holder=holder,
        user=user,
        command="train.py",
        gpus=gpus,
        allocated=held,
        measured=held,
        used=held * used,
        idle=held * max(idle, quiet or 0.0),
        quiet=None if quiet is None else held * quiet,
        **more,
    )


def bucket(
    start: datetime,
    shares: Iterable[Share] = (),
    *,
    gpus: int = 8,
    unavailable: float = 0.0,
    unknown: float = 0.0,
    lost: Mapping[str, float] | None = None,
    cluster: str = "alpha",
) -> Bucket:
    """A quarter; `unavailable`, `unknown` and `lost` are GPUs. What nobody held is free.

    `lost`: to what; without it nobody could say what was out of service.
    """
    listed = tuple(shares)
    allocated = sum(one.allocated for one in listed)
    idle = sum(one.idle for one in listed)
    installed, away, dark = gpus * QUARTER, unavailable * QUARTER, unknown * QUARTER
    return Bucket(
        cluster=cluster,
        start=start,
        gpus=gpus,
        nodes=1,
        seconds=Seconds(
            installed=installed,
            active=allocated - idle,
            idle=idle,
            free=installed - allocated - away - dark,
            unavailable=away,
            unknown=dark,
            allocated=allocated,
            measured=sum(one.measured for one in listed),
            used=sum(one.used for one in listed),
            powered=installed - away - dark,
            energy_joules=(installed - away - dark) * 400.0,
            judged=0.0 if lost is None else installed,
            **{f"lost_{to}": gpus * QUARTER for to, gpus in (lost or {}).items()},
        ),
        shares=listed,
        models={"H100": gpus},
        counted_at=start + BUCKET,
        settled=True,
    )


def usage(
    shares: Sequence[Share] = (),
    *,
    start: datetime = START,
    end: datetime = END,
    cluster: str = "alpha",
    gpus: int = 8,
    unavailable: float = 0.0,
    unknown: float = 0.0,
    lost: Mapping[str, float] | None = None,
    without: Sequence[tuple[datetime, datetime]] = (),
) -> Usage:
    """The same quarter over and over, but for the spans `without` any."""
    starts = [start + BUCKET * number for number in range((end - start) // BUCKET)]
    return Usage(
        cluster=cluster,
        start=start,
        end=end,
        buckets=tuple(
            bucket(
                at,
                shares,
                cluster=cluster,
                gpus=gpus,
                unavailable=unavailable,
                unknown=unknown,
                lost=lost,
            )
            for at in starts
            if not any(since <= at < until for since, until in without)
        ),
    )


def nothing(cluster: str = "alpha", start: datetime = START, end: datetime = END) -> Usage:
    return Usage(cluster=cluster, start=start, end=end, buckets=())


def facts(
    counted: Usage | None = None,
    before: Usage | None = None,
    incidents: Sequence[Incident] = (),
    incidents_before: Sequence[Incident] = (),
    opinions: Sequence[Opinion] = (),
    **more: Any,
) -> Facts:
    now = usage([share()]) if counted is None else counted
    length = now.end - now.start
    if before is None:
        before = nothing(now.cluster, now.start - length, now.start)
    return Facts(
        cluster=now.cluster,
        now=SpanData(usage=now, incidents=tuple(incidents)),
        earlier=SpanData(usage=before, incidents=tuple(incidents_before)),
        lately=tuple(incidents),
        opinions=tuple(opinions),
        inventories=(inventory(now.cluster), inventory(now.cluster, "login", gpus=0)),
        idle_after=timedelta(minutes=30),
        idle_below_percent=1.0,
        made_at=END,
        **more,
    )


def inventory(cluster: str = "alpha", node: str = "n1", gpus: int = 8) -> Inventory:
    identities = tuple(
        GpuIdentity(uuid=f"GPU-{node}-{i}", index=i, pci_address=None, model="H100")
        for i in range(gpus)
    )
    return Inventory(
        subject=Subject(cluster=cluster, node=node),
        at=START,
        boot="b",
        tick_seconds=10.0,
        version="0.1.0",
        gpus=identities,
        driver_state="loaded" if gpus else "no driver",
    )


def gpu(index: int = 0, node: str = "n1", cluster: str = "alpha") -> Subject:
    return Subject(cluster=cluster, node=node, gpu=f"GPU-{node}-{index}")


def incident(
    fault: str = "gpu_lost",
    subject: Subject | None = None,
    *,
    since: datetime = START + timedelta(days=1),
    until: datetime | None = START + timedelta(days=2),
    severity: Severity = Severity.CRITICAL,
    title: str = "GPU fell off the bus",
    label: str = "n1 GPU 0",
    members: Sequence[Subject] = (),
    impact: Impact | None = None,
    acknowledged_by: str = "",
) -> Incident:
    about = gpu() if subject is None else subject
    mark = fingerprint(fault, about, label)
    return Incident(
        id=f"{mark}-{since:%d%H%M}",
        fingerprint=mark,
        fault=fault,
        subject=about,
        severity=severity,
        state="open" if until is None else "resolved",
        title=title,
        since=since,
        updated_at=until or since,
        resolved_at=until,
        impact=impact or Impact(gpus=1),
        evidence=(Evidence(name="up", value="0", limit="1"),),
        action="Drain the node and reboot it.",
        members=tuple(one.key for one in (about, *members)),
        label=label,
        acknowledged_by=acknowledged_by,
    )


def answer(fault: str, useful: bool, by: str = "ann") -> Opinion:
    """One person's word on an incident of that rule."""
    return Opinion(
        id=f"{fault}-{by}",
        incident=f"{fault}-1",
        fault=fault,
        subject=gpu(),
        by=by,
        useful=useful,
        at=START + timedelta(days=3),
    )


def idle(
    *gpus: Subject,
    since: datetime = START + timedelta(days=1),
    until: datetime | None = START + timedelta(days=1, hours=10),
    user: str = "carol",
    holder: str = "job 7",
    label: str = "n1",
) -> Incident:
    """The idle rule's incident about one GPU, or about several of one node."""
    several = len(gpus) > 1
    return incident(
        "gpu_idle_held",
        gpus[0].of_node() if several else gpus[0],
        since=since,
        until=until,
        severity=Severity.INFO,
        title="GPU is allocated but idle",
        label=label,
        members=gpus if several else (),
        impact=Impact(gpus=len(gpus), holders=(holder,), users=(user,)),
    )


def eventful() -> Facts:
    """A week with everything in it: holders, idle GPUs, faults, a gap, and a week before."""
    shares = [
        share(
            f"job {n}",
            f"user {n % 5}",
            1,
            0.3 + n / 40,
            0.02 * (n % 4),
            quiet=0.01 * (n % 3),
            account=f"team {n % 3}",
            partition="gpu",
        )
        for n in range(20)
    ]
    gap = (START + timedelta(days=3), START + timedelta(days=3, hours=5))
    return facts(
        usage(
            shares,
            gpus=32,
            unavailable=1.3,
            unknown=0.5,
            lost={"fault": 0.7, "repair": 0.4, "maintenance": 0.2, "unknown": 0.3},
            without=[gap],
        ),
        usage(shares[:15], gpus=32, start=START - WEEK, end=START),
        [
            incident(acknowledged_by="lena"),
            incident(label="n1 GPU 1", subject=gpu(1), until=None),
            incident(
                "port_down",
                Subject(cluster="alpha", node="n2", device="mlx5_0", port="1"),
                severity=Severity.WARNING,
                title="Network port is down",
                label="n2 mlx5_0",
            ),
            incident("gpu_xid", gpu(4), severity=Severity.INFO, title="Xid 13: a program's"),
            idle(gpu(2), gpu(3), until=None),
            idle(gpu(5), label="n1 GPU 5", user="erik"),
        ],
        opinions=[
            answer("gpu_lost", True),
            answer("gpu_idle_held", False),
            answer("gpu_idle_held", False, "ben"),
            answer("port_down", False),
            answer("port_down", True, "ben"),
        ],
    )
