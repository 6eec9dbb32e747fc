"""Posting JSON to one receiver: what every chat and webhook shares.

The URL is a secret, only its host is ever said. Every attempt has a connection of its own, which is
checked before anything is sent and cut when the time is up.
"""

import contextlib
import ipaddress
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from gpuvigil import __version__
from gpuvigil.config import ReceiverSettings, read_secret
from gpuvigil.errors import ConfigError
from gpuvigil.model import Severity

from ..case import Route
from ..channel import Delivered, Outcome, Refused, Retry
from ..message import Message

CONNECT_SECONDS = 5.0
# Of a failure's body only this much is looked at.
BODY_BYTES = 1024
# What is said of it is one plain word: anything longer might repeat the URL.
_WORD = re.compile(r"[a-z][a-z_]{0,59}")

# Timeout, and a route or token that may be in the middle of a rotation: worth another try.
RETRIED = frozenset({401, 403, 404, 408, 425})

# Clouds' metadata services outside the link-local ranges: AWS over IPv6, Alibaba Cloud.
METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200")))

# What ends an attempt without an answer.
_BROKEN = (httpx.TransportError, httpx.StreamError, ssl.SSLError, OSError)


class ForbiddenAddressError(Exception):
    """The URL leads to an address that no receiver lives at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a receiver answered at `at`; `word` is the body of a failure when that is one word."""

    host: str
    status: int
    at: datetime
    retry_after: str | None = None
    word: str = ""


def outcome_of(answer: Answer) -> Outcome:
    """What an answer means by its status alone: taken, later, or never."""
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
    """A channel that posts what `payload` makes of a message, and asks `judge` what came back."""

    def __init__(
        self,
        settings: ReceiverSettings,
        payload: Callable[[Message], Mapping[str, Any]],
        *,
        judge: Callable[[Answer], Outcome] = outcome_of,
        spacing_seconds: float = 0.0,
    ) -> None:
        self._settings = settings
        self._payload = payload
        self._judge = judge
        self._spacing_seconds = spacing_seconds
        _check(self._url(), settings.name)
        self._client = httpx.Client(
            verify=ssl.create_default_context(),
            # Every attempt has its own connection: messages are rare, kept ones go stale.
            limits=httpx.Limits(max_keepalive_connections=0),
            timeout=httpx.Timeout(settings.timeout_seconds, connect=CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
        )

    @property
    def route(self) -> Route:
        return Route(
            name=self._settings.name,
            minimum_severity=Severity(self._settings.minimum_severity),
            send_resolved=self._settings.send_resolved,
        )

    @property
    def timeout_seconds(self) -> float:
        return self._settings.timeout_seconds

    @property
    def spacing_seconds(self) -> float:
        return self._spacing_seconds

    def deliver(self, message: Message) -> Outcome:
        body = json.dumps(self._payload(message), ensure_ascii=False).encode()
        try:
            url = self._url()
            _check(url, self._settings.name)
        except ConfigError as error:
            # The file may be in the middle of a rotation.
            return Retry(reason=str(error))
        return self._post(url, body, message)

    def close(self) -> None:
        self._client.close()

    def _url(self) -> str:
        file = self._settings.url_file
        if file is None:
            return self._settings.url
        return read_secret(file, f"URL of the channel {self._settings.name}")

    def _post(self, url: str, body: bytes, message: Message) -> Outcome:
        host = urlsplit(url).hostname or ""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"gpuvigil/{__version__}",
            # A channel may be named in any script; a header may not.
            "Idempotency-Key": quote(message.notice, safe=":"),
        }
        line = _Line(self._settings.timeout_seconds)
        extensions = {"trace": line.trace}
        try:
            with (
                line,
                self._client.stream(
                    "POST", url, content=body, headers=headers, extensions=extensions
                ) as response,
            ):
                return self._judge(_answer(response, host, message.at))
        except ForbiddenAddressError as error:
            return Refused(reason=f"{host}: {error}")
        except httpx.ConnectError as error:
            return Retry(reason=f"{host}: cannot connect: {_why(error)}")
        except httpx.ConnectTimeout:
            return Retry(reason=f"{host}: no connection within {CONNECT_SECONDS:g} s")
        except _BROKEN as error:
            if line.cut or isinstance(error, httpx.TimeoutException):
                said = f"{host}: no answer within {self._settings.timeout_seconds:g} s"
            else:
                said = f"{host}: the connection broke: {_why(error)}"
            return Retry(reason=said, perhaps_received=True)
        except httpx.InvalidURL:
            return Refused(reason=f"the URL of the channel {self._settings.name} is not one")


class _Line:
    """One attempt's connection: checked before anything is sent, cut when the time is up.

    httpx limits every single read; a receiver that drips would never end without this.
    """

    def __init__(self, seconds: float) -> None:
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self.cut = False

    def __enter__(self) -> "_Line":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def trace(self, event: str, values: dict[str, Any]) -> None:
        """httpcore calls this at every step; the connection is the result of two of them."""
        if event not in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
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


def is_forbidden(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Link-local and cloud metadata addresses: no receiver, but secrets, live there."""
    plain = getattr(address, "ipv4_mapped", None) or address
    return plain.is_link_local or plain.is_multicast or plain in METADATA


def _answer(response: httpx.Response, host: str, at: datetime) -> Answer:
    return Answer(
        host=host,
        status=response.status_code,
        at=at,
        retry_after=response.headers.get("Retry-After"),
        word="" if response.is_success else _word(response),
    )


def _word(response: httpx.Response) -> str:
    """The body if it is one word; the status stands also when the body breaks off."""
    body = b""
    # What is compressed is not worth unpacking: it may be a bomb.
    with contextlib.suppress(*_BROKEN):
        for chunk in response.iter_raw(BODY_BYTES):
            body += chunk
            if len(body) >= BODY_BYTES:
                break
    word = body.decode("utf-8", "replace").strip()
    return word if _WORD.fullmatch(word) else ""


def _check(url: str, channel: str) -> None:
    """ConfigError for what can be seen in the URL itself; never says the URL."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if not host or parts.scheme not in {"http", "https"}:
        raise ConfigError(f"the URL of the channel {channel!r} is not an http or https address")
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return  # a name: its address is checked once it is connected
    if is_forbidden(address):
        raise ConfigError(f"the channel {channel!r} leads to {address}, a link-local address")


def _retry_after(text: str | None, now: datetime) -> float | None:
    """Seconds from now; the header holds seconds or a date (RFC 9110, section 10.2.3)."""
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
    """The reason in one line; httpx repeats the system's words and never the URL."""
    return " ".join(str(error).split())[:200] or type(error).__name__
