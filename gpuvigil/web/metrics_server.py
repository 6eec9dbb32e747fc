"""`/metrics` for Prometheus, with a thread per scraper.

`http.server` would cost a node a MiB of memory, and a name look-up at start.
"""

import gzip
import io
import re
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..log import Log

_Request = socket.socket | tuple[bytes, socket.socket]  # as `socketserver` has it

_CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
# A scraper keeps its connection between scrapes, which are usually a minute apart at most.
_IDLE_SECONDS = 75.0
# From a request's first byte to the end of its headers, and for sending the answer.
_HEAD_SECONDS = 10.0
_SEND_SECONDS = 30.0
# Each has a thread and a descriptor. When all are in use, an idle one is closed for a new one.
_MOST_CONNECTIONS = 16
_ROOM_SECONDS = 1.0  # for a closed connection to end
_REST_SECONDS = 0.2  # when no descriptor is free for one more
# A longer request is not a scraper's.
_LONGEST_LINE = 8192
_MOST_BYTES = 64 * 1024
_MOST_LINES = 100


class MetricsServer(socketserver.ThreadingTCPServer):
    """Answers `/metrics` with `text()`, in Prometheus's text format; OSError where it cannot listen."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        address: tuple[str, int],
        text: Callable[[], bytes],
        log: Log,
        head_seconds: float = _HEAD_SECONDS,
    ) -> None:
        self.text = text
        self.head_seconds = head_seconds
        self._log = log
        self._places = threading.Semaphore(_MOST_CONNECTIONS)
        self._crowded = False
        self._idle_lock = threading.Lock()
        # Longest idle first; True for one that has asked before, as a scraper between two scrapes.
        self._idle: dict[socket.socket, bool] = {}
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def accept_always(self) -> None:
        """Serve for ever, without `serve_forever`'s check for shutdown every half second."""
        while True:
            self.handle_request()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Return the next connection; raise OSError, after a rest, when it cannot be accepted."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_REST_SECONDS)
            raise

    def process_request(self, request: _Request, client_address: Any) -> None:
        """Serve one more connection; when all slots are taken, close an idle one for it.

        Connections that never asked are closed first, then those idle longest. If every connection is
        being answered, the newest is closed.
        """
        taken = self._places.acquire(blocking=False)
        if not taken and self._close_idle():
            taken = self._places.acquire(timeout=_ROOM_SECONDS)
        if not taken:
            if not self._crowded:
                why = f"there are {_MOST_CONNECTIONS}"
                self._log.warning("no more connections to /metrics are taken", why=why)
            self._crowded = True
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no room for a thread
            self._places.release()
            raise

    def _close_idle(self) -> bool:
        """Close one idle connection; return False when there is none."""
        with self._idle_lock:
            idle = min(self._idle, key=lambda it: self._idle[it], default=None)
            if idle is None:
                return False
            del self._idle[idle]
            with suppress(OSError):  # it has hung up in the meantime
                idle.shutdown(socket.SHUT_RDWR)
            return True

    @contextmanager
    def idle(self, connection: socket.socket, *, asked: bool) -> Iterator[None]:
        """Mark `connection` as idle in the `with` block; `asked`: it has sent a request before."""
        with self._idle_lock:
            self._idle[connection] = asked
        try:
            yield
        finally:
            with self._idle_lock:
                self._idle.pop(connection, None)

    def process_request_thread(self, request: _Request, client_address: Any) -> None:
        """Serve one connection to its end, then free its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error: a scraper that hangs up half-way is its own affair."""


class _Handler(socketserver.StreamRequestHandler):
    """Answers GET after GET on one connection, as in HTTP/1.1 (RFC 9112)."""

    # Otherwise the answer waits for the scraper's delayed acknowledgement of the previous one.
    disable_nagle_algorithm = True
    server: MetricsServer

    def handle(self) -> None:
        self._asked = False
        while self._answer():
            self._asked = True

    def _answer(self) -> bool:
        """Answer one request; return False when the connection is to end."""
        lines = self._head()
        if not lines:
            return False
        words = lines[0].split()
        headers = [line.lower().partition(b":") for line in lines[1:]]
        close = any(name == b"connection" and it.strip() == b"close" for name, _, it in headers)
        if len(words) != 3:
            return False
        method, target, version = words
        if method != b"GET":
            self._send(b"405 Method Not Allowed", b"ask with GET\n")
            return False
        if target.partition(b"?")[0] == b"/metrics":
            self._send(b"200 OK", self.server.text(), zipped=_takes_gzip(headers))
        else:
            self._send(b"404 Not Found", b"/metrics is all there is\n")
        return version == b"HTTP/1.1" and not close

    def _head(self) -> list[bytes]:
        """Return the next request's lines; none when it is too long or does not end."""
        self.connection.settimeout(_IDLE_SECONDS)
        with self.server.idle(self.connection, asked=self._asked):
            self._waiting()
        until = time.monotonic() + self.server.head_seconds
        lines: list[bytes] = []
        size = 0
        while (line := self._line(until)) not in {b"\r\n", b"\n"}:
            size += len(line)
            if not line.endswith(b"\n") or len(lines) > _MOST_LINES or size > _MOST_BYTES:
                return []
            lines.append(line)
        return lines

    def _line(self, until: float) -> bytes:
        """Return the next line, up to its limit; raise TimeoutError at the monotonic time `until`."""
        line = b""
        while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.connection.settimeout(left)
            waiting = self._waiting()
            if not waiting:
                break
            size = waiting.find(b"\n") + 1 or len(waiting)
            line += self.rfile.read(min(size, _LONGEST_LINE - len(line)))
        return line

    def _waiting(self) -> bytes:
        """Return what has arrived, at least one byte unless the scraper has hung up."""
        assert isinstance(self.rfile, io.BufferedReader)
        return self.rfile.peek(1)

    def _send(self, status: bytes, body: bytes, *, zipped: bool = False) -> None:
        self.connection.settimeout(_SEND_SECONDS)
        more = b""
        if zipped:
            body, more = gzip.compress(body, 1), b"Content-Encoding: gzip\r\n"
        head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n"
        self.wfile.write(head % (status, _CONTENT_TYPE, more, len(body)) + body)


def _takes_gzip(headers: Iterable[tuple[bytes, bytes, bytes]]) -> bool:
    """Return whether a request accepts gzip (RFC 9110, 12.5.3); a weight of 0 is a refusal."""
    for name, _, value in headers:
        for coding in value.split(b",") if name.strip() == b"accept-encoding" else ():
            word, _, weight = coding.partition(b";")
            if word.strip() == b"gzip":
                return not re.fullmatch(rb"q=0(\.0*)?", weight.strip().replace(b" ", b""))
    return False
