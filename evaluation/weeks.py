"""`python -m evaluation.weeks --seeds SEED ...`: compare the report on invented days with the truth.

A cluster with random teams, jobs, idle spells, faults, repairs and maintenance is sent to a real hub as collectors
would, with a tick of ten seconds. The product's own counter and judge go through it quarter by quarter, and the report
is made. Compared are each team's idle, broken and inefficient GPU-hours, the hours out of service by reason, and the
ten worst jobs. Without `--seeds`, seeds follow from the commit, so that nobody knew them before; a tree with changes
is refused. Nothing is kept.
"""

import argparse
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

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
from gpuvigil.schedulers.out_of_service import LostTo
from report.inputs.facts import Facts, read
from report.sections.build import build
from report.sections.waste import wasted

from .fingerprint import is_committed
from .fleets import release_seed
from .run import stamp
from .week_plan import PER_NODE, REASONS, TICK, Truth, Week, invented, samples, truth

ORIGIN = datetime(2026, 1, 5, tzinfo=timezone.utc)
CLUSTER, MODEL = "invented", "NVIDIA H100 80GB HBM3"
CLOSE, WORST, ALIKE = 0.02, 10, 0.02
# How often `gpuvigil slurm` looks by default.
LOOK = timedelta(seconds=60)
# For fewer hours, 2 % cannot be told: a sample is 10 s.
LEAST_HOURS = 1.0
_TICKS_PER_BODY, _PATIENCE_SECONDS = 360, 60.0
_HOUR = 3600.0
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


@dataclass(frozen=True, slots=True)
class Row:
    """One number of the report beside the true one, in GPU-hours."""

    what: str
    told: float
    true: float

    @property
    def off(self) -> float:
        return (self.told - self.true) / self.true if self.true else 0.0

    @property
    def counts(self) -> bool:
        return self.true >= LEAST_HOURS


def compared(facts: Facts, right: Truth) -> list[Row]:
    """Return each team's hours, and the cluster's hours out of service."""
    told: dict[str, defaultdict[str, float]] = {
        name: defaultdict(float) for name in ("idle", "broken", "little")
    }
    for one in wasted(facts.now, facts):
        told["idle"][one.held.account] += one.idle
        told["broken"][one.held.account] += one.held.excused
        told["little"][one.held.account] += one.little
    rows = [
        Row(f"{name} {team}", told[name][team], hours)
        for name in told
        for team, hours in sorted(getattr(right, name).items())
    ]
    seconds = facts.usage.seconds
    lost = {to.value: seconds.lost(to) / _HOUR for to in LostTo}
    return [*rows, *(Row(f"out {to}", lost[to], hours) for to, hours in sorted(right.lost.items()))]


def worst_right(facts: Facts, right: Truth) -> tuple[int, int]:
    """Return how many of the report's worst jobs are right, ties with the last included, and of how many."""
    sheet = build(facts).sheet("jobs")
    named = [] if sheet is None else [str(row[0]) for row in sheet.rows]
    ranked = sorted(right.wasted.values(), reverse=True)[: len(named)]
    return sum(right.wasted[it] >= ranked[-1] * (1 - ALIKE) for it in named), len(named)


def played(seed: int, nodes: int = 8, hours: float = 24.0) -> dict[str, Any]:
    """Play one cluster and return its figures."""
    begun, week = time.monotonic(), invented(seed, nodes, hours)
    right = truth(week)
    with (
        tempfile.TemporaryDirectory(prefix="gpuvigil-week-") as name,
        hub_of(Path(name)) as (
            services,
            collectors,
            config,
        ),
    ):
        send(week, collectors)
        services.write_records(list(told(week)))
        facts = counted(week, services, config)
        rows = compared(facts, right)
        hits, of = worst_right(facts, right)
    return {
        "seed": seed,
        "jobs": len(week.jobs),
        "rows": rows,
        "worst": (hits, of),
        "seconds": round(time.monotonic() - begun),
    }


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each number, for people; what is off is marked."""
    hits, of = found["worst"]
    yield (
        f"seed {found['seed']}: {found['jobs']} jobs, {hits} of the {of} worst are right,"
        f" {found['seconds']} s"
    )
    for row in found["rows"]:
        mark = " OFF" if row.counts and abs(row.off) > CLOSE else ""
        yield f"  {row.what:24} {row.told:9.2f} of {row.true:9.2f} GPU-h {100 * row.off:+6.2f} %{mark}"


def main(arguments: Sequence[str]) -> int:
    """Play and show; return 1 where anything is off, 2 for a tree with changes."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.weeks", description=__doc__)
    parser.add_argument("weeks", type=int, nargs="?", default=3)
    parser.add_argument("--seeds", type=int, nargs="+", help="to tune with")
    parser.add_argument("--nodes", type=int, default=8, help="of eight GPUs each")
    parser.add_argument("--hours", type=float, default=24.0)
    chosen = parser.parse_args(arguments)
    commit = stamp()["commit"]
    if chosen.seeds is None and not is_committed(commit):
        return 2
    seeds = chosen.seeds or [release_seed(commit, it) for it in range(chosen.weeks)]
    off = False
    for seed in seeds:
        found = played(seed, chosen.nodes, chosen.hours)
        print("\n".join(lines(found)), flush=True)
        hits, of = found["worst"]
        off |= of - hits > 1 or any(it.counts and abs(it.off) > CLOSE for it in found["rows"])
    return int(off)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
