"""Posts JSON to one receiver: what every chat and webhook channel shares.

The URL is a secret; only its host is ever shown. Every attempt has a connection of its own, which
is checked before anything is sent and cut when the time is up.
"""

import contextlib
import ipaddress
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx

from gpuvigil import __version__
from gpuvigil.config import PostSettings, ReceiverSettings
from gpuvigil.errors import ConfigError
from gpuvigil.model import Severity

from ..messages.channel import Delivered, Outcome, Pace, Refused, Retry
from ..messages.message import Message
from ..routing.case import ChannelProfile
from .address import ForbiddenAddressError, check, is_forbidden, proxy_of, url_of

CONNECT_SECONDS = 5.0
# At most this much of an answer's body is read.
BODY_BYTES = 16_384
# A body is reported only if it is one plain word: anything longer might repeat the URL.
_WORD = re.compile(r"[a-z][a-z_]{0,59}")

# Timeout, and a route or token that may be in the middle of a rotation: worth another try.
RETRIED = frozenset({401, 403, 404, 408, 425})

# Errors that end an attempt without an answer.
_BROKEN = (httpx.TransportError, httpx.StreamError, ssl.SSLError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A receiver's answer at `at`; `word` is the body of a failure when that is one word."""

    host: str
    status: int
    at: datetime
    retry_after: str | None = None
    word: str = ""
    content: bytes = b""  # the body, where more than the status is of interest

    @property
    def json_body(self) -> Mapping[str, Any]:
        """The body if it is a JSON object; else an empty mapping."""
        try:
            value = json.loads(self.content)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """One request: `path` is appended to the receiver's URL, `query` to its query."""

    payload: Any
    method: str = "POST"
    path: str = ""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def outcome_of(answer: Answer) -> Outcome:
    """Return the outcome of an answer by its status alone: delivered, retry or refused."""
    said = f"{answer.host} answered {answer.status}"
    if 200 <= answer.status < 300:
        return Delivered()
    if answer.status == 429 or answer.status >= 500:
        after_seconds = _retry_after(answer.retry_after, answer.at)
        perhaps_received = answer.status >= 500
        return Retry(reason=said, after_seconds=after_seconds, perhaps_received=perhaps_received)
    if answer.status in RETRIED:
        return Retry(reason=said)
    if 300 <= answer.status < 400:
        said += " and redirects are not followed"
    return Refused(reason=said)


class Posting:
    """A channel that posts the requests `posts` makes of a message, and has `judge` rate the
    answers.

    `posts` may need several requests; the first that is not delivered ends the attempt.
    """

    def __init__(
        self,
        settings: PostSettings,
        posts: Callable[[Message], Sequence[Post]],
        *,
        judge: Callable[[Answer], Outcome] = outcome_of,
        pace: Pace = Pace(),  # noqa: B008 - it is frozen
        sign: Callable[[bytes], Mapping[str, str]] | None = None,
        reads: bool = False,
    ) -> None:
        """`sign` makes headers from each body; with `reads` the answer's body is read for `judge`."""
        self._settings = settings
        self._posts = posts
        self._judge = judge
        self.profile, self.pace = profile_of(settings), pace
        self.timeout_seconds = settings.timeout_seconds
        self._sign = sign
        self._reads = reads
        check(url_of(settings), settings)
        proxy = proxy_of(settings)
        self._way = _way(proxy)
        self._client = httpx.Client(
            verify=_trusted(),
            # Every attempt has its own connection: messages are rare, kept ones go stale.
            limits=httpx.Limits(max_keepalive_connections=0),
            timeout=httpx.Timeout(settings.timeout_seconds, connect=CONNECT_SECONDS),
            follow_redirects=False,
            proxy=proxy,
            trust_env=False,
        )

    def deliver(self, message: Message) -> Outcome:
        try:
            return self.send(self._posts(message), message.notice, message.at)
        except ConfigError as error:
            # A secret's file may be in the middle of a rotation.
            return Retry(reason=str(error))

    def send(self, posts: Sequence[Post], key: str, at: datetime) -> Outcome:
        """Post requests one after the other; ConfigError when there is no URL at the moment."""
        url = url_of(self._settings)
        check(url, self._settings)
        outcome: Outcome = Delivered()
        # A channel may be named in any script; a header may not.
        headers = {"Idempotency-Key": quote(key, safe=":")}
        with _Connection(self.timeout_seconds) as connection:
            for post in posts:
                outcome = self._post(url, post, headers, at, connection)
                if not isinstance(outcome, Delivered):
                    break
        return outcome

    def close(self) -> None:
        self._client.close()

    def _post(
        self,
        url: str,
        post: Post,
        headers: Mapping[str, str],
        at: datetime,
        connection: "_Connection",
    ) -> Outcome:
        host = urlsplit(url).hostname or ""
        body = json.dumps(post.payload, ensure_ascii=False).encode()
        sent = {
            "Content-Type": "application/json",
            "User-Agent": f"gpuvigil/{__version__}",
            **headers,
            **post.headers,
            **({} if self._sign is None else self._sign(body)),
        }
        try:
            with self._client.stream(
                post.method,
                _address(url, post),
                content=body,
                headers=sent,
                extensions={"trace": connection.trace},
            ) as response:
                return self._judge(_answer(response, host, at, reads=self._reads))
        except ForbiddenAddressError as error:
            return Refused(reason=f"{host}: {error}")
        except (httpx.ConnectError, httpx.ProxyError) as error:
            return Retry(reason=f"{host}: cannot connect{self._way}: {_why(error)}")
        except httpx.ConnectTimeout:
            return Retry(reason=f"{host}: no connection{self._way} within {CONNECT_SECONDS:g} s")
        except _BROKEN as error:
            if connection.cut or isinstance(error, httpx.TimeoutException):
                said = f"{host}: no answer within {self._settings.timeout_seconds:g} s"
            else:
                said = f"{host}: the connection broke: {_why(error)}"
            return Retry(reason=said, perhaps_received=True)
        except httpx.InvalidURL:
            return Refused(reason=f"the URL of the channel {self._settings.name} is not one")


def profile_of(settings: ReceiverSettings) -> ChannelProfile:
    """Return what a channel wants to receive, by its settings."""
    return ChannelProfile(
        name=settings.name,
        minimum_severity=Severity(settings.minimum_severity),
        send_resolved=settings.send_resolved,
        pager=settings.pager,
        every_change=settings.every_change,
    )


@cache
def _trusted() -> ssl.SSLContext:
    """Return a TLS context with the system's CAs, which take a while to read."""
    return ssl.create_default_context()


def _way(proxy: str | None) -> str:
    """Return the proxy for a message of failure, without its password; empty without one."""
    if proxy is None:
        return ""
    parts = urlsplit(proxy)
    return f" through the proxy {parts.hostname}:{parts.port or 80}"


def _address(url: str, post: Post) -> str:
    parts = urlsplit(url)
    query = "&".join(one for one in (parts.query, post.query) if one)
    path = parts.path.rstrip("/") + post.path if post.path else parts.path
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


class _Connection:
    """One attempt's connection: checked before anything is sent, cut when the time is up.

    httpx limits only each single read; a receiver that sends byte by byte would never end without
    this.
    """

    def __init__(self, seconds: float) -> None:
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self.cut = False

    def __enter__(self) -> "_Connection":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def trace(self, event: str, values: dict[str, Any]) -> None:
        """Check the peer's address; httpcore calls this at every step, two of which connect."""
        # Through a proxy TLS begins later, in a step with a name of its own.
        if not event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            return
        stream = values["return_value"]
        self._socket = stream.get_extra_info("socket")
        address = ipaddress.ip_address(self._socket.getpeername()[0].partition("%")[0])
        if is_forbidden(address):
            stream.close()
            raise ForbiddenAddressError(f"{address} is a link-local or metadata address")

    def _cut(self) -> None:
        self.cut = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it ended by itself


def _answer(response: httpx.Response, host: str, at: datetime, *, reads: bool) -> Answer:
    content = _content(response) if reads or not response.is_success else b""
    return Answer(
        host=host,
        status=response.status_code,
        at=at,
        retry_after=response.headers.get("Retry-After"),
        word="" if response.is_success else _word(content),
        content=content,
    )


def _content(response: httpx.Response) -> bytes:
    """Return the beginning of the body; the status counts even when the body breaks off."""
    body = b""
    # A compressed body is not unpacked: it may be a bomb.
    with contextlib.suppress(*_BROKEN):
        for chunk in response.iter_raw(BODY_BYTES):
            body += chunk
            if len(body) >= BODY_BYTES:
                break
    return body


def _word(body: bytes) -> str:
    """Return the body if it is one word; else an empty text."""
    word = body.decode("utf-8", "replace").strip()
    return word if _WORD.fullmatch(word) else ""


def _retry_after(text: str | None, now: datetime) -> float | None:
    """Return the header as seconds from now; it holds seconds or a date (RFC 9110, section 10.2.3)."""
    if text is None:
        return None
    try:
        return max(float(int(text)), 0.0)
    except ValueError:
        pass
    try:
        return max((parsedate_to_datetime(text) - now).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None


def _why(error: Exception) -> str:
    """Return the reason in one line; httpx repeats the system's words and never the URL."""
    return " ".join(str(error).split())[:200] or type(error).__name__
