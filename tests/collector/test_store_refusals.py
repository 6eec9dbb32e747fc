"""What becomes of a body that a store beside the hub refuses; the answers are such servers' own."""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from collector.doctor.store import diagnose
from collector.spool.queue import Spool
from collector.spool.remote_write import direct_store
from collector.spool.shipper import Shipper
from gpuvigil.clock import SystemClock
from gpuvigil.config import StoreSettings
from tests.collector.receiver import Receiver, Reply, Request
from tests.collector.test_shipper import MIB, NOW, SENDER
from tests.gpuvigil.test_lineprotocol_refusal import (
    CONFLICT,
    INFLUX_2,
    INFLUX_3,
    INFLUX_3_LIMIT,
    PAGE,
    PARSED_IN_PART,
    VM_BATCH,
    VMAUTH_TOKEN,
)
from tests.polling import wait_until

pytestmark = pytest.mark.server

TAKEN = Reply(status=204)
ECHO = '{"error":"cannot authorize Token secret-word"}'
# As Go's own server says it.
NOT_FOUND = Reply(status=404, body=b"404 page not found\n")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@contextmanager
def shipping(
    directory: Path, receiver: Receiver, settings: StoreSettings
) -> Iterator[tuple[Spool, Shipper]]:
    """A shipper whose telemetry goes to a store, and whose hub is away."""
    spool, stop = Spool(directory, MIB), threading.Event()
    target = direct_store(settings)
    shipper = Shipper(
        spool, "http://127.0.0.1:1", lambda: "t", SystemClock(), direct_store=target, connections=1
    )
    thread = threading.Thread(target=shipper.run, args=(stop,))
    thread.start()
    try:
        yield spool, shipper
    finally:
        stop.set()
        thread.join()


def influxdb(receiver: Receiver) -> StoreSettings:
    return StoreSettings(kind="influxdb", url=receiver.url)


def put(spool: Spool, *numbers: int, word: str = "x") -> None:
    spool.put(SENDER.telemetry([f"{word} a={number}" for number in numbers], NOW))


def taken(receiver: Receiver) -> set[bytes]:
    return {line for it in receiver.accepted for line in it.content.splitlines()}


def answering(status: int, body: str) -> Callable[[Request], Reply]:
    return lambda _: Reply(status=status, body=body.encode())


@pytest.mark.parametrize(
    ("status", "body", "refused"),
    [
        (400, PARSED_IN_PART, 2),
        (400, CONFLICT, 2),
        (422, INFLUX_2, 5),
        (500, INFLUX_2, 5),
        (400, INFLUX_3, 3),
    ],
)
def test_where_the_good_lines_were_kept_the_others_are_counted_and_it_goes_on(
    tmp_path: Path, receiver: Receiver, status: int, body: str, refused: int
) -> None:
    receiver.behave = answering(status, body)
    with shipping(tmp_path, receiver, influxdb(receiver)) as (spool, shipper):
        put(spool, *range(5))
        wait_until("the count", lambda: shipper.refused_lines)
        assert shipper.refused_lines == refused
        receiver.behave = lambda _: TAKEN
        put(spool, 5)
        wait_until("the next body", lambda: taken(receiver) == {b"x a=5"})
        assert (len(receiver.attempts), spool.dropped) == (2, 0)


@pytest.mark.parametrize(
    "why",
    [VM_BATCH, '{"code":"invalid","message":"unable to parse \'bad a=7\': missing fields"}'],
)
def test_where_one_line_cost_its_whole_body_its_neighbours_are_sent_without_it(
    tmp_path: Path, receiver: Receiver, why: str
) -> None:
    receiver.behave = lambda request: (
        Reply(status=400, body=why.encode()) if b"bad" in request.content else TAKEN
    )
    with shipping(tmp_path, receiver, influxdb(receiver)) as (spool, shipper):
        lines = [f"x a={number}" for number in range(20)]
        spool.put(SENDER.telemetry([*lines[:7], "bad a=7", *lines[7:]], NOW))
        wait_until("the neighbours", lambda: taken(receiver) == {it.encode() for it in lines})
        wait_until("the count", lambda: shipper.refused_lines == 1)
        assert spool.dropped == 0


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, PAGE),
        (404, '{"code":"not found","message":"bucket \\"b\\" not found"}'),
        (401, '{"code":"unauthorized","message":"unauthorized access"}'),
        (422, INFLUX_3_LIMIT),
        (400, '{"error":"database is required"}'),
        (400, VMAUTH_TOKEN),
        (503, ""),
        (401, ECHO),
        (429, ECHO),
        (500, ECHO),
        (503, ECHO),
        (200, "<html>sign in</html>"),
    ],
)
def test_what_somebody_may_put_right_is_kept_and_said_and_sent_again_to_the_same_path(
    tmp_path: Path,
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
    status: int,
    body: str,
) -> None:
    receiver.behave = answering(status, body)
    secret = tmp_path / "token"
    secret.write_text("secret-word")
    settings = StoreSettings(kind="influxdb", url=receiver.url, token_file=secret)
    with (
        caplog.at_level(logging.WARNING, "gpuvigil"),
        shipping(tmp_path / "spool", receiver, settings) as (spool, shipper),
    ):
        put(spool, 1, 2)
        wait_until("it is tried again", lambda: len(receiver.attempts) > 2)
        assert "bodies are kept" in caplog.text
        assert "secret-word" not in caplog.text
        receiver.behave = lambda _: TAKEN
        wait_until("both lines", lambda: taken(receiver) == {b"x a=1", b"x a=2"})
        assert (shipper.refused_lines, spool.dropped) == (0, 0)
    assert all(it.path.startswith("/api/v2/write?") for it in receiver.attempts)


def test_a_server_without_the_v2_path_is_written_to_by_v1_until_another_takes_its_place(
    tmp_path: Path, receiver: Receiver
) -> None:
    old = [True]

    def behave(request: Request) -> Reply:
        return TAKEN if request.path.startswith("/write?") is old[0] else NOT_FOUND

    receiver.behave = behave
    with shipping(tmp_path, receiver, influxdb(receiver)) as (spool, _):
        put(spool, 1)
        wait_until("the first", lambda: b"x a=1" in taken(receiver))
        put(spool, 2)
        wait_until("the second", lambda: b"x a=2" in taken(receiver))
        paths = [request.path.partition("?")[0] for request in receiver.attempts]
        assert paths == ["/api/v2/write", "/write", "/write"]
        old[0] = False
        put(spool, 3)
        wait_until("the third", lambda: b"x a=3" in taken(receiver))
    assert receiver.accepted[-1].path.startswith("/api/v2/write?")


def test_an_address_that_leads_to_neither_path_says_nothing_of_the_server(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.behave = lambda _: NOT_FOUND
    with shipping(tmp_path, receiver, influxdb(receiver)) as (spool, _):
        put(spool, 1)
        wait_until("it is tried again", lambda: len(receiver.attempts) > 3)
        receiver.behave = lambda _: TAKEN
        wait_until("the line", lambda: taken(receiver) == {b"x a=1"})
    assert receiver.accepted[0].path.startswith("/api/v2/write?")


@pytest.mark.parametrize(
    ("kind", "status", "body", "state"),
    [
        ("influxdb", 204, "", "ok"),
        ("influxdb", 400, '{"code":"invalid","message":"writing requires points"}', "ok"),
        ("influxdb", 400, '{"error":"database is required"}', "missing"),
        ("influxdb", 404, PAGE, "missing"),
        ("victoriametrics", 400, VMAUTH_TOKEN, "missing"),
        ("victoriametrics", 400, 'unsupported path requested: "/x"', "missing"),
    ],
)
def test_the_doctor_calls_fine_only_who_would_take_lines(
    receiver: Receiver, kind: str, status: int, body: str, state: str
) -> None:
    receiver.behave = answering(status, body)
    (said,) = diagnose(StoreSettings(kind=kind, url=receiver.url))
    assert said.state.value == state


def test_who_hears_late_that_there_is_no_v2_writes_as_who_heard_it_first(
    receiver: Receiver,
) -> None:
    asked, written = threading.Barrier(2), threading.Event()

    def behave(request: Request) -> Reply:
        if request.path.startswith("/write"):
            return TAKEN
        asked.wait(10.0)
        if b"late" in request.content:
            written.wait(10.0)
        return NOT_FOUND

    receiver.behave = behave
    target = direct_store(influxdb(receiver))
    assert target is not None

    def send(word: str) -> int:
        with closing(target.connect(20.0)) as connection:
            refused = target.send(connection, SENDER.telemetry([f"{word} a=1"], NOW))
        written.set()
        return refused

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(send, ("early", "late"))) == [0, 0]
    assert taken(receiver) == {b"early a=1", b"late a=1"}
