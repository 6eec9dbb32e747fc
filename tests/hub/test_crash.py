"""What the hub acknowledged is there once, whatever happens to it."""

import random
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import duckdb
import pytest

from gpuvigil.errors import HubUnavailable
from gpuvigil.hub_client import Hub
from gpuvigil.model import Record, RecordKind
from gpuvigil.store.hub import HubStore
from tests.hub.talk import ask, identity
from tests.polling import wait_until
from tests.servers import HubProcess

pytestmark = pytest.mark.server

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NOON_SECONDS = int(NOON.timestamp())
LINES_PER_BODY = 20
# A body is ten minutes of a node, so that hours are over, and sealed, all the time.
SPACING_SECONDS = 30


@dataclass
class Writer:
    """A collector in small: each body has an identity and is sent until it is acknowledged."""

    hub: Hub
    name: str
    stop: threading.Event
    bodies: int = 0
    sent_again: int = 0
    records: list[str] = field(default_factory=list)

    def run(self) -> None:
        while not self.stop.is_set():
            first = self.bodies * LINES_PER_BODY
            times = (NOON_SECONDS + (first + n) * SPACING_SECONDS for n in range(LINES_PER_BODY))
            head = f"node,cluster=test,node={self.name} load_average=1"
            lines = "\n".join(f"{head} {at}" for at in times).encode()
            headers = identity(self.bodies + 1, node=self.name)
            place = "/api/v2/write?precision=s"
            self._until_done(partial(self.hub.request, "POST", place, lines, headers))
            name = f"{self.name}-{self.bodies}"
            record = Record(kind=RecordKind.EVENT, id=name, at=NOON, subject=f"test/{self.name}")
            self._until_done(partial(self.hub.write_records, [record]))
            self.records.append(name)
            self.bodies += 1

    def _until_done(self, send: Callable[[], object]) -> None:
        while True:
            try:
                send()
            except HubUnavailable:
                self.sent_again += 1
                self.stop.wait(0.01)
            else:
                return


def more_than(bodies: int, writers: list[Writer]) -> bool:
    return sum(writer.bodies for writer in writers) > bodies


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What was there after the last kill, beside what the hub had acknowledged before."""

    kills: int
    kills_while_sealing: int
    unfinished_files: int  # kills that left a draft of a sealed file behind
    acknowledged_lines: int
    lost_lines: int
    doubled_lines: int
    acknowledged_records: int
    lost_records: int
    unknown_records: int  # kept, and never acknowledged: their writers went on until they were


@pytest.mark.timeout(300)
def test_every_acknowledged_line_and_record_outlives_kill_9_and_is_there_once(
    tmp_path: Path,
) -> None:
    assert_there_once(kill_under_load(tmp_path, random.Random(1), kills=6))


def assert_there_once(kept: Kept) -> None:
    assert kept.acknowledged_lines
    assert kept.acknowledged_records
    assert kept.kills_while_sealing
    wrong = (kept.lost_lines, kept.doubled_lines, kept.lost_records, kept.unknown_records)
    assert wrong == (0, 0, 0, 0), kept


def kill_under_load(directory: Path, chance: random.Random, kills: int) -> Kept:
    """Kill a hub at random moments while three collectors write, and compare with what it said.

    Every second time it is killed once more, while it seals at its start what was over before.
    """
    sealing = unfinished = 0
    with HubProcess(directory) as process:
        stop = threading.Event()
        writers = [Writer(hub=process.hub(), name=f"n{n}", stop=stop) for n in range(3)]
        threads = [threading.Thread(target=writer.run) for writer in writers]
        for thread in threads:
            thread.start()
        try:
            for number in range(kills):
                done = sum(writer.bodies for writer in writers) + chance.randrange(10, 40)
                wait_until("bodies are acknowledged", partial(more_than, done, writers), 120.0)
                if number % 2:
                    due = partial(is_due, process, writers)
                    wait_until("an hour is there that is not sealed", due, 120.0)
                process.kill()
                # It may just have been sealed.
                if number % 2 and is_due(process, writers):
                    known = sealed_files(process)
                    process.spawn()
                    wait_until("a new file", lambda k=known: sealed_files(process) - k, 120.0)  # type: ignore[misc]
                    time.sleep(chance.uniform(0.0, 0.1))
                    process.kill()
                    sealing += 1
                unfinished += any(file.endswith(".draft") for file in sealed_files(process))
                process.start()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert all(writer.sent_again for writer in writers)
        process.restart()
        there = what_is_there(process.hub(), writers)
    return replace(there, kills=kills, kills_while_sealing=sealing, unfinished_files=unfinished)


def is_due(process: HubProcess, writers: list[Writer]) -> bool:
    """Whether the newest hour that was acknowledged is in no file: the next start seals it.

    An hour that is in one, or in a day's, takes what came late for it, later.
    """
    bodies = max(writer.bodies for writer in writers)
    newest = NOON + timedelta(seconds=(bodies * LINES_PER_BODY - 1) * SPACING_SECONDS)
    files = f"{process.data}/telemetry.sealed/node/*.lines.parquet"
    try:
        sealed = duckdb.sql(f"SELECT epoch(max(\"at\")) FROM read_parquet('{files}')").fetchall()
    except duckdb.IOException:  # there is none yet, or one has just gone into a day's
        return not any(file.endswith(".lines.parquet") for file in sealed_files(process))
    return bool(newest.timestamp() // 3600 > sealed[0][0] // 3600)


def sealed_files(process: HubProcess) -> set[str]:
    """Names of all files of sealed hours, finished or not."""
    return {file.name for file in process.data.glob("telemetry.sealed/**/*") if file.is_file()}


def what_is_there(client: Hub, writers: list[Writer]) -> Kept:
    most = max(writer.bodies for writer in writers) * LINES_PER_BODY * SPACING_SECONDS
    span = (NOON, NOON + timedelta(seconds=most))
    store = HubStore(client)
    lines = {row["node"]: row["samples"] for row in store.window("node", [], *span).to_pylist()}
    # Each line has a second of its own, so that none is there twice in place of another.
    distinct = {
        writer.name: store.series(
            "node", [], {"node": writer.name}, span, timedelta(seconds=1)
        ).num_rows
        for writer in writers
    }
    acknowledged = {writer.name: writer.bodies * LINES_PER_BODY for writer in writers}
    kept, sequence = set(), 0
    while (changes := client.changes(sequence, [RecordKind.EVENT], 0.0)).records:
        kept |= {it.id for it in changes.records}
        sequence = changes.sequence
    written = {name for writer in writers for name in writer.records}
    return Kept(
        kills=0,
        kills_while_sealing=0,
        unfinished_files=0,
        acknowledged_lines=sum(acknowledged.values()),
        lost_lines=sum(count - distinct[name] for name, count in acknowledged.items()),
        doubled_lines=sum(lines.values()) - sum(distinct.values()),
        acknowledged_records=len(written),
        lost_records=len(written - kept),
        unknown_records=len(kept - written),
    )


def test_a_body_committed_before_a_kill_is_a_duplicate_after_it(tmp_path: Path) -> None:
    with HubProcess(tmp_path) as process:
        headers = identity(5, "backlog")
        body = b"node,node=n1 load_average=1"
        url = f"{process.url}/api/v2/write"
        assert ask(url, body, token=process.collector_token, headers=headers).status == 204
        process.kill()
        process.restart()
        again = ask(url, body, token=process.collector_token, headers=headers)
        assert (again.status, again.headers.get("gpuvigil-duplicate")) == (204, "1")
        (node,) = process.hub().status()["nodes"]
        assert (node["node"], node["lane"], node["sequence"]) == ("n1", "backlog", 5)


def test_a_disk_that_is_full_is_503_and_the_hub_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: writing fails in the same places."""
    with HubProcess(tmp_path) as process:
        client = process.hub()
        url = f"{process.url}/api/v2/write?precision=s"
        lines = "\n".join(
            f"node,cluster=test,node=n{n} load_average={n}.5 {NOON_SECONDS}" for n in range(5000)
        ).encode()
        assert ask(url, lines, token=process.service_token, headers=identity(1)).status == 204
        assert process.process is not None
        pid = process.process.pid
        store_bytes = client.status()["store"]["bytes"]
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (store_bytes // 4, before[1]))
        for _ in range(2):
            full = ask(url, lines, token=process.service_token, headers=identity(2))
            assert full.status == 503
            assert int(full.headers["retry-after"]) > 0
        assert ask(f"{process.url}/healthz").status == 200
        assert process.log.read_text(encoding="utf-8").count("commit failed") == 2
        unready = ask(f"{process.url}/readyz")
        assert (unready.status, "cannot be committed" in unready.json["message"]) == (503, True)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        answer = ask(url, lines, token=process.service_token, headers=identity(2))
        assert (answer.status, answer.headers.get("gpuvigil-duplicate")) == (204, None)
        assert ask(f"{process.url}/readyz").status == 200
        window = HubStore(client).window("node", [], NOON, NOON + timedelta(seconds=1))
        assert set(window["samples"].to_pylist()) == {2}
        assert window.num_rows == 5000


@pytest.mark.parametrize("size", [1, 7])
def test_a_write_ahead_log_with_a_torn_end_opens_with_what_was_committed(
    tmp_path: Path, size: int
) -> None:
    with HubProcess(tmp_path) as process:
        url = f"{process.url}/api/v2/write?precision=s"
        for n in range(3):
            body = f"node,node=n{n} load_average=1 {NOON_SECONDS}".encode()
            assert ask(url, body, token=process.service_token).status == 204
        process.kill()
        log = process.data / "telemetry.duckdb.wal"
        with log.open("ab") as file:
            file.write(b"\x00" * size)
        process.restart()
        rows = HubStore(process.hub()).latest("node", [], NOON).num_rows
        assert rows == 3
