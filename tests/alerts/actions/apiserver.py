"""A small API server that keeps nodes as a Kubernetes API server does: versions, merge patches, who set a field.

After "Kubernetes API Concepts" and "Server-Side Apply" of kubernetes.io/docs/reference/using-api: a change that names
another `metadata.resourceVersion` than the object's is refused with 409; `metadata.managedFields` says who changed a
field last; lists come in pages whose token expires with 410; a right that is missing is 403.
"""

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = 2
_STATUS = {
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", 'nodes is forbidden: User "gpuvigil" cannot {verb} resource "nodes"'),
    404: ("NotFound", "nodes not found"),
    409: (
        "Conflict",
        "Operation cannot be fulfilled on nodes: the object has been modified; please apply your"
        " changes to the latest version and try again",
    ),
    410: ("Expired", "The provided continue parameter is too old"),
    415: ("UnsupportedMediaType", "the body of the request was in an unknown format"),
}


class NodesServer:
    """Nodes by name, at `url`; a context manager."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.forbidden: set[str] = set()  # verbs
        self.expired = False  # what was listed is forgotten before its second page
        self.patches = 0
        self.before_patch: list[tuple[str, Mapping[str, Any], str]] = []  # what others do meanwhile
        self._version = 100
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.answer(self, "GET")

            def do_PATCH(self) -> None:
                server.answer(self, "PATCH")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> "NodesServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def add(self, name: str, gpus: int | None = 8, ready: str = "True") -> None:
        capacity = {"cpu": "64"} if gpus is None else {"cpu": "64", "nvidia.com/gpu": str(gpus)}
        self.nodes[name] = {
            "kind": "Node",
            "metadata": {"name": name, "resourceVersion": self._next(), "managedFields": []},
            "spec": {"podCIDR": "10.0.0.0/24"},
            "status": {"capacity": capacity, "conditions": [{"type": "Ready", "status": ready}]},
        }

    def change(self, name: str, change: Mapping[str, Any], manager: str) -> None:
        """As whoever else has a client of the cluster does."""
        with self._lock:
            node = self.nodes[name]
            before = dict(node["spec"])
            _merge(node, change)
            for field in {*before, *node["spec"]}:
                if before.get(field) != node["spec"].get(field):
                    _own(node["metadata"], f"f:{field}", manager if field in node["spec"] else None)
            node["metadata"]["resourceVersion"] = self._next()

    def answer(self, request: BaseHTTPRequestHandler, method: str) -> None:
        parts = urlsplit(request.path)
        query = {key: found[0] for key, found in parse_qs(parts.query).items()}
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        name = parts.path.removeprefix("/api/v1/nodes").strip("/")
        verb = "patch" if method == "PATCH" else "get" if name else "list"
        if verb in self.forbidden:
            return _refuse(request, 403, verb)
        if name and name not in self.nodes:
            return _refuse(request, 404, verb)
        if verb == "list":
            return self._list(request, query)
        if verb == "get":
            return _send(request, 200, self.nodes[name])
        return self._patch(request, name, body, query)

    def _list(self, request: BaseHTTPRequestHandler, query: Mapping[str, str]) -> None:
        first = int(query.get("continue", "0"))
        if first and self.expired:
            return _refuse(request, 410, "list")
        size, every = min(PAGE, int(query["limit"])), list(self.nodes.values())
        metadata = {"resourceVersion": str(self._version)}
        if first + size < len(every):
            metadata["continue"] = str(first + size)
        page = {"kind": "NodeList", "metadata": metadata, "items": every[first : first + size]}
        return _send(request, 200, page)

    def _patch(
        self, request: BaseHTTPRequestHandler, name: str, body: bytes, query: Mapping[str, str]
    ) -> None:
        self.patches += 1
        for meanwhile in self.before_patch:
            self.change(*meanwhile)
        self.before_patch.clear()
        if request.headers["Content-Type"] != "application/merge-patch+json":
            return _refuse(request, 415, "patch")
        change = json.loads(body)
        wanted = change.get("metadata", {}).pop("resourceVersion", None)
        if wanted not in {None, self.nodes[name]["metadata"]["resourceVersion"]}:
            return _refuse(request, 409, "patch")
        self.change(name, change, query.get("fieldManager", "unknown"))
        return _send(request, 200, self.nodes[name])

    def _next(self) -> str:
        self._version += 1
        return str(self._version)


def _merge(into: dict[str, Any], change: Mapping[str, Any]) -> None:
    """RFC 7396."""
    for key, value in change.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, Mapping):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def _own(metadata: dict[str, Any], field: str, manager: str | None) -> None:
    """`manager` alone has set the field of the spec; None: it is gone."""
    entries = {one["manager"]: one for one in metadata["managedFields"]}
    for one in entries.values():
        one["fieldsV1"]["f:spec"].pop(field, None)
    if manager is not None:
        entry = {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {}}}
        entries.setdefault(manager, entry)["fieldsV1"]["f:spec"][field] = {}
    metadata["managedFields"] = list(entries.values())


def _refuse(request: BaseHTTPRequestHandler, code: int, verb: str) -> None:
    reason, message = _STATUS[code]
    said = message.replace("{verb}", verb)
    _send(request, code, {"kind": "Status", "code": code, "reason": reason, "message": said})


def _send(request: BaseHTTPRequestHandler, status: int, body: Any) -> None:
    content = json.dumps(body).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)
