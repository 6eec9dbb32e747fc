"""`/metrics` for Prometheus: the rows of the last tick, on threads of their own.

The text format 0.0.4 is written here: a client library keeps a value object per sample and costs
each scrape, and each node's memory, several times as much.
Format: Prometheus, "Exposition formats" (docs/instrumenting/exposition_formats.md).
"""

import errno
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

from gpuvigil import metrics
from gpuvigil.errors import ConfigError
from gpuvigil.log import Log

from .rows import Row

log = Log("collector")

_Request = socket.socket | tuple[bytes, socket.socket]  # as `socketserver` has it

_CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
# A scraper keeps its connection between scrapes, which are usually a minute apart at most.
_IDLE_SECONDS = 75.0
# Each has a thread and a descriptor: so many scrapers no node has.
_MOST_CONNECTIONS = 16
_REST_SECONDS = 0.2  # where no descriptor is free for one more
# A request that is longer is not a scraper's.
_LONGEST_LINE = 8192
_MOST_LINES = 100


class Exporter:
    """Shows rows under the catalogue's Prometheus names; what was not measured is absent."""

    def __init__(self) -> None:
        self._rows: tuple[Row, ...] = ()
        self.port: int | None = None

    def show(self, rows: Iterable[Row]) -> None:
        """These rows from now on; safe while they are being served."""
        self._rows = tuple(rows)

    def serve(self, listen: str, port: int) -> None:
        """Answer on `listen`:`port` (0: a free port); ConfigError when that is not to be had."""
        try:
            server = _Server((listen, port), self.text)
        except OSError as error:
            elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
            setting = "collector.metrics_listen" if elsewhere else "collector.metrics_port"
            raise ConfigError(
                f"cannot serve /metrics on {listen}:{port}: {error.strerror}; set {setting}"
            ) from None
        self.port = server.socket.getsockname()[1]
        threading.Thread(target=server.accept_always, name="metrics", daemon=True).start()

    def text(self) -> bytes:
        """What `/metrics` answers now."""
        return exposition(self._rows)


def exposition(rows: Sequence[Row]) -> bytes:
    """The rows as Prometheus text, a family per metric; a metric without a sample is left out."""
    parts: list[str] = []
    for measurement in metrics.EXPORTED:
        tags = measurement.tags
        mine = [
            (row.every, _labels(tags, tuple([row.tags.get(tag, "") for tag in tags])))
            for row in rows
            if row.measurement is measurement
        ]
        for metric in measurement.metrics:
            name, column = metric.prometheus, metric.name
            samples = [
                f"{name}{labels} {value}\n"
                for fields, labels in mine
                if (value := fields.get(column)) is not None
            ]
            if samples:
                parts.append(_head(metric))
                parts += samples
    return "".join(parts).encode()


@cache
def _head(metric: metrics.Metric) -> str:
    kind = "counter" if metric.kind is metrics.Kind.COUNTER else "gauge"
    sentence = metric.sentence.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric.prometheus} {sentence}\n# TYPE {metric.prometheus} {kind}\n"


# More subjects than a node has: an eight-GPU node has 144 NVLinks.
@lru_cache(maxsize=4096)
def _labels(tags: tuple[str, ...], values: tuple[str, ...]) -> str:
    pairs = ",".join(f'{tag}="{_escaped(v)}"' for tag, v in zip(tags, values, strict=True))
    return f"{{{pairs}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class _Server(socketserver.ThreadingTCPServer):
    """One thread per scraper; `http.server` would cost a node a MiB, and a name look-up at start."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], text: Callable[[], bytes]) -> None:
        self.text = text
        self._places = threading.Semaphore(_MOST_CONNECTIONS)
        self._crowded = False
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def accept_always(self) -> None:
        """Unlike `serve_forever`, without a look every half second whether it shall end."""
        while True:
            self.handle_request()

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection; OSError, after a rest, when it cannot be taken."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_REST_SECONDS)
            raise

    def process_request(self, request: _Request, client_address: Any) -> None:
        """Serve one more, or let the newest go: whoever scrapes already goes on."""
        if not self._places.acquire(blocking=False):
            if not self._crowded:
                why = f"there are {_MOST_CONNECTIONS}"
                log.warning("no more connections to /metrics are taken", why=why)
            self._crowded = True
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no room for a thread
            self._places.release()
            raise

    def process_request_thread(self, request: _Request, client_address: Any) -> None:
        """One connection, to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A scraper that hangs up half-way is its own affair."""


class _Handler(socketserver.StreamRequestHandler):
    """Answers GET after GET on one connection, as HTTP/1.1 has it (RFC 9112)."""

    timeout = _IDLE_SECONDS
    # Without it the answer waits for the scraper's delayed acknowledgement of the one before.
    disable_nagle_algorithm = True

    def handle(self) -> None:
        while self._answer():
            pass

    def _answer(self) -> bool:
        """Answer one request; false when the connection is to end."""
        words = self.rfile.readline(_LONGEST_LINE).split()
        lines = 0
        close = False
        while (line := self.rfile.readline(_LONGEST_LINE)) not in {b"\r\n", b"\n", b""}:
            lines += 1
            if lines > _MOST_LINES:
                return False
            name, _, value = line.partition(b":")
            close |= name.lower() == b"connection" and value.strip().lower() == b"close"
        if len(words) != 3 or not line:
            return False
        method, target, version = words
        if method != b"GET":
            self._send(b"405 Method Not Allowed", b"ask with GET\n")
            return False
        if target.partition(b"?")[0] == b"/metrics":
            assert isinstance(self.server, _Server)
            self._send(b"200 OK", self.server.text())
        else:
            self._send(b"404 Not Found", b"gpuvigil's collector answers on /metrics\n")
        return version == b"HTTP/1.1" and not close

    def _send(self, status: bytes, body: bytes) -> None:
        head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
        self.wfile.write(head % (status, _CONTENT_TYPE, len(body)) + body)
