"""The agent on a driver that is sick: what goes on, what is told, and that it comes back by itself.

Real processes and signals. A driver call that hangs is a loop in the fake library; the uninterruptible
state is a real one, of a file system that does not answer (`tests/unanswered.py`).
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuvigil.model import Unmeasured
from tests.collector.agent import Agent
from tests.collector.receiver import Receiver, field
from tests.collector.rows import (
    UUIDS,
    gpu_field,
    gpu_row,
    is_silent,
    is_up,
    node_field,
    reason,
    rows_are,
)
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until
from tests.sysfs import PciTree, PortTree
from tests.unanswered import Unanswered, is_possible

pytestmark = pytest.mark.server

TICK_SECONDS = 0.5
SLOTS = ["0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0"]


@pytest.fixture
def watching(
    agent: Agent, driver: FakeDriver, receiver: Receiver, ports: PortTree, bus: PciTree
) -> Agent:
    """The agent on a node with four GPUs and a port, after its first rows.

    A driver call may take two seconds, unless two ticks are over before.
    """
    return started(agent, driver, receiver, TICK_SECONDS)


def started(
    agent: Agent,
    driver: FakeDriver,
    receiver: Receiver,
    tick_seconds: float,
    timeout_seconds: float = 2.0,
) -> Agent:
    agent.settings.update(
        tick_seconds=tick_seconds,
        driver_timeout_seconds=timeout_seconds,
        reader_patience_seconds=2.5,
    )
    agent.environment = driver.environment()
    agent.start()
    wait_until("a row of every GPU", rows_are(receiver, UUIDS, is_up))
    return agent


@pytest.fixture
def ports(tmp_path: Path) -> PortTree:
    tree = PortTree(tmp_path / "agent/sys")
    tree.infiniband("mlx5_0")
    return tree


@pytest.fixture
def bus(tmp_path: Path) -> PciTree:
    tree = PciTree(tmp_path / "agent/sys")
    for slot in SLOTS:
        tree.add(slot)
    return tree


@pytest.fixture
def unanswered(tmp_path: Path) -> Iterator[Unanswered]:
    if not is_possible():
        pytest.skip("the uninterruptible state needs root and /dev/fuse")
    with Unanswered(tmp_path / "unanswered") as unanswered:
        yield unanswered


def children(agent: Agent) -> list[int]:
    """The readers that the agent has, also one that was killed and is not gone."""
    return [int(pid) for pid in _children(agent.pid).read_text().split()]


def _children(pid: int) -> Path:
    return Path(f"/proc/{pid}/task/{pid}/children")


def a_second_reader(agent: Agent, seconds: float) -> list[int]:
    """The children of the first moment within `seconds` that saw more than one; else none."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = children(agent)
        if len(found) > 1:
            return found
        time.sleep(0.02)
    return []


def all_else_goes_on(agent: Agent, receiver: Receiver, ports: PortTree) -> None:
    """Kernel events, ports, `/metrics`, the node's row and shipping, while the driver is sick."""
    with (agent.directory / "kmsg").open("a") as kernel:
        xid = "NVRM: Xid (PCI:0000:43:00): 119, pid=1, Timeout after 6s of waiting for RPC response"
        kernel.write(f"4,1,{int(time.monotonic() * 1e6)},-;{xid}\n")
    (event,) = wait_until("a kernel event", lambda: receiver.events("xid"), 5.0)
    assert event["subject"] == f"c/n1/gpu/{UUIDS[1]}"
    ports.down("mlx5_0")
    wait_until("a port that goes down", lambda: receiver.events("port_down"), 5.0)
    seen = len(receiver.lines("node"))
    wait_until("more rows of the node", lambda: len(receiver.lines("node")) > seen + 1)
    assert "gpuvigil_node_load_average" in agent.metrics()
    assert not list(agent.directory.glob("spool/*.body"))


def seconds_to_stop(agent: Agent) -> float:
    began = time.monotonic()
    assert agent.stop() == 0
    return time.monotonic() - began


def unknown_rows(receiver: Receiver) -> Callable[[], bool]:
    return rows_are(receiver, UUIDS, is_silent)


def test_a_start_on_a_driver_that_hangs_tells_of_every_gpu_at_once_and_pages_nobody(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    watching.stop()
    driver.hang_all()
    watching.settings["reader_patience_seconds"] = 60.0
    watching.start()
    wait_until("silence of all GPUs", unknown_rows(receiver))
    assert not receiver.events("driver_silent")
    driver.release()
    wait_until("all GPUs are read", rows_are(receiver, UUIDS, is_up))
    assert not receiver.events("driver_silent")


def test_a_hang_of_every_call_is_told_within_two_ticks(
    agent: Agent, driver: FakeDriver, receiver: Receiver, ports: PortTree, bus: PciTree
) -> None:
    # A call that hangs has had its time well before the next tick, on a busy machine, too.
    watching = started(agent, driver, receiver, 2.0, timeout_seconds=1.0)
    driver.hang_all()
    wait_until("silence of all GPUs", unknown_rows(receiver))
    first = min(line.at_ns or 0 for line in receiver.lines("gpu") if is_silent(line))
    last = max(line.at_ns or 0 for line in receiver.lines("gpu") if is_up(line))
    # By the node's own clock, from the last row before it; less than a tick for a busy machine.
    assert (first - last) / 1e9 < 5.8
    since = gpu_field(receiver, UUIDS[0], "unmeasured_seconds")
    assert isinstance(since, float)
    assert since > 0
    all_else_goes_on(watching, receiver, ports)
    assert gpu_field(receiver, UUIDS[2], "pcie_present") == 1
    bus.remove(SLOTS[2])
    wait_until("a GPU that leaves the bus", lambda: is_lost(receiver, UUIDS[2]))
    assert gpu_field(receiver, UUIDS[2], "pcie_present") == 0
    bus.add(SLOTS[2])
    driver.release()
    wait_until("all GPUs up again", rows_are(receiver, UUIDS, is_up))
    assert gpu_field(receiver, UUIDS[0], "unmeasured_seconds") is None


def test_a_reader_that_cannot_be_killed_never_has_a_second_beside_it(
    watching: Agent,
    driver: FakeDriver,
    receiver: Receiver,
    ports: PortTree,
    unanswered: Unanswered,
) -> None:
    (first,) = children(watching)
    driver.block_in(unanswered.file)
    wait_until("silence of all GPUs", unknown_rows(receiver))
    wait_until("a thread in the kernel", lambda: "D" in states(first))
    wait_until("the attempt to end it", lambda: "reader cannot be ended" in watching.said())
    assert children(watching) == [first]
    all_else_goes_on(watching, receiver, ports)
    assert a_second_reader(watching, 2.0) == []
    assert seconds_to_stop(watching) < 5.0
    assert "D" in states(first)
    # Nor does another agent start one beside it.
    before = len(receiver.lines("gpu"))
    watching.start()
    wait_until("its rows", lambda: len(receiver.lines("gpu")) > before + 4)
    assert unknown_rows(receiver)()
    assert children(watching) == []
    assert "a reader of an earlier agent is stuck" in watching.said()
    assert seconds_to_stop(watching) < 5.0
    watching.start()
    unanswered.release()
    wait_until("all GPUs up again", rows_are(receiver, UUIDS, is_up))
    assert len(children(watching)) == 1
    assert not Path(f"/proc/{first}/task").exists() or states(first) in ([], ["Z"])


def states(pid: int) -> list[str]:
    """The state of every thread of a process, as ps shows it."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            found.append(task.read_text().rpartition(")")[2].split()[0])
        except OSError:
            continue
    return found


@pytest.mark.parametrize("state", ["one GPU hangs", "all hangs", "frozen", "lost"])
def test_a_stop_returns_in_every_state(
    watching: Agent, driver: FakeDriver, receiver: Receiver, state: str
) -> None:
    (reader,) = children(watching)
    if state == "one GPU hangs":
        driver.hang(1)
        wait_until("silence", rows_are(receiver, [UUIDS[1]], is_silent))
    elif state == "all hangs":
        driver.hang_all()
        wait_until("silence", unknown_rows(receiver))
    elif state == "frozen":
        os.kill(reader, signal.SIGSTOP)
        wait_until("silence", unknown_rows(receiver))
    else:
        driver.lose(1)
        wait_until("the loss", lambda: receiver.events("gpu_lost"))
    assert seconds_to_stop(watching) < 5.0
    assert not Path(f"/proc/{reader}").exists()


def is_lost(receiver: Receiver, uuid: str) -> bool:
    line = gpu_row(receiver, uuid)
    return line is not None and field(line, "up") == 0 and reason(line) == Unmeasured.LOST


def missing(receiver: Receiver) -> dict[str, str]:
    """By UUID, since when, as the last inventory says."""
    inventories = receiver.records("inventory")
    found: dict[str, str] = inventories[-1]["body"]["missing"] if inventories else {}
    return found


def test_a_lost_gpu_is_missing_since_then_also_when_the_node_has_lost_its_memory(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    driver.lose(3)
    wait_until("an inventory with the loss", lambda: missing(receiver))
    since = missing(receiver)
    assert list(since) == [UUIDS[3]]
    watching.stop()
    driver.set(3, missing=1)
    shutil.rmtree(watching.directory / "spool")
    receiver.inventory = receiver.records("inventory")[-1]
    # The hub is away at first.
    hub, receiver.behave = receiver.behave, lambda _: None
    told, asked = len(receiver.records("inventory")), len(receiver.asked)
    watching.start()
    wait_until("questions in vain", lambda: len(receiver.asked) > asked + 1)
    receiver.behave = hub
    wait_until("the lost GPU", lambda: is_lost(receiver, UUIDS[3]))
    wait_until("an inventory", lambda: len(receiver.records("inventory")) > told)
    # No inventory has taken the GPU out of the hub's meanwhile.
    for record in receiver.records("inventory")[told:]:
        assert [gpu["uuid"] for gpu in record["body"]["gpus"]][-1] == UUIDS[3]
        assert record["body"]["missing"] == since
        assert record["body"]["gpus"][-1]["pci_address"] == "00000000:61:00.0"
    assert len(receiver.events("gpu_lost")) == 1
    wait_until("all GPUs expected", lambda: node_field(receiver, "gpus_expected") == 4)
    seconds = gpu_field(receiver, UUIDS[3], "unmeasured_seconds")
    assert isinstance(seconds, float)
    assert seconds > 2
    driver.set(3, missing=0, lost=0)
    wait_until("the return", lambda: receiver.events("gpu_back"), 30)


def test_a_gpu_that_appears_is_followed(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    fifth = "GPU-00000000-0000-4000-8000-000000000004"
    driver.set_system(gpus=5)
    wait_until("the fifth GPU", rows_are(receiver, [fifth, *UUIDS], is_up), 30)
    assert node_field(receiver, "reader_restarts") == 0
    wait_until("the inventory", lambda: fifth in str(receiver.records("inventory")[-1]["body"]))


def test_a_driver_that_is_loaded_again_is_read_again_in_its_new_version(
    watching: Agent, driver: FakeDriver, receiver: Receiver, ports: PortTree
) -> None:
    module = ports.root / "module/nvidia/version"
    module.parent.mkdir(parents=True)
    driver.unload()
    wait_until(
        "a driver that is gone",
        lambda: reason(gpu_row(receiver, UUIDS[0])) == Unmeasured.DRIVER_NOT_LOADED,
    )
    wait_until("the reader's end", lambda: not children(watching))
    driver.load("580.65.06")
    module.write_text("580.65.06\n")
    wait_until("all GPUs up again", rows_are(receiver, UUIDS, is_up))
    wait_until(
        "the inventory",
        lambda: receiver.records("inventory")[-1]["body"]["driver"] == "580.65.06",
    )
    assert not receiver.events("gpu_lost")
