"""Authentication: a request needs a token whose scope allows the call, except on open paths."""

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from gpuvigil.hub_client.authority import PATH as AUTHORITY
from gpuvigil.hub_client.joining import PATH as JOIN_PATH

from ..http.bearer import Bearer, Scope
from ..http.responses import Receive, failure
from .tokens import Tokens

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Call = tuple[str, str]

WRITE: Call = ("POST", "/api/v2/write")
JOIN: Call = ("POST", JOIN_PATH)

# Paths that need no token: liveness and readiness, metrics, and the CA certificate of the hub.
OPEN_PATHS = frozenset({"/ping", "/health", "/healthz", "/readyz", "/metrics", AUTHORITY})

_RECORDS: Call = ("POST", "/api/v1/records")
# Calls open to a collector's and a node's token; the records endpoint checks the kinds itself. A
# node that has lost its local state asks for its inventory.
_COLLECTOR_CALLS: Collection[Call] = frozenset({WRITE, _RECORDS, ("GET", "/api/v1/inventory")})
# Queries are sent by POST because of their length; they change nothing.
_READER_CALLS: Collection[Call] = frozenset(
    {
        *(("GET", f"/api/v1/{name}") for name in ("records", "inventory", "changes", "status")),
        *(("POST", f"/api/v1/telemetry/{verb}") for verb in ("window", "series", "latest")),
    }
)
# The records endpoint checks the kinds here, too.
_SCHEDULER_CALLS: Collection[Call] = frozenset(
    {_RECORDS, ("GET", "/api/v1/records"), ("GET", "/api/v1/changes")}
)
_ALLOWED: dict[Scope, tuple[Collection[Call], str]] = {
    Scope.COLLECTOR: (
        _COLLECTOR_CALLS,
        "a collector's token may only write, and ask for one inventory",
    ),
    Scope.NODE: (_COLLECTOR_CALLS, "a node's token may only write, and ask for its inventory"),
    Scope.READER: (_READER_CALLS, "a reader's token may only read"),
    Scope.VIEWER: (_READER_CALLS, "a viewer's token may only read"),
    Scope.TEAM: (_READER_CALLS, "a team's token may only read"),
    Scope.OWN: (_READER_CALLS, "a person's token may only read"),
    Scope.SCHEDULER: (
        _SCHEDULER_CALLS,
        "a scheduler's token may only write and read what a scheduler says",
    ),
    Scope.JOIN: (frozenset({JOIN}), "a join token may only be exchanged for a node's token"),
}


def refusal(bearer: Scope, call: Call) -> str | None:
    """Return why a scope may not make this call, or None. One without an entry may make none."""
    if bearer is Scope.SERVICE:
        return None
    calls, reason = _ALLOWED.get(bearer, (frozenset(), "this token opens nothing"))
    return None if call in calls else reason


class Authentication:
    """ASGI middleware before all endpoints; it calls the write endpoint without a router."""

    def __init__(self, app: App, write: App, tokens: Tokens) -> None:
        """`write` answers `POST /api/v2/write`: routing a body would cost as much as all the rest."""
        self._app = app
        self._write = write
        self._tokens = tokens

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        call = (scope["method"], scope["path"])
        if scope["path"] not in OPEN_PATHS:
            bearer = self._bearer(scope)
            if bearer is None:
                answer = failure(401, "unauthorized access: the token is missing or wrong")
                await answer(scope, receive, send)
                return
            reason = refusal(bearer.scope, call)
            if reason is not None:
                await failure(403, reason)(scope, receive, send)
                return
            scope.setdefault("state", {})["bearer"] = bearer
        await (self._write if call == WRITE else self._app)(scope, receive, send)

    def _bearer(self, scope: Message) -> Bearer | None:
        for name, value in scope["headers"]:
            if name == b"authorization":
                return self._tokens.bearer(value)
        return None
