"""`gpuvigil collect --release` on a real driver: every `/dev/nvidia*` is closed, and read again after."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.agent.maintenance import open_devices
from gpuvigil.model import Unmeasured
from tests.collector.agent import ROOT, Agent
from tests.collector.receiver import Receiver, field
from tests.polling import wait_until


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def agent(tmp_path: Path, receiver: Receiver) -> Iterator[Agent]:
    agent = Agent(tmp_path / "agent", receiver.url)
    agent.settings.update(tick_seconds=1.0, driver_timeout_seconds=2.0, sysfs_root="/sys")
    try:
        yield agent
    finally:
        agent.end()


def held(agent: Agent) -> list[str]:
    """Device files that the agent or its reader has open."""
    pids = [agent.pid, *([reader] if (reader := agent.reader()) else [])]
    return [name for pid in pids for name in open_devices(pid)]


def newest(receiver: Receiver, name: str) -> object:
    lines = receiver.lines("gpu")
    return field(max(lines, key=lambda line: line.at_ns or 0), name) if lines else None


def test_a_release_closes_every_device_file(agent: Agent, receiver: Receiver) -> None:
    agent.start()
    wait_until("a GPU that answers", lambda: newest(receiver, "up") == 1, 60)
    assert held(agent)
    config = str(agent.directory / "config.toml")
    command = [sys.executable, "-m", "gpuvigil", "collect", "--config", config]
    began = time.monotonic()
    done = subprocess.run([*command, "--release", "10m"], cwd=ROOT, check=True, capture_output=True)
    seconds = time.monotonic() - began
    sys.stdout.write(f"{done.stdout.decode()}{seconds:.2f} s with Python's start\n")
    assert held(agent) == []
    released = Unmeasured.RELEASED_FOR_MAINTENANCE
    wait_until("the word on it", lambda: newest(receiver, "unmeasured_reason") == released)
    subprocess.run([*command, "--reattach"], cwd=ROOT, check=True)
    wait_until("a GPU that answers again", lambda: newest(receiver, "up") == 1, 60)
    assert held(agent)
