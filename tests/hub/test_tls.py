"""HTTPS and mutual TLS between the hub and its clients, with certificates of a CA made for it."""

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import trustme

from gpuvigil.config import HubSettings
from gpuvigil.errors import ConfigError, HubUnavailable
from gpuvigil.hub_client import Hub
from gpuvigil.hub_client.tls import Trust, trust
from gpuvigil.model import RecordKind
from tests.polling import wait_until
from tests.servers import HubProcess


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    folder = tmp_path_factory.mktemp("authority")
    made = trustme.CA()
    made.cert_pem.write_to_path(folder / "ca.pem")
    return made, folder


def pair(authority: tuple[trustme.CA, Path], name: str, *, days: int = 30) -> Path:
    """A certificate and its key in one file."""
    made, folder = authority
    end = datetime.now(timezone.utc) + timedelta(days=days)
    issued = made.issue_cert("127.0.0.1", "localhost", not_after=end, not_before=end - 99 * DAY)
    file = folder / name
    issued.private_key_and_cert_chain_pem.write_to_path(file)
    return file


DAY = timedelta(days=1)


class TlsHub(HubProcess):
    """A hub that speaks HTTPS alone."""

    def __enter__(self) -> "TlsHub":
        super().__enter__()
        return self

    def __init__(self, directory: Path, authority: Path, settings: Mapping[str, object]) -> None:
        super().__init__(directory, settings)
        self.authority = authority

    def _ready(self) -> bool:
        try:
            return self.client().request("GET", "/readyz").status == 200
        except HubUnavailable as error:
            # One that asks for a certificate is up as well.
            return "certificate" in str(error)

    def client(self, **more: Path | None) -> Hub:
        given = {"ca_file": self.authority, **more}
        made = Hub(self.url, lambda: self.service_token, trust=Trust(**given))
        self._clients.append(made)
        return made


@pytest.fixture(scope="module")
def secure(
    authority: tuple[trustme.CA, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsHub]:
    settings = {"tls_certificate_file": pair(authority, "hub.pem")}
    with TlsHub(tmp_path_factory.mktemp("hub"), authority[1] / "ca.pem", settings) as hub:
        yield hub


def refusal(hub: Hub) -> str:
    with pytest.raises(HubUnavailable) as caught:
        hub.status()
    hub.close()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.server
def test_a_client_that_knows_the_ca_is_heard_and_every_other_is_told_why_not(
    secure: TlsHub, tmp_path: Path
) -> None:
    assert secure.url.startswith("https://")
    assert secure.client().status()["version"]
    assert "not trusted" in refusal(secure.client(ca_file=None))
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    said = refusal(secure.client(ca_file=tmp_path / "other.pem"))
    assert "hub.ca_file names the CA" in said
    plain = Hub(secure.url.replace("https:", "http:"), lambda: secure.service_token)
    said = refusal(plain)
    assert "hub.url must begin with https://" in said
    assert secure.client().status()["version"]


@pytest.mark.server
def test_https_to_a_hub_that_speaks_plain_http_says_so(
    hub: HubProcess, authority: tuple[trustme.CA, Path]
) -> None:
    url = hub.url.replace("http:", "https:")
    client = Hub(url, lambda: hub.service_token, trust=Trust(ca_file=authority[1] / "ca.pem"))
    assert "hub.url must begin with http://" in refusal(client)


@pytest.mark.server
def test_a_certificate_that_is_renewed_counts_for_the_next_connection(
    secure: TlsHub, authority: tuple[trustme.CA, Path]
) -> None:
    file = authority[1] / "hub.pem"
    kept = secure.client()
    kept.status()
    os.replace(pair(authority, "expired.pem", days=-1), file)
    try:
        wait_until(
            "the hub shows the new certificate",
            lambda: "certificate has expired" in _said(secure.client()),
        )
        assert kept.status()["version"], "a connection that stands goes on"
        file.write_text("half a file")
        wait_until("the hub says it", lambda: "certificate kept" in secure.log.read_text())
    finally:
        os.replace(pair(authority, "good.pem"), file)
    wait_until("it is good again", lambda: _said(secure.client()) == "")


def _said(hub: Hub) -> str:
    try:
        hub.status()
    except HubUnavailable as error:
        return str(error)
    finally:
        hub.close()
    return ""


@pytest.mark.server
def test_mutual_tls_hears_nobody_without_a_certificate_of_its_ca(
    authority: tuple[trustme.CA, Path], tmp_path: Path
) -> None:
    settings: dict[str, object] = {
        "tls_certificate_file": pair(authority, "mutual.pem"),
        "tls_client_ca_file": authority[1] / "ca.pem",
    }
    with TlsHub(tmp_path, authority[1] / "ca.pem", settings) as hub:
        assert "hub.client_certificate_file" in refusal(hub.client())
        mine = pair(authority, "client.pem")
        assert hub.client(certificate_file=mine).status()["version"]
        stranger = trustme.CA().issue_cert("node")
        stranger.private_key_and_cert_chain_pem.write_to_path(tmp_path / "stranger.pem")
        said = refusal(hub.client(certificate_file=tmp_path / "stranger.pem"))
        assert "does not accept" in said


@pytest.mark.server
def test_it_stops_without_an_error_while_clients_keep_their_connections(
    authority: tuple[trustme.CA, Path], tmp_path: Path
) -> None:
    settings = {"tls_certificate_file": pair(authority, "kept.pem")}
    with TlsHub(tmp_path, authority[1] / "ca.pem", settings) as hub:
        poll, answers = hub.client(), list[int]()
        waiting = threading.Thread(
            target=lambda: answers.append(poll.changes(0, [RecordKind.EVENT]).sequence)
        )
        with talking(hub, ssl.create_default_context(cafile=hub.authority), None):
            waiting.start()
            wait_until("the poll is sent", lambda: poll._connection is not None)
            time.sleep(0.1)
            assert hub.stop() == 0
        waiting.join(timeout=5)
    assert answers == [0]
    said = hub.log.read_text()
    assert said.rstrip().endswith("hub stopped")
    assert " error " not in said


@contextlib.contextmanager
def talking(
    hub: TlsHub, context: ssl.SSLContext, known: ssl.SSLSession | None
) -> Iterator[ssl.SSLSocket]:
    """A connection on which a request was answered, begun with a session that was known."""
    port = int(hub.url.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="localhost", session=known) as secured,
    ):
        secured.sendall(b"GET /ping HTTP/1.1\r\nHost: h\r\n\r\n")
        assert secured.recv(4096).startswith(b"HTTP/1.1 204 ")
        yield secured


@pytest.mark.server
def test_a_client_whose_ca_was_taken_away_is_not_heard_any_more(
    authority: tuple[trustme.CA, Path], tmp_path: Path
) -> None:
    other = trustme.CA()
    both = tmp_path / "both.pem"
    both.write_bytes(other.cert_pem.bytes() + authority[0].cert_pem.bytes())
    other.issue_cert("node").private_key_and_cert_chain_pem.write_to_path(tmp_path / "other.pem")
    settings: dict[str, object] = {
        "tls_certificate_file": pair(authority, "taken.pem"),
        "tls_client_ca_file": both,
    }
    with TlsHub(tmp_path, authority[1] / "ca.pem", settings) as hub:
        mine = hub.client(certificate_file=pair(authority, "client.pem"))
        theirs = hub.client(certificate_file=tmp_path / "other.pem")
        assert [it.status()["version"] for it in (mine, theirs)]
        old = ssl.create_default_context(cafile=hub.authority)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        old.load_cert_chain(tmp_path / "other.pem")
        with talking(hub, old, None) as first:
            # While its connection stands, a session can be taken up again, unverified.
            with talking(hub, old, first.session) as second:
                assert second.session_reused
            both.write_bytes(authority[0].cert_pem.bytes())
            # Also on the connection that it has kept.
            wait_until("it is refused", lambda: "does not accept" in _refused(theirs))
            with pytest.raises(ssl.SSLError), talking(hub, old, first.session):
                pass
        assert mine.status()["version"]
        both.write_bytes(other.cert_pem.bytes() + authority[0].cert_pem.bytes())
        wait_until("it is heard again", lambda: _refused(theirs) == "")


def _refused(kept: Hub) -> str:
    try:
        kept.status()
    except HubUnavailable as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ca_file": "nowhere"}, "hub.ca_file: cannot read"),
        ({"ca_file": "empty"}, "hub.ca_file"),
        ({"client_certificate_file": "empty"}, "hub.client_certificate_file"),
        ({"client_key_file": "empty"}, "goes with hub.client_certificate_file"),
    ],
)
def test_files_that_cannot_be_used_are_one_line(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    (tmp_path / "empty").write_text("")
    files = {key: tmp_path / name for key, name in settings.items()}
    with pytest.raises(ConfigError, match=said):
        trust(HubSettings(url="https://localhost", **files))  # type: ignore[arg-type]


@pytest.mark.server
def test_who_says_nothing_or_talks_without_end_is_let_go(hub: HubProcess) -> None:
    port = int(hub.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as endless:
        endless.sendall(b"GET /ping HTTP/1.1\r\n")
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 10_000_000:
                sent += endless.send(b"X-More: " + b"x" * 1000 + b"\r\n")
                time.sleep(0.001)
        assert sent < 10_000_000
    # Answered before its body is whole; then the sender stops.
    answered = socket.create_connection(("127.0.0.1", port), timeout=60)
    answered.sendall(b"POST /api/v2/write HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n")
    assert answered.recv(4096).startswith(b"HTTP/1.1 401 ")
    answered.sendall(b"x")
    silent = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(3)]
    silent[1].sendall(b"GET /ping HT")
    for one in (*silent, answered):
        while one.recv(4096):  # the rest of an answer; a connection that stays times out here
            pass
        one.close()


@pytest.mark.parametrize(
    ("begins_in", "ends_in", "said"),
    [
        (1, 30, "not yet valid; set this machine's clock"),
        (-30, -1, "expired; 'gpuvigil server renew'"),
    ],
)
def test_a_certificate_of_another_time_says_what_to_do(
    authority: tuple[trustme.CA, Path], begins_in: int, ends_in: int, said: str
) -> None:
    made, folder = authority
    now = datetime.now(timezone.utc)
    issued = made.issue_cert(
        "127.0.0.1", not_before=now + begins_in * DAY, not_after=now + ends_in * DAY
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued.configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client, contextlib.suppress(OSError):
                context.wrap_socket(client, server_side=True).close()

        server = threading.Thread(target=serve)
        server.start()
        trusted = Trust(ca_file=folder / "ca.pem")
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(HubUnavailable, match=said):
            Hub(url, lambda: "token", 5.0, trust=trusted).request("GET", "/ping")
        server.join()
