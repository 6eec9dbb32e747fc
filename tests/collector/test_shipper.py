"""The shipper against a real HTTP server that answers well, badly, late or not at all."""

import logging
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from collector.spool.backoff import Backoff
from collector.spool.batches import Sender
from collector.spool.body import Body
from collector.spool.queue import Spool
from collector.spool.shipper import Shipper
from gpuvigil.clock import ManualClock, SystemClock, from_text
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client import Hub
from gpuvigil.model import Event, EventKind, RecordKind, Subject
from tests.collector.receiver import RESET, Receiver, Reply, Request, as_a_hub, refusing
from tests.polling import wait_until
from tests.servers import QuickHub

pytestmark = pytest.mark.server

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
SENDER = Sender(cluster="c", node="n1", boot="b1")
NODE = Subject(cluster="c", node="n1")
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
MIB = 1024 * 1024


def utcnow() -> datetime:
    return datetime.now(timezone.utc)


class Shipping:
    """A spool with a shipper in its thread; a context manager."""

    def __init__(
        self,
        directory: Path,
        url: str,
        connections: int = 4,
        *,
        spread_seconds: float = 0.0,
        timeout_seconds: float = 10.0,
        chance: float = 0.0,
    ) -> None:
        self.spool = Spool(directory, MIB)
        self.token: str | Exception = "first"
        self.shipper = Shipper(
            self.spool,
            url,
            self._said_token,
            SystemClock(),
            connections=connections,
            spread_seconds=spread_seconds,
            timeout_seconds=timeout_seconds,
            chance=lambda: chance,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.shipper.run, args=(self._stop,))

    def _said_token(self) -> str:
        if isinstance(self.token, Exception):
            raise self.token
        return self.token

    def __enter__(self) -> "Shipping":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def shipping(tmp_path: Path, receiver: Receiver) -> Iterator[Shipping]:
    with Shipping(tmp_path / "spool", receiver.url) as shipping:
        yield shipping


def telemetry(number: int, seconds: float = 0.0) -> Body:
    return SENDER.telemetry([f"x a={number}"], NOW + timedelta(seconds=seconds))


def events(*codes: int) -> Body:
    made = [
        Event(kind=EventKind.XID, subject=NODE, at=NOW, id=f"xid {code}", xid=code)
        for code in codes
    ]
    return SENDER.records([event.to_record() for event in made], NOW)


def contents(requests: list[Request]) -> list[bytes]:
    return [request.content for request in requests if not request.is_records]


def only_telemetry(behave: Callable[[Request], Reply | None]) -> Callable[[Request], Reply | None]:
    return lambda request: as_a_hub(request) if request.is_records else behave(request)


def test_a_body_carries_who_sent_it_when(shipping: Shipping, receiver: Receiver) -> None:
    shipping.spool.put(telemetry(1))
    wait_until("the body", lambda: receiver.accepted)
    (request,) = receiver.accepted
    assert request.path == "/api/v2/write?precision=ns"
    assert request.identity == ("n1", "b1", "live", "1")
    assert request.headers["Gpuvigil-Cluster"] == "c"
    assert request.headers["Gpuvigil-Version"]
    assert request.headers["Authorization"] == "Token first"
    sent_at = from_text(request.headers["Gpuvigil-Sent-At"])
    assert abs((datetime.now(timezone.utc) - sent_at).total_seconds()) < 5


def test_an_event_does_not_wait_for_telemetry_that_waits_for_its_commit(
    shipping: Shipping, receiver: Receiver
) -> None:
    commit = threading.Event()

    def slow(request: Request) -> Reply:
        commit.wait(10)
        return as_a_hub(request)

    receiver.behave = only_telemetry(slow)
    for number in range(8):
        shipping.spool.put(telemetry(number))
    wait_until("telemetry under way", lambda: len(receiver.attempts) == 4)
    put_at = time.monotonic()
    shipping.spool.put(events(79))
    wait_until("the event", lambda: receiver.records("event"))
    took = next(r.at for r in receiver.accepted if r.is_records) - put_at
    commit.set()
    assert took < 0.5  # the others take ten seconds
    wait_until("all telemetry", lambda: len(contents(receiver.accepted)) == 8)


def proxy(status: int, page: bytes) -> Callable[[Request], Reply]:
    """Somebody between node and hub who answers people."""
    return lambda _: Reply(status=status, body=page, headers={"Content-Type": "text/html"})


@pytest.mark.parametrize(
    "behave",
    [
        refusing(401, "wrong token"),
        refusing(403, "not allowed"),
        refusing(404, "no such bucket"),
        refusing(429, "queue is full", Retry_After="0"),
        refusing(500),
        refusing(503, "stopping"),
        lambda _: Reply(status=200, body=b"<html>please sign in</html>"),
        lambda _: Reply(status=302, headers={"Location": "http://127.0.0.1:1/"}),
        lambda _: None,
        lambda _: RESET,
        proxy(502, b"<html><h1>502 Bad Gateway</h1></html>"),
        proxy(400, b"<html>The plain HTTP request was sent to HTTPS port</html>"),
    ],
    ids=[
        "401",
        "403",
        "404",
        "429",
        "500",
        "503",
        "html",
        "redirect",
        "nothing",
        "reset",
        "html-502",
        "html-400",
    ],
)
def test_nothing_is_lost_while_the_hub_takes_nothing(
    shipping: Shipping, receiver: Receiver, behave: Callable[[Request], Reply | None]
) -> None:
    receiver.behave = behave
    for number in range(3):
        shipping.spool.put(telemetry(number))
    shipping.spool.put(events(48))
    wait_until("attempts in vain", lambda: len(receiver.attempts) >= 3)
    wait_until("it to be seen", lambda: not shipping.shipper.reachable)
    receiver.behave = as_a_hub
    wait_until("all bodies", lambda: len(receiver.accepted) == 4)
    assert sorted(contents(receiver.accepted)) == [b"x a=0", b"x a=1", b"x a=2"]
    assert len(receiver.records("event")) == 1
    wait_until("an empty spool", lambda: shipping.spool.bytes == 0)
    assert shipping.spool.dropped == 0
    wait_until("it to be seen", lambda: shipping.shipper.reachable)
    # What was tried before kept its name, so that the hub can tell a duplicate.
    first = {r.content: r.identity for r in reversed(receiver.attempts)}
    assert all(first[r.content] == r.identity for r in receiver.accepted)


def test_a_new_token_is_used_at_once(shipping: Shipping, receiver: Receiver) -> None:
    receiver.behave = lambda request: (
        as_a_hub(request)
        if request.headers["Authorization"] == "Token second"
        else Reply(status=401)
    )
    shipping.spool.put(telemetry(1))
    wait_until("a refusal", lambda: receiver.attempts)
    shipping.token = "second"
    wait_until("the body", lambda: receiver.accepted)


def test_a_token_that_raises_whatever_keeps_the_body_and_the_thread(
    shipping: Shipping, receiver: Receiver
) -> None:
    shipping.token = RecursionError("nobody thought of this")
    shipping.spool.put(telemetry(1))
    shipping.spool.put(events(48))
    wait_until("it to be seen", lambda: not shipping.shipper.reachable)
    shipping.token = "second"
    wait_until("both bodies", lambda: len(receiver.accepted) == 2)
    wait_until("it to be seen", lambda: shipping.shipper.reachable)


def test_a_hub_that_is_not_there_is_met_when_it_comes(tmp_path: Path, receiver: Receiver) -> None:
    spare = Receiver()
    spare.behave = as_a_hub
    url = spare.url
    spare._server.server_close()
    with Shipping(tmp_path / "spool", url) as shipping:
        shipping.spool.put(telemetry(1))
        wait_until("the body on disk", lambda: shipping.spool.bytes > 0)
    # The port was only lent: what waits goes elsewhere after a restart.
    with Shipping(tmp_path / "spool", receiver.url):
        wait_until("the body", lambda: contents(receiver.accepted) == [b"x a=1"])


def test_lines_refused_with_400_are_counted_and_the_body_is_not_sent_again(
    shipping: Shipping, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    body = b'{"code": "invalid", "message": "partial write", "lines": [{"number": 2, "reason": "no measurement"}]}'
    receiver.behave = lambda _: Reply(status=400, body=body)
    with caplog.at_level(logging.WARNING, "gpuvigil"):
        shipping.spool.put(telemetry(1))
        wait_until("the count", lambda: shipping.shipper.refused_lines)
        wait_until("the line", lambda: 'count=1 first="no measurement"' in caplog.text)
    assert shipping.shipper.refused_lines == 1
    receiver.behave = as_a_hub
    shipping.spool.put(telemetry(2))
    wait_until("the next body", lambda: receiver.accepted)
    assert len(receiver.attempts) == 2


def test_a_body_too_large_is_dropped_and_counted(
    shipping: Shipping, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.behave = refusing(413, "larger than 10 bytes")
    with caplog.at_level(logging.ERROR, "gpuvigil"):
        shipping.spool.put(telemetry(1))
        wait_until("the drop", lambda: shipping.spool.dropped == 1)
        wait_until("the line", lambda: "larger than 10 bytes" in caplog.text)
    receiver.behave = as_a_hub
    shipping.spool.put(telemetry(2))
    wait_until("the next body", lambda: contents(receiver.accepted) == [b"x a=2"])


def test_bodies_are_made_smaller_for_somebody_who_takes_only_small_ones(
    shipping: Shipping, receiver: Receiver
) -> None:
    lines = [f"x a={number}" for number in range(20)]
    receiver.behave = lambda request: (
        proxy(413, b"<html>413 Request Entity Too Large</html>")(request)
        if len(request.content) > 30
        else as_a_hub(request)
    )
    long = "y a=" + "1" * 40
    shipping.spool.put(SENDER.telemetry([*lines, long], NOW))
    wait_until("all but one", lambda: len(receiver.lines("x")) == 20)
    wait_until("the line that nobody takes", lambda: shipping.spool.dropped == 1)
    wait_until("an empty spool", lambda: shipping.spool.oldest_seconds(NOW + HOUR) == 0.0)
    identities = [request.identity for request in receiver.attempts]
    assert len(set(identities)) == len(identities)


def test_a_body_that_only_a_proxy_dislikes_does_not_hold_the_others_back(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.behave = lambda request: (
        proxy(400, b"<html>blocked</html>")(request)
        if request.content == b"x a=1"
        else as_a_hub(request)
    )
    with Shipping(tmp_path / "spool", receiver.url, connections=1) as shipping:
        for number in range(1, 5):
            shipping.spool.put(telemetry(number, 10.0 * number))
        wait_until("the others", lambda: len(receiver.accepted) == 3)
        receiver.behave = as_a_hub
        wait_until("this one", lambda: len(receiver.accepted) == 4)
        assert shipping.spool.dropped == 0


def test_a_slow_hub_is_given_up_on_and_the_body_keeps_its_name(
    tmp_path: Path, receiver: Receiver
) -> None:
    answer = threading.Event()

    def slow(request: Request) -> Reply:
        answer.wait(10)
        return as_a_hub(request)

    receiver.behave = slow
    with Shipping(tmp_path / "spool", receiver.url, timeout_seconds=0.2) as shipping:
        shipping.spool.put(telemetry(1))
        wait_until("a second attempt", lambda: len(receiver.attempts) > 1)
        answer.set()
        wait_until("an empty spool", lambda: shipping.spool.oldest_seconds(NOW + HOUR) == 0.0)
    assert {request.identity for request in receiver.attempts} == {("n1", "b1", "live", "1")}


@contextmanager
def pouring(chunk: bytes, pause_seconds: float) -> Iterator[tuple[str, list[float]]]:
    """A server whose answers never end, and when it was asked."""
    asked: list[float] = []

    class Endless(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(time.monotonic())
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(chunk)
                    time.sleep(pause_seconds)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("chunk", "pause_seconds"), [(b"x" * 65536, 0.0), (b"x", 0.05)])
def test_an_answer_without_an_end_is_left_and_the_body_kept(
    tmp_path: Path, chunk: bytes, pause_seconds: float
) -> None:
    with pouring(chunk, pause_seconds) as (url, asked):
        tracemalloc.start()
        with Shipping(tmp_path / "spool", url, timeout_seconds=0.3) as shipping:
            shipping.spool.put(telemetry(1))
            wait_until("another attempt", lambda: len(asked) > 2)
            assert shipping.spool.bytes > 0
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 8 * MIB


def test_the_hub_says_when_to_come_back(shipping: Shipping, receiver: Receiver) -> None:
    receiver.behave = lambda request: (
        refusing(429, "queue is full", Retry_After="1")(request)
        if len(receiver.attempts) == 1
        else as_a_hub(request)
    )
    shipping.spool.put(telemetry(1))
    wait_until("the body", lambda: receiver.accepted)
    first, second = receiver.attempts
    assert second.at - first.at >= 1.0


def test_when_to_come_back_may_be_a_time(shipping: Shipping, receiver: Receiver) -> None:
    receiver.behave = lambda request: (
        refusing(503, "later", Retry_After=format_datetime(utcnow() + 3 * SECOND, usegmt=True))(
            request
        )
        if len(receiver.attempts) == 1
        else as_a_hub(request)
    )
    shipping.spool.put(telemetry(1))
    wait_until("the body", lambda: receiver.accepted)
    first, second = receiver.attempts
    assert second.at - first.at >= 1.5  # both times are of whole seconds


def test_nodes_that_start_together_do_not_speak_together(
    tmp_path: Path, receiver: Receiver
) -> None:
    began = time.monotonic()
    with Shipping(tmp_path / "spool", receiver.url, spread_seconds=1.0, chance=0.5) as shipping:
        shipping.spool.put(telemetry(1))
        wait_until("the body", lambda: receiver.accepted)
    assert receiver.attempts[0].at - began >= 0.5


def test_a_node_that_stops_before_it_spoke_keeps_what_it_has(
    tmp_path: Path, receiver: Receiver
) -> None:
    with Shipping(tmp_path / "spool", receiver.url, spread_seconds=60.0, chance=1.0) as shipping:
        shipping.spool.put(telemetry(1))
    assert len(list((tmp_path / "spool").glob("*.body"))) == 1
    assert not receiver.attempts


def test_one_bad_record_does_not_cost_its_neighbours(
    shipping: Shipping, receiver: Receiver
) -> None:
    receiver.behave = lambda request: (
        refusing(400)(request) if b'"xid 13"' in request.content else as_a_hub(request)
    )
    shipping.spool.put(events(79, 13, 48))
    wait_until("the good ones", lambda: len(receiver.records("event")) == 2)
    wait_until("the bad one counted", lambda: shipping.spool.dropped == 1)
    assert {event["id"] for event in receiver.records("event")} == {"xid 79", "xid 48"}


def test_live_bodies_stay_fresh_while_the_backlog_drains(
    tmp_path: Path, receiver: Receiver
) -> None:
    spool = Spool(tmp_path / "spool", MIB, memory_bytes=0)
    for number in range(20):
        spool.put(telemetry(number, number))
    spool.close()

    def slow(request: Request) -> Reply:
        time.sleep(0.05)
        return as_a_hub(request)

    receiver.behave = slow
    with Shipping(tmp_path / "spool", receiver.url, connections=2) as shipping:
        wait_until("the drain's begin", lambda: len(receiver.accepted) > 2)
        shipping.spool.put(telemetry(100, 100))
        wait_until("everything", lambda: len(receiver.accepted) == 21)
    assert contents(receiver.accepted).index(b"x a=100") < 8


def test_what_is_not_acknowledged_at_the_end_is_on_disk(tmp_path: Path, receiver: Receiver) -> None:
    receiver.behave = refusing(503)
    with Shipping(tmp_path / "spool", receiver.url) as shipping:
        for number in range(3):
            shipping.spool.put(telemetry(number))
    assert len(list((tmp_path / "spool").glob("*.body"))) == 3
    receiver.behave = as_a_hub
    with Shipping(tmp_path / "spool", receiver.url):
        wait_until("all bodies", lambda: len(receiver.accepted) == 3)


def test_an_address_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"hub\.url"):
        Shipping(tmp_path / "spool", "hub:8428")


def test_the_gate_spreads_attempts_and_lets_one_at_a_time_try() -> None:
    clock = ManualClock(NOW)
    gate = Backoff(clock, lambda: 1.0)
    assert gate.enter()
    assert gate.failed(None)
    clock.advance(0.37)
    assert not gate.enter()
    clock.advance(0.01)
    assert gate.enter()
    # Until this attempt's answer is in, nobody else tries.
    assert not gate.enter()
    assert not gate.failed(retry_after_seconds=20.0)
    clock.advance(29.9)
    assert not gate.enter()
    clock.advance(0.2)
    assert gate.enter()
    assert gate.succeeded()
    assert gate.enter()
    assert gate.enter()


@pytest.mark.server
def test_the_real_hub_takes_everything_once_also_when_killed_in_the_middle(tmp_path: Path) -> None:
    with QuickHub(tmp_path / "hub") as hub:
        token = hub.collector_token
        with Shipping(tmp_path / "spool", hub.url) as shipping:
            shipping.token = token
            for number in range(10):
                shipping.spool.put(_row(number))
            hub.kill()
            for number in range(10, 20):
                shipping.spool.put(_row(number))
            shipping.spool.put(events(79))
            hub.start()
            client: Hub = hub.hub()
            wait_until("the event", lambda: client.records(RecordKind.EVENT))
            wait_until("an empty spool", lambda: shipping.spool.oldest_seconds(NOW) == 0.0)
            wait_until("all rows", lambda: client.status()["store"]["rows"] == 20)
            bad = SENDER.telemetry([ROW % 21, "no line protocol", ROW % 22], NOW)
            shipping.spool.put(bad)
            wait_until("the good lines", lambda: client.status()["store"]["rows"] == 22)
        assert shipping.shipper.refused_lines == 1
        assert shipping.spool.dropped == 0


ROW = f"node,cluster=c,node=n1 load_average=0.5 {int(NOW.timestamp())}%09d"


def _row(number: int) -> Body:
    at = NOW + timedelta(seconds=number)
    line = f"node,cluster=c,node=n1 load_average={number}.5 {int(at.timestamp()) * 10**9}"
    return SENDER.telemetry([line], at)
