"""A hundred thousand GPUs every fifteen seconds: how far one hub keeps up, and what breaks first.

Three budgets, each measured against the time that the data itself takes: a tick of all nodes over
HTTP, committed, within 15 s; the same rows in the store alone; an hour of them sealed within an
hour, while the next hour comes in. Two hours of data are fed as fast as the store takes them, or as
much of them as fits into `FEED_SECONDS`.
"""

import resource
import threading
import time
from datetime import datetime, timedelta, timezone
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
SPAN = timedelta(hours=2)
FEED_SECONDS = 150.0
HTTP_TICKS = 3
COMMITS_PER_TICK = 15  # the hub commits every second
SEED = 1
_HOUR_NS = 3_600_000_000_000


def measure(folder: Path, quick: bool) -> dict[str, Any]:
    """Over HTTP, then in the store."""
    gpus, span, budget = (1_600, SPAN / 2, 60.0) if quick else (GPUS, SPAN, FEED_SECONDS)
    http = _over_http(folder, gpus)
    stored = _in_the_store(folder, gpus, span, budget)
    shares = {
        "a tick over HTTP": http["seconds_per_tick"] / TICK_SECONDS,
        "a tick in the store": stored["append_seconds_per_tick"] / TICK_SECONDS,
        "sealing": stored["seal_seconds_per_data_hour"] / 3600.0,
    }
    return {
        "gpus": gpus,
        "tick_seconds": TICK_SECONDS,
        "seed": SEED,
        "budget_seconds": budget,
        "http": http,
        "store": stored,
        "share_of_the_time": {name: round(share, 3) for name, share in shares.items()},
        "breaks_first": max(shares, key=lambda name: shares[name]),
        "keeps_up_times": round(1.0 / max(shares.values()), 2),
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


def _in_the_store(folder: Path, gpus: int, span: timedelta, budget: float) -> dict[str, Any]:
    """Rows straight into the store, and every hour of them sealed while the next comes in."""
    settings = HubSettings()
    path = folder / "scale" / "telemetry.duckdb"
    path.parent.mkdir()
    store = Embedded(path, settings.memory_limit_bytes, settings.threads)
    # The first hour is over after a third of it, so that it is sealed while lines come in.
    began_at = datetime.now(timezone.utc).replace(minute=40, second=0, microsecond=0) - 4 * SPAN
    fleet = Fleet(gpus, seed=SEED, start=began_at, step_seconds=TICK_SECONDS)
    sealer = Sealer(store, to_ns(began_at))
    began, appending, commits = time.monotonic(), 0.0, []
    ticks = 0
    while ticks * TICK_SECONDS < span.total_seconds() and time.monotonic() - began < budget:
        table = arrow(fleet, fleet.block(1))
        rows = -(-table.num_rows // COMMITS_PER_TICK)
        for first in range(0, table.num_rows, rows):
            asked = time.monotonic()
            store.append({"gpu": table.slice(first, rows)}, [])
            commits.append(time.monotonic() - asked)
        appending += sum(commits[-COMMITS_PER_TICK:])
        ticks += 1
        sealer.reached(to_ns(began_at) + int(ticks * TICK_SECONDS * 1e9))
        if ticks % 40 == 0:
            say(
                f"scale: {ticks * TICK_SECONDS / 60:.0f} minutes of data in {time.monotonic() - began:.0f} s"
            )
    fed = time.monotonic() - began
    # What was begun is finished, and of a run that was cut short what there is.
    sealer.finish(to_ns(began_at) + int(ticks * TICK_SECONDS * 1e9) + 2 * _HOUR_NS)
    sealed = time.monotonic() - began
    size = sum(file.stat().st_size for file in path.parent.rglob("*") if file.is_file())
    samples = ticks * gpus * len(fleet.fields)
    store.close()
    hours = ticks * TICK_SECONDS / 3600.0
    commits.sort()
    return {
        "data_hours": round(hours, 3),
        "whole": ticks * TICK_SECONDS >= span.total_seconds(),
        "rows": ticks * gpus,
        "samples": samples,
        "feed_seconds": round(fed, 1),
        "append_seconds_per_tick": round(appending / ticks, 3),
        "commit_ms": {
            "p50": round(1000 * commits[len(commits) // 2], 1),
            "p99": round(1000 * commits[len(commits) * 99 // 100], 1),
            "worst": round(1000 * commits[-1], 1),
        },
        "seal_seconds_per_data_hour": round(sealer.seconds / hours, 1),
        "all_seconds": round(sealed, 1),
        "bytes": size,
        "bytes_per_sample": round(size / samples, 3),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "error": sealer.error,
    }


class Sealer:
    """Seals whole hours in a thread of its own, as the hub does."""

    def __init__(self, store: Embedded, start_ns: int) -> None:
        self._store = store
        self._thread: threading.Thread | None = None
        self._done_ns = start_ns // _HOUR_NS * _HOUR_NS
        self.seconds = 0.0
        self.error = ""

    def reached(self, now_ns: int) -> None:
        """The data is there up to `now_ns`: begin to seal when another hour is over."""
        hour_ns = now_ns // _HOUR_NS * _HOUR_NS
        busy = self._thread is not None and self._thread.is_alive()
        if hour_ns > self._done_ns and not busy:
            self._done_ns = hour_ns
            self._thread = threading.Thread(target=self._seal, args=(now_ns,))
            self._thread.start()

    def finish(self, now_ns: int) -> None:
        """Wait for what is under way, and seal the rest."""
        if self._thread is not None:
            self._thread.join()
        self._seal(now_ns)

    def _seal(self, now_ns: int) -> None:
        began = time.monotonic()
        try:
            self._store.seal(now_ns, 0)
        except StoreError as error:
            self.error = str(error)
        self.seconds += time.monotonic() - began
