"""A week of a thousand GPUs at one minute, sealed: the questions that people ask, and the disk.

The week is loaded through the store's own interface, and into VictoriaMetrics by its import of JSON
lines, once; it is kept in `benchmarks/.cache` until the generator or the store changes. Then every
question is asked fresh, of a store just opened or a server just started, and again and again of one
that has answered it: of the engine in this process, of the hub over HTTP, and of VictoriaMetrics
over HTTP, the answer decoded as a client must. Files are in the page cache either way.
"""

import hashlib
import http.client
import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.readings import CLUSTER, Fleet, arrow, series
from benchmarks.spine import say
from benchmarks.store_questions import (
    DAY,
    STEP,
    Week,
    agree,
    of_engine,
    of_hub,
    of_victoria,
)
from benchmarks.victoria import Victoria
from gpuvigil.clock import from_text, to_ns, to_text
from gpuvigil.config import HubSettings
from gpuvigil.store.hub import HubStore
from hub.embedded import Embedded
from tests.servers import ROOT, HubProcess

Questions = dict[str, Callable[[], Any]]
# Opens a store, or starts a server.
Opens = Callable[[], AbstractContextManager[Questions]]

CACHE = Path(__file__).parent / ".cache"
SEED = 1
# Of the store, what decides how its files look.
_WRITERS = ("aggregates", "schema", "segments", "sql", "sealed_files", "segment_writer")
_MERGE_SECONDS = 300.0
POLLS_AT_REST = 5


def measure(_folder: Path, quick: bool) -> dict[str, Any]:
    """Load unless it is there, then ask."""
    gpus, days, runs, again = (104, 2, 1, 3) if quick else (1000, 7, 5, 10)
    week = loaded(gpus, days)
    engine, hub = partial(_engine, week), partial(_hub, week)
    fresh, remembered = (partial(_victoria, week, remembered=it) for it in (False, True))
    sides: dict[str, tuple[Opens, Opens]] = {
        "engine": (engine, engine),
        "hub": (hub, hub),
        "victoriametrics": (fresh, remembered),
    }
    found: dict[str, dict[str, Any]] = {}
    for side, opens in sides.items():
        say(f"week: asking, {side}")
        found[side] = timed(*opens, runs, again)
    with hub() as ours, fresh() as theirs:
        same = agree(ours["mean_by_node_raw"](), theirs["mean_by_node_raw"]())
    return {
        "gpus": week.gpus,
        "days": days,
        "step_seconds": STEP.total_seconds(),
        "lines": week.gpus * ((week.end - week.start) // STEP),
        "samples": week.samples,
        "seed": SEED,
        "runs": runs,
        "runs_repeated": again,
        "victoriametrics": Victoria(week.folder).version(),
        "means_by_node_agree": same,
        "loaded": week.said,
        "disk": disk(week),
        "queries": {
            name: {f"{side}_ms": found[side][name] for side in sides} for name in found["engine"]
        },
    }


@contextmanager
def _engine(week: Week) -> Iterator[Questions]:
    store = opened(week.folder)
    yield of_engine(week, store)
    store.close()


@contextmanager
def _hub(week: Week) -> Iterator[Questions]:
    with HubProcess(week.folder) as process:
        yield of_hub(week, HubStore(process.hub()))


@contextmanager
def _victoria(week: Week, *, remembered: bool) -> Iterator[Questions]:
    with Victoria(week.folder) as victoria:
        yield of_victoria(week, victoria, remembered=remembered)


def loaded(gpus: int, days: int) -> Week:
    """The week in the cache; loaded when it is not there, or what writes it was changed since."""
    sources = [Path(__file__).parent / "readings.py", ROOT / "hub/bodies/tables.py"]
    sources += [ROOT / "hub/embedded" / f"{name}.py" for name in _WRITERS]
    key = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:12]
    folder = CACHE / f"week-{gpus}-{days}-{key}"
    done = folder / "loaded.json"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "hub-data").mkdir(parents=True)
        done.write_text(json.dumps(load(folder, gpus, days)))
    said = json.loads(done.read_text())
    start = from_text(said["start"])
    return Week(
        folder=folder,
        gpus=gpus,
        start=start,
        end=start + days * DAY,
        samples=said["samples"],
        gpu=said["gpu"],
        said=said,
    )


def load(folder: Path, gpus: int, days: int) -> dict[str, Any]:
    """The days before today into both, hour by hour; what it took."""
    today = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    start = today - (days + 1) * DAY
    fleet = Fleet(gpus, seed=SEED, start=start, step_seconds=STEP.total_seconds())
    store, seconds, samples = opened(folder), dict[str, float](), 0
    with Victoria(folder) as victoria, ThreadPoolExecutor(1) as beside:
        for hour in range(24 * days):
            block = fleet.block(60)
            table = arrow(fleet, block)
            theirs = beside.submit(import_json, victoria, series(fleet, block))
            with clocked(seconds, "embedded"):
                store.append({"gpu": table}, [])
            with clocked(seconds, "waiting_for_victoriametrics"):
                theirs.result()
            samples += block.samples
            if hour % 24 == 23:
                say(f"week: {hour // 24 + 1} of {days} days are in both")
                with clocked(seconds, "sealing"):
                    seal(store, to_ns(start + hour // 24 * DAY + 2 * DAY))
        store.close()
        with clocked(seconds, "merging_in_victoriametrics"):
            victoria.flush()
            merge(victoria)
    return {
        "start": to_text(start),
        "samples": samples,
        "gpu": {
            "cluster": CLUSTER,
            "node": fleet.nodes[gpus // 2],
            "uuid": fleet.uuids[gpus // 2],
        },
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
    }


@contextmanager
def clocked(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds of the block to `name`."""
    began = time.monotonic()
    yield
    seconds[name] = seconds.get(name, 0.0) + time.monotonic() - began


def opened(folder: Path) -> Embedded:
    """The store of a hub whose directory that is, with a hub's settings."""
    settings = HubSettings()
    path = folder / "hub-data" / "telemetry.duckdb"
    return Embedded(path, settings.memory_limit_bytes, settings.threads)


def seal(store: Embedded, now_ns: int) -> None:
    """What the hub does every few minutes: whole hours into files, whole days into one."""
    store.seal(now_ns, 0)
    store.join(now_ns, 0)


def import_json(victoria: Victoria, rows: Iterable[str]) -> None:
    """POST the rows in one chunked body; the server reads it as it comes."""
    place = urlsplit(victoria.url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=300)
    connection.request("POST", "/api/v1/import", _chunks(rows), encode_chunked=True)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 204:
        raise SystemExit(f"VictoriaMetrics answered {answer.status}")


def _chunks(rows: Iterable[str]) -> Iterator[bytes]:
    waiting: list[str] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == 1000:
            yield "".join(waiting).encode()
            waiting.clear()
    if waiting:
        yield "".join(waiting).encode()


def merge(victoria: Victoria) -> None:
    """Let it put its parts together, as it would by and by.

    It panics when it is stopped in a merge (1.79.5), so that it must have been at rest for a while.
    """
    victoria.merge()
    deadline = time.monotonic() + _MERGE_SECONDS
    at_rest = 0
    while at_rest < POLLS_AT_REST and time.monotonic() < deadline:
        time.sleep(1.0)
        under_way = sum(map(victoria.metric, ("vm_active_force_merges", "vm_active_merges")))
        at_rest = 0 if under_way else at_rest + 1


def timed(opens: Opens, opens_remembering: Opens, runs: int, again: int) -> dict[str, Any]:
    """Milliseconds of each question: `runs` times fresh, each in a start of its own, and `again`
    times repeated, all in one.
    """
    fresh: dict[str, list[float]] = {}
    with opens() as questions:
        names = list(questions)
    for name in names * runs:
        with opens() as questions:
            fresh.setdefault(name, []).append(milliseconds(questions[name]))
    repeated: dict[str, list[float]] = {}
    with opens_remembering() as questions:
        for name, ask in questions.items():
            ask()
            repeated[name] = [milliseconds(ask) for _ in range(again)]
    return {
        name: {"fresh": spread(fresh[name]), "repeated": spread(repeated[name])} for name in names
    }


def milliseconds(ask: Callable[[], Any]) -> float:
    """How long one answer takes."""
    began = time.perf_counter()
    ask()
    return 1000.0 * (time.perf_counter() - began)


def spread(times: list[float]) -> dict[str, Any]:
    """Median and worst, and each."""
    return {
        "median": round(statistics.median(times), 2),
        "worst": round(max(times), 2),
        "all": [round(it, 2) for it in times],
    }


def disk(week: Week) -> dict[str, Any]:
    """Bytes of everything that each keeps, and what that is a sample."""
    sizes = {file: file.stat().st_size for file in week.folder.rglob("*") if file.is_file()}
    data, victoria = week.folder / "hub-data", week.folder / "victoria"

    def of(folder: Path, part: str) -> int:
        return sum(
            size for file, size in sizes.items() if folder in file.parents and part in file.name
        )

    kinds = {
        "lines_bytes": of(data, ".lines."),
        "rolled_bytes": of(data, ".rolled."),
        "duckdb_bytes": of(data, "telemetry.duckdb"),
    }
    theirs = of(victoria, "")
    return {
        **kinds,
        "bytes_per_sample": round(sum(kinds.values()) / week.samples, 3),
        "lines_bytes_per_sample": round(kinds["lines_bytes"] / week.samples, 3),
        "victoriametrics_bytes": theirs,
        "victoriametrics_bytes_per_sample": round(theirs / week.samples, 3),
    }
