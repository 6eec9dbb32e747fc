"""The records at scale, in SQLite and in PostgreSQL: bursts, sizes, and how soon one is heard of.

`python -m benchmarks.records` starts real hubs and a real PostgreSQL, and writes `benchmarks/records.json`,
from which `make docs` makes `docs/scaling.md`. It takes about two minutes.
"""

import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from benchmarks.footprint import cpu_seconds
from benchmarks.spine import about, say
from gpuvigil.hub_client import Hub
from gpuvigil.model import Record, RecordKind
from tests.postgresql import Postgresql, programs
from tests.servers import HubProcess

RESULT = Path(__file__).with_suffix(".json")
EVENTS = 10_000
ALLOCATIONS = 100_000
SINGLES = 400
WRITERS = 8
WAKES = 50
TRANSITIONS = 2_000
START = datetime(2026, 11, 1, tzinfo=timezone.utc)


def main() -> int:
    """Measure both databases and write the result."""
    found = programs()
    if found is None:
        say("PostgreSQL is missing: make test-servers")
        return 1
    with tempfile.TemporaryDirectory(prefix="gpuvigil-bench-") as name, ExitStack() as stack:
        load_average = os.getloadavg()[0]
        server = stack.enter_context(Postgresql(found))
        shared: dict[str, object] = {"records_url": server.database()}
        result = {
            "about": {
                **{key: value for key, value in about().items() if key != "simulator_seed"},
                "command": "python -m benchmarks.records",
                "load_average": load_average,
                "events": EVENTS,
                "allocations": ALLOCATIONS,
                "writers": WRITERS,
                "postgresql": _version(server),
            },
            "sqlite": _measured(Path(name) / "sqlite", {}, None),
            "postgresql": _measured(Path(name) / "postgresql", shared, server),
        }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    say(f"wrote {RESULT.name}")
    return 0


def _measured(
    directory: Path, settings: dict[str, object], server: Postgresql | None
) -> dict[str, Any]:
    """Everything of one database, through a hub of its own."""
    with HubProcess(directory / "hub", settings) as hub:
        client = hub.hub()
        found = {
            "burst": _timed(hub, lambda: client.write_records(_events("burst", EVENTS))),
            "changes": _timed(hub, lambda: client.changes(0, [RecordKind.EVENT])),
            "singles_per_second": round(_singles(hub, 1), 1),
            "singles_per_second_of_all_writers": round(_singles(hub, WRITERS), 1),
            "claims": _timed(hub, lambda: _worked_off(client)),
        }
        before = _size(hub, settings, server)
        found["allocations"] = _timed(hub, lambda: _allocations(client))
        found["bytes_per_allocation"] = round((_size(hub, settings, server) - before) / ALLOCATIONS)
        found["held"] = _timed(hub, lambda: _held(client))
        found["wake_ms"] = _wakes(client, hub.hub(), "same")
        if server is not None:
            with _second(hub, directory, settings) as other:
                found["wake_at_the_other_hub_ms"] = _wakes(client, other.hub(), "other")
    return found


def _second(hub: HubProcess, directory: Path, settings: dict[str, object]) -> HubProcess:
    tokens = {
        "service_token_file": hub.service_token_file,
        "collector_token_file": hub.collector_token_file,
    }
    other = HubProcess(directory / "other", {**settings, **tokens})
    other.service_token_file = hub.service_token_file
    return other


def _timed(hub: HubProcess, work: Callable[[], object]) -> dict[str, float]:
    assert hub.process is not None
    pids = [hub.process.pid]
    used, began = cpu_seconds(pids), time.monotonic()
    work()
    took = time.monotonic() - began
    return {"seconds": round(took, 3), "hub_cpu_seconds": round(cpu_seconds(pids) - used, 3)}


def _events(prefix: str, count: int) -> Iterator[Record]:
    for number in range(count):
        yield Record(
            kind=RecordKind.EVENT,
            id=f"{prefix}-{number}",
            at=START + timedelta(milliseconds=number),
            subject=f"bench/node-{number % 1250:05}/gpu/GPU-{number:08x}-5c1d-4f0e-9b7a-0123456789ab",
            body={"source": "kernel", "xid": 79, "text": f"GPU has fallen off the bus ({number})"},
        )


def _singles(hub: HubProcess, writers: int) -> float:
    """Commits a second of single events, each written and answered before its writer's next."""

    def write(writer: int) -> None:
        client = hub.hub()
        for record in _events(f"single-{writers}-{writer}", SINGLES // writers):
            client.write_records([record])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return SINGLES / (time.monotonic() - began)


def _worked_off(client: Hub) -> None:
    kind = RecordKind.TRANSITION
    client.write_records(
        Record(kind=kind, id=f"t-{n}", at=START, subject="bench", due_at=START)
        for n in range(TRANSITIONS)
    )
    while claimed := client.claim(kind, "bench", lease_seconds=60, limit=100):
        client.finish(kind, "bench", [it.id for it in claimed])


def _allocations(client: Hub) -> None:
    """One job's GPU after another; nine of ten have ended."""
    for start in range(0, ALLOCATIONS, 1000):
        client.write_records(_jobs(range(start, start + 1000)))


def _jobs(numbers: Iterable[int]) -> Iterator[Record]:
    for number in numbers:
        at = START + timedelta(seconds=number)
        gpu = f"GPU-{number % 8000:08x}-5c1d-4f0e-9b7a-0123456789ab"
        ended = None if number % 10 == 0 else (at + timedelta(hours=3)).isoformat()
        yield Record(
            kind=RecordKind.ALLOCATION,
            id=f"bench/node-{number % 1000:04}/{gpu}/slurm-{number}",
            at=at,
            subject=f"bench/node-{number % 1000:04}/gpu/{gpu}",
            body={
                "holder": f"job {number}",
                "user": f"user{number % 200}",
                "account": f"group{number % 40}",
                "source": "slurm",
                "started_at": at.isoformat(),
                "ended_at": ended,
            },
        )


def _held(client: Hub) -> None:
    found = client.records(RecordKind.ALLOCATION, states={"held"}, limit=100_000)
    assert len(found) == ALLOCATIONS // 10


def _wakes(writer: Hub, reader: Hub, prefix: str) -> dict[str, float]:
    """From the answer of the write to that of the long poll, in ms."""
    taken = []
    after = reader.changes(-1, [RecordKind.NOTICE]).sequence
    for number in range(WAKES):
        heard: list[float] = []

        def follow(after: int = after, heard: list[float] = heard) -> None:
            reader.changes(after, [RecordKind.NOTICE], wait_seconds=20)
            heard.append(time.monotonic())

        thread = threading.Thread(target=follow)
        thread.start()
        time.sleep(0.05)
        notice = Record(kind=RecordKind.NOTICE, id=f"{prefix}-{number}", at=START, subject="b")
        after = writer.write_records([notice])
        wrote = time.monotonic()
        thread.join()
        taken.append(1000 * (heard[0] - wrote))
    return {"median": round(statistics.median(taken), 1), "worst": round(max(taken), 1)}


def _size(hub: HubProcess, settings: dict[str, object], server: Postgresql | None) -> int:
    if server is None:
        return sum(it.stat().st_size for it in hub.data.glob("records.sqlite*"))
    with server.connect(str(settings["records_url"])) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    return int(row[0])


def _version(server: Postgresql) -> str:
    with server.connect("postgres") as connection:
        row = connection.execute("SHOW server_version").fetchone()
    assert row is not None
    return str(row[0])


if __name__ == "__main__":
    raise SystemExit(main())
