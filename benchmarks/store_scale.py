"""A hundred thousand GPUs every fifteen seconds: how far one hub keeps up, and what breaks first.

Two hours of that are 48 million lines, which take longer than there is time for. So three budgets
are measured, each against the time that the data itself takes: a tick of all nodes over HTTP,
committed, within 15 s; the same rows in the store alone, also while an hour is sealed; and an hour
sealed within an hour.

What is short of the real thing: the hour that is sealed begins at its minute 58. It has 8 ticks of
240, a thirtieth of its lines, and one span of ten minutes to roll up instead of six. A whole one is
reckoned in proportion to its lines, which flatters memory and is hard on time: a roll-up is made of
8 lines here instead of 40. Ticks come as fast as the store takes them, not every 15 s, so that
sealing has less of the machine than it would have. It is tried with the hub's own memory limit, and
with more where that is not enough.
"""

import resource
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta, timezone
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.footprint import cpu_seconds
from benchmarks.pump import send
from benchmarks.readings import GPUS_PER_NODE, Fleet, arrow
from benchmarks.spine import descendants, say
from benchmarks.store_ingest import HUB_CONNECTIONS, load_of, requests_of
from gpuvigil.clock import to_ns
from gpuvigil.config import HubSettings
from gpuvigil.errors import StoreError
from hub.embedded import Embedded
from tests.servers import HubProcess

GPUS, TICK_SECONDS = 100_000, 15.0
BEGIN_MINUTE = 58
TICKS_OF_HOUR = 8  # from then to its end
FEWEST_TICKS = 16
FEED_SECONDS = 240.0
MORE_MEMORY_BYTES = 8 * 1024**3
HTTP_TICKS = 2
COMMITS_PER_TICK = 15  # the hub commits every second
SEED = 1
_HOUR_NS = 3_600_000_000_000


def measure(folder: Path, quick: bool) -> dict[str, Any]:
    """Over HTTP, then in the store."""
    gpus = 1_600 if quick else GPUS
    http = _over_http(folder, gpus)
    tries = [_in_a_process(folder, gpus, HubSettings().memory_limit_bytes)]
    if tries[0]["error"]:
        tries.append(_in_a_process(folder, gpus, MORE_MEMORY_BYTES))
    stored = tries[-1]
    shares = {
        "a tick over HTTP": http["seconds_per_tick"] / TICK_SECONDS,
        "a tick in the store": stored["append_seconds_per_tick"] / TICK_SECONDS,
        "a tick in the store while an hour is sealed": (
            stored["append_seconds_per_tick_while_sealing"] / TICK_SECONDS
        ),
    }
    if stored["seal_seconds_per_hour"] is not None:
        shares["sealing"] = stored["seal_seconds_per_hour"] / 3600.0
    slowest = max(shares, key=lambda name: shares[name])
    return {
        "gpus": gpus,
        "tick_seconds": TICK_SECONDS,
        "seed": SEED,
        "begin_minute": BEGIN_MINUTE,
        "http": http,
        "store": stored,
        "tries": [
            {key: one[key] for key in ("memory_limit_bytes", "peak_rss_mib", "error")}
            for one in tries
        ],
        "share_of_the_time": {name: round(share, 3) for name, share in shares.items()},
        "slowest": slowest,
        "breaks_first": "memory to seal an hour in" if tries[0]["error"] else slowest,
        "keeps_up_times": round(1.0 / shares[slowest], 2),
    }


def _over_http(folder: Path, gpus: int) -> dict[str, Any]:
    """Whole ticks of all nodes, one body a node, as fast as the hub takes them."""
    say("scale: bodies of all nodes over HTTP")
    fleet = Fleet(gpus, seed=SEED, start=datetime.now(timezone.utc), step_seconds=TICK_SECONDS)
    with HubProcess(folder / "hub", {"commit_seconds": 1.0}) as hub:
        assert hub.process is not None
        pid, wall, used = hub.process.pid, 0.0, 0.0
        for tick in range(HTTP_TICKS + 1):
            load = load_of(fleet, 1, 1)
            before = cpu_seconds(list(descendants(pid)))
            requests = requests_of(hub, load, f"tick-{tick}", "live")
            sent = send(hub.url, requests, min(HUB_CONNECTIONS, len(load.bodies)))
            if set(sent.statuses) != {204}:
                raise SystemExit(f"the hub answered {dict(sent.statuses)}")
            if tick:  # the first is for connections, tables and caches
                wall += sent.seconds
                used += cpu_seconds(list(descendants(pid))) - before
    return {
        "nodes": gpus // GPUS_PER_NODE,
        "ticks": HTTP_TICKS,
        "seconds_per_tick": round(wall / HTTP_TICKS, 2),
        "cpu_seconds_per_tick": round(used / HTTP_TICKS, 2),
    }


def _in_a_process(folder: Path, gpus: int, memory_bytes: int) -> dict[str, Any]:
    """`_in_the_store` by itself, so that its memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_in_the_store, folder, gpus, memory_bytes).result()


def _in_the_store(folder: Path, gpus: int, memory_bytes: int) -> dict[str, Any]:
    """Rows straight into the store, and an hour of them sealed while the next comes in."""
    say(f"scale: in the store with {memory_bytes / 1024**3:g} GiB")
    path = folder / f"scale-{memory_bytes}" / "telemetry.duckdb"
    path.parent.mkdir()
    store = Embedded(path, memory_bytes, HubSettings().threads)
    now = datetime.now(timezone.utc)
    began_at = now.replace(minute=BEGIN_MINUTE, second=0, microsecond=0) - timedelta(hours=4)
    feed = Feed(store, Fleet(gpus, seed=SEED, start=began_at, step_seconds=TICK_SECONDS))
    sealer = Sealer(store, to_ns(began_at) // _HOUR_NS * _HOUR_NS + _HOUR_NS)
    for _ in range(TICKS_OF_HOUR):
        feed.tick()
    alone, feed.seconds = feed.seconds, []
    began = time.monotonic()
    sealer.start()
    feed.tick()
    while time.monotonic() - began < FEED_SECONDS and sealer.is_alive():
        feed.tick()
    beside, feed.seconds = feed.seconds, []
    sealer.join()
    while feed.ticks < FEWEST_TICKS and not sealer.error:
        feed.tick()
    units = [unit for unit in store.units() if unit.measurement == "gpu"]
    size = sum(unit.rolled_bytes + (unit.lines_bytes or 0) for unit in units)
    lines = sum(unit.lines for unit in units)
    store.close()
    commits = sorted(feed.commits)
    times = 3600.0 / TICK_SECONDS / TICKS_OF_HOUR
    seconds = [*alone, *feed.seconds]
    return {
        "memory_limit_bytes": memory_bytes,
        "lines_sealed": lines,
        "ticks": {
            "before": len(alone),
            "while_sealing": len(beside),
            "after": len(feed.seconds),
        },
        "append_seconds_per_tick": round(sum(seconds) / len(seconds), 3),
        "append_seconds_per_tick_while_sealing": round(sum(beside) / len(beside), 3),
        "commit_ms": {
            "p50": round(1000 * commits[len(commits) // 2], 1),
            "p99": round(1000 * commits[len(commits) * 99 // 100], 1),
            "worst": round(1000 * commits[-1], 1),
        },
        "seal_seconds": round(sealer.seconds, 1),
        "seal_seconds_per_hour": None if sealer.error else round(sealer.seconds * times, 1),
        "sealed_bytes_per_sample": round(size / (lines * feed.fields), 3) if lines else None,
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "error": sealer.error,
    }


class Feed:
    """Ticks of a fleet into the store, in as many commits as the hub would make of them."""

    def __init__(self, store: Embedded, fleet: Fleet) -> None:
        self._store = store
        self._fleet = fleet
        self.fields = len(fleet.fields)
        self.ticks = 0
        self.seconds: list[float] = []  # of each tick, without the making of it
        self.commits: list[float] = []

    def tick(self) -> None:
        table = arrow(self._fleet, self._fleet.block(1))
        rows = -(-table.num_rows // COMMITS_PER_TICK)
        took = []
        for first in range(0, table.num_rows, rows):
            asked = time.monotonic()
            self._store.append({"gpu": table.slice(first, rows)}, [])
            took.append(time.monotonic() - asked)
        self.ticks += 1
        self.seconds.append(sum(took))
        self.commits += took


class Sealer(threading.Thread):
    """Seals what was before a time, as the hub does beside its commits."""

    def __init__(self, store: Embedded, now_ns: int) -> None:
        super().__init__(name="sealer")
        self._store = store
        self._now_ns = now_ns
        self.seconds = 0.0
        self.error = ""

    def run(self) -> None:
        began = time.monotonic()
        try:
            self._store.seal(self._now_ns, 0)
        except StoreError as error:
            self.error = str(error)
        self.seconds = time.monotonic() - began
