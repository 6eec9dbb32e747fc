"""A webhook in Alertmanager's format, version 4.

Format: Alertmanager, "Webhook receiver" (`<webhook_config>`). One incident is one alert in a group
of its own, whose fingerprint and group key stay the same when it fires, changes and ends.
"""

import ipaddress
import json
import socket
import ssl
import threading
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx

from gpuvigil import __version__
from gpuvigil.clock import to_text
from gpuvigil.config import WebhookSettings, read_secret
from gpuvigil.errors import ConfigError
from gpuvigil.model import Severity

from ..case import Route
from ..channel import Delivered, Outcome, Refused, Retry
from ..message import Message, clean

CONNECT_SECONDS = 5.0
# What Alertmanager writes for "not over yet": Go's zero time.
NO_END = "0001-01-01T00:00:00Z"

# Timeout, and a route or token that may be in the middle of a rotation: worth another try.
RETRIED = frozenset({401, 403, 404, 408, 425})

# Clouds' metadata services outside the link-local ranges: AWS over IPv6, Alibaba Cloud.
METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200")))


class ForbiddenAddressError(Exception):
    """The URL leads to an address that no webhook lives at."""


class Webhook:
    """Posts messages to one receiver; the URL is a secret, only its host is ever said."""

    def __init__(self, settings: WebhookSettings, external_url: str) -> None:
        self._settings = settings
        self._external_url = external_url
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

    def deliver(self, message: Message) -> Outcome:
        value = payload(message, self._settings.name, self._external_url)
        body = json.dumps(value, ensure_ascii=False).encode()
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
            "Idempotency-Key": message.notice,
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
                return outcome_of(response.status_code, response.headers, host, message.at)
        except ForbiddenAddressError as error:
            return Refused(reason=f"{host}: {error}")
        except httpx.ConnectError as error:
            return Retry(reason=f"{host}: cannot connect: {_why(error)}")
        except httpx.ConnectTimeout:
            return Retry(reason=f"{host}: no connection within {CONNECT_SECONDS:g} s")
        except (httpx.TransportError, httpx.StreamError, ssl.SSLError, OSError) as error:
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


def outcome_of(status: int, headers: httpx.Headers, host: str, now: datetime) -> Outcome:
    """What an answer means: taken, later, or never."""
    said = f"{host} answered {status}"
    if 200 <= status < 300:
        return Delivered()
    if status == 429 or status >= 500:
        after_seconds = _retry_after(headers.get("Retry-After"), now)
        return Retry(reason=said, after_seconds=after_seconds, perhaps_received=status >= 500)
    if status in RETRIED:
        return Retry(reason=said)
    if 300 <= status < 400:
        said += " and redirects are not followed"
    return Refused(reason=said)


def is_forbidden(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Link-local and cloud metadata addresses: no receiver, but secrets, live there."""
    plain = getattr(address, "ipv4_mapped", None) or address
    return plain.is_link_local or plain.is_multicast or plain in METADATA


def payload(message: Message, receiver: str, external_url: str) -> dict[str, Any]:
    """The JSON value that is posted."""
    status = "firing" if message.firing else "resolved"
    labels = _labels(message)
    group = {name: labels[name] for name in ("alertname", "cluster", "node")}
    annotations = {
        "summary": message.summary,
        "description": message.text,
        "where": message.where,
        "since": message.since,
        "impact": message.impact,
        "evidence": message.evidence,
        "action": message.action,
        "source": message.source,
        "notice": message.notice,
    }
    alert = {
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": to_text(message.starts_at),
        "endsAt": NO_END if message.ends_at is None else to_text(message.ends_at),
        "generatorURL": message.link,
        "fingerprint": message.fingerprint,
    }
    return {
        "version": "4",
        "groupKey": f'{{}}:{{incident="{message.incident}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": receiver,
        "groupLabels": group,
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": external_url,
        "alerts": [alert],
    }


def _labels(message: Message) -> dict[str, str]:
    subject = message.subject
    labels = {
        "alertname": message.fault,
        "severity": message.severity.value,
        "cluster": subject.cluster,
        "node": subject.node,
        "gpu": subject.gpu,
        "device": subject.device,
        "port": subject.port,
        "simulated": "true" if message.simulated else None,
    }
    return {name: clean(value) for name, value in labels.items() if value}


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
