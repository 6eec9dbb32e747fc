"""Telemetry that bypasses the hub, straight to a server that speaks line protocol."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from gpuvigil.config import StoreSettings, secret_source
from gpuvigil.errors import HubRefused, HubUnavailable
from gpuvigil.hub_client import Answer, Hub, retry_after_seconds
from gpuvigil.hub_client.tls import Trust
from gpuvigil.lineprotocol.mark import marked
from gpuvigil.lineprotocol.refusal import Meaning, in_short, meaning, refused_lines

from .acknowledged import Acknowledged
from .body import Body


class StoreRefused(HubRefused):
    """A store's refusal, and what it means for the body."""

    def __init__(self, message: str, status: int, said: str) -> None:
        super().__init__(message, status, _object(said))
        self.said = said
        self.meaning = meaning(status, said)


class StoreServer(Hub):
    """One connection to a store; StoreRefused where it refuses, else the hub client's errors."""

    name = "store"

    def _refusal(self, answer: Answer) -> HubRefused | HubUnavailable:
        said, status = answer.body.decode(errors="replace"), answer.status
        # For user and password, the text that is sent holds both.
        words = in_short(said, self._token())
        why = f"{self._place()}: status {status}" + (f": {words}" if words else "")
        may_pass = status == 429 or not 400 <= status < 500
        if may_pass and meaning(status, said) is Meaning.LATER:
            return HubUnavailable(why, retry_after_seconds(answer.headers))
        return StoreRefused(why, status, said)


class DirectStore:
    """The store for telemetry bodies, and how they are written to it; threads share it."""

    def __init__(self, settings: StoreSettings) -> None:
        """Set up; ConfigError for an invalid address, or a secret's file that cannot be read."""
        self._url = (settings.write_url or settings.url).rstrip("/")
        bucket = settings.bucket
        query = {"org": settings.organization or "-", "bucket": bucket, "precision": "ns"}
        if settings.kind == "victoriametrics":
            # It has no buckets; this label takes their place.
            query["extra_label"] = f"db={bucket}"
        self._path = f"/api/v2/write?{urlencode(query)}"
        # InfluxDB before 1.8 has no v2 API.
        self._has_v2 = True
        self._may_be_old = settings.kind == "influxdb"
        # InfluxDB acknowledges what is in a file.
        self._acknowledged = Acknowledged() if settings.kind == "victoriametrics" else None
        self._path_of_v1 = f"/write?{urlencode({'db': bucket, 'precision': 'ns'})}"
        self._word = "Bearer"
        self._secret: Callable[[], str] = str  # no secret
        if settings.user:
            password = secret_source(
                settings.password_file, "store.password_file", "store's password"
            )
            user = settings.user
            self._word = "Basic"
            self._secret = lambda: b64encode(f"{user}:{password()}".encode()).decode()
        elif settings.token_file is not None:
            self._word = "Token" if settings.kind == "influxdb" else "Bearer"
            self._secret = secret_source(settings.token_file, "store.token_file", "store's token")
        self._trust = Trust(ca_file=settings.ca_file)
        if self._url.startswith("https:"):
            self._trust.context("store")
        self.connect(0.0).close()

    def connect(self, timeout_seconds: float, answer_bytes: int | None = None) -> Hub:
        """Return a connection for one thread."""
        return StoreServer(self._url, self._secret, timeout_seconds, answer_bytes, self._trust)

    def send(self, server: Hub, body: Body, resend: Callable[[Body], None] | None = None) -> int:
        """Send a body once, each line with its mark; return how many lines were refused for good.

        The others were kept then. Raises StoreRefused or HubUnavailable when the body was not kept.
        Before it returns, `resend` is given each body that was acknowledged, and may be lost.
        """
        if self._acknowledged is None or resend is None:
            return self._send(server, body)
        opened = server.opened
        try:
            refused = self._send(server, body)
        finally:
            if server.opened != opened:
                for one in self._acknowledged.doubtful():
                    resend(one)
        self._acknowledged.add(body)
        return refused

    def _send(self, server: Hub, body: Body) -> int:
        content, secret = marked(body.content), self._secret()
        headers = {"Authorization": f"{self._word} {secret}"} if secret else {}
        try:
            answer = self._post(server, content, headers)
        except StoreRefused as refusal:
            if refusal.meaning is Meaning.PARTLY:
                return refused_lines(refusal.said, content.count(b"\n") + 1)
            raise
        if answer.status != 204:  # a proxy's sign-in page, say
            raise HubUnavailable(f"status {answer.status}, which is not an answer of the store")
        return 0

    def _post(self, server: Hub, content: bytes, headers: dict[str, str]) -> Answer:
        v2 = self._has_v2  # another thread may find out meanwhile
        path = self._path if v2 else self._path_of_v1
        try:
            return server.request("POST", path, content, headers)
        except StoreRefused as refusal:
            if refusal.meaning is not Meaning.NO_V2 or not self._may_be_old:
                raise
            if not v2:
                # Somebody has put another server in its place.
                self._has_v2 = True
                raise
        try:
            answer = server.request("POST", self._path_of_v1, content, headers)
        except StoreRefused as refusal:
            # Neither API is there: the address is wrong, and tells nothing about the server.
            self._has_v2 = refusal.meaning is Meaning.NO_V2
            raise
        self._has_v2 = False
        return answer


def _object(content: str) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def direct_store(settings: StoreSettings) -> DirectStore | None:
    """Return the store for telemetry that bypasses the hub, else None: a Prometheus is only read."""
    return DirectStore(settings) if settings.kind in {"victoriametrics", "influxdb"} else None
