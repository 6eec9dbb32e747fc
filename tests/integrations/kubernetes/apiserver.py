"""A real HTTP server that plays recorded watch streams as an API server would, cuts and all."""

import json
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

RECORDED = Path(__file__).parents[2] / "fixtures/kubernetes"
PAGE = 2  # objects of one page of a list, however many are asked for
GONE = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old resource version"}  # fmt: skip


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]


@dataclass(frozen=True)
class Cut:
    """How one watch ends, after so many events; while it is away `missed` more happen."""

    after: int
    how: str  # end, drop, middle, gone, expired
    missed: int = 0


class History:
    """The events of one path; `now` of them have happened."""

    def __init__(self, events: Sequence[Mapping[str, Any]], now: int = 0) -> None:
        self.events = events
        self.now = now
        self.oldest = 0  # events before are forgotten: nobody can go on from there
        self.cuts: list[Cut] = []
        self.settled = False  # a watch has begun that nobody cuts
        self.lists = 0

    def version(self, count: int) -> str:
        return (
            "1"
            if count == 0
            else str(self.events[count - 1]["object"]["metadata"]["resourceVersion"])
        )

    def forget(self, reached: int, cut: "Cut") -> None:
        """What happens while a watch is away, and what the server no longer knows of then."""
        self.now = min(max(self.now, reached) + cut.missed, len(self.events))
        if cut.how in {"gone", "expired"}:
            self.oldest = self.now

    def state(self, count: int) -> dict[str, Mapping[str, Any]]:
        """The objects after so many events: the slow and obvious twin of a mirror."""
        found: dict[str, Mapping[str, Any]] = {}
        for event in self.events[:count]:
            if event["type"] != "BOOKMARK":
                found[event["object"]["metadata"]["uid"]] = event["object"]
            if event["type"] == "DELETED":
                del found[event["object"]["metadata"]["uid"]]
        return found


class FakeApiServer:
    """Serves histories by path, and single objects; `token` is asked for where it is set."""

    def __init__(self) -> None:
        self.paths: dict[str, History] = {}
        self.objects: dict[str, Any] = {}
        self.token: str | None = None
        self.forbidden: set[str] = set()
        self.broken: set[str] = set()
        self.asked: list[str] = []
        self.failing = False
        self.forgetful = False  # no list is ever read to its end, and no version is known
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        query = {key: found[0] for key, found in parse_qs(parts.query).items()}
        self.asked.append(parts.path)
        if self.failing or self.forgetful:
            away = {"kind": "Status", "code": 503, "message": "starting"}
            _send(request, *((503, away) if self.failing else (410, GONE)))
        elif self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            _send(request, 401, {"kind": "Status", "code": 401, "message": "Unauthorized"})
        elif parts.path in self.forbidden:
            _send(request, 403, {"kind": "Status", "code": 403, "message": "pods is forbidden"})
        elif parts.path in self.broken:
            _send(request, 500, {"kind": "Status", "code": 500, "message": "webhook failed"})
        elif parts.path in self.objects:
            _send(request, 200, self.objects[parts.path])
        elif parts.path not in self.paths:
            _send(request, 404, {"kind": "Status", "code": 404, "message": "not found"})
        elif query.get("watch") == "true":
            _watch(request, self.paths[parts.path], query["resourceVersion"])
        else:
            _list(request, self.paths[parts.path], query)


def _send(request: BaseHTTPRequestHandler, status: int, body: Any) -> None:
    content = json.dumps(body).encode()
    request.send_response(status)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)


def _list(request: BaseHTTPRequestHandler, history: History, query: Mapping[str, str]) -> None:
    first, count = map(int, query.get("continue", f"0 {history.now}").split())
    history.lists += first == 0
    objects = list(history.state(count).values())
    size = min(PAGE, int(query["limit"]))
    metadata = {"resourceVersion": history.version(count)}
    if first + size < len(objects):
        metadata["continue"] = f"{first + size} {count}"
    page = objects[first : first + size]
    _send(request, 200, {"kind": "List", "metadata": metadata, "items": page})


def _watch(request: BaseHTTPRequestHandler, history: History, version: str) -> None:
    """Tell what happened after the version, and end as the next cut says."""
    versions = [history.version(count) for count in range(len(history.events) + 1)]
    at = versions.index(version)
    history.settled = not history.cuts
    cut = history.cuts.pop(0) if history.cuts else Cut(len(history.events), "end")
    told = history.events[at : at + cut.after]
    if at < history.oldest or (cut.how == "gone" and not told):
        history.forget(at, cut)
        _send(request, 410, GONE)
        return
    request.send_response(200)
    request.send_header("Transfer-Encoding", "chunked")
    request.end_headers()
    for event in told:
        _chunk(request, json.dumps(event).encode() + b"\n")
    history.forget(at + len(told), cut)
    if cut.how in {"gone", "expired"}:
        _chunk(request, json.dumps({"type": "ERROR", "object": GONE}).encode() + b"\n")
    if cut.how == "middle" and at + len(told) < len(history.events):
        line = json.dumps(history.events[at + len(told)]).encode()
        _chunk(request, line[: len(line) // 2])
    if cut.how in {"drop", "middle"}:
        request.wfile.flush()
        request.connection.shutdown(socket.SHUT_RDWR)
        request.close_connection = True
    else:
        _chunk(request, b"")


def _chunk(request: BaseHTTPRequestHandler, content: bytes) -> None:
    request.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
