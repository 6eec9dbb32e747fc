"""What a whole agent tells of ranks on its GPUs, and how soon of one that died."""

import subprocess
import time
from pathlib import Path

import pytest

from tests.collector.agent import Agent
from tests.collector.receiver import Receiver
from tests.collector.rows import UUIDS, gpu_field
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

pytestmark = pytest.mark.server


def test_a_rank_that_died_is_told_before_the_next_tick(
    agent: Agent, driver: FakeDriver, receiver: Receiver, tmp_path: Path
) -> None:
    steps = tmp_path / "steps"
    steps.mkdir()
    with subprocess.Popen(["sleep", "100"]) as rank:
        (steps / str(rank.pid)).write_text("7 1.0 rank=3 world=8 own_seconds=0.5\n")
        driver.set_processes(1, {rank.pid: 10**9})
        driver.set(1, power_milliwatts=200_000)
        agent.environment = driver.environment()
        agent.settings |= {"tick_seconds": 60.0, "steps_directory": str(steps)}
        agent.start()
        wait_until("its step", lambda: gpu_field(receiver, UUIDS[1], "step_own_seconds") == 0.5)
        watts = gpu_field(receiver, UUIDS[1], "power_watts")
        rank.kill()
        rank.wait()
    began = time.monotonic()
    gone = wait_until("gone", lambda: gpu_field(receiver, UUIDS[1], "rank_gone_seconds"))
    assert 2.0 <= float(str(gone)) < 10.0
    assert time.monotonic() - began < 15.0
    # All else is as it was, in a line of its own time.
    assert gpu_field(receiver, UUIDS[1], "power_watts") == watts
    assert gpu_field(receiver, UUIDS[1], "step") is None
    assert gpu_field(receiver, UUIDS[2], "up") == 1
