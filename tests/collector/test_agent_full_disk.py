"""The whole agent with a spool on a disk that is full: a file system of its own, and kill -9."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector.agent import Agent
from tests.collector.receiver import Receiver, as_a_hub, refusing
from tests.collector.rows import node_field
from tests.disk import Disk
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

pytestmark = pytest.mark.server

DISK_KIB = 100


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk", DISK_KIB)
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
