"""Stores behind TLS and passwords: real servers, real certificates."""

import socket
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import trustme

from collector.spool.batches import WRITE_PATH
from collector.spool.body import Body
from collector.spool.remote_write import direct_store
from gpuvigil.config import StoreSettings
from gpuvigil.errors import ConfigError, HubRefused, HubUnavailable, StoreError, StoreUnavailable
from gpuvigil.store import Store
from gpuvigil.store.configured import open_store
from tests.polling import wait_until
from tests.timeseries import InfluxDB, VictoriaMetrics

pytestmark = pytest.mark.server

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
LINE = b"gpu,cluster=c,node=n,uuid=GPU-0,model=m index=1i 1769860800000000000"


class ClosedVictoriaMetrics(VictoriaMetrics):
    """Speaks HTTPS alone, and wants a name and a password."""

    def __init__(self, directory: Path, certificate: Path) -> None:
        super().__init__(directory)
        self._certificate = certificate
        self.url = self.url.replace("http:", "https:")

    def arguments(self) -> Sequence[str]:
        return (
            *super().arguments(),
            *("-tls", f"-tlsCertFile={self._certificate}", f"-tlsKeyFile={self._certificate}"),
            *("-httpAuth.username=me", "-httpAuth.password=pass word"),
        )

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class ClosedInfluxDB(InfluxDB):
    """Wants a name and a password; the first request makes them."""

    def arguments(self) -> Sequence[str]:
        found = super().arguments()
        file = Path(found[-1])
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("[http]", "[http]\nauth-enabled = true"), encoding="utf-8")
        return found

    def admit(self) -> None:
        self.query("CREATE USER me WITH PASSWORD 'pass word' WITH ALL PRIVILEGES")
        query = urllib.parse.urlencode({"u": "me", "p": "pass word"})
        data = b"q=CREATE DATABASE gpuvigil"
        urllib.request.urlopen(f"{self.url}/query?{query}", data=data, timeout=30).close()


def read(store: Store) -> list[int]:
    found = store.latest("gpu", ["index"], NOON - HOUR)["index"].to_pylist()
    return [int(it) for it in found]


def send(settings: StoreSettings) -> None:
    """What a collector does with a body."""
    target = direct_store(settings)
    assert target is not None
    server = target.connect(10.0)
    try:
        target.send(server, Body(path=WRITE_PATH, headers={}, content=LINE, at=NOON))
    finally:
        server.close()


def with_password(settings: StoreSettings, folder: Path, password: str) -> StoreSettings:
    file = folder / f"password {len(password)}"
    file.write_text(password, encoding="utf-8")
    return replace(settings, user="me", password_file=file)


def test_victoriametrics_over_tls_with_a_password(tmp_path: Path) -> None:
    authority, certificate, ca = trustme.CA(), tmp_path / "server.pem", tmp_path / "ca.pem"
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(certificate)
    authority.cert_pem.write_to_path(ca)
    with ClosedVictoriaMetrics(tmp_path / "vm", certificate) as server:
        open_ = StoreSettings(kind="victoriametrics", url=server.url, ca_file=ca)
        settings = with_password(open_, tmp_path, "pass word")
        store = open_store(settings)
        send(settings)
        store.write(LINE.replace(b"GPU-0", b"GPU-1"))
        # It is found a few seconds after it was acknowledged.
        wait_until("the collector's line, and the service's", lambda: read(store) == [1, 1], 30)
        wrong = with_password(open_, tmp_path, "wrong")
        with pytest.raises(StoreError, match="401"):
            read(open_store(wrong))
        with pytest.raises(StoreError, match="401"):
            open_store(wrong).write(LINE)
        with pytest.raises(HubRefused, match="401"):
            send(wrong)
        unknown = replace(settings, ca_file=None)
        with pytest.raises(StoreUnavailable, match="certificate"):
            read(open_store(unknown))
        with pytest.raises(StoreUnavailable, match="certificate"):
            open_store(unknown).write(LINE)
        with pytest.raises(HubUnavailable, match="certificate"):
            send(unknown)


def test_a_ca_that_is_none_is_a_wrong_configuration(tmp_path: Path) -> None:
    settings = StoreSettings(kind="influxdb", url="https://h", ca_file=tmp_path / "none")
    for start in (open_store, direct_store):
        with pytest.raises(ConfigError, match=r"store\.ca_file"):
            start(settings)


def test_influxdb_with_a_password(tmp_path: Path) -> None:
    with ClosedInfluxDB(tmp_path / "influxdb") as server:
        server.admit()
        open_ = StoreSettings(kind="influxdb", url=server.url)
        settings = with_password(open_, tmp_path, "pass word")
        store = open_store(settings)
        send(settings)
        store.write(LINE.replace(b"GPU-0", b"GPU-1"))
        assert read(store) == [1, 1]
        wrong = with_password(open_, tmp_path, "wrong")
        with pytest.raises(StoreError, match="authorization failed"):
            read(open_store(wrong))
        with pytest.raises(HubRefused, match="authorization failed"):
            send(wrong)
