"""Channels behind a real HTTP proxy, the only way out of many machine rooms."""

import base64
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from alerts.channels import http_post
from alerts.channels.webhook import webhook
from alerts.messages.channel import Delivered, Outcome, Retry
from alerts.messages.message import message
from alerts.routing.notice import Kind
from gpuvigil.config import AppriseSettings, SlackSettings, WebhookSettings, load
from gpuvigil.errors import ConfigError
from tests.receiver import Receiver

from .examples import NOON, opened, seconds
from .test_message import noticed

pytestmark = pytest.mark.server

URL = "https://gpus.example.org"


class Proxy:
    """An HTTP proxy that takes requests for any host to one port of this machine, and remembers them."""

    def __init__(self, port: int, *, password: str = "") -> None:
        self._port, self._password = port, password
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.asked: list[str] = []
        self._running = [threading.Thread(target=self._serve)]
        self._running[0].start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._running:
            thread.join()
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._running.append(threading.Thread(target=self._take, args=(client,)))
                self._running[-1].start()

    def _take(self, client: socket.socket) -> None:
        with client:
            self._pass(client)

    def _pass(self, client: socket.socket) -> None:
        begun = b""
        while b"\r\n\r\n" not in begun:
            begun += client.recv(4096)
        text = begun.decode("latin-1")
        self.asked.append(text.splitlines()[0])
        wanted = base64.b64encode(f"gpuvigil:{self._password}".encode()).decode()
        if self._password and f"Proxy-Authorization: Basic {wanted}" not in text:
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", self._port)) as server:
            if text.startswith("CONNECT "):
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                server.sendall(begun)
            back = threading.Thread(target=_pass_on, args=(server, client))
            back.start()
            _pass_on(client, server)
            back.join()


def _pass_on(of: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := of.recv(4096):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)


@pytest.fixture
def drip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a TLS server named chat.example.org, whose answer never ends."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    http_post._trusted.cache_clear()  # the CAs of this test, and of no other
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("chat.example.org").configure_cert(context)

    def serve() -> None:
        with contextlib.suppress(OSError):
            client, _ = listener.accept()
            with context.wrap_socket(client, server_side=True) as secure:
                for byte in b"HTTP/1.1 200 OK\r\n" + b"X" * 600:
                    secure.sendall(bytes([byte]))
                    time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
    http_post._trusted.cache_clear()


def deliver(settings: WebhookSettings) -> Outcome:
    channel = webhook(settings, URL)
    try:
        return channel.deliver(message(noticed(opened(), Kind.FIRED), NOON + seconds(5), URL))
    finally:
        channel.close()


def test_a_post_goes_through_the_proxy_and_not_beside_it() -> None:
    with Receiver() as receiver, Proxy(receiver.port) as proxy:
        settings = WebhookSettings(
            url="http://ops.example.org/hook", allow_http=True, proxy=f"http://{proxy.address}"
        )
        assert deliver(settings) == Delivered()
        assert len(receiver.received()) == 1
    assert proxy.asked == ["POST http://ops.example.org/hook HTTP/1.1"]


def test_through_a_tunnel_the_certificate_is_the_receivers_and_a_drip_costs_no_more_than_its_time(
    drip: int,
) -> None:
    with Proxy(drip) as proxy:
        settings = WebhookSettings(
            url="https://chat.example.org/hook",
            proxy=f"http://{proxy.address}",
            timeout_seconds=1.0,
        )
        began = time.monotonic()
        outcome = deliver(settings)
        assert time.monotonic() - began < 10
    said = "chat.example.org: no answer within 1 s"
    assert outcome == Retry(reason=said, perhaps_received=True)
    assert proxy.asked == ["CONNECT chat.example.org:443 HTTP/1.1"]


def test_a_password_of_a_file_opens_the_proxy_and_a_wrong_one_is_told_without_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "proxy"
    with Receiver() as receiver, Proxy(receiver.port, password="s3cret") as proxy:
        settings = WebhookSettings(
            url="http://ops.example.org/hook", allow_http=True, proxy_file=file
        )
        file.write_text(f"http://gpuvigil:s3cret@{proxy.address}\n")
        assert deliver(settings) == Delivered()
    with Proxy(1, password="s3cret") as proxy:
        file.write_text(f"http://gpuvigil:wr0ng@{proxy.address}\n")
        outcome = deliver(WebhookSettings(url="https://ops.example.org/hook", proxy_file=file))
        said = f"ops.example.org: cannot connect through the proxy {proxy.address}: 407"
        assert isinstance(outcome, Retry)
        assert outcome.reason.startswith(said)
        assert "wr0ng" not in outcome.reason
        assert not outcome.perhaps_received


def test_a_proxy_that_is_away_is_named_and_took_nothing() -> None:
    settings = WebhookSettings(url="https://ops.example.org/hook", proxy="http://127.0.0.1:1")
    outcome = deliver(settings)
    assert isinstance(outcome, Retry)
    assert outcome.reason.startswith(
        "ops.example.org: cannot connect through the proxy 127.0.0.1:1: "
    )
    assert not outcome.perhaps_received


@pytest.mark.parametrize("wrong", ["proxy:3128", "socks5://proxy:1080", "http://", "http://p/a"])
def test_what_is_no_address_of_a_proxy_is_refused_at_start(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "proxy").write_text(wrong + "\n")
    with pytest.raises(ConfigError, match=r"is not like http://proxy\.example\.com:3128"):
        webhook(WebhookSettings(url="https://a.example", proxy_file=tmp_path / "proxy"), URL)
    assert [key for key, _ in WebhookSettings(url="-", proxy=wrong).wrong()] == ["proxy"]


def test_a_password_belongs_into_a_file_and_apprise_has_ways_of_its_own(tmp_path: Path) -> None:
    secret = "http://me:s3cret@proxy.example.com:3128"
    slack = SlackSettings(token_variable="T", channel="C0", proxy=secret)
    ((key, why),) = slack.wrong()
    assert (key, "proxy_file" in why, "s3cret" in why) == ("proxy", True, False)
    ((key, why),) = AppriseSettings(url="-", proxy="http://proxy.example.com:3128").wrong()
    assert (key, "HTTPS_PROXY" in why) == ("proxy", True)
    file = tmp_path / "gpuvigil.toml"
    file.write_text(f'[alerts]\ndead_man_proxy = "{secret}"\n')
    with pytest.raises(ConfigError, match="dead_man_proxy_file") as raised:
        load(file, {})
    assert "s3cret" not in str(raised.value)
