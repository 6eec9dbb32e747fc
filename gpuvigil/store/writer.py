"""Sends lines to a store that accepts line protocol: by `influxdb-client`, or plain HTTP."""

from dataclasses import dataclass, field
from typing import Any

import urllib3

from ..clock import Clock, to_ns
from ..config import StoreSettings
from ..errors import ConfigError, StoreError, StoreUnavailable
from ..lineprotocol.refusal import Meaning, meaning
from .accepted_lines import marked, read
from .http import Web, refusal, secret_in, why


@dataclass(slots=True)
class Writer:
    """Writes to one server through its v2 API, or through the v1 API where there is no v2."""

    settings: StoreSettings
    clock: Clock
    web: Web
    _has_v2: bool = field(default=True, init=False)

    def write(self, lines: bytes) -> None:
        """Send the good lines with their marks; StoreError says how many were refused."""
        rows, refused = read(lines, to_ns(self.clock.now()))
        # VictoriaMetrics has no buckets; its equivalent is a label.
        labels = {"db": self.settings.bucket} if self.settings.kind == "victoriametrics" else {}
        if rows:
            self.send("\n".join(marked(row, labels) for row in rows).encode())
        if refused:
            raise StoreError(f"{len(refused)} lines refused: {refused[0]}")

    def send(self, content: bytes) -> None:
        """Send lines of any measurement as they are; StoreError has the server's answer."""
        if self._has_v2 and self._sent_by_v2(content):
            return
        # InfluxDB before 1.8 has no v2 API.
        self._has_v2 = False
        url = f"{self._url()}/write?db={self.settings.bucket}&precision=ns"
        self.web.request("POST", url, body=content)

    def _sent_by_v2(self, content: bytes) -> bool:
        """Return False where the server knows no such path."""
        library, synchronous = _library()
        settings = self.settings
        client = library.InfluxDBClient(
            url=self._url(),
            token=None,
            org=settings.organization or "-",
            enable_gzip=True,
            timeout=60_000,
            ssl_ca_cert=None if settings.ca_file is None else str(settings.ca_file),
        )
        try:
            client.api_client.set_default_header("Authorization", self.web.authorization())
            client.write_api(synchronous).write(
                bucket=settings.bucket, record=content, write_precision="ns"
            )
        except library.rest.ApiException as error:
            said = str(error.body or "")
            if error.status and meaning(error.status, said) is Meaning.NO_V2:
                return False
            place = f"{settings.kind} at {self._url()}"
            if not error.status:
                # The request never got that far: for example, a certificate is not trusted.
                raise StoreUnavailable(f"{place} does not answer: {_line(error)}") from error
            secret = secret_in(self.web.authorization())
            raise refusal(place, error.status, said.encode(), secret) from None
        except urllib3.exceptions.HTTPError as error:
            what = f"{settings.kind} at {self._url()} does not answer"
            raise StoreUnavailable(f"{what}: {why(error)}") from error
        finally:
            client.close()
        return True

    def _url(self) -> str:
        return (self.settings.write_url or self.settings.url).rstrip("/")


def _line(error: Any) -> str:
    """Return the reason, without the library's own words around it."""
    return " ".join(str(error.reason).split())[:300]


def _library() -> tuple[Any, Any]:
    """Return the client library and its synchronous mode, loaded only for writing."""
    try:
        import influxdb_client  # noqa: PLC0415 - an extra
        from influxdb_client.client.write_api import SYNCHRONOUS  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "writing to this store needs influxdb-client: in a checkout, pip install '.[influxdb]'"
        ) from None
    return influxdb_client, SYNCHRONOUS
