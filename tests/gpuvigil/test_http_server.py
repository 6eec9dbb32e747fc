"""What a connection may take before it is ended: a real uvicorn on the loopback, with short limits."""

import asyncio
import contextlib
import re
import resource
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn

from gpuvigil.log import Log
from gpuvigil.web.connections import Limits, Place, Places, most_connections, sender
from gpuvigil.web.http_server import limited
from tests.polling import wait_until

pytestmark = pytest.mark.server

SHORT = Limits(
    head_seconds=0.4,
    head_bytes=2048,
    body_seconds=0.4,
    body_bytes=1000,
    rest_seconds=0.3,
    drain_seconds=0.5,
    pipelined_count=4,
)
KEEP_ALIVE_SECONDS = 1
OK = b"HTTP/1.1 200"


@dataclass
class Server:
    """Answers with the length of what was sent; `/large` with 8 MiB, `/unread` before the body."""

    limits: Limits = SHORT
    most: int = 100
    shared: bool = False
    hears: list[int] = field(default_factory=list)

    def __enter__(self) -> "Server":
        places = Places(self.most, exempt=lambda _: not self.shared, log=Log("test"))
        config = uvicorn.Config(
            self.app,
            http=limited(places, self.limits, self.crowded),
            interface="asgi3",
            ws="none",
            log_config=None,
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
        )
        self.server = uvicorn.Server(config)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, args=([self.listener],))
        self.thread.start()
        wait_until("it is started", lambda: self.server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        self.listener.close()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        body = b"x" * 8 * 2**20 if scope["path"] == "/large" else b""
        if scope["path"] == "/slow":
            await asyncio.sleep(2 * self.limits.head_seconds)
        if scope["path"] not in {"/large", "/unread"}:
            size, more = 0, True
            while more:
                message = await receive()
                size += len(message.get("body", b""))
                more = message.get("more_body", False)
            self.hears.append(size)
            body = str(size).encode()
        await answer(send, 200, body)

    async def crowded(self, _scope: Any, _receive: Any, send: Any) -> None:
        await answer(send, 503, b"crowded", [(b"connection", b"close")])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def send(self, data: bytes) -> bytes:
        """All that comes back until the server ends the connection."""
        with self.connect() as one:
            with contextlib.suppress(ConnectionError):
                one.sendall(data)
            return rest_of(one)

    def sends_on(self, data: bytes) -> bytes:
        """What the next piece of an answer is; the connection stays open."""
        with self.connect() as one:
            one.sendall(data)
            return one.recv(65536)

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)


async def answer(send: Any, status: int, body: bytes, more: list[Any] | None = None) -> None:
    headers = [(b"content-length", str(len(body)).encode()), *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def rest_of(one: socket.socket) -> bytes:
    said = b""
    with contextlib.suppress(ConnectionError):
        while piece := one.recv(65536):
            said += piece
    return said


def answer_of(one: socket.socket) -> bytes:
    """One answer, whole: its head and its body may come in two pieces."""
    said = b""
    while piece := one.recv(65536):
        said += piece
        top, end, rest = said.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", top.lower())
        if end and length and len(rest) >= int(length[1]):
            break
    return said


def ended_after(one: socket.socket) -> float:
    started = time.monotonic()
    rest_of(one)
    return time.monotonic() - started


def head(size: int, path: str = "/") -> bytes:
    """A request of `size` bytes without a body."""
    start, end = f"GET {path} HTTP/1.1\r\nHost: h\r\nX: ".encode(), b"\r\n\r\n"
    return start + b"x" * (size - len(start) - len(end)) + end


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.mark.parametrize("pieces", [1, 7, 64])
@pytest.mark.parametrize("limit", [2048, 65536])
def test_headers_of_the_limit_are_answered_and_one_byte_more_is_not(
    limit: int, pieces: int
) -> None:
    with Server(Limits(head_bytes=limit)) as server:
        for size, status in ((limit, OK), (limit + 1, b"HTTP/1.1 431")):
            data = head(size)
            with server.connect() as one:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                step = -(-size // pieces)
                for at in range(0, size, step):
                    one.sendall(data[at : at + step])
                assert one.recv(65536).startswith(status)


@pytest.mark.parametrize(
    "many",
    [
        b"GET /" + b"x" * 3000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\n" + b"a:b\r\n" * 500 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\n" + b"x" * 3000,
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n" + b"\r\n" * 20_000,
        b"\r\n" * 2000,
    ],
    ids=["address", "lines", "no end", "line ends behind", "line ends"],
)
def test_a_head_that_is_too_long_in_any_part_ends_the_connection_at_once(
    server: Server, many: bytes
) -> None:
    started = time.monotonic()
    assert b"HTTP/1.1 4" in server.send(many)
    assert time.monotonic() - started < 0.35


def test_what_follows_a_body_counts_for_the_next_request_alone(server: Server) -> None:
    with server.connect() as one:
        for size in (2048, 2000):
            post = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\n" + b"b" * 900
            one.sendall(post + head(size) + post)
            said = b""
            while said.count(OK) < 3:
                said += one.recv(65536)
    assert server.hears[-1] == 900


def test_a_head_in_half_ends_after_its_time_and_one_just_before_is_answered(
    server: Server,
) -> None:
    with server.connect() as never, server.connect() as half, server.connect() as late:
        half.sendall(b"GET / HTTP/1.1\r\nHost:")
        late.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n")
        time.sleep(SHORT.head_seconds / 2)
        late.sendall(b"\r\n")
        assert late.recv(65536).startswith(OK)
        assert ended_after(half) < SHORT.head_seconds + 0.3
        assert ended_after(never) < SHORT.head_seconds + 0.3


def test_a_head_that_comes_byte_by_byte_has_no_longer(server: Server) -> None:
    started = time.monotonic()
    with server.connect() as drip, contextlib.suppress(ConnectionError):
        drip.sendall(b"GET / HTTP/1.1\r\nX: ")
        while time.monotonic() - started < 5:
            drip.sendall(b"x")
            time.sleep(0.02)
    assert SHORT.head_seconds * 0.8 < time.monotonic() - started < 2


def test_a_second_head_in_half_and_line_ends_between_requests_end_too(server: Server) -> None:
    for more in (b"GET / HTTP/1.1\r\nHo", b"\r\n"):
        with server.connect() as one:
            one.sendall(head(100))
            assert one.recv(65536).startswith(OK)
            one.sendall(more)
            assert 0.8 * SHORT.head_seconds < ended_after(one) < KEEP_ALIVE_SECONDS


def test_an_answer_that_takes_longer_than_a_head_is_given(server: Server) -> None:
    assert server.sends_on(head(100, "/slow")).startswith(OK)


def test_a_connection_that_rests_ends(server: Server) -> None:
    with server.connect() as one:
        one.sendall(head(100))
        assert one.recv(65536).startswith(OK)
        assert 0.5 * KEEP_ALIVE_SECONDS < ended_after(one) < KEEP_ALIVE_SECONDS + 1


def body(size: int) -> bytes:
    return f"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n".encode() + b"b" * size


def chunks(size: int, each: int = 100) -> bytes:
    start = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    one = f"{each:x}\r\n".encode() + b"b" * each + b"\r\n"
    rest = size % each
    last = f"{rest:x}\r\n".encode() + b"b" * rest + b"\r\n" if rest else b""
    return start + one * (size // each) + last + b"0\r\n\r\n"


@pytest.mark.parametrize("made", [body, chunks])
def test_a_body_of_the_limit_is_taken_and_one_byte_more_is_not(server: Server, made: Any) -> None:
    assert server.sends_on(made(1000)).startswith(OK)
    assert server.hears[-1] == 1000
    assert server.sends_on(made(1001)).startswith(b"HTTP/1.1 413")


def test_chunks_of_one_byte_are_a_body_like_any(server: Server) -> None:
    assert server.sends_on(chunks(1000, 1)).startswith(OK)
    assert server.hears[-1] == 1000


@pytest.mark.parametrize("path", [b"/", b"/unread"])
@pytest.mark.parametrize("more", [b"0\r\n" + b"a: b\r\n" * 50_000, b"1;" + b"x" * 300_000])
def test_what_stands_around_a_body_is_bounded(server: Server, path: bytes, more: bytes) -> None:
    start = b"POST " + path + b" HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server.connect() as one:
        one.sendall(start)
        time.sleep(0.05)
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            one.sendall(more)
        rest_of(one)
    assert time.monotonic() - started < 0.25


def test_a_body_in_half_is_answered_408_and_one_just_before_is_taken(server: Server) -> None:
    with server.connect() as late, server.connect() as half:
        started = time.monotonic()
        half.sendall(body(100)[:-1])
        late.sendall(body(100)[:-1])
        time.sleep(SHORT.head_seconds / 2)
        late.sendall(b"b")
        assert late.recv(65536).startswith(OK)
        assert rest_of(half).startswith(b"HTTP/1.1 408")
        assert 0.8 * SHORT.head_seconds < time.monotonic() - started < 2


def test_the_rest_of_a_body_that_was_answered_is_waited_for_no_longer(server: Server) -> None:
    with server.connect() as one:
        one.sendall(body(100).replace(b"/ ", b"/unread ", 1)[:-1])
        assert one.recv(65536).startswith(OK)
        assert ended_after(one) < SHORT.head_seconds + 0.3


def test_who_does_not_read_is_let_go(server: Server) -> None:
    with server.connect() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(head(100, "/large"))
        wait_until("it is heard", lambda: server.connections > 0)
        wait_until("it is gone", lambda: server.connections == 0, 10)


def test_more_requests_than_may_wait_end_the_connection(server: Server) -> None:
    said = server.send(head(100) * 20)
    assert said.count(OK) <= SHORT.pipelined_count + 1
    assert b"HTTP/1.1 400" in said


def test_a_thousand_half_sent_requests_are_gone_and_others_are_answered_meanwhile() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(1000, (hard - 300) // 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with (
            Server(Limits(head_seconds=2.0), most=2 * count) as server,
            contextlib.ExitStack() as open_ones,
        ):
            for _ in range(count):
                one = open_ones.enter_context(server.connect())
                one.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n")
            assert server.sends_on(head(100)).startswith(OK)
            wait_until("they are gone", lambda: server.connections == 0, 10)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_connections_than_there_are_places_are_told_so_and_the_server_lives() -> None:
    with Server(Limits(), most=3) as server, contextlib.ExitStack() as open_ones:
        kept = [open_ones.enter_context(server.connect()) for _ in range(3)]
        for one in kept:
            one.sendall(head(100))
            assert answer_of(one).startswith(OK)
        assert server.send(head(100)).startswith(b"HTTP/1.1 503")
        assert server.sends_on(head(100, "/healthz")).startswith(OK)
        kept[0].sendall(head(100))
        assert answer_of(kept[0]).startswith(OK), "one that stands goes on"
        kept[0].close()
        wait_until("there is room", lambda: server.sends_on(head(100)).startswith(OK))


def test_who_is_silent_makes_room_and_keeps_nobody_out() -> None:
    half = b"GET / HTTP/1.1\r\nHost:"
    with Server(Limits(), most=4, shared=True) as server, contextlib.ExitStack() as open_ones:
        busy = open_ones.enter_context(server.connect())
        busy.sendall(head(100))
        assert busy.recv(65536).startswith(OK)
        silent = [open_ones.enter_context(server.connect()) for _ in range(50)]
        for one in silent:
            with contextlib.suppress(ConnectionError):
                one.sendall(half)
            assert server.sends_on(head(100)).startswith(OK)
        assert server.connections <= 4
        assert rest_of(silent[0]) == b""
        busy.sendall(head(100))
        assert busy.recv(65536).startswith(OK)


class Crowd:
    """Connections that take places and, unless they are silent, say what they want."""

    def __init__(self, most: int, *exempt: str) -> None:
        self.of = Places(most, exempt=lambda address: address in exempt, log=Log("test"))
        self.ended = 0

    def come(self, address: str, count: int = 1, *, silent: bool = False) -> list[Place]:
        places = []
        for _ in range(count):
            if place := self.of.acquire(address, self.end):
                places.append(place)
                if not silent:
                    place.mark_active()
        return places

    def end(self) -> None:
        self.ended += 1


def crowded(places: list[Place]) -> int:
    return sum(place.crowded for place in places)


def test_one_address_leaves_as_many_places_as_it_takes() -> None:
    crowd = Crowd(100)
    assert [crowded(crowd.come("192.0.2.1", count)) for count in (50, 1)] == [0, 1]
    assert [crowded(crowd.come("192.0.2.2", count)) for count in (25, 1)] == [0, 1]
    assert crowded(crowd.come("192.0.2.3")) == 0


def test_a_proxy_has_no_share_and_there_is_a_last_place() -> None:
    crowd = Crowd(100, "192.0.2.1")
    assert [crowded(crowd.come("192.0.2.1", count)) for count in (100, 1)] == [0, 1]


def test_beyond_the_bound_few_are_heard_and_none_takes_all_of_that() -> None:
    crowd = Crowd(1)
    first = crowd.come("192.0.2.1")
    many = crowd.come("192.0.2.1", 100)
    assert (crowded(first), crowded(many), len(many)) == (0, 32, 32)
    assert crowded(crowd.come("192.0.2.9")) == 1
    for place in many:
        place.leave()
        place.leave()
    assert len(crowd.come("192.0.2.1", 100)) == 31
    assert crowd.ended == 0


def test_the_silent_of_an_address_make_room_for_it_and_for_all_where_all_is_taken() -> None:
    crowd = Crowd(8)
    crowd.come("192.0.2.1", 2)
    crowd.come("192.0.2.1", 9, silent=True)
    assert crowd.ended == 7  # it has its half, and the oldest went
    assert crowded(crowd.come("192.0.2.1", 2)) == 0
    assert crowd.ended == 9
    assert crowded(crowd.come("192.0.2.1")) == 1  # all four of its places are in use
    assert crowded(crowd.come("192.0.2.2", 2)) == 0
    assert crowded(crowd.come("192.0.2.3", 1, silent=True)) == 0
    assert crowded(crowd.come("192.0.2.4", 1)) == 0
    assert crowd.ended == 9
    assert crowded(crowd.come("192.0.2.5", 1)) == 0
    assert crowd.ended == 10  # the last silent one
    assert crowded(crowd.come("192.0.2.6", 1)) == 1


@pytest.mark.parametrize(
    ("address", "who"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("not an address", "not an address"),
    ],
)
def test_whose_an_address_is(address: str, who: str) -> None:
    assert sender(address) == who


def test_there_are_no_more_places_than_open_files() -> None:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert most_connections(10) == 10
    assert most_connections(10**9) == max(allowed - 256, 64)
