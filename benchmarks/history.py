"""Writes a past of the simulated cluster through the hub's own interface, as collectors would.

`python -m benchmarks.history --url URL --token-file FILE --nodes 125 --hours 1 --tick 10` sends
what a cluster of that size would have sent from then until now: inventories, who held which GPU
from when to when, every number, and a few faults that came and went. With `--simulator DIRECTORY`
a simulator that starts there afterwards goes on with the same jobs and counters.

The hub keeps only what is younger than its `telemetry_days`, and the past is of the simulated
cluster alone.
"""

import argparse
import multiprocessing
import secrets
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from benchmarks.past import GPUS_PER_NODE, Past, begin
from benchmarks.past import records as records_of
from collector.spool.batches import WRITE_PATH
from gpuvigil import __version__
from gpuvigil.clock import to_text
from gpuvigil.config import read_secret
from gpuvigil.errors import HubUnavailable
from gpuvigil.hub_client import Hub
from simulator.cluster import Node
from simulator.faults import InjectedFault, change
from simulator.player import Story, beside
from simulator.sensors import Moment, NodeSensors

# Of one node; half a megabyte of line protocol at eight GPUs.
TICKS_PER_BODY = 60
RECORDS_PER_BODY = 500
# The hub answers a body with its next commit, so that many must be under way at a time.
CONNECTIONS = 96
# Every pass sends what went by during the one before; a large fleet is never quite caught up with.
MOST_PASSES = 4
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The hub that is written to."""

    url: str
    token_file: Path

    def hub(self) -> Hub:
        return Hub(self.url, lambda: read_secret(self.token_file, "token"), timeout_seconds=120.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was sent, and how long that took."""

    gpu_rows: int
    records: int
    until: datetime
    seconds: float

    def after(self, before: "Written") -> "Written":
        """Both together."""
        return replace(
            self,
            gpu_rows=before.gpu_rows + self.gpu_rows,
            records=before.records + self.records,
            seconds=before.seconds + self.seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """One process's part of one pass: some nodes, and the ticks from `first` to before `end`."""

    past: Past
    target: Target
    boot: str
    nodes: tuple[int, ...]
    first: int
    end: int


def write(
    past: Past,
    target: Target,
    *,
    start: datetime | None = None,
    until: datetime | None = None,
    processes: int = 2,
    simulator: Path | None = None,
) -> Written:
    """Send the past from `start` (its origin if left out) until `until` (now, less than a tick).

    `simulator` is the directory of the simulator that goes on: `up` keeps it as `simulator` in its
    state directory. ValueError when one has begun there before.
    """
    began = time.monotonic()
    if simulator is not None:
        _refuse_old_story(simulator)
    first = reached = past.ticks(start or past.origin)
    for _ in range(MOST_PASSES):
        if reached >= (end := past.ticks(until or _now())):
            break
        _send_pass(past, target, range(reached, end), processes)
        reached = end
    end_at = past.origin + timedelta(seconds=reached * past.tick_seconds)
    records = _send_records(past, target, end_at)
    if simulator is not None:
        _hand_over(past, simulator, end_at)
    return Written(
        gpu_rows=(reached - first) * past.nodes * GPUS_PER_NODE,
        records=records,
        until=end_at,
        seconds=time.monotonic() - began,
    )


def _send_pass(past: Past, target: Target, ticks: range, processes: int) -> None:
    """Every node's numbers for some ticks, spread over the processes; one process is this one."""
    boot = f"past-{secrets.token_hex(4)}"
    shares = [
        _Share(
            past=past,
            target=target,
            boot=boot,
            nodes=tuple(range(number, past.nodes, processes)),
            first=ticks.start,
            end=ticks.stop,
        )
        for number in range(processes)
    ]
    if processes == 1:
        _send_share(shares[0])
        return
    # Spawned: a caller may have threads, which a fork does not survive.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn) as pool:
        list(pool.map(_send_share, shares))


def _send_share(share: _Share) -> None:
    """One process: writes bodies and keeps `CONNECTIONS` of them under way."""
    room = threading.BoundedSemaphore(2 * CONNECTIONS)
    here = threading.local()

    def send(node: str, sequence: int, text: str) -> None:
        if not hasattr(here, "hub"):
            here.hub = share.target.hub()
            opened.callback(here.hub.close)
        _send_body(here.hub, _headers(node, share.boot, sequence), text.encode())

    sent: list[Future[None]] = []
    with ExitStack() as opened, ThreadPoolExecutor(CONNECTIONS) as senders:
        for node, sequence, text in _bodies(share):
            room.acquire()
            job = senders.submit(send, node, sequence, text)
            job.add_done_callback(lambda _: room.release())
            sent.append(job)
            if job.done():
                job.result()
    for job in sent:
        job.result()


def _bodies(share: _Share) -> Iterator[tuple[str, int, str]]:
    """Node, sequence and line protocol of every body, the oldest ticks of all nodes first."""
    past, built = share.past, share.past.cluster()
    nodes = [built.nodes[number] for number in share.nodes]
    sensors = [NodeSensors(node) for node in nodes]
    mine = [_faults_of(node, past.faults) for node in nodes]
    for sequence, first in enumerate(range(share.first, share.end, TICKS_PER_BODY), 1):
        ticks = range(first, min(first + TICKS_PER_BODY, share.end))
        for number, node, sensor, wrong in zip(share.nodes, nodes, sensors, mine, strict=True):
            moments = (_moment(past, number, tick) for tick in ticks)
            lines = (sensor.body(moment, wrong) for moment in moments)
            text = "\n".join(line for line in lines if line is not None)
            if text:
                yield node.subject.node, sequence, text


def _moment(past: Past, number: int, tick: int) -> Moment:
    """When a node is read: its turn within the tick, as the simulator has it."""
    elapsed = (tick + number / past.nodes) * past.tick_seconds
    return Moment(origin=past.origin, elapsed_seconds=elapsed, tick=tick)


def _faults_of(node: Node, all_: Iterable[InjectedFault]) -> tuple[InjectedFault, ...]:
    names = frozenset(beside(node))
    return tuple(fault for fault in all_ if fault.node in names)


def _headers(node: str, boot: str, sequence: int) -> dict[str, str]:
    return {
        "Gpuvigil-Cluster": "simulated",
        "Gpuvigil-Node": node,
        "Gpuvigil-Boot": boot,
        "Gpuvigil-Lane": "backlog",
        "Gpuvigil-Sequence": str(sequence),
        "Gpuvigil-Sent-At": to_text(_now()),
        "Gpuvigil-Version": __version__,
    }


def _send_body(hub: Hub, headers: dict[str, str], content: bytes) -> None:
    """Send until it is committed; HubUnavailable after `PATIENCE_SECONDS` of a busy hub."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            hub.request("POST", WRITE_PATH, content, headers)
        except HubUnavailable as error:
            if time.monotonic() > deadline:
                raise
            time.sleep(error.retry_after_seconds or 1.0)
        else:
            return


def _send_records(past: Past, target: Target, until: datetime) -> int:
    """Inventories, allocations and events up to `until`; how many."""
    records = list(records_of(past, until))
    hub = target.hub()
    for start in range(0, len(records), RECORDS_PER_BODY):
        hub.write_records(records[start : start + RECORDS_PER_BODY])
    hub.close()
    return len(records)


def _refuse_old_story(simulator: Path) -> None:
    story = Story.read(_story(simulator))
    if story is not None:
        raise ValueError(
            f"{_story(simulator)}: a simulation began here at {to_text(story.origin)}, and a past"
            " cannot be put before it; use an empty directory"
        )


def _hand_over(past: Past, simulator: Path, until: datetime) -> None:
    """Leave what the simulator reads when it starts: the same jobs, and counters that go on."""
    _story(simulator).parent.mkdir(parents=True, exist_ok=True)
    Story(
        nodes=past.nodes,
        gpus_per_node=GPUS_PER_NODE,
        seed=past.seed,
        origin=past.origin,
        told_at=until,
    ).write(_story(simulator))
    with change(simulator / "faults.json") as kept:
        kept.extend(past.faults)


def _story(simulator: Path) -> Path:
    return simulator / "spool" / "story.json"


def _now() -> datetime:
    return datetime.now(timezone.utc)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; prints what was written."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.history")
    options.add_argument("--url", required=True, help="address of the hub")
    options.add_argument("--token-file", type=Path, required=True, help="a collector's token")
    options.add_argument("--nodes", type=int, default=125, help="nodes with 8 GPUs each")
    options.add_argument("--hours", type=float, default=1.0, help="how far back it goes")
    options.add_argument("--tick", type=float, default=10.0, help="seconds between two readings")
    options.add_argument("--seed", type=int, default=1, help="of the simulated cluster")
    options.add_argument("--processes", type=int, default=2, help="that write at a time")
    options.add_argument("--simulator", type=Path, help="directory of the simulator that goes on")
    chosen = options.parse_args(arguments)
    span = timedelta(hours=chosen.hours)
    past = begin(chosen.nodes, span, chosen.tick, chosen.seed)
    target = Target(url=chosen.url, token_file=chosen.token_file)
    done = write(past, target, processes=chosen.processes, simulator=chosen.simulator)
    sys.stdout.write(
        f"{done.gpu_rows} GPU rows and {done.records} records in {done.seconds:.1f} s,"
        f" from {to_text(past.origin)} to {to_text(done.until)}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
