"""The control socket of a running agent."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.agent.control_socket import NAME, ControlServer, ask
from tests.shortage import shortage


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlServer]:
    server = ControlServer(tmp_path, lambda request, reply: reply({"ok": True, **request}))
    yield server
    server.close()


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("lacks", ["descriptors", "threads"])
def test_without_room_for_a_guest_the_door_stays_open(tmp_path: Path, lacks: str) -> None:
    guests = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    with shortage(lacks):
        for one in guests:
            one.connect(str(tmp_path / NAME))
            time.sleep(0.1)  # so that the server has tried
    assert ask(tmp_path, {"do": "status"}) == {"ok": True, "do": "status"}
    for one in guests:
        one.close()


def test_a_closed_door_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    server = ControlServer(tmp_path, lambda _, reply: reply({"ok": True}))
    assert ask(tmp_path, {}) == {"ok": True}
    server.close()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before
