"""A thousand nodes every ten seconds, while the analyzer and five people read.

Every process is the product's: hub, analyzer, and the simulator as the collectors of all nodes; the
people are `benchmarks.store_readers`. Beside them a probe writes an event and a body of one line
over and over, and a long poll waits for the events.
"""

import re
import statistics
import threading
import time
import urllib.request
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.footprint import cpu_seconds
from benchmarks.spine import descendants
from gpuvigil.hub_client import Hub
from gpuvigil.model import Event, EventKind, RecordKind, Subject
from tests.servers import HubProcess
from tests.services import commands, running, simulated

NODES, GPUS_PER_NODE, TICK_SECONDS = 1000, 8, 10.0
PEOPLE = 5
SEED = 1
# Every node has been read twice, and the first pass of everybody is over.
WARM_UP_SECONDS = 25.0
PROBE_SECONDS = 0.25


def measure(folder: Path, quick: bool) -> dict[str, Any]:
    """Run everybody together, and look at the hub meanwhile."""
    nodes, seconds = (100, 20.0) if quick else (NODES, 90.0)
    with HubProcess(folder / "hub", {"commit_seconds": 1.0}) as hub:
        assert hub.process is not None
        config = simulated(folder, hub, nodes, TICK_SECONDS, SEED)
        everybody = {**commands("simulate", "analyze"), "readers": ("benchmarks.store_readers",)}
        with running(folder, config, everybody) as processes:
            time.sleep(WARM_UP_SECONDS)
            pids = {"hub": hub.process.pid, **{name: it.pid for name, it in processes.items()}}
            found = _watch(hub, pids, seconds)
        log = hub.log.read_text(encoding="utf-8")
    return {
        "nodes": nodes,
        "gpus": nodes * GPUS_PER_NODE,
        "tick_seconds": TICK_SECONDS,
        "people": PEOPLE,
        "seed": SEED,
        **found,
        "errors_in_the_log": log.count(" error "),
    }


def _watch(hub: HubProcess, pids: dict[str, int], seconds: float) -> dict[str, Any]:
    stop = threading.Event()
    probe = Probe(hub, stop)
    before, metrics = {name: _used(pid) for name, pid in pids.items()}, _metrics(hub.url)
    began = time.monotonic()
    probe.start()
    time.sleep(seconds)
    wall = time.monotonic() - began
    used = {name: (_used(pid) - before[name]) / wall for name, pid in pids.items()}
    after = _metrics(hub.url)
    stop.set()
    probe.join()
    moved = {name: after[name] - metrics.get(name, 0.0) for name in after}
    commits = moved["gpuvigil_hub_commit_seconds_count"]
    return {
        "seconds": round(wall, 1),
        "cpu_share_of_one": {name: round(share, 4) for name, share in used.items()},
        "headroom": round(1.0 / used["hub"], 1),
        "lines_per_second": round(moved["gpuvigil_hub_lines_total"] / wall, 1),
        "bodies_per_second": round(moved["gpuvigil_hub_bodies_total"] / wall, 1),
        "answers_429": int(moved["gpuvigil_hub_busy_answers_total"]),
        "failed_commits": int(moved["gpuvigil_hub_failed_commits_total"]),
        "commits": int(commits),
        "commit_mean_ms": round(
            1000.0 * moved["gpuvigil_hub_commit_seconds_sum"] / max(commits, 1.0), 1
        ),
        "memory_rss_mib": resident_mib(pids["hub"]),
        **probe.summary(),
    }


class Probe:
    """Writes events and small bodies, and hears of the events by a long poll."""

    def __init__(self, hub: HubProcess, stop: threading.Event) -> None:
        self._stop = stop
        self._heard: dict[str, float] = {}
        self._sent: dict[str, tuple[float, float]] = {}  # id: asked at, acknowledged at
        self._bodies: list[float] = []
        self._hubs = [hub.hub() for _ in range(3)]
        self._threads = [
            threading.Thread(target=work, args=(client,))
            for work, client in zip((self._tell, self._hear, self._write), self._hubs, strict=True)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def summary(self) -> dict[str, Any]:
        """Milliseconds from the acknowledgement (and from the request) of an event to `changes`."""
        known = [
            (self._heard[name], *times) for name, times in self._sent.items() if name in self._heard
        ]
        return {
            "events": len(known),
            "events_never_heard": len(self._sent) - len(known),
            "acknowledged_event_to_changes_ms": _spread([max(h - a, 0.0) for h, _, a in known]),
            "sent_event_to_changes_ms": _spread([h - s for h, s, _ in known]),
            "body_to_acknowledgement_ms": _spread(self._bodies),
        }

    def _tell(self, hub: Hub) -> None:
        subject = Subject(cluster="probe", node="probe")
        number = 0
        while not self._stop.wait(PROBE_SECONDS):
            number += 1
            now = datetime.now(timezone.utc)
            event = Event(kind=EventKind.BOOT, subject=subject, at=now, id=f"probe-{number}")
            asked = time.monotonic()
            hub.write_records([event.to_record()])
            self._sent[event.id] = (asked, time.monotonic())

    def _hear(self, hub: Hub) -> None:
        sequence = hub.changes(-1, [RecordKind.EVENT], 0.0).sequence
        while not self._stop.is_set():
            changes = hub.changes(sequence, [RecordKind.EVENT], 1.0)
            now, sequence = time.monotonic(), changes.sequence
            for record in changes.records:
                self._heard.setdefault(record.id, now)

    def _write(self, hub: Hub) -> None:
        while not self._stop.wait(PROBE_SECONDS):
            asked = time.monotonic()
            line = f"probe,node=probe value=1 {time.time_ns()}"
            hub.request("POST", "/api/v2/write?precision=ns", line.encode())
            self._bodies.append(time.monotonic() - asked)


def _spread(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    figures = {"p50": cuts[49], "p99": cuts[98], "worst": max(seconds)}
    return {name: round(1000.0 * value, 2) for name, value in figures.items()}


def _used(pid: int) -> float:
    return cpu_seconds(list(descendants(pid)))


def _metrics(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        rows = answer.read().decode().splitlines()
    return {
        name: float(value)
        for name, _, value in (row.rpartition(" ") for row in rows if not row.startswith("#"))
        if "{" not in name
    }


def resident_mib(pid: int) -> float:
    """A process's resident memory."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    return round(int(found[1]) / 1024, 1) if found else 0.0
