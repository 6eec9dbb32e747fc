"""HTTP requests to a third-party store."""

import json
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import urllib3

from .. import __version__
from ..config import StoreSettings, secret_source
from ..errors import ConfigError, StoreError, StoreUnavailable
from ..hub_client.tls import Trust
from ..lineprotocol.refusal import in_short

_CONNECT_SECONDS = 5.0
_TIMEOUT = urllib3.Timeout(connect=_CONNECT_SECONDS, read=60.0)
# urllib3 logs a line for each connection beyond these that is returned at the same time as others.
_CONNECTIONS_KEPT = 64
_PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on one answer: its inflated size, and the seconds in which it must arrive completely."""

    seconds: float
    bytes: int


class Web:
    """Requests to one server; threads may share it.

    StoreUnavailable when the server does not answer, or asks to come back later; StoreError for a refusal.
    Secrets are read again when their files change, and never shown.
    """

    def __init__(
        self, settings: StoreSettings, section: str = "store", limits: Limits | None = None
    ) -> None:
        """Set up requests; `section` names the settings' section. ConfigError for an unreadable secret's file."""
        self._name, self._limits = settings.kind, limits
        secure = any(url.startswith("https:") for url in (settings.url, settings.write_url))
        believed = Trust(ca_file=settings.ca_file).context(section) if secure else None
        self._pool = urllib3.PoolManager(
            timeout=_TIMEOUT, retries=False, ssl_context=believed, maxsize=_CONNECTIONS_KEPT
        )
        self._authorization = authorization(settings, section)

    def post(self, url: str, query: Mapping[str, str]) -> Any:
        """Return JSON, requested by a form, which may be longer than an address."""
        return self._json(self.request("POST", url, fields=query), url)

    def get(self, url: str) -> Any:
        """Return JSON, requested by an address alone."""
        return self._json(self.request("GET", url), url)

    def request(
        self,
        method: str,
        url: str,
        *,
        fields: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> bytes:
        """Return the body of a 2xx answer."""
        headers = {"User-Agent": f"gpuvigil/{__version__}", "Accept-Encoding": "gzip"}
        if value := self.authorization():
            headers["Authorization"] = value
        given: dict[str, Any] = {"headers": headers}
        if fields is not None:
            given |= {"fields": dict(fields)}
            if method == "POST":
                given["encode_multipart"] = False
        if body is not None:
            given["body"] = body
        try:
            status, content = self._answer(method, url, given)
        except urllib3.exceptions.HTTPError as error:
            raise StoreUnavailable(f"{self._place(url)} does not answer: {why(error)}") from error
        if status < 300:
            return content
        raise refusal(self._place(url), status, content, secret_in(value))

    def _answer(self, method: str, url: str, given: Mapping[str, Any]) -> tuple[int, bytes]:
        """Return the answer's status and body."""
        if self._limits is None:
            answer = self._pool.request(method, url, **given)
            return answer.status, answer.data
        limits = self._limits
        timeout = urllib3.Timeout(
            connect=min(_CONNECT_SECONDS, limits.seconds), read=limits.seconds
        )
        stream = self._pool.request(method, url, preload_content=False, timeout=timeout, **given)
        try:
            content = self._read(stream, limits, url)
        except BaseException:
            stream.close()
            raise
        stream.release_conn()
        return stream.status, content

    def _read(self, stream: urllib3.BaseHTTPResponse, limits: Limits, url: str) -> bytes:
        deadline, found = time.monotonic() + limits.seconds, bytearray()
        while piece := stream.read1(_PIECE_BYTES, decode_content=True):
            found += piece
            if len(found) > limits.bytes:
                raise StoreError(f"{self._place(url)}: the answer is over {limits.bytes} bytes")
            if time.monotonic() > deadline:
                late = f"does not answer whole within {limits.seconds:g} s"
                raise StoreUnavailable(f"{self._place(url)} {late}")
        return bytes(found)

    def authorization(self) -> str:
        """Return the current Authorization header; empty for none."""
        try:
            return self._authorization()
        except ConfigError as error:  # a file in the middle of a rotation
            raise StoreUnavailable(f"{self._name} is not asked: {error}") from None

    def close(self) -> None:
        """Close the connections; the next request opens a new one."""
        self._pool.clear()

    def _json(self, content: bytes, url: str) -> Any:
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise StoreUnavailable(
                f"{self._place(url)} answered something that is not JSON; is the address right?"
            ) from None

    def _place(self, url: str) -> str:
        parts = urllib3.util.parse_url(url)
        return f"{self._name} at {parts.scheme}://{parts.netloc}{parts.path or ''}"


def authorization(settings: StoreSettings, section: str = "store") -> Callable[[], str]:
    """Return a source of the current Authorization header, "" for none; ConfigError for unreadable files."""
    if settings.user:
        key, what = f"{section}.password_file", f"{section}'s password"
        password = secret_source(settings.password_file, key, what)
        user = settings.user
        return lambda: "Basic " + b64encode(f"{user}:{password()}".encode()).decode()
    if settings.token_file is None:
        return lambda: ""
    token = secret_source(settings.token_file, f"{section}.token_file", f"{section}'s token")
    word = "Token" if settings.kind == "influxdb" else "Bearer"
    return lambda: f"{word} {token()}"


def secret_in(authorization: str) -> str:
    """Return the secret in an Authorization header, to be masked; a proxy may repeat it in its answer."""
    return authorization.partition(" ")[2]


def refusal(place: str, status: int, content: bytes | None, secret: str = "") -> StoreError:
    """Return an error for an unsuccessful answer, with the server's words except for the secret."""
    said = in_short((content or b"").decode(errors="replace"), secret)
    text = f"{place}: status {status}: {said or 'no reason given'}"
    again = status == 429 or not 400 <= status < 500
    error = StoreUnavailable(text) if again else StoreError(text)
    error.status, error.said = status, (content or b"").decode(errors="replace")
    return error


def why(error: urllib3.exceptions.HTTPError) -> str:
    """Return the cause of a transport error, without the library's words about its own objects."""
    cause = error.__cause__ or error.__context__
    return getattr(cause, "strerror", None) or str(error).rpartition(": ")[2]
