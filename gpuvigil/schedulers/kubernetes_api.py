"""Requests to a Kubernetes API server: lists, watches, single objects and changes.

It uses the standard library alone. The rules are those of "Kubernetes API Concepts"
(kubernetes.io/docs/reference/using-api/api-concepts): a list comes in pages and has a version; a watch
continues from a version and reports changes, one JSON object per line; 410 says that the version is too
old, whether as the answer's status or as an event of type ERROR.
"""

import http.client
import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from ..config import read_secret
from ..config.integrations import KubernetesSettings
from ..errors import ConfigError

Object = Mapping[str, Any]
T = TypeVar("T")

_PAGE = 500
_TIMEOUT_SECONDS = 20.0
# The server ends a watch after this time; a connection that is silent for longer is dead. Until then,
# silence counts as "no change": so the time is short, and a new watch continues where the old one
# ended.
_WATCH_SECONDS = 60
_WATCH_SLACK_SECONDS = 15.0
_LONGEST_ANSWER = 256 * 1024 * 1024
_LONGEST_LINE = 8 * 1024 * 1024


class ApiError(Exception):
    """The API server did not answer as expected, so the state of things is unknown."""


class Gone(ApiError):
    """The version is too old to continue from: everything has to be listed again."""


class Forbidden(ApiError):
    """The server refuses the client, or does not know it."""


class Unauthorized(Forbidden):
    """The server does not know the client, whatever is requested."""


class NotThere(ApiError):
    """There is no such object, or no such kind of object."""


class Conflict(ApiError):
    """The object's version is not the one that was to be changed."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some objects of one kind; all pages of a list have the same version."""

    objects: tuple[Object, ...]
    version: str


class ApiServer:
    """One API server, with a new connection for each request. Every method may raise ApiError."""

    def __init__(self, url: str, token_file: Path | None, ca_file: Path | None) -> None:
        """Set up a client. Both files are read for each request: a pod's token and CA are renewed."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(f"kubernetes.api_url: {url!r} is no address as https://host:6443")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path.rstrip("/")
        self._token_file = token_file
        self._ca_file = ca_file

    def pages(self, path: str) -> Iterator[Page]:
        """Yield all objects below `path` page by page; raise Gone when the list's version has expired."""
        query = {"limit": str(_PAGE)}
        while True:
            page = self.get(f"{path}?{urlencode(query)}")
            metadata = page.get("metadata") or {}
            yield Page(tuple(page.get("items") or ()), str(metadata.get("resourceVersion", "")))
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    def watch(self, path: str, version: str) -> Iterator[Object]:
        """Yield events after a version until the server ends the watch; raise ApiError when it is cut."""
        query = urlencode(
            {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": _WATCH_SECONDS,
            }
        )
        with closing(self._connection(_WATCH_SECONDS + _WATCH_SLACK_SECONDS)) as connection:
            answer = self._answer(connection, f"{path}?{query}")
            while line := self._attempt(lambda: answer.readline(_LONGEST_LINE)):
                if not line.endswith(b"\n"):
                    raise ApiError("the watch was cut in the middle of an event")
                event = _object(line)
                if event.get("type") == "ERROR":
                    raise _refusal(event.get("object") or {})
                yield event

    def get(self, path: str) -> Object:
        """Return one object, or one page of a list."""
        return self._asked(path)

    def patch(self, path: str, change: Object, manager: str) -> Object:
        """Apply a JSON merge patch (RFC 7396) in the name of `manager`; return the changed object.

        Conflict when `change` names a `metadata.resourceVersion` that is no longer the object's.
        """
        return self._asked(f"{path}?{urlencode({'fieldManager': manager})}", json.dumps(change))

    def _asked(self, path: str, change: str | None = None) -> Object:
        with closing(self._connection(_TIMEOUT_SECONDS)) as connection:
            answer = self._answer(connection, path, change)
            body = self._attempt(lambda: answer.read(_LONGEST_ANSWER + 1))
            if len(body) > _LONGEST_ANSWER:
                raise ApiError(f"the answer to {path.partition('?')[0]} is too long")
            return _object(body)

    def _answer(
        self, connection: http.client.HTTPConnection, path: str, change: str | None = None
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": "gpuvigil"}
        if self._token_file is not None:
            try:
                token = read_secret(self._token_file, "service account's token")
            except ConfigError as error:
                raise ApiError(str(error)) from None
            headers["Authorization"] = f"Bearer {token}"
        if change is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        method, body = ("GET", None) if change is None else ("PATCH", change.encode())
        place = self._base + path
        self._attempt(lambda: connection.request(method, place, body, headers))
        answer = self._attempt(connection.getresponse)
        if answer.status != http.client.OK:
            text = self._attempt(lambda: answer.read(65_536))
            try:
                said = _object(text)
            except ApiError:
                said = {}
            raise _refusal({"code": answer.status, "message": answer.reason, **said})
        return answer

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        try:
            context = ssl.create_default_context(
                cafile=None if self._ca_file is None else str(self._ca_file)
            )
        except (OSError, ssl.SSLError) as error:
            raise ApiError(f"cannot use {self._ca_file}: {error}") from None
        return http.client.HTTPSConnection(self._host, self._port, timeout=seconds, context=context)

    def _attempt(self, work: Callable[[], T]) -> T:
        """Return the result of `work`; turn every connection error into an ApiError."""
        try:
            return work()
        except ssl.SSLCertVerificationError as error:
            why = f"its certificate is not trusted: {error.verify_message}"
            raise ApiError(f"{why}; kubernetes.ca_file names who signs it") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ApiError(str(error) or type(error).__name__) from None


def path_of(group_version: str, plural: str, namespace: str | None, name: str | None = None) -> str:
    """Return the path of an object, or of a kind's objects; `v1` is the core group."""
    base = f"/api/{group_version}" if "/" not in group_version else f"/apis/{group_version}"
    parts = [base, *(("namespaces", quote(namespace, safe="")) if namespace else ()), plural]
    return "/".join([*parts, *((quote(name, safe=""),) if name else ())])


def _object(body: bytes) -> Object:
    try:
        found = json.loads(body)
    except ValueError:
        raise ApiError("the answer is no JSON") from None
    if not isinstance(found, dict):
        raise ApiError("the answer is no object")
    return found


def _refusal(status: Object) -> ApiError:
    """Return a Kubernetes `Status` as an error; without a known code a plain ApiError."""
    code, message = status.get("code"), str(status.get("message") or "no reason given")
    if code == http.client.GONE:
        return Gone(message)
    if code == http.client.UNAUTHORIZED:
        return Unauthorized(f"{code}: {message}")
    if code == http.client.FORBIDDEN:
        return Forbidden(f"{code}: {message}")
    if code == http.client.NOT_FOUND:
        return NotThere(message)
    if code == http.client.CONFLICT:
        return Conflict(message)
    return ApiError(f"{code}: {message}")


def api_server(settings: KubernetesSettings) -> ApiServer:
    """Return the configured API server; raise ConfigError as `api_url` does."""
    return ApiServer(api_url(settings), settings.token_file, settings.ca_file)


def api_url(settings: KubernetesSettings, environment: Mapping[str, str] = os.environ) -> str:
    """Return the configured URL, or in a pod the one from its environment; ConfigError elsewhere."""
    if settings.api_url:
        return settings.api_url
    host = environment.get("KUBERNETES_SERVICE_HOST")
    if not host:
        raise ConfigError("kubernetes.api_url is not set, and this is no pod that would be told it")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
