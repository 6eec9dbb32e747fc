"""Telemetry that goes past the hub, straight to a server that speaks line protocol."""

import re
from base64 import b64encode
from collections.abc import Callable
from urllib.parse import urlencode

from gpuvigil.config import StoreSettings, secret_source
from gpuvigil.errors import HubRefused
from gpuvigil.hub import Answer, Hub
from gpuvigil.lineprotocol.mark import marked
from gpuvigil.trust import Trust

from .body import Body


class StoreServer(Hub):
    """One connection to such a server; errors are as the hub's."""

    name = "store"


class Beside:
    """Where the bodies of telemetry go, and how they are written there; threads share it."""

    def __init__(self, settings: StoreSettings) -> None:
        """ConfigError for an address that is none, or a secret's file that cannot be read."""
        self._url = (settings.write_url or settings.url).rstrip("/")
        bucket = settings.bucket
        query = {"org": settings.organization or "-", "bucket": bucket, "precision": "ns"}
        if settings.kind == "victoriametrics":
            # It has no buckets; its own name for one is this label.
            query["extra_label"] = f"db={bucket}"
        self._path = f"/api/v2/write?{urlencode(query)}"
        # InfluxDB before 1.8 has no v2 API.
        self._path_of_v1 = f"/write?{urlencode({'db': bucket, 'precision': 'ns'})}"
        self._word = "Bearer"
        self._secret: Callable[[], str] = str  # nothing
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
        """A connection of its own for a thread."""
        return StoreServer(self._url, self._secret, timeout_seconds, answer_bytes, self._trust)

    def send(self, server: Hub, body: Body) -> Answer:
        """Send a body once, each line with its mark; HubRefused or HubUnavailable."""
        content, secret = marked(body.content), self._secret()
        headers = {"Authorization": f"{self._word} {secret}"} if secret else {}
        try:
            return server.request("POST", self._path, content, headers)
        except HubRefused as refusal:
            # A bucket that is missing is told in JSON, a path that is missing is not.
            if refusal.status != 404 or refusal.details or self._path == self._path_of_v1:
                raise
        self._path = self._path_of_v1
        return server.request("POST", self._path, content, headers)


def dropped(refusal: HubRefused) -> int | None:
    """How many lines InfluxDB says that it did not keep; None when it does not say."""
    said = re.search(r"\bdropped=(\d+)", str(refusal))
    return None if said is None else int(said[1])


def beside(settings: StoreSettings) -> Beside | None:
    """Where telemetry goes that does not go to the hub; a Prometheus is only read."""
    return Beside(settings) if settings.kind in {"victoriametrics", "influxdb"} else None
