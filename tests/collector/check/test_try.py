"""`gpuvigil try` on a node: the real command, a fake driver, and processes that hold its GPUs."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from collector.check.facts import DriverFacts, Facts, GpuFacts
from collector.check.over_time import HELD_BACK_SHARE, Holder, idle, slow
from gpuvigil.model import GpuIdentity
from tests.collector.check.node import ROOT, Node
from tests.nvml_fake import FakeDriver

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)
GPU = GpuIdentity(uuid="GPU-1", index=0, pci_address="0000:20:00.0", model="H100")

CALL = "import sys; from collector.check.try_command import main; sys.exit(main(sys.argv[1:]))"
TRY = (sys.executable, "-c", CALL)


def look(seconds: float, processes: tuple[int, ...] | None = (7,), **values: float) -> Facts:
    gpu = GpuFacts(index=0, identity=GPU, values=dict(values), processes=processes)
    facts = Facts(node="n", cluster="c", at=AT + timedelta(seconds=seconds), gpus={0: gpu})
    return replace(facts, driver=DriverFacts(version="1", gpus=1))


def who(pid: int) -> Holder:
    return Holder(pid=pid)


def test_idle_is_who_holds_a_gpu_and_did_nothing_at_every_look() -> None:
    zero, some = look(0, utilization_percent=0), look(15, utilization_percent=1)
    assert [one.uuid for one in idle([zero, look(15, utilization_percent=0)], who)] == ["GPU-1"]
    assert not idle([zero, some, zero], who)
    assert not idle([zero], who)
    assert not idle([zero, look(15, (), utilization_percent=0)], who)
    assert not idle([zero, look(15)], who)


def test_clocks_that_are_held_down_are_slow_from_a_share_of_the_time_on() -> None:
    first = look(0, power_brake_seconds=5.0)
    just = 20.0 * HELD_BACK_SHARE
    assert not slow([first, look(20, power_brake_seconds=5.0 + just)])
    (said,) = slow([first, look(20, power_brake_seconds=5.0 + just + 0.2)])
    assert said.what == "held back by the power brake for 6% of the time"
    assert not slow([look(0), look(20, power_brake_seconds=20.0)])


def test_an_error_counter_that_grows_is_told_and_one_of_work_is_not() -> None:
    (said,) = slow([look(0, pcie_replays=5), look(20, pcie_replays=7)])
    assert said.what == "pcie replays: 2 more in 20 s"
    assert not slow([look(0, pcie_replays=5), look(20, pcie_replays=5)])
    assert not slow([look(0, pcie_receive_bytes=5), look(20, pcie_receive_bytes=9)])


@pytest.mark.server
def test_a_node_is_told_what_is_wrong_and_idle_and_by_whom(
    tmp_path: Path, driver: FakeDriver
) -> None:
    node = Node(tmp_path, driver, gpus=4)
    held = subprocess.Popen(["sleep", "60"])
    try:
        driver.set_processes(0, {held.pid: 1024**3})
        driver.set(0, utilization_gpu_percent=0)
        driver.set(1, remapped_failure=1)
        command = [*TRY, "--config", str(node.config), "--seconds", "1"]
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=ROOT, env=node.environment, capture_output=True, text=True, check=False
        )
        assert time.monotonic() - began >= 1.0
        assert done.returncode == 4, done.stderr
        assert "GPU 1 (" in done.stdout.splitlines()[0]
        (line,) = [it for it in done.stdout.splitlines() if it.startswith("idle")]
        assert f"pid {held.pid} (" in line
        assert ", sleep), for" in line
        assert "4 GPUs: 1 held and idle, 3 free" in done.stdout
        told = subprocess.run(
            [*command, "-o", "json"],
            cwd=ROOT,
            env=node.environment,
            capture_output=True,
            check=False,
        )
        value = json.loads(told.stdout)
        assert value["idle"][0]["holders"][0]["pid"] == held.pid
        assert (value["free"], value["looks"], value["result"]) == (3, 3, "critical")
        assert os.path.exists(f"/proc/{held.pid}")
    finally:
        held.kill()
        held.wait()


@pytest.mark.server
def test_where_no_gpu_is_in_sight_that_is_said(tmp_path: Path, driver: FakeDriver) -> None:
    node = Node(tmp_path, driver, gpus=0)
    without = {name: it for name, it in node.environment.items() if name != "LD_LIBRARY_PATH"}
    command = [*TRY, "--config", str(node.config), "--seconds", "1"]
    done = subprocess.run(
        command, cwd=ROOT, env=without, capture_output=True, text=True, check=True
    )
    assert "\nnot looked at: NVIDIA GPUs: none in sight, and " in f"\n{done.stdout}"
    seen = subprocess.run(
        command, cwd=ROOT, env=node.environment, capture_output=True, text=True, check=False
    )
    assert "none in sight" not in seen.stdout
