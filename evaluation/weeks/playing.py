"""An invented cluster, sent to a real hub as collectors would; the product's own counter and judge go through it."""

import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

from accounting.usage import BUCKET
from analyzer.jobs.efficiency_job import EfficiencyJob
from analyzer.jobs.usage_job import GRACE, UsageCounter
from collector.spool.batches import WRITE_PATH
from gpuvigil import __version__
from gpuvigil.clock import ManualClock, to_text
from gpuvigil.config import load
from gpuvigil.faults import FAULTS, Shows, where
from gpuvigil.hub_client import Hub
from gpuvigil.lineprotocol import LineTemplate
from gpuvigil.model import (
    Allocation,
    GpuIdentity,
    Impact,
    Incident,
    Inventory,
    Record,
    ScheduledNode,
    Scheduler,
    Subject,
    fingerprint,
    job_holder,
)
from gpuvigil.schedulers.node_turns import NodeTurns
from report.inputs.facts import Facts, read

from .plan import PER_NODE, REASONS, TICK, Week, samples

ORIGIN = datetime(2026, 1, 5, tzinfo=timezone.utc)
CLUSTER, MODEL = "invented", "NVIDIA H100 80GB HBM3"
# How often `gpuvigil slurm` looks by default.
LOOK = timedelta(seconds=60)
_TICKS_PER_BODY, _PATIENCE_SECONDS = 360, 60.0
(_LOST,) = (FAULTS[key] for key in where(lambda row: row.shows is Shows.LOST))


@contextmanager
def hub_of(directory: Path) -> Iterator[tuple[Hub, Hub, Path]]:
    """Start a hub, and yield a client for services, one for collectors, and its configuration."""
    tokens = {name: directory / name for name in ("service", "collector")}
    for file in tokens.values():
        file.write_text(secrets.token_urlsafe(16) + "\n")
    kept = "".join(f"{it}_days = 40000.0\n" for it in ("telemetry", "rollup", "records"))
    config = directory / "hub.toml"
    config.write_text(
        f'[hub]\nport = 0\ncommit_seconds = 0.02\ndata_directory = "{directory / "data"}"\n'
        f'service_token_file = "{tokens["service"]}"\n'
        f'collector_token_file = "{tokens["collector"]}"\n{kept}'
    )
    command = [sys.executable, "-m", "gpuvigil", "hub", "--config", str(config)]
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            url = _address(directory / "data" / "hub.url", process)
            clients = [
                Hub(url, lambda file=file: file.read_text().strip(), timeout_seconds=120.0)  # type: ignore[misc]
                for file in tokens.values()
            ]
            yield clients[0], clients[1], config
            for client in clients:
                client.close()
        finally:
            process.terminate()


def _address(file: Path, process: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if file.exists() and (url := file.read_text().strip()):
            return url
        time.sleep(0.1)
    raise RuntimeError("the hub did not start")


def _subject(week: Week, node: int, gpu: int | None = None) -> Subject:
    uuid = None if gpu is None else f"GPU-{week.names[node]}-{gpu}"
    return Subject(cluster=CLUSTER, node=week.names[node], gpu=uuid)


def _at(seconds: float) -> datetime:
    return ORIGIN + timedelta(seconds=round(seconds, 3))


def told(week: Week) -> Iterator[Record]:
    """Yield the hub's records beside telemetry: inventories, allocations, and the incidents of faults."""
    for node in range(week.nodes):
        gpus = tuple(
            GpuIdentity(
                uuid=str(_subject(week, node, it).gpu), index=it, pci_address=None, model=MODEL
            )
            for it in range(PER_NODE)
        )
        yield Inventory(
            subject=_subject(week, node), at=ORIGIN - timedelta(days=1), boot="b", version=__version__,
            tick_seconds=float(TICK), gpus=gpus, driver_state="loaded",
        ).to_record()  # fmt: skip
    for job in week.jobs:
        for gpu in job.gpus:
            yield Allocation(
                subject=_subject(week, job.node, gpu), holder=job_holder(job.number), user=job.user,
                command="python train.py", account=job.team, started_at=_at(job.start),
                ended_at=_at(job.end),
            ).to_record()  # fmt: skip
        for gpu, (begin, until) in job.stopped:
            yield _lost(_subject(week, job.node, gpu), job.name, job.user, _at(begin), _at(until))


def _lost(gpu: Subject, holder: str, user: str, since: datetime, until: datetime) -> Record:
    mark = fingerprint(_LOST.key, gpu, "")
    return Incident(
        id=f"{mark}-{round(since.timestamp())}", fingerprint=mark, fault=_LOST.key, subject=gpu, severity=_LOST.severity,
        state="resolved", title=_LOST.title, since=since, updated_at=until,
        resolved_at=until, impact=Impact(gpus=1, holders=(holder,), users=(user,)), evidence=(),
        action="", members=(gpu.key,), label=gpu.node,
    ).to_record()  # fmt: skip


def send(week: Week, hub: Hub) -> None:
    """Send every node's telemetry, an hour in a body."""
    last = int(week.seconds // TICK)
    for begin in range(0, last, _TICKS_PER_BODY):
        for node in range(week.nodes):
            lines = _lines(week, node, range(begin, min(begin + _TICKS_PER_BODY, last)))
            headers = {
                "Gpuvigil-Cluster": CLUSTER, "Gpuvigil-Node": week.names[node], "Gpuvigil-Boot": "b",
                "Gpuvigil-Lane": "backlog", "Gpuvigil-Sequence": str(begin // _TICKS_PER_BODY + 1),
                "Gpuvigil-Sent-At": to_text(datetime.now(timezone.utc)),
                "Gpuvigil-Version": __version__,
            }  # fmt: skip
            hub.request("POST", WRITE_PATH, "\n".join(lines).encode(), headers)


def _lines(week: Week, node: int, ticks: range) -> Iterator[str]:
    tags = {"cluster": CLUSTER, "node": week.names[node], "model": MODEL}
    of_gpu = [
        LineTemplate("gpu", {**tags, "uuid": str(_subject(week, node, it).gpu)})
        for it in range(PER_NODE)
    ]
    start = round(ORIGIN.timestamp()) * 1_000_000_000
    for tick, gpu, used, sm in samples(week, node, ticks.start, ticks.stop):
        at_ns = start + round((tick + node / week.nodes) * TICK * 1000) * 1_000_000
        fields: dict[str, float | int] = {"up": 0, "unmeasured_reason": 3}
        if used >= 0:
            fields = {"up": 1, "utilization_percent": round(used), "sm_activity_percent": sm}
        if (line := of_gpu[gpu].line(fields, at_ns)) is not None:
            yield line


def _scheduler(week: Week, turns: NodeTurns, end: datetime) -> Record:
    """Return a scheduler watcher's record of its nodes at the end of a quarter that it watched."""
    told: tuple[ScheduledNode, ...] = ()
    left: tuple[ScheduledNode, ...] = ()
    for number in range(BUCKET // LOOK, -1, -1):
        at = end - number * LOOK
        nodes = (
            ScheduledNode(name=week.names[node], states=("DRAIN",), reason=REASONS[to])
            for node, to, (begin, until) in week.drains
            if _at(begin) <= at < _at(until)
        )
        told, left = turns.update(nodes, at)
    told_by = Subject(cluster=CLUSTER, node="head")
    return Scheduler(told_by=told_by, at=end, answered_at=end, nodes=told, left=left).to_record()


def counted(week: Week, hub: Hub, config: Path) -> Facts:
    """Go through everything as an analyzer would, and return the facts for the report."""
    settings, stop = load(config), threading.Event()
    clock, after = ManualClock(ORIGIN), timedelta(seconds=settings.analyzer.idle_after_seconds)
    retention = timedelta(days=14)
    counter = UsageCounter(hub, clock, stop, retention, idle_after=after)
    efficiency = EfficiencyJob(hub, clock, stop)
    length, turns = timedelta(seconds=week.seconds), NodeTurns()
    for number in range(1, length // BUCKET + 1):
        end = ORIGIN + number * BUCKET
        hub.write_records([_scheduler(week, turns, end)])
        clock.step((end + GRACE - clock.now()).total_seconds())
        counter.step()
    for days in range(length // timedelta(days=1) + 1):
        clock.step(
            (
                ORIGIN
                + days * timedelta(days=1)
                + length % timedelta(days=1)
                - clock.now()
                + timedelta(minutes=12)
            ).total_seconds()
        )
        efficiency.step()
    (facts,) = read(hub, CLUSTER, (ORIGIN, ORIGIN + length), clock.now(), settings)
    return facts
