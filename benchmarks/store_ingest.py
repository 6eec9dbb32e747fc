"""Ingest at saturation: samples per second of processor time, the hub and VictoriaMetrics.

Both get the same compressed bodies over HTTP; a collector's own bodies (one node, one tick), and
bodies of twenty ticks, as what waited while the hub was away. The processor time is that of the
server's whole process tree from before the first body until all is settled; the sender's is its own.
"""

import gzip
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.footprint import cpu_seconds
from benchmarks.pump import Sent, request, send
from benchmarks.readings import CLUSTER, GPUS_PER_NODE, Fleet, lines
from benchmarks.spine import descendants
from benchmarks.victoria import Victoria
from gpuvigil import __version__
from gpuvigil.clock import to_text
from tests.servers import HubProcess

SEED = 1
TICK_SECONDS = 10.0
TICKS_OF_BACKLOG = 20
# What is still merged or written after the last answer belongs to the bodies.
SETTLE_SECONDS = 3.0
# The hub answers with its next commit, a second apart: fewer would leave it waiting, and of large
# bodies more would wait than its queue takes.
HUB_CONNECTIONS = 2048
HUB_CONNECTIONS_OF_BACKLOG = 128
VICTORIA_CONNECTIONS = 16
GZIP = "Content-Encoding: gzip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent in one run."""

    bodies: list[tuple[str, bytes]]  # node, gzip of line protocol
    samples: int
    lines: int


def measure(folder: Path, quick: bool) -> dict[str, Any]:
    """Both servers, both kinds of bodies."""
    runs, nodes, ticks = (1, 200, 20) if quick else (3, 500, 20)
    kinds = {"live": 1, "backlog": TICKS_OF_BACKLOG}
    found: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
    with HubProcess(folder / "hub", {"commit_seconds": 1.0}) as hub, Victoria(folder) as victoria:
        assert hub.process is not None
        fleet = Fleet(
            nodes * GPUS_PER_NODE,
            seed=SEED,
            start=datetime.now(timezone.utc),
            step_seconds=TICK_SECONDS,
        )
        for kind, ticks_per_body in kinds.items():
            ours, theirs = [], []
            connections = HUB_CONNECTIONS if kind == "live" else HUB_CONNECTIONS_OF_BACKLOG
            for run in range(runs + 1):
                load = load_of(fleet, ticks, ticks_per_body)
                mine = requests_of(hub, load, f"{kind}-{run}", kind)
                ours.append(_run(hub.process.pid, hub.url, mine, connections, load))
                plain = [request("/api/v2/write", [GZIP], body) for _, body in load.bodies]
                theirs.append(_run(victoria.pid, victoria.url, plain, VICTORIA_CONNECTIONS, load))
            # The first run is for connections, tables, and the series that are new to the index.
            del ours[0], theirs[0]
            found[kind] = {
                "lines_per_body": GPUS_PER_NODE * ticks_per_body,
                "hub": _summary(ours),
                "victoriametrics": _summary(theirs),
            }
    return {
        "runs": runs,
        "fields": len(fleet.fields),
        "seed": SEED,
        "gpus": fleet.gpus,
        "samples_per_run": load.samples,
        "hub_connections": [HUB_CONNECTIONS, HUB_CONNECTIONS_OF_BACKLOG],
        "victoriametrics_connections": VICTORIA_CONNECTIONS,
        "settle_seconds": SETTLE_SECONDS,
        **found,
    }


def load_of(fleet: Fleet, ticks: int, ticks_per_body: int) -> Load:
    """The next ticks of all nodes as bodies, compressed as collectors do."""
    block = fleet.block(ticks)
    waiting: dict[str, list[str]] = {}
    bodies: list[tuple[str, bytes]] = []
    for node, text in lines(fleet, block):
        waiting.setdefault(node, []).append(text)
        if len(waiting[node]) == ticks_per_body:
            bodies.append((node, gzip.compress("\n".join(waiting.pop(node)).encode(), 1)))
    return Load(bodies=bodies, samples=block.samples, lines=block.rows)


def requests_of(hub: HubProcess, load: Load, boot: str, lane: str) -> Iterator[bytes]:
    """The bodies as the collectors of their nodes would send them."""
    token = f"Authorization: Token {hub.collector_token}"
    sequences: dict[str, int] = {}
    for node, body in load.bodies:
        sequences[node] = sequence = sequences.get(node, 0) + 1
        who = {
            "Cluster": CLUSTER,
            "Node": node,
            "Boot": boot,
            "Lane": lane,
            "Sequence": sequence,
            "Sent-At": to_text(datetime.now(timezone.utc)),
            "Version": __version__,
        }
        names = [f"Gpuvigil-{key}: {value}" for key, value in who.items()]
        yield request("/api/v2/write?precision=ns", [token, GZIP, *names], body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run took."""

    samples: int
    cpu_seconds: float
    sent: Sent


def _run(pid: int, url: str, requests: Iterable[bytes], connections: int, load: Load) -> Run:
    before = cpu_seconds(list(descendants(pid)))
    sent = send(url, requests, min(connections, len(load.bodies)))
    time.sleep(SETTLE_SECONDS)
    used = cpu_seconds(list(descendants(pid))) - before
    if set(sent.statuses) != {204}:
        raise SystemExit(f"{url} answered {dict(sent.statuses)}")
    return Run(samples=load.samples, cpu_seconds=used, sent=sent)


def _summary(runs: list[Run]) -> dict[str, Any]:
    per_cpu = [round(run.samples / run.cpu_seconds) for run in runs]
    bodies = [sum(run.sent.statuses.values()) for run in runs]
    return {
        "samples_per_cpu_second": round(statistics.median(per_cpu)),
        "all_samples_per_cpu_second": per_cpu,
        "samples_per_second": round(statistics.median(r.samples / r.sent.seconds for r in runs)),
        "bodies_per_second": round(
            statistics.median(n / r.sent.seconds for n, r in zip(bodies, runs, strict=True))
        ),
        "cpu_seconds": [round(run.cpu_seconds, 2) for run in runs],
    }
