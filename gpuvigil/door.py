"""The door in front of the pages: nobody comes in, over HTTP or WebSocket, without a session.

A session is a signed cookie. It is given for the access token typed into the sign-in page, or for
a one-time token in the address, which is used up and taken out of the address at once.
"""

import re
import socket
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from .clock import Clock, SystemClock
from .command import fail, parser
from .config import Config, load
from .errors import ConfigError, GpuvigilError
from .keys import Keys, are_made
from .offers import PATH
from .signin import POLICY, page
from .statedir import config_of_up

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

# Answered to everybody: whether the process lives.
OPEN_PATHS = frozenset({"/healthz"})
# Its links are signed, and say by themselves what their bearer may do; nothing lies below one.
SIGNED_PATH = re.compile(re.escape(PATH) + "[^/]+")
# What belongs to pages but is not one: refused in one line instead of with a page.
PARTS = ("/_stcore/", "/static/", "/media/", "/component/", "/api/")
LARGEST_FORM_BYTES = 4096
_ANSWERS_SECONDS = 2.0

FIXED_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Door:
    """ASGI middleware that lets signed-in people through and puts safety headers on every answer."""

    def __init__(
        self, app: App, *, keys: Keys, clock: Clock, policy: str, signed: bool = False
    ) -> None:
        """With `signed` there is a key for the links of messages, which need no session."""
        self._app = app
        self._signed = signed
        self._keys = keys
        self._clock = clock
        self._tries = Tries()
        self._headers = {**FIXED_HEADERS, "content-security-policy": policy}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and not self._is_known(scope):
            await receive()
            # Closed before it was accepted: the server answers the upgrade with 403.
            await send({"type": "websocket.close", "code": 1008, "reason": "sign in first"})
        elif scope["type"] == "http":
            await self._http(scope, receive, _with_headers(send, self._headers))
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
            await self._app(scope, receive, send)
        elif method in {"GET", "HEAD"} and not path.startswith(PARTS):
            await _page(send, 401, "", rest)
        else:
            await _answer(send, 401, b"sign in first\n")

    async def _open(self, scope: Message, send: Send, rest: str, token: str) -> None:
        """An address with a one-time token: in with a cookie, or the sign-in page with the reason."""
        if self._is_known(scope):
            await _redirect(send, rest)
            return
        wait = self._tries.wait_seconds(_address(scope), self._clock.monotonic())
        if wait == 0 and self._keys.use_link_token(token, self._clock.now()):
            await _redirect(send, rest, self._cookie(scope))
            return
        await self._refuse(
            scope,
            send,
            rest,
            "This link was used before, is too old or is wrong. gpuvigil url prints a fresh one.",
        )

    async def _sign_in(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await _redirect(send, "/")
            return
        form = dict(parse_qsl(await _form(receive), keep_blank_values=True))
        rest = _local(form.get("next", "/"))
        if not _same_origin(scope):
            await _page(send, 403, "This form was sent from another site.", rest)
            return
        wait = self._tries.wait_seconds(_address(scope), self._clock.monotonic())
        if wait == 0 and self._keys.is_access_token(form.get("token", "")):
            await _redirect(send, rest, self._cookie(scope))
            return
        await self._refuse(scope, send, rest, "This is not the access token.")

    async def _refuse(self, scope: Message, send: Send, rest: str, reason: str) -> None:
        """Say why, or, after several wrong tries, only how long to wait."""
        address, now = _address(scope), self._clock.monotonic()
        wait = self._tries.wait_seconds(address, now)
        if wait > 0:
            text = f"Too many wrong tries: wait {wait} s, then try again."
            await _page(send, 429, text, rest, {"retry-after": str(wait)})
            return
        self._tries.add(address, now)
        await _page(send, 401, reason, rest)

    def _is_known(self, scope: Message) -> bool:
        now, ours = self._clock.now(), self._keys.cookie_name
        return any(
            name == ours and self._keys.is_cookie(value, now) for name, value in _cookies(scope)
        )

    def _cookie(self, scope: Message) -> str:
        secure = "; Secure" if scope.get("scheme") in {"https", "wss"} else ""
        return (
            f"{self._keys.cookie_name}={self._keys.new_cookie(self._clock.now())}; Path=/; HttpOnly;"
            f" SameSite=Lax; Max-Age={self._keys.session_seconds}{secure}"
        )


class Tries:
    """Wrong tries per address: the fourth in a row waits 1 s, each later one twice as long."""

    FREE = 3
    LONGEST_SECONDS = 60
    FORGOTTEN_AFTER_SECONDS = 600.0
    MOST_ADDRESSES = 1000

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def add(self, address: str, now: float) -> None:
        """One more wrong try, at monotonic `now`."""
        count, at = self._wrong.pop(address, (0, now))
        fresh = now - at > self.FORGOTTEN_AFTER_SECONDS
        self._wrong[address] = (1 if fresh else count + 1, now)
        if len(self._wrong) > self.MOST_ADDRESSES:
            self._wrong.popitem(last=False)

    def wait_seconds(self, address: str, now: float) -> int:
        """Whole seconds until this address may try again; 0 when it may now."""
        count, at = self._wrong.get(address, (0, now))
        if count < self.FREE:
            return 0
        pause: int = min(2 ** min(count - self.FREE, 10), self.LONGEST_SECONDS)
        left = at + pause - now
        return 0 if left <= 0 else int(left) + 1


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


def _same_origin(scope: Message) -> bool:
    """False for a form that a browser says it sends from another site."""
    origin = _header(scope, "origin")
    return origin in {"", "null"} or origin.partition("://")[2] == _header(scope, "host")


async def _form(receive: Receive) -> str:
    body = b""
    while len(body) <= LARGEST_FORM_BYTES:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or not message.get("more_body", False):
            break
    return body[:LARGEST_FORM_BYTES].decode("latin-1")


def _with_headers(send: Send, headers: dict[str, str]) -> Send:
    """`send` that sets headers on the answer which its sender did not set."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            present = {bytes(name).lower() for name, _ in given}
            fixed = [(name.encode(), value.encode()) for name, value in headers.items()]
            message["headers"] = given + [pair for pair in fixed if pair[0] not in present]
        await send(message)

    return sending


async def _answer(
    send: Send, status: int, body: bytes, headers: dict[str, str] | None = None
) -> None:
    given = {
        "content-type": "text/plain; charset=utf-8",
        "cache-control": "no-store",
        "content-length": str(len(body)),
        **(headers or {}),
    }
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


async def _redirect(send: Send, place: str, cookie: str | None = None) -> None:
    headers = {"location": place} | ({} if cookie is None else {"set-cookie": cookie})
    await _answer(send, 303, b"", headers)


async def _page(
    send: Send, status: int, reason: str, rest: str, headers: dict[str, str] | None = None
) -> None:
    given = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": POLICY,
        **(headers or {}),
    }
    await _answer(send, status, page(reason, rest), given)
