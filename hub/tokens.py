"""Who may do what: the two tokens, in front of every path but the open ones."""

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from enum import Enum
from pathlib import Path
from typing import Any

from gpuvigil.config import HubSettings, read_secret
from gpuvigil.errors import ConfigError
from gpuvigil.log import Log

from .answers import failure

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_LOG = Log("hub")

# Answered to everybody: whether the hub lives, and how it fares in numbers.
OPEN_PATHS = frozenset({"/ping", "/health", "/healthz", "/readyz", "/metrics"})

# All that a collector's token opens; `records` looks at the kinds itself. A node that has lost its
# own memory asks what it had.
_COLLECTOR_CALLS = frozenset(
    {
        ("POST", "/api/v2/write"),
        ("POST", "/api/v1/records"),
        ("GET", "/api/v1/inventory"),
    }
)


class Scope(Enum):
    """What a token may do."""

    COLLECTOR = "collector"
    SERVICE = "service"


class Secret:
    """The token of a file, read again when the file changes."""

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        # First: a file that is replaced while it is read is read again.
        self._stamp = self._state()
        self._token = read_secret(path, what)

    def is_same(self, other: "Secret") -> bool:
        return self._token == other._token

    def matches(self, given: bytes) -> bool:
        """Whether `given` is the token, in a time that says nothing about it."""
        stamp = self._state()
        if stamp != self._stamp:
            # A file in the middle of a rotation: the old token holds until a new one is there.
            self._stamp = stamp
            try:
                self._token = read_secret(self._path, self._what)
            except ConfigError as error:
                _LOG.warning("token kept", reason=str(error))
        return hmac.compare_digest(self._token.encode(), given)

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


class Tokens:
    """The tokens of the configuration; ConfigError when one is missing, or both are the same."""

    def __init__(self, settings: HubSettings) -> None:
        self._secrets = [
            (scope, Secret(_given(path, scope), f"{scope.value} token"))
            for scope, path in (
                (Scope.SERVICE, settings.service_token_file),
                (Scope.COLLECTOR, settings.collector_token_file),
            )
        ]

        (_, service), (_, collector) = self._secrets
        if service.is_same(collector):
            raise ConfigError(
                "hub.service_token_file and hub.collector_token_file hold the same token, with"
                " which every collector may do everything; put another one into either"
            )

    def scope(self, authorization: str) -> Scope | None:
        """What the bearer of an `Authorization` header may do; None for a stranger."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() not in {"token", "bearer"}:
            return None
        given = token.strip().encode("latin-1", "replace")
        # Each is compared, so that the time does not tell which one it was.
        found = [scope for scope, secret in self._secrets if secret.matches(given)]
        return found[0] if found else None


class Gate:
    """ASGI middleware: nobody without a token comes in, and a collector's token only writes."""

    def __init__(self, app: App, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        call = (scope["method"], scope["path"])
        if scope["path"] not in OPEN_PATHS:
            headers = dict(scope["headers"])
            found = self._tokens.scope(headers.get(b"authorization", b"").decode("latin-1"))
            if found is None:
                answer = failure(401, "unauthorized access: the token is missing or wrong")
                await answer(scope, receive, send)
                return
            if found is Scope.COLLECTOR and call not in _COLLECTOR_CALLS:
                answer = failure(
                    403, "a collector's token may only write, and ask for one inventory"
                )
                await answer(scope, receive, send)
                return
            scope.setdefault("state", {})["token"] = found
        await self._app(scope, receive, send)


def _given(path: Path | None, scope: Scope) -> Path:
    if path is None:
        key = f"{scope.value}_token_file"
        raise ConfigError(
            f"hub.{key} is not set: put a long random word into a file and name it there, or in"
            f" GPUVIGIL_HUB_{key.upper()}"
        )
    return path
