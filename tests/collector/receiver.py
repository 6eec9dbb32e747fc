"""A hub-like HTTP server on a free port that keeps what it gets and answers as a test tells it."""

import gzip
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from gpuvigil.lineprotocol import Line, parse


@dataclass(frozen=True, kw_only=True)
class Request:
    path: str
    headers: Mapping[str, str]
    content: bytes
    at: float  # monotonic

    @property
    def is_records(self) -> bool:
        return self.path == "/api/v1/records"

    @property
    def identity(self) -> tuple[str | None, ...]:
        names = ("Node", "Boot", "Lane", "Sequence")
        return tuple(self.headers.get(f"Gpuvigil-{name}") for name in names)


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] | None = None


# The connection is reset, as by a hub that dies.
RESET = Reply(status=-1)

Behaviour = Callable[[Request], Reply | None]


def as_a_hub(request: Request) -> Reply:
    """Commit everything."""
    return Reply(status=200, body=b'{"sequence": 1}') if request.is_records else Reply(status=204)


def refusing(status: int, message: str = "no", **headers: str) -> Behaviour:
    body = json.dumps({"code": "x", "message": message}).encode()
    return lambda _: Reply(status=status, body=body, headers=headers)


class Receiver:
    """`behave` decides each answer (None: no answer, the connection ends); a context manager."""

    def __init__(self) -> None:
        self.behave: Behaviour = as_a_hub
        self.attempts: list[Request] = []
        self.accepted: list[Request] = []
        self.inventory: dict[str, Any] | None = None  # what it knows of the node that asks
        self.held: list[dict[str, Any]] = []  # and who it says holds its GPUs
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Receiver":
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def tell(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a node that asks for its inventory."""
        self.asked.append(handler.path)
        asked = Request(path=handler.path, headers={}, content=b"", at=time.monotonic())
        held = self.held if "held=1" in handler.path else []
        known = [*([self.inventory] if self.inventory else []), *held]
        content = json.dumps({"records": known}).encode()
        reply = self.behave(asked)
        if reply is None:
            handler.close_connection = True
            return
        handler.send_response(200 if reply.status == 204 else reply.status)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a node that sends."""
        content = handler.rfile.read(int(handler.headers["Content-Length"]))
        if handler.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        request = Request(
            path=handler.path,
            headers=dict(handler.headers),
            content=content,
            at=time.monotonic(),
        )
        self.attempts.append(request)
        reply = self.behave(request)
        if reply is None or reply is RESET:
            handler.close_connection = True
            if reply is RESET:
                linger = struct.pack("ii", 1, 0)
                handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return
        if reply.status in {200, 204} and reply == as_a_hub(request):
            self.accepted.append(request)
        handler.send_response(reply.status)
        for name, value in (reply.headers or {}).items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        handler.wfile.write(reply.body)

    def lines(self, measurement: str) -> list[Line]:
        """Every line that was accepted, in the order of arrival."""
        found = [
            line
            for request in list(self.accepted)
            if not request.is_records
            for line in parse(request.content).lines
        ]
        return [line for line in found if line.measurement == measurement]

    def records(self, kind: str) -> list[dict[str, Any]]:
        found = [
            json.loads(line)
            for request in list(self.accepted)
            if request.is_records
            for line in request.content.splitlines()
        ]
        return [record for record in found if record["kind"] == kind]

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        return [r for r in self.records("event") if r["body"]["event"] in kinds]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Without it a small answer waits for the sender's delayed acknowledgement.
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                receiver.tell(self)

            def do_POST(self) -> None:
                receiver.take(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


def field(line: Line, name: str) -> Any:
    return dict(line.fields).get(name)


def tag(line: Line, name: str) -> str | None:
    return dict(line.tags).get(name)


def newest(lines: Iterable[Line], name: str, value: str) -> Line | None:
    """The line with the latest time among those with a tag."""
    found = [line for line in lines if tag(line, name) == value]
    return max(found, key=lambda line: line.at_ns or 0, default=None)
