"""Ingest at saturation: samples per second of processor time, the hub and VictoriaMetrics.

Both get the same compressed bodies over HTTP; a collector's own bodies (one node, one tick), and
bodies of twenty ticks, as what waited while the hub was away. The processor time is that of the
server's whole process tree from before the first body until all is settled; the sender's is its own.

What each does with the lines later belongs to them as well: the hub seals every hour and joins the
hours of a day, VictoriaMetrics merges its parts. Both do it once, with all that came in, and each run
bears its share by samples. The lines are of two hours of yesterday, so that all of that is due.
"""

import gzip
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from benchmarks.footprint import cpu_seconds
from benchmarks.pump import Sent, request, send
from benchmarks.readings import CLUSTER, GPUS_PER_NODE, Fleet, lines
from benchmarks.spine import descendants
from benchmarks.store_week import POLLS_AT_REST, merge, opened, seal
from benchmarks.victoria import Victoria
from gpuvigil import __version__
from gpuvigil.clock import to_ns, to_text
from hub.embedded.segment_writer import DAY
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
# Nothing is sealed before all has come in: sealing is measured by itself.
HOT_HOURS = 1000.0
GZIP = "Content-Encoding: gzip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent in one run."""

    bodies: list[tuple[str, bytes]]  # node, gzip of line protocol
    samples: int
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """What a server does with the lines after it has taken them in."""

    samples: int
    seconds: float
    cpu_seconds: float


def measure(folder: Path, quick: bool) -> dict[str, Any]:
    """Both servers, both kinds of bodies."""
    runs, nodes, ticks = (1, 200, 20) if quick else (3, 500, 20)
    kinds = {"live": 1, "backlog": TICKS_OF_BACKLOG}
    ours: dict[str, list[Run]] = {kind: [] for kind in kinds}
    theirs: dict[str, list[Run]] = {kind: [] for kind in kinds}
    settings = {"commit_seconds": 1.0, "hot_hours": HOT_HOURS}
    with Victoria(folder) as victoria:
        fleet = Fleet(
            nodes * GPUS_PER_NODE,
            seed=SEED,
            start=start_of(len(kinds) * (runs + 1) * ticks),
            step_seconds=TICK_SECONDS,
        )
        with HubProcess(folder / "hub", settings) as hub:
            assert hub.process is not None
            for kind, ticks_per_body in kinds.items():
                connections = HUB_CONNECTIONS if kind == "live" else HUB_CONNECTIONS_OF_BACKLOG
                for run in range(runs + 1):
                    load = load_of(fleet, ticks, ticks_per_body)
                    mine = requests_of(hub, load, f"{kind}-{run}", kind)
                    ours[kind].append(_run(hub.process.pid, hub.url, mine, connections, load))
                    plain = [request("/api/v2/write", [GZIP], body) for _, body in load.bodies]
                    its = _run(victoria.pid, victoria.url, plain, VICTORIA_CONNECTIONS, load)
                    theirs[kind].append(its)
        samples = load.samples * (runs + 1) * len(kinds)
        sealed, merged = sealing(folder / "hub", samples), _merging(victoria, samples)
    # The first run is for connections, tables, and the series that are new to the index.
    found = {
        kind: {
            "lines_per_body": GPUS_PER_NODE * ticks_per_body,
            "hub": summary(ours[kind][1:], sealed),
            "victoriametrics": summary(theirs[kind][1:], merged),
        }
        for kind, ticks_per_body in kinds.items()
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
        "sealing": asdict(sealed),
        "merging": asdict(merged),
        **found,
    }


def start_of(ticks: int) -> datetime:
    """Yesterday, so that half of the ticks are before noon: two hours, of a day that is over."""
    noon = datetime.now(timezone.utc).replace(hour=12, minute=0, second=0, microsecond=0)
    return noon - timedelta(days=1, seconds=TICK_SECONDS * ticks / 2)


def sealing(folder: Path, samples: int) -> Later:
    """The hub's store, in this process: its hours sealed, the hours of its day joined."""
    store = opened(folder)
    began, used = time.monotonic(), time.process_time()
    seal(store, to_ns(datetime.now(timezone.utc)))
    units = [unit for unit in store.units() if unit.measurement == "gpu"]
    store.close()
    took, used = time.monotonic() - began, time.process_time() - used
    sealed = sum(unit.lines for unit in units)
    if {unit.level for unit in units} != {DAY}:
        raise SystemExit(f"{sealed} lines are sealed, and not joined to a day")
    return Later(samples=samples, seconds=round(took, 2), cpu_seconds=round(used, 2))


def _merging(victoria: Victoria, samples: int) -> Later:
    """VictoriaMetrics' parts, merged until nothing is under way; the polls at rest are in it."""
    pids = list(descendants(victoria.pid))
    began, used = time.monotonic(), cpu_seconds(pids)
    victoria.flush()
    merge(victoria)
    took, used = time.monotonic() - began - POLLS_AT_REST, cpu_seconds(pids) - used
    return Later(samples=samples, seconds=round(max(took, 0.0), 2), cpu_seconds=round(used, 2))


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


def summary(runs: list[Run], later: Later) -> dict[str, Any]:
    """Medians of the runs, each with its share of what comes later."""
    shares = [run.samples / later.samples for run in runs]
    both = list(zip(runs, shares, strict=True))
    used = [run.cpu_seconds + share * later.cpu_seconds for run, share in both]
    took = [run.sent.seconds + share * later.seconds for run, share in both]
    per_cpu = [round(run.samples / it) for run, it in zip(runs, used, strict=True)]
    bodies = [sum(run.sent.statuses.values()) / run.sent.seconds for run in runs]
    return {
        "samples_per_cpu_second": round(statistics.median(per_cpu)),
        "all_samples_per_cpu_second": per_cpu,
        "samples_per_second": round(
            statistics.median(run.samples / it for run, it in zip(runs, took, strict=True))
        ),
        "bodies_per_second": round(statistics.median(bodies)),
        "cpu_seconds": [round(it, 2) for it in used],
        "cpu_seconds_of_taking_in": [round(run.cpu_seconds, 2) for run in runs],
    }
