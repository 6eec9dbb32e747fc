"""A real HTTP receiver for webhooks, which answers as instructed and remembers what it got."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request: a status, or none at all (`reset`, `silent`)."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    reset: bool = False
    silent: bool = False
    # Seconds to hold the request before answering.
    after_seconds: float = 0.0


OK = Answer()
RESET = Answer(reset=True)
SILENT = Answer(silent=True)


def too_many(retry_after_seconds: int) -> Answer:
    """Return a 429 answer that says when to come back."""
    return Answer(429, {"Retry-After": str(retry_after_seconds)})


@dataclass(frozen=True, slots=True)
class Received:
    """One request: when it came (by both clocks), its content, and how it was answered."""

    at: datetime
    monotonic: float
    path: str
    headers: Mapping[str, str]
    body: bytes
    answer: Answer

    @property
    def payload(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.body)
        return value

    @property
    def accepted(self) -> bool:
        silent = self.answer.reset or self.answer.silent
        return not silent and 200 <= self.answer.status < 300


class Receiver:
    """A receiver that listens on a free loopback port while the `with` block runs.

    `answer(a, b, c)` answers the next requests with a, b and then c for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._script: list[Answer] = [OK]
        self._received: list[Received] = []
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.receiver = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="receiver", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def answer(self, *answers: Answer) -> None:
        """Answer the next requests with these in turn; the last one stays."""
        with self._lock:
            self._script = list(answers)

    def received(self) -> list[Received]:
        """Return every request so far, in the order of arrival."""
        with self._lock:
            return list(self._received)

    def forget(self) -> None:
        """Forget all requests received so far."""
        with self._lock:
            self._received.clear()

    def accepted(self) -> list[Received]:
        """Return the requests that were answered 2xx."""
        return [one for one in self.received() if one.accepted]

    def wait(
        self, enough: Callable[[list[Received]], bool], timeout_seconds: float = 15.0
    ) -> list[Received]:
        """Return everything received once `enough` is true of it; raise AssertionError after `timeout_seconds`."""
        with self._lock:
            if not self._lock.wait_for(lambda: enough(list(self._received)), timeout_seconds):
                said = [(one.answer.status, one.body[:80]) for one in self._received]
                raise AssertionError(f"not received within {timeout_seconds} s; so far: {said}")
            return list(self._received)

    def wait_for(self, count: int, timeout_seconds: float = 15.0) -> list[Received]:
        """Return everything received once there are `count` requests."""
        return self.wait(lambda got: len(got) >= count, timeout_seconds)

    def wait_for_accepted(self, count: int, timeout_seconds: float = 15.0) -> list[Received]:
        """Return the accepted requests once there are `count` of them."""
        got = self.wait(lambda all_: sum(one.accepted for one in all_) >= count, timeout_seconds)
        return [one for one in got if one.accepted]

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Remember a request and return how to answer it; called by the handler's thread."""
        with self._lock:
            answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
            now = datetime.now(timezone.utc)
            self._received.append(Received(now, time.monotonic(), path, headers, body, answer))
            self._lock.notify_all()
            return answer

    def linger(self, seconds: float | None) -> None:
        """Wait until the receiver closes, at most `seconds`."""
        self._closing.wait(seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that hangs up: that is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length)
        answer = self.server.receiver.take(self.path, dict(self.headers.items()), body)
        if answer.silent:
            self.server.receiver.linger(None)
        if answer.reset or answer.silent:
            self._reset()
            return
        if answer.after_seconds:
            self.server.receiver.linger(answer.after_seconds)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def do_PATCH(self) -> None:
        self.do_POST()

    def _reset(self) -> None:
        """Close with RST: lingering for 0 s discards what is unsent."""
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: tests read `received`."""
