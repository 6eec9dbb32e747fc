"""The door in front of the pages: without a session nobody gets in, over HTTP or WebSocket.

A session is a signed cookie. The sign-in desk (`sign_in`) gives it for name and password, through an
identity provider, for the access token, or for a one-time token in the address, which is used up and
removed from the address at once. People whom a trusted proxy names need no session.
"""

import argparse
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from gpuvigil.clock import Clock, SystemClock
from gpuvigil.config import Config
from gpuvigil.config.startup import parser, run_command
from gpuvigil.errors import ConfigError
from gpuvigil.log import Log
from gpuvigil.private_files import as_owner_of
from gpuvigil.web.signed_links import PATH

from .keys import Keys, are_made
from .origins import origin_of
from .replies import App, Message, Receive, Send, answer, sign_in_page, with_headers
from .requests import OwnAddress, cookies, header, with_session, without_session_header
from .sessions import PROXY, Sessions
from .sign_in import ELSEWHERE, PATHS, REFUSED, SignInHandler, SignInWays

# The liveness check, answered without a session.
OPEN_PATHS = frozenset({"/healthz"})
# The links of messages are signed and say what their bearer may do; no paths lie below them.
SIGNED_PATH = re.compile(re.escape(PATH) + "[^/]+")
# Paths that belong to pages but are not pages: they are refused with one line, not with a page.
PARTS = ("/_stcore/", "/static/", "/media/", "/component/", "/api/")
_ANSWERS_SECONDS = 2.0
_ONLY_LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})
_TELL_AGAIN_SECONDS = 60.0
_LOG = Log("dashboard")

FIXED_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class AuthMiddleware:
    """ASGI middleware that lets signed-in people through and puts safety headers on every answer."""

    def __init__(  # noqa: PLR0913 - the app behind it, and who may sign in
        self,
        app: App,
        *,
        keys: Keys,
        clock: Clock,
        policy: str,
        signed: bool = False,
        public_url: str = "",
        ways: SignInWays = SignInWays(),  # noqa: B008 - it is frozen
    ) -> None:
        """With `signed` there is a key for the links of messages, which then need no session.

        `public_url` is the address that browsers use if a proxy stands in front.
        """
        self._app = app
        self._signed = signed
        self._clock = clock
        self._ways = ways
        self._sessions = Sessions(keys, ways.accounts, ways.groups)
        self._place = OwnAddress(origin_of(public_url))
        self._desk = SignInHandler(keys, self._sessions, clock, self._place, ways)
        self._told_at = -_TELL_AGAIN_SECONDS
        self._headers = {**FIXED_HEADERS, "content-security-policy": policy}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        scope = without_session_header(scope)
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, with_headers(send, self._headers))
        else:
            await self._app(scope, receive, send)

    async def _websocket(self, scope: Message, receive: Receive, send: Send) -> None:
        session = self._session(scope)
        if session and self._may_stay_open(scope):
            await self._app(with_session(scope, session), receive, send)
            return
        await receive()
        # Closing before accepting makes the server answer the upgrade with 403.
        await send({"type": "websocket.close", "code": 1008, "reason": "sign in first"})

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        rest, token = _without_token(scope)
        if path in OPEN_PATHS or self._is_open_link(path):
            await self._app(scope, receive, send)
        elif path in PATHS:
            await self._desk.answer(scope, receive, send, self._session(scope))
        elif token is not None and method == "GET":
            await self._desk.open(scope, send, rest, token, known=bool(self._session(scope)))
        elif session := self._session(scope):
            await self._known(with_session(scope, session), receive, send)
        elif method in {"GET", "HEAD"} and not path.startswith(PARTS):
            await sign_in_page(send, 401, "", rest, offered=self._desk.offered)
        else:
            await answer(send, 401, b"sign in first\n")

    async def _known(self, scope: Message, receive: Receive, send: Send) -> None:
        # A message's page sends no referrer, so no origin; other sites do not know its address.
        is_link = self._is_link(scope["path"])
        if scope["method"] in _ONLY_LOOKS or is_link or self._place.is_ours(scope):
            await self._app(scope, receive, send)
        else:
            await answer(send, 403, REFUSED)

    def _is_open_link(self, path: str) -> bool:
        """Return whether this is a message's link that works without a session: only if nobody has a name."""
        return self._is_link(path) and not self._sessions.have_names

    def _is_link(self, path: str) -> bool:
        return self._signed and SIGNED_PATH.fullmatch(path) is not None

    def _session(self, scope: Message) -> str:
        """Return the request's session, empty for none. A trusted proxy's headers go before a cookie."""
        now, ours = self._clock.now(), self._sessions.cookie_name
        proxy = self._ways.proxy
        word = None if proxy is None else proxy.claims(scope)
        if word is not None:
            return self._sessions.of_claims(PROXY, word, now)
        given = (value for name, value in cookies(scope) if name == ours)
        return next((one for one in given if self._sessions.person(one, now) is not None), "")

    def _may_stay_open(self, scope: Message) -> bool:
        ours, now = self._place.is_ours(scope), self._clock.monotonic()
        if not ours and now - self._told_at >= _TELL_AGAIN_SECONDS:
            # The page only says that it cannot connect, so the log says why.
            self._told_at = now
            asked = {name: header(scope, name)[:100] for name in ("origin", "host")}
            _LOG.warning("a page's connection was refused", **asked, why=ELSEWHERE)
        return ours


def new_link(secrets_directory: Path, base_url: str, clock: Clock | None = None) -> str:
    """Return a link that signs in whoever opens it, once, within a day."""
    clock = clock or SystemClock()
    token = Keys(secrets_directory).new_link_token(clock.now())
    return f"{base_url.rstrip('/')}/?{urlencode({'token': token})}"


def main(arguments: Sequence[str]) -> int:
    """Print a fresh link that signs whoever opens it in to the dashboard."""
    options = parser("url", "Print a link that signs you in to the dashboard, once.")

    def run(config: Config, _chosen: argparse.Namespace) -> None:
        directory = config.dashboard.secrets_directory
        if not are_made(directory):
            raise ConfigError(
                f"there are no secrets in {directory}: start the dashboard first, or name its"
                " configuration with --config"
            )
        with as_owner_of(directory):
            print(new_link(directory, config.alerts.external_url))
            said = _beside(config, directory)
        if said:
            print(f"{options.prog}: {said}", file=sys.stderr)

    return run_command(options, arguments, run)


def _beside(config: Config, directory: Path) -> str:
    """Say that no dashboard answers yet, or give a local link if `external_url` is elsewhere; else ""."""
    listen, port = config.dashboard.listen, config.dashboard.port
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen, listen)  # an address to connect to
    if port == 0:
        return ""
    try:
        socket.create_connection((host, port), _ANSWERS_SECONDS).close()
    except OSError:
        return f"nothing answers at {host} port {port}: start the dashboard first"
    if urlsplit(config.alerts.external_url).hostname in {host, "localhost", "127.0.0.1", "::1"}:
        return ""
    named = f"[{host}]" if ":" in host else host
    return f"on this machine: {new_link(directory, f'http://{named}:{port}')}"


def _without_token(scope: Message) -> tuple[str, str | None]:
    """Return the path and query without `token`, and the token or None."""
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    tokens = [value for name, value in query if name == "token"]
    rest = urlencode([(name, value) for name, value in query if name != "token"])
    path = "/" + quote(scope["path"]).lstrip("/")
    return path + (f"?{rest}" if rest else ""), tokens[0] if tokens else None
