"""The whole agent with a spool on a disk that is full: a file system of its own, and kill -9."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.collector.agent import ROOT, Agent
from tests.collector.receiver import Receiver, as_a_hub, refusing
from tests.collector.rows import node_field
from tests.disk import Disk
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

pytestmark = pytest.mark.server

DISK_KIB = 100
LARGE_KIB = 8 * 1024


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk", getattr(request, "param", DISK_KIB))
    try:
        if not disk.is_there:
            pytest.skip("no file system may be mounted here")
        yield disk
    finally:
        disk.end()


def metric(agent: Agent, name: str) -> float:
    (line,) = [line for line in agent.metrics().splitlines() if line.startswith(f"{name}{{")]
    return float(line.rpartition(" ")[2])


def test_a_full_disk_costs_only_the_oldest_numbers(
    agent: Agent, disk: Disk, driver: FakeDriver, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.behave = refusing(503)
    agent.within = disk.within
    agent.environment = driver.environment()
    agent.settings |= {"spool_directory": str(tmp_path / "disk"), "tick_seconds": 0.1}
    agent.start()
    wait_until("a full disk", lambda: "spool is full" in agent.said(), 60.0)
    # It goes on: /metrics answers with new numbers, and a restart finds a full disk.
    swept = metric(agent, "gpuvigil_node_spool_oldest_seconds")
    wait_until(
        "younger numbers",
        lambda: metric(agent, "gpuvigil_node_spool_oldest_seconds") > swept,
    )
    assert disk.free_kib() < 8
    agent.kill()
    agent.start()
    wait_until("an attempt", lambda: receiver.attempts)
    attempts = len(receiver.attempts)
    wait_until("further attempts", lambda: len(receiver.attempts) > attempts)
    receiver.behave = as_a_hub
    wait_until("everything that waited", lambda: node_field(receiver, "spool_bytes") == 0, 60.0)
    assert len(receiver.lines("gpu")) > 4
    assert agent.stop() == 0


@pytest.mark.parametrize("disk", [LARGE_KIB], indirect=True)
def test_a_full_disk_is_said_while_everything_still_reaches_the_hub_and_its_end_too(
    agent: Agent, disk: Disk, driver: FakeDriver, receiver: Receiver, tmp_path: Path
) -> None:
    agent.within = disk.within
    agent.environment = driver.environment()
    spool = tmp_path / "disk/spool"
    agent.settings |= {"spool_directory": str(spool), "tick_seconds": 0.1}
    agent.start()
    wait_until("a tick", lambda: node_field(receiver, "spool_writable") == 1, 60.0)
    assert "takes nothing" not in status(agent)
    ballast = disk.seen / "ballast"
    fill(ballast)
    wait_until("the sign", lambda: node_field(receiver, "spool_writable") == 0, 60.0)
    told = len(receiver.lines("node"))
    wait_until("60 ticks without room", lambda: len(receiver.lines("node")) >= told + 60, 60.0)
    with (agent.directory / "kmsg").open("a") as log:
        log.write("4,1,1000000,-;NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n")
    wait_until("an event", lambda: receiver.records("event"), 60.0)
    assert metric(agent, "gpuvigil_node_spool_writable") == 0
    assert metric(agent, "gpuvigil_node_dropped_bodies_total") == 0
    assert "spool's disk takes nothing since" in status(agent)
    assert "No space left on device" in status(agent)
    ballast.unlink()
    wait_until("the end", lambda: node_field(receiver, "spool_writable") == 1, 60.0)
    assert "takes nothing" not in status(agent)
    # No number between the first and the last is missing.
    sent = [int(it.identity[3] or 0) for it in receiver.accepted if it.identity[2] == "live"]
    assert sorted(sent) == list(range(1, max(sent) + 1))
    said = agent.said()
    assert said.count("spool cannot be written") == 1
    assert said.count("spool can be written again") == 1
    assert agent.stop() == 0


def test_what_neither_the_disk_nor_the_memory_holds_is_dropped_and_counted(
    agent: Agent, disk: Disk, driver: FakeDriver, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.behave = refusing(503)
    agent.within = disk.within
    agent.environment = driver.environment()
    agent.settings |= {"spool_directory": str(tmp_path / "disk/spool"), "tick_seconds": 0.1}
    agent.start()
    wait_until("a tick", lambda: "gpuvigil_node_spool_bytes" in agent.metrics(), 60.0)
    wait_until("a body on disk", lambda: metric(agent, "gpuvigil_node_spool_bytes") > 0, 60.0)
    fill(disk.seen / "ballast")
    wait_until("the sign", lambda: metric(agent, "gpuvigil_node_spool_writable") == 0, 60.0)
    wait_until(
        "what gave way", lambda: metric(agent, "gpuvigil_node_dropped_bodies_total") > 0, 60.0
    )
    receiver.behave = as_a_hub
    # What is in memory goes out, though nothing can be written.
    wait_until("the last tick", lambda: node_field(receiver, "spool_writable") == 0, 60.0)
    assert agent.stop() == 0


def fill(file: Path) -> None:
    """Leave no byte of room beside `file`."""
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(512))


def status(agent: Agent) -> str:
    """What `gpuvigil collect --status` prints."""
    config = str(agent.directory / "config.toml")
    command = [sys.executable, "-m", "gpuvigil", "collect", "--status", "--config", config]
    done = subprocess.run(
        [*agent.within, *command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout
