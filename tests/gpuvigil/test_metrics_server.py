"""What a stranger may take of a `/metrics`, be it the collector's or that of alerts."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from gpuvigil.log import Log
from gpuvigil.web.metrics_server import MetricsServer

pytestmark = pytest.mark.server

HEAD_SECONDS = 0.6


@pytest.fixture
def port() -> Iterator[int]:
    with MetricsServer(("127.0.0.1", 0), lambda: b"up 1\n", Log("test"), HEAD_SECONDS) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.socket.getsockname()[1]
        server.shutdown()


def said(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
        with contextlib.suppress(ConnectionError):
            one.sendall(request)
        return first(one)


def first(one: socket.socket) -> bytes:
    with contextlib.suppress(ConnectionError):
        return one.recv(4096)
    return b""


def request(lines: int, size: int) -> bytes:
    """A request with so many headers, all together of about so many bytes."""
    line = b"a: " + b"x" * (size // lines - 5) + b"\r\n"
    return b"GET /metrics HTTP/1.1\r\n" + line * lines + b"\r\n"


@pytest.mark.parametrize(
    ("lines", "size", "answered"),
    [
        (100, 5_000, True),
        (101, 5_000, False),
        (10, 60_000, True),
        (10, 70_000, False),
        (1, 8_000, True),
        (1, 9_000, False),
    ],
)
def test_a_request_has_so_many_lines_and_bytes(
    port: int, lines: int, size: int, answered: bool
) -> None:
    assert said(port, request(lines, size)).startswith(b"HTTP/1.1 200") == answered


def test_a_request_that_comes_byte_by_byte_ends_in_its_time(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as drip:
        started = time.monotonic()
        drip.sendall(b"GET /metrics HTTP/1.1\r\na: ")
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - started < 5:
                drip.sendall(b"x")
                time.sleep(0.02)
        assert 0.8 * HEAD_SECONDS < time.monotonic() - started < 3


def test_a_request_that_ends_just_in_time_is_answered_and_so_is_one_after_a_rest(
    port: int,
) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
        for _ in range(2):
            one.sendall(b"GET /metrics HTTP/1.1\r\n")
            time.sleep(HEAD_SECONDS / 2)
            one.sendall(b"\r\n")
            assert first(one).startswith(b"HTTP/1.1 200")
            time.sleep(1.5 * HEAD_SECONDS)
