"""What a store elsewhere is asked over HTTP, and what it means when it does not answer."""

import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from gpuvigil.config import StoreSettings
from gpuvigil.errors import ConfigError, StoreError, StoreUnavailable
from gpuvigil.store.http import Web


@contextmanager
def server(status: int, body: bytes = b"") -> Iterator[tuple[str, list[str]]]:
    """Answers everything alike, and keeps each Authorization."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            seen.append(self.headers.get("Authorization", ""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    there = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=there.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{there.server_port}", seen
    finally:
        there.shutdown()
        thread.join()
        there.server_close()


def ask(url: str, settings: StoreSettings | None = None) -> object:
    web = Web(settings or StoreSettings(kind="influxdb", url=url))
    try:
        return web.post(f"{url}/query", {"q": "x"})
    finally:
        web.close()


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_server_that_asks_to_come_back_is_unavailable(status: int) -> None:
    with server(status, b"busy") as (url, _), pytest.raises(StoreUnavailable, match="busy"):
        ask(url)


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_refusal_says_what_the_server_says(status: int) -> None:
    body = b'{"error": "no such\\ndatabase"}'
    with (
        server(status, body) as (url, _),
        pytest.raises(StoreError, match="no such database") as it,
    ):
        ask(url)
    assert not isinstance(it.value, StoreUnavailable)


def test_a_server_that_is_not_there_is_one_plain_line() -> None:
    with server(200) as (url, _):
        pass
    with pytest.raises(StoreUnavailable) as it:
        ask(url)
    assert str(it.value) == f"influxdb at {url}/query does not answer: Connection refused"


def test_a_page_for_people_is_no_answer() -> None:
    with server(200, b"<html>sign in") as (url, _), pytest.raises(StoreUnavailable, match="JSON"):
        ask(url)


def test_secrets_are_read_again_and_never_said(tmp_path: Path) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text("first\n")
    password.write_text("pass word\n")
    with server(400, b"no") as (url, seen):
        by_token = StoreSettings(kind="victoriametrics", url=url, token_file=token)
        by_user = StoreSettings(kind="influxdb", url=url, user="me", password_file=password)
        for settings in (by_token, by_user):
            with pytest.raises(StoreError) as it:
                ask(url, settings)
            assert "first" not in str(it.value)
            assert "pass word" not in str(it.value)
        token.write_text("second token\n")
        with pytest.raises(StoreError):
            ask(url, by_token)
    basic = "Basic " + b64encode(b"me:pass word").decode()
    assert seen == ["Bearer first", basic, "Bearer second token"]


def test_a_secret_that_cannot_be_read_is_a_wrong_configuration(tmp_path: Path) -> None:
    settings = StoreSettings(kind="influxdb", url="http://h", token_file=tmp_path / "none")
    with pytest.raises(ConfigError, match="cannot read the store's token"):
        Web(settings)


def test_a_secret_that_is_being_replaced_is_a_store_that_is_away_for_now(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    web = Web(StoreSettings(kind="influxdb", url="http://h", token_file=token))
    token.write_text("")
    with pytest.raises(StoreUnavailable, match="influxdb is not asked: the store's token in"):
        web.authorization()


def test_a_secret_that_a_proxy_repeats_is_not_shown(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("some-word")
    with server(400, b'cannot find the provided auth token "Bearer some-word" in config') as (
        url,
        _,
    ):
        settings = StoreSettings(kind="victoriametrics", url=url, token_file=secret)
        with pytest.raises(StoreError, match="cannot find the provided auth token") as caught:
            ask(url, settings)
    assert "some-word" not in str(caught.value)
