"""Asking an inference server that is slow, lies, or is none; and who serves at an address."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from collector.inference import scrape_child
from collector.inference.address import Address, address
from collector.inference.binding import serving
from collector.inference.scrape_result import Answer
from gpuvigil.errors import ConfigError
from tests.collector.inference.pages import (
    Behaviour,
    InferenceServer,
    dripping,
    endless,
    good,
    page,
)

PROC = Path("/proc")


def at(url: str) -> Address:
    return address(url, anywhere=False)


@pytest.mark.server
def test_a_page_is_read_from_a_real_server() -> None:
    with InferenceServer(good(page("vllm-0.9"))) as server:
        said = scrape_child.ask(at(server.url))
    assert (said.why, [one.model for one in said.replicas]) == ("", ["qwen"])


@pytest.mark.server
@pytest.mark.parametrize(
    ("behave", "why"),
    [
        (good(b"", "503 Busy"), "status 503"),
        (good(b"", "302 Found", "Location: http://127.0.0.1:1/\r\n"), "status 302"),
        (good(b"go_goroutines 12\n"), "tells of no request"),
        (good(b"\xff\xfe\x00" * 1000), "tells of no request"),
        (lambda peer: peer.sendall(b"SSH-2.0-OpenSSH\r\n"), "SSH-2.0"),
        (lambda peer: peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\nx"), "early"),
        (endless, "over 1 MiB"),
        (lambda peer: peer.close(), ""),
    ],
)
def test_what_is_no_page_is_said_in_a_line_and_no_number(behave: Behaviour, why: str) -> None:
    with InferenceServer(behave) as server:
        said = scrape_child.ask(at(server.url))
    assert said.replicas == ()
    assert said.why
    assert why in said.why
    assert said.why.isprintable()


@pytest.mark.server
@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 200 OK\r\nX-A: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"]
)
def test_who_drips_is_given_up(start: bytes) -> None:
    began = time.monotonic()
    with InferenceServer(dripping(start)) as server:
        said = scrape_child.ask(at(server.url), limit_seconds=0.5)
    assert "took over 0.5 s" in said.why
    assert time.monotonic() - began < 30.0


@pytest.mark.server
def test_nobody_who_listens_is_no_error() -> None:
    with InferenceServer(good(b"")) as server:
        url = server.url
    assert scrape_child.ask(at(url)) == Answer(url=url)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1/metrics",
        "127.0.0.1:8000",
        "http://user:secret@127.0.0.1/metrics",
        "http://127.0.0.1:99999/metrics",
        "http://127.0.0.1/a b",
        "http://10.1.2.3:8000/metrics",
        "http://gpu-7/metrics",
        "",
    ],
)
def test_an_address_that_is_none_or_is_elsewhere_is_one_line(url: str) -> None:
    with pytest.raises(ConfigError, match=r"collector\.inference_urls"):
        address(url, anywhere=False)


def test_an_address_elsewhere_can_be_allowed() -> None:
    assert address("http://10.1.2.3:8000", anywhere=True).path == "/metrics"
    assert address("http://[::1]:8000/m?x=1", anywhere=False).name == "[::1]:8000"


_PARENT = """
import socket, subprocess, sys
listening = socket.create_server(("127.0.0.1", 0))
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print(listening.getsockname()[1], child.pid, flush=True)
sys.stdin.read()
child.kill()
"""


@pytest.mark.server
def test_the_gpus_that_serve_are_those_of_who_listens_and_of_its_children() -> None:
    words = [sys.executable, "-c", _PARENT]
    with (
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as two,
    ):
        assert one.stdout is not None
        assert two.stdout is not None
        port, engine = map(int, one.stdout.readline().split())
        _, other = map(int, two.stdout.readline().split())
        where = at(f"http://127.0.0.1:{port}/metrics")
        on = {"GPU-a": (engine,), "GPU-b": (one.pid,), "GPU-c": (other,), "GPU-d": (2**22 + 1,)}
        assert serving(PROC, where, on) == ("GPU-a", "GPU-b")
        assert serving(PROC, at("http://127.0.0.1:1/metrics"), on) == ()
        one.communicate()
        two.communicate()
