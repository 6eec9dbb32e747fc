"""The kernel log through the whole agent: real processes, a file in the place of the device."""

import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuvigil.clock import from_text
from tests.collector.agent import Agent
from tests.collector.receiver import Receiver
from tests.collector.rows import UUIDS, gpu_row, is_silent, rows_are
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

pytestmark = pytest.mark.server


class KernelLog:
    """Writes records, each with the time since boot at which it is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sequence = 0

    def write(self, text: str) -> None:
        self._sequence += 1
        microseconds = int(time.monotonic() * 1e6)
        with self._path.open("a") as stream:
            stream.write(f"4,{self._sequence},{microseconds},-;{text}\n")


@pytest.fixture
def watching(agent: Agent, driver: FakeDriver, receiver: Receiver) -> Agent:
    agent.environment = driver.environment()
    agent.start()
    wait_until("a row of every GPU", lambda: all(gpu_row(receiver, uuid) for uuid in UUIDS))
    return agent


@pytest.fixture
def kernel(agent: Agent) -> KernelLog:
    return KernelLog(agent.directory / "kmsg")


def address(receiver: Receiver, uuid: str) -> str:
    """A GPU's address as the driver writes it into the kernel log."""
    inventory = wait_until("the inventory", lambda: receiver.records("inventory"))[-1]
    (gpu,) = [gpu for gpu in inventory["body"]["gpus"] if gpu["uuid"] == uuid]
    return str(gpu["pci_address"]).lower()[4:].rpartition(".")[0]


def xids(receiver: Receiver) -> list[tuple[str, int]]:
    return [(e["subject"].rpartition("/")[2], e["body"]["xid"]) for e in receiver.events("xid")]


def test_an_xid_of_both_sources_is_one_event_and_a_restart_repeats_none(
    watching: Agent, kernel: KernelLog, driver: FakeDriver, receiver: Receiver
) -> None:
    place = address(receiver, UUIDS[1])
    kernel.write(f"NVRM: Xid (PCI:{place}): 79, pid=1, GPU has fallen off the bus.")
    (event,) = wait_until("the event", lambda: receiver.events("xid"))
    assert event["subject"] == f"c/n1/gpu/{UUIDS[1]}"
    assert "fallen off the bus" in event["body"]["message"]
    assert abs(from_text(event["at"]).timestamp() - time.time()) < 5
    driver.xid(1, 79)
    driver.xid(1, 48)
    wait_until("what only NVML tells", lambda: len(xids(receiver)) == 2)
    assert xids(receiver) == [(UUIDS[1], 79), (UUIDS[1], 48)]

    watching.kill()
    kernel.write("Out of memory: Killed process 4711 (python3) total-vm:1kB")
    watching.start()
    (killed,) = wait_until("what came meanwhile", lambda: receiver.events("oom_kill"))
    assert "python3 (pid 4711)" in killed["body"]["message"]
    assert len(xids(receiver)) == 2


def test_what_the_kernel_said_before_the_first_start_is_told_of_its_gpu(
    watching: Agent, kernel: KernelLog, driver: FakeDriver, receiver: Receiver
) -> None:
    """Neither the node nor the hub knows which GPU is where, and the driver takes a while."""
    place = address(receiver, UUIDS[1])
    watching.kill()
    shutil.rmtree(watching.directory / "spool")
    kernel.write(f"NVRM: Xid (PCI:{place}): 31, pid=1, name=x, MMU Fault")
    kernel.write("Out of memory: Killed process 4711 (python3) total-vm:1kB")
    driver.delay("nvmlInit_v2", 1.0)
    watching.start()
    wait_until("both events", lambda: receiver.events("oom_kill") and receiver.events("xid"))
    assert xids(receiver) == [(UUIDS[1], 31)]


def test_a_storm_is_one_event_and_a_count(
    watching: Agent, kernel: KernelLog, receiver: Receiver
) -> None:
    for _ in range(300):
        kernel.write("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 11004, Non-fatal, Link 3 x")
    wait_until("the first", lambda: receiver.events("sxid"))
    assert watching.stop() == 0
    events: list[dict[str, Any]] = receiver.events("sxid")
    if len(events) == 1:  # the rest was written to disk at the end
        watching.start()
        wait_until("the rest", lambda: len(receiver.events("sxid")) == 2)
        events = receiver.events("sxid")
    assert [event["body"].get("count", 1) for event in events] == [1, 299]
    assert {event["subject"] for event in events} == {"c/n1"}


def has_heard(receiver: Receiver, count: int) -> bool:
    return len(xids(receiver)) >= count


def test_no_kill_loses_or_doubles_an_event(
    agent: Agent, kernel: KernelLog, receiver: Receiver
) -> None:
    """Killed wherever it is: what is sent twice has one name, by which the hub knows it again."""
    codes = range(1, 61)
    agent.start()
    for code in codes:
        kernel.write(f"NVRM: Xid (PCI:0000:05:00): {code}, words")
        if code % 20 == 0:
            wait_until("most of them", partial(has_heard, receiver, code - 5))
            agent.kill()
            agent.start()
        time.sleep(0.01)
    wait_until("all of them", lambda: {xid for _, xid in xids(receiver)} == set(codes))
    names = {event["id"]: event["body"]["xid"] for event in receiver.events("xid")}
    assert sorted(names.values()) == list(codes)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_the_journals_reader_ends_with_the_agent(
    agent: Agent, tmp_path: Path, end: str, receiver: Receiver
) -> None:
    program, pid_file = tmp_path / "journalctl", tmp_path / "pid"
    program.write_text(
        f"#!/bin/sh\necho $$ > {pid_file}.new\nmv {pid_file}.new {pid_file}\nexec sleep 600\n"
    )
    program.chmod(0o755)
    agent.settings |= {"kernel_log": str(tmp_path / "none"), "journalctl": str(program)}
    agent.start()
    wait_until("the child", pid_file.exists)
    pid = int(pid_file.read_text())
    assert runs(pid)
    getattr(agent, end)()
    wait_until("its end", lambda: not runs(pid))


def runs(pid: int) -> bool:
    """Whether the process is there and more than a zombie, which not every container's init reaps."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


def test_the_kernel_is_heard_while_the_driver_hangs(
    watching: Agent, kernel: KernelLog, driver: FakeDriver, receiver: Receiver
) -> None:
    place = address(receiver, UUIDS[2])
    driver.hang_all()
    wait_until("silence of all GPUs", rows_are(receiver, UUIDS, is_silent))
    kernel.write(
        f"NVRM: Xid (PCI:{place}): 119, pid=1, name=x, Timeout after 6s of waiting for RPC"
    )
    wait_until("the event", lambda: xids(receiver) == [(UUIDS[2], 119)])
    driver.release()
