"""One token that floods the hub takes neither the memory nor the turns of the others."""

import contextlib
import json
import socket
import threading
import urllib.error
from collections.abc import Iterator

import pytest

from tests.hub.talk import Reply, ask
from tests.polling import wait_until
from tests.servers import HubProcess

pytestmark = pytest.mark.server

QUEUE = 4_000_000
LINE = "node,cluster=test,node={} load_average=1 1769860800\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    settings = {"queue_bytes": QUEUE, "body_bytes": 2_000_000}
    with HubProcess(tmp_path_factory.mktemp("small"), settings) as process:
        yield process


def token(hub: HubProcess, node: str) -> str:
    asked = json.dumps({"scope": "node", "cluster": "test", "node": node}).encode()
    return str(ask(f"{hub.url}/api/v1/tokens", asked, token=hub.service_token).json["token"])


def event(node: str, number: int, size: int = 0) -> bytes:
    record = {
        "kind": "event",
        "id": f"test/{node}|{number}",
        "at": "2026-01-31T12:00:00Z",
        "subject": f"test/{node}",
        "body": {"text": "x" * size},
    }
    return json.dumps(record).encode()


@contextlib.contextmanager
def half_sent(hub: HubProcess, path: str, given: str, count: int) -> Iterator[int]:
    """Bodies of which the most part was sent, and no more comes; how many the hub holds."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Token {given}\r\n"
        "Content-Length: 1500000\r\n\r\n"
    )
    port = int(hub.url.rpartition(":")[2])
    with contextlib.ExitStack() as stack:
        held = 0
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            one.sendall(head.encode() + b"#" * 500_000)
            one.settimeout(0.3)
            try:
                assert b" 429 " in one.recv(100)
            except TimeoutError:
                held += 1
        yield held


@pytest.mark.parametrize("path", ["/api/v2/write", "/api/v1/records"])
def test_a_node_that_sends_without_end_leaves_room_for_the_others(
    small: HubProcess, path: str
) -> None:
    first, second = token(small, "n1"), token(small, "n2")
    with half_sent(small, path, first, 12) as held:
        assert 2 <= held <= 4  # half of what there is
        if path == "/api/v2/write":
            answer = ask(small.url + path, LINE.format("n2").encode() * 500, token=second)
            assert answer.status == 204
        else:
            answer = ask(small.url + path, event("n2", 1, 30_000), token=second)
            assert answer.status == 200
        status = ask(f"{small.url}/api/v1/records?kind=event", token=small.service_token)
        assert status.status == 200


def test_a_flood_of_records_leaves_turns_to_readers_and_to_other_nodes(small: HubProcess) -> None:
    flooding, calm = token(small, "n3"), token(small, "n4")
    stop = threading.Event()
    answers: list[int] = []

    def flood(number: int) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            body = b"\n".join(event("n3", number * 10**6 + count * 100 + i) for i in range(20))
            answers.append(ask(f"{small.url}/api/v1/records", body, token=flooding).status)

    threads = [threading.Thread(target=flood, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    try:
        wait_until("the flood is in", lambda: len(answers) > 30, 60.0)
        found: list[Reply] = [
            ask(f"{small.url}/api/v1/records", event("n4", 1), token=calm),
            ask(f"{small.url}/api/v1/status", token=small.service_token),
            ask(f"{small.url}/api/v1/changes?after=0&wait=0", token=small.service_token),
        ]
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=60)
    assert [it.status for it in found] == [200, 200, 200]
    assert set(answers) <= {200, 429}


def ask_again(url: str, body: bytes, given: str) -> Reply:
    """The answer to a large body, which may come before all of it was sent: then sending breaks off."""
    for _ in range(9):
        with contextlib.suppress(urllib.error.URLError):
            return ask(url, body, token=given)
    return ask(url, body, token=given)


def test_a_node_that_writes_records_without_end_is_sent_away_and_named(small: HubProcess) -> None:
    given, other = token(small, "n6"), token(small, "n7")
    url = f"{small.url}/api/v1/records"
    same = event("n6", 1)  # known after the first: it costs the database nothing
    answers = [ask_again(url, b"\n".join([same] * 9_000), given) for _ in range(4)]
    assert [it.status for it in answers] == [200, 200, 200, 429]
    assert "test/n6 writes too many records" in answers[-1].json["message"]
    assert int(answers[-1].headers["retry-after"]) > 0
    assert ask(url, event("n7", 1), token=other).status == 200
    assert "test/n6 writes too many records" in small.log.read_text(encoding="utf-8")


def test_a_record_of_a_node_is_small_and_its_body_has_few_lines(small: HubProcess) -> None:
    given = token(small, "n5")
    url = f"{small.url}/api/v1/records"
    answer = ask(url, b"\n" * 50_001, token=given)
    assert (answer.status, "50000 lines" in answer.json["message"]) == (413, True)
    answer = ask(url, event("n5", 1, 1_100_000), token=given)
    assert (answer.status, "1048576 bytes" in answer.json["message"]) == (413, True)
    assert ask(url, event("n5", 1, 1_000_000), token=given).status == 200
