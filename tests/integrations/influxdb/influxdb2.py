"""An InfluxDB 2 that answers as its makers document it, and takes nothing that they do not.

InfluxData, "InfluxDB OSS v2 API", POST /api/v2/write: 204; 400 with `code` invalid and the first bad line; 401, 404
for a bucket or an organization that is not there; 413 with `maxLength`; 429 and 503 with Retry-After. A partial write
is 422 with `partial write: ... dropped=N`.
"""

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gpuvigil.lineprotocol import parse

ORGANIZATION, BUCKET, TOKEN = "lab", "gpus", "a-token"
LARGEST_BYTES = 20_000


class InfluxDB2:
    """The server on a free port; `away` answers are given first, as (status, body)."""

    def __init__(self) -> None:
        self.points: dict[tuple[str, tuple[tuple[str, str], ...], int], dict[str, Any]] = {}
        self.away: list[tuple[int, dict[str, object]]] = []
        self.asked = 0
        self.refused_faults: set[str] = set()  # a field of these conflicts with what is there

    def __enter__(self) -> "InfluxDB2":
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                status, said = outer.answer(self.path, dict(self.headers), self.rfile.read(length))
                self.send_response(status)
                body = json.dumps(said).encode() if said else b""
                self.send_header("Content-Type", "application/json; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(
        self, path: str, headers: dict[str, str], content: bytes
    ) -> tuple[int, dict[str, object]]:
        self.asked += 1
        if self.away:
            return self.away.pop(0)
        place, question = urlsplit(path), parse_qs(urlsplit(path).query)
        assert place.path == "/api/v2/write"
        if headers.get("Authorization") != f"Token {TOKEN}":
            return 401, {"code": "unauthorized", "message": "unauthorized access"}
        if (question["org"], question["bucket"]) != ([ORGANIZATION], [BUCKET]):
            return 404, {"code": "not found", "message": f"bucket {question['bucket']} not found"}
        assert question["precision"] == ["ns"]
        if headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        if len(content) > LARGEST_BYTES:
            return 413, {
                "code": "request too large",
                "message": "too large",
                "maxLength": LARGEST_BYTES,
            }
        return self._take(content)

    def _take(self, content: bytes) -> tuple[int, dict[str, object]]:
        parsed = parse(content)
        if parsed.refused:
            return 400, {"code": "invalid", "message": f"unable to parse '{content[:40]!r}': bad"}
        dropped = 0
        for line in parsed.lines:
            if dict(line.tags).get("fault") in self.refused_faults:
                dropped += 1
                continue
            assert line.at_ns is not None
            point = self.points.setdefault((line.measurement, line.tags, line.at_ns), {})
            point.update(line.fields)
        if dropped:
            said = f"failure writing points to database: partial write: field type conflict dropped={dropped}"
            return 422, {"code": "unprocessable entity", "message": said}
        return 204, {}
