"""The door in front of the pages: nobody comes in, over HTTP or WebSocket, without a session.

A session is a signed cookie. It is given for the access token typed into the sign-in page, or for
a one-time token in the address, which is used up and taken out of the address at once.
"""

import re
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from gpuvigil.clock import Clock, SystemClock
from gpuvigil.config import Config, load
from gpuvigil.config.startup import fail, parser
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.log import Log
from gpuvigil.state_directory import config_of_up
from gpuvigil.web.signed_links import PATH

from .keys import Keys, are_made
from .origins import Origin, is_own, origin_of, site
from .replies import App, Message, Receive, Send, answer, redirect, sign_in_page, with_headers
from .sign_in_attempts import Tries

# Answered to everybody: whether the process lives.
OPEN_PATHS = frozenset({"/healthz"})
# Its links are signed, and say by themselves what their bearer may do; nothing lies below one.
SIGNED_PATH = re.compile(re.escape(PATH) + "[^/]+")
# What belongs to pages but is not one: refused in one line instead of with a page.
PARTS = ("/_stcore/", "/static/", "/media/", "/component/", "/api/")
LARGEST_FORM_BYTES = 4096
_ANSWERS_SECONDS = 2.0
_ONLY_LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})
_ELSEWHERE = (
    "it comes from another site, or does not say from where: open the dashboard at its own"
    " address; behind a proxy, set alerts.external_url to the address that browsers see"
)
_TELL_AGAIN_SECONDS = 60.0
_LOG = Log("dashboard")

FIXED_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Door:
    """ASGI middleware that lets signed-in people through and puts safety headers on every answer."""

    def __init__(
        self,
        app: App,
        *,
        keys: Keys,
        clock: Clock,
        policy: str,
        signed: bool = False,
        public_url: str = "",
    ) -> None:
        """With `signed` there is a key for the links of messages, which need no session.

        `public_url` is the address that browsers see, where that is a proxy's.
        """
        self._app = app
        self._signed = signed
        self._keys = keys
        self._clock = clock
        self._tries = Tries()
        self._public = origin_of(public_url)
        self._told_at = -_TELL_AGAIN_SECONDS
        self._headers = {**FIXED_HEADERS, "content-security-policy": policy}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and not self._may_stay_open(scope):
            await receive()
            # Closed before it was accepted: the server answers the upgrade with 403.
            await send({"type": "websocket.close", "code": 1008, "reason": "sign in first"})
        elif scope["type"] == "http":
            await self._http(scope, receive, with_headers(send, self._headers))
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        rest, token = _without_token(scope)
        if path in OPEN_PATHS or (self._signed and SIGNED_PATH.fullmatch(path)):
            await self._app(scope, receive, send)
        elif path == "/sign-in":
            await self._sign_in(scope, receive, send)
        elif token is not None and method == "GET":
            await self._open(scope, send, rest, token)
        elif self._is_known(scope):
            if method in _ONLY_LOOKS or self._is_ours(scope):
                await self._app(scope, receive, send)
            else:
                await answer(send, 403, f"refused: {_ELSEWHERE}\n".encode())
        elif method in {"GET", "HEAD"} and not path.startswith(PARTS):
            await sign_in_page(send, 401, "", rest)
        else:
            await answer(send, 401, b"sign in first\n")

    async def _open(self, scope: Message, send: Send, rest: str, token: str) -> None:
        """An address with a one-time token: in with a cookie, or the sign-in page with the reason."""
        if self._is_known(scope):
            await redirect(send, rest)
            return
        wait = self._tries.wait_seconds(_address(scope), self._clock.monotonic())
        if wait == 0 and self._keys.use_link_token(token, self._clock.now()):
            await redirect(send, rest, self._cookie(scope))
            return
        await self._refuse(
            scope,
            send,
            rest,
            "This link was used before, is too old or is wrong. gpuvigil url prints a fresh one.",
        )

    async def _sign_in(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await redirect(send, "/")
            return
        if not self._is_ours(scope):
            await answer(send, 403, f"refused: {_ELSEWHERE}\n".encode())
            return
        sent = await _form(receive)
        if sent is None:
            return
        form = dict(parse_qsl(sent, keep_blank_values=True))
        rest = _local(form.get("next", "/"))
        wait = self._tries.wait_seconds(_address(scope), self._clock.monotonic())
        if wait == 0 and self._keys.is_access_token(form.get("token", "")):
            await redirect(send, rest, self._cookie(scope))
            return
        await self._refuse(scope, send, rest, "This is not the access token.")

    async def _refuse(self, scope: Message, send: Send, rest: str, reason: str) -> None:
        """Say why, or, after several wrong tries, only how long to wait."""
        address, now = _address(scope), self._clock.monotonic()
        wait = self._tries.wait_seconds(address, now)
        if wait > 0:
            text = f"Too many wrong tries: wait {wait} s, then try again."
            await sign_in_page(send, 429, text, rest, {"retry-after": str(wait)})
            return
        self._tries.add(address, now)
        await sign_in_page(send, 401, reason, rest)

    def _is_known(self, scope: Message) -> bool:
        now, ours = self._clock.now(), self._keys.cookie_name
        return any(
            name == ours and self._keys.is_cookie(value, now) for name, value in _cookies(scope)
        )

    def _may_stay_open(self, scope: Message) -> bool:
        if not self._is_known(scope):
            return False
        ours, now = self._is_ours(scope), self._clock.monotonic()
        if not ours and now - self._told_at >= _TELL_AGAIN_SECONDS:
            # The page says no more than that it cannot connect.
            self._told_at = now
            asked = {name: _header(scope, name)[:100] for name in ("origin", "host")}
            _LOG.warning("a page's connection was refused", **asked, why=_ELSEWHERE)
        return ours

    def _site(self, scope: Message) -> Origin | None:
        return site(scope["scheme"], _header(scope, "host"), self._public)

    def _is_ours(self, scope: Message) -> bool:
        """Whether the browser says that one of our own pages asks."""
        return is_own(_header(scope, "origin"), self._site(scope), self._public)

    def _cookie(self, scope: Message) -> str:
        here = self._site(scope)
        secure = "; Secure" if here is not None and here.scheme == "https" else ""
        return (
            f"{self._keys.cookie_name}={self._keys.new_cookie(self._clock.now())}; Path=/; HttpOnly;"
            f" SameSite=Lax; Max-Age={self._keys.session_seconds}{secure}"
        )


def new_link(secrets_directory: Path, base_url: str, clock: Clock | None = None) -> str:
    """An address that signs its opener in, once, within a day."""
    clock = clock or SystemClock()
    token = Keys(secrets_directory).new_link_token(clock.now())
    return f"{base_url.rstrip('/')}/?{urlencode({'token': token})}"


def main(arguments: Sequence[str]) -> int:
    """Print a fresh address that signs its opener in to the dashboard."""
    options = parser(
        "url", "Print a fresh address that signs its opener in to the dashboard, once."
    )
    chosen = options.parse_args(arguments)
    try:
        config = load(config_of_up(chosen.config))
        directory = config.dashboard.secrets_directory
        if not are_made(directory):
            raise ConfigError(
                f"there are no secrets in {directory}: start the dashboard first, or name its"
                " configuration with --config"
            )
        print(new_link(directory, config.alerts.external_url))
        if said := _beside(config, directory):
            print(f"{options.prog}: {said}", file=sys.stderr)
    except GpuvigilError as error:
        return fail(options.prog, error)
    return 0


def _beside(config: Config, directory: Path) -> str:
    """That nobody answers yet, or the address on this machine where the other is elsewhere."""
    listen, port = config.dashboard.listen, config.dashboard.port
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen, listen)  # where it can be asked
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
    """The address within this site without `token`, and the token."""
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    tokens = [value for name, value in query if name == "token"]
    rest = urlencode([(name, value) for name, value in query if name != "token"])
    path = "/" + quote(scope["path"]).lstrip("/")
    return path + (f"?{rest}" if rest else ""), tokens[0] if tokens else None


def _local(address: str) -> str:
    """The address if it leads to this very site, else its first page."""
    return address if re.fullmatch(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*", address) else "/"


def _header(scope: Message, name: str) -> str:
    values = [value for key, value in scope["headers"] if key == name.encode()]
    return b"; ".join(values).decode("latin-1")


def _cookies(scope: Message) -> Iterator[tuple[str, str]]:
    """Names and values; others of this host may look like anything, which SimpleCookie does not bear."""
    for pair in _header(scope, "cookie").split(";"):
        name, _, value = pair.strip().partition("=")
        yield name, value


def _address(scope: Message) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


async def _form(receive: Receive) -> str | None:
    """What was sent, as far as a form goes; None when the sender went before its end."""
    body = b""
    while len(body) <= LARGEST_FORM_BYTES:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return body[:LARGEST_FORM_BYTES].decode("latin-1")
