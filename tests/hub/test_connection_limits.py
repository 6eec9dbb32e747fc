"""What a connection may take: of the hub's time, its memory and its connections."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from gpuvigil.clock import from_ns
from gpuvigil.config import HubSettings
from gpuvigil.errors import GpuvigilError
from hub.bodies.deduplication import Deduplicator
from hub.embedded import Embedded, TooLarge
from hub.endpoints.query import series
from hub.records import open_records
from hub.records.upgrade import LOCK
from hub.telemetry.body import Body
from hub.telemetry.committer import commit
from tests.hub.talk import Reply, ask
from tests.polling import wait_until
from tests.postgresql import Postgresql
from tests.servers import HubProcess

NOON_SECONDS = 1769860800


@contextlib.contextmanager
def opening(
    tmp_path: Path, postgresql: Postgresql
) -> Iterator[tuple[HubProcess, psycopg.Connection[tuple[object, ...]]]]:
    """A hub whose records are being upgraded, as far as it can tell, until the lock is let go."""
    url = postgresql.database()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    hub = HubProcess(tmp_path, {"records_url": url, "port": port})
    with psycopg.connect(url) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        hub.spawn()
        hub.url = f"http://127.0.0.1:{port}"
        try:
            yield hub, other
        finally:
            other.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
            hub.stop()


def answered(url: str) -> Reply | None:
    try:
        return ask(url)
    except OSError:
        return None


@pytest.mark.server
def test_a_hub_that_opens_its_records_lives_and_says_what_it_waits_for(
    tmp_path: Path, postgresql: Postgresql
) -> None:
    with opening(tmp_path, postgresql) as (hub, other):

        def opens_records() -> bool:
            found = answered(f"{hub.url}/readyz")
            return found is not None and "its records" in found.json["message"]

        wait_until("it says so", opens_records, 60.0)
        ready = ask(f"{hub.url}/readyz")
        assert (ready.status, ready.headers["retry-after"]) == (503, "1")
        assert ask(f"{hub.url}/healthz").status == 200
        write = ask(f"{hub.url}/api/v2/write", b"x", token=hub.collector_token)
        assert write.status == 503
        assert not (hub.data / "hub.url").exists()
        other.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
        other.commit()
        wait_until("it is ready", lambda: ask(f"{hub.url}/readyz").status == 200, 60.0)


@pytest.mark.server
def test_many_who_ask_whether_it_is_ready_cost_no_more_than_one(hub: HubProcess) -> None:
    answers: list[int] = []

    def probe() -> None:
        answers.append(ask(f"{hub.url}/readyz").status)
        answers.append(ask(f"{hub.url}/metrics").status)

    threads = [threading.Thread(target=probe) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert answers == [200] * 100


@pytest.mark.server
def test_requests_without_end_before_an_answer_end_the_connection(hub: HubProcess) -> None:
    port = int(hub.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
        one.sendall(b"GET /ping HTTP/1.1\r\nHost: h\r\n\r\n" * 1000)
        said = b""
        with contextlib.suppress(ConnectionError):
            while piece := one.recv(65536):
                said += piece
    assert said.count(b"HTTP/1.1 204") <= 17
    assert b"HTTP/1.1 400" in said


@pytest.mark.server
def test_headers_that_come_in_one_burst_have_the_same_limit(hub: HubProcess) -> None:
    port = int(hub.url.rpartition(":")[2])
    for size, status in ((64 * 1024, b"HTTP/1.1 204"), (64 * 1024 + 1, b"HTTP/1.1 431")):
        start, end = b"GET /ping HTTP/1.1\r\nHost: h\r\nX: ", b"\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
            one.sendall(start + b"x" * (size - len(start) - len(end)) + end)
            assert one.recv(65536).startswith(status)


@pytest.mark.server
def test_who_does_not_read_an_answer_is_let_go(hub: HubProcess) -> None:
    subject = "test/unread"
    for number in range(15):
        record = {
            "kind": "event",
            "id": f"{subject}|{number}",
            "at": "2026-01-31T12:00:00Z",
            "subject": subject,
            "body": {"text": "x" * 900_000},
        }
        url = f"{hub.url}/api/v1/records"
        assert ask(url, json.dumps(record).encode(), token=hub.service_token).status == 200
    whole = ask(f"{hub.url}/api/v1/records?kind=event&subject={subject}", token=hub.service_token)
    assert len(whole.json["records"]) == 15
    port = int(hub.url.rpartition(":")[2])
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(60)
        deaf.connect(("127.0.0.1", port))
        deaf.sendall(
            f"GET /api/v1/records?kind=event&subject={subject} HTTP/1.1\r\nHost: h\r\n"
            f"Authorization: Token {hub.service_token}\r\n\r\n".encode()
        )
        assert deaf.recv(12) == b"HTTP/1.1 200"
        assert hub.process is not None
        listed = Path(f"/proc/{hub.process.pid}/net/tcp")

        def connections() -> int:
            # The other end of this one, as the kernel lists it: sockets of the hub's port.
            table = listed.read_text().splitlines()[1:]
            # Others' connections may have the same port at one of their ends.
            ends = f":{port:04X}", f":{deaf.getsockname()[1]:04X}"
            rows = (row.split()[1:3] for row in table)
            return sum(tuple(end[-5:] for end in row) == ends for row in rows)

        assert connections() == 1
        wait_until("it is gone", lambda: connections() == 0, 60.0)


@pytest.mark.medium
def test_an_answer_that_is_too_large_is_one_line(tmp_path: Path) -> None:
    store = Embedded(tmp_path / "store", 256 * 1024 * 1024, 1, answer_bytes=1000)
    question = series(
        {
            "measurement": "node",
            "fields": ["load_average"],
            "start": "2026-01-31T00:00:00Z",
            "end": "2026-02-01T00:00:00Z",
            "step_seconds": 0.001,
        }
    )
    lines(store, 10)
    assert store.answer(question).num_rows == 10
    lines(store, 1000)
    with pytest.raises(TooLarge, match="a longer step"):
        store.answer(question)
    store.close()


def lines(store: Embedded, count: int) -> None:
    text = "\n".join(
        f"node,cluster=c,node=n load_average=1 {NOON_SECONDS + number}" for number in range(count)
    )
    body = Body(
        text=text.encode(),
        precision="s",
        received_at=from_ns(NOON_SECONDS * 10**9),
        identity=None,
        done=lambda _: None,
    )
    commit(store, Deduplicator(), [body])


def test_a_hub_that_cannot_open_its_records_ends_at_once(tmp_path: Path) -> None:
    settings = HubSettings(data_directory=tmp_path)
    (tmp_path / "records.sqlite").write_bytes(b"no database at all" * 1000)
    with pytest.raises(GpuvigilError, match="not a database"):
        open_records(settings)
