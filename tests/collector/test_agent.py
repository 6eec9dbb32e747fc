"""The whole agent as processes: real pynvml on a fake driver, a real hub-like server."""

import os
import signal
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from gpuvigil.clock import from_text
from gpuvigil.lineprotocol import Line
from gpuvigil.model import Inventory, Record, Unmeasured
from tests.collector.agent import ROOT, Agent
from tests.collector.receiver import Receiver, Reply, as_a_hub, field, tag
from tests.collector.rows import (
    UUIDS,
    gpu_field,
    gpu_row,
    is_silent,
    is_up,
    node_field,
    node_row,
    reason,
    rows_are,
)
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until
from tests.sysfs import PciTree, PortTree

pytestmark = pytest.mark.server


@pytest.fixture
def watching(agent: Agent, driver: FakeDriver, receiver: Receiver) -> Agent:
    """The agent on a node with four GPUs, after its first tick and its first inventory."""
    agent.environment = driver.environment()
    agent.start()
    wait_until("a row of every GPU", lambda: all(gpu_row(receiver, uuid) for uuid in UUIDS))
    wait_until("the inventory", lambda: receiver.records("inventory"))
    return agent


def test_every_gpu_is_told_with_its_numbers(watching: Agent, receiver: Receiver) -> None:
    line = gpu_row(receiver, UUIDS[2])
    assert line is not None
    assert tag(line, "cluster") == "c"
    assert tag(line, "model") == "NVIDIA H100 80GB HBM3"
    assert field(line, "index") == 2
    assert field(line, "power_watts") == 72.0
    assert field(line, "memory_total_bytes") == 85520809984
    assert reason(line) is None
    node = wait_until("a row of the node", lambda: node_row(receiver))
    assert (field(node, "gpus_expected"), field(node, "gpus_answering")) == (4, 4)
    assert field(node, "driver_answering") == 1


def test_a_start_tells_boot_and_inventory(watching: Agent, receiver: Receiver) -> None:
    (boot,) = wait_until("the boot event", lambda: receiver.events("boot"))
    assert boot["subject"] == "c/n1"
    inventory = wait_until("the inventory", lambda: receiver.records("inventory"))[-1]
    assert [gpu["uuid"] for gpu in inventory["body"]["gpus"]] == UUIDS
    assert inventory["body"]["driver_state"] == "loaded"
    assert inventory["body"]["tick_seconds"] == 0.25
    assert inventory["body"]["kernel"] == os.uname().release


def test_a_collector_that_is_stopped_in_order_says_so_and_one_that_is_killed_does_not(
    watching: Agent, receiver: Receiver
) -> None:
    watching.kill()
    watching.start()
    wait_until("another boot", lambda: len(receiver.events("boot")) == 2)
    assert not receiver.events("stopped")
    assert watching.stop() == 0
    (event,) = receiver.events("stopped")
    assert event["subject"] == "c/n1"


def test_a_mount_that_fills_up_and_memory_errors_are_in_the_nodes_row(
    agent: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    edac = Path(str(agent.settings["sysfs_root"])) / "devices/system/edac/mc/mc0"
    edac.mkdir(parents=True)
    for name, count in (("ce_count", "5"), ("ue_count", "0")):
        (edac / name).write_text(count)
    agent.environment = driver.environment()
    agent.settings |= {"machine_seconds": 0.2}
    agent.start()
    wait_until("memory errors", lambda: node_field(receiver, "memory_errors_corrected") == 5, 20.0)
    assert node_field(receiver, "memory_errors_uncorrected") == 0
    assert node_field(receiver, "mounts_hung") == 0
    assert agent.stop() == 0


def test_a_hub_that_does_not_say_what_a_node_had_is_asked_once(
    agent: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    receiver.behave = lambda request: (
        Reply(status=404, body=b"{}") if "inventory" in request.path else as_a_hub(request)
    )
    agent.environment = driver.environment()
    agent.start()
    wait_until("the inventory", lambda: receiver.records("inventory"))
    assert len(receiver.asked) == 1
    agent.stop()
    agent.start()
    wait_until("another", lambda: len(receiver.events("boot")) == 2)
    assert len(receiver.asked) == 1


def test_gpus_on_the_bus_without_a_driver_and_those_of_other_makers_are_told(
    agent: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    bus = PciTree(Path(str(agent.settings["sysfs_root"])))
    bus.add("0000:1b:00.0", driver=None)
    bus.add("0000:43:00.0", vendor="0x1002", kind="0x120000", driver="amdgpu")
    driver.unload()
    agent.environment = driver.environment()
    agent.start()
    wait_until(
        "the inventory",
        lambda: any(it["body"]["driverless_since"] for it in receiver.records("inventory")),
    )
    told = Inventory.from_record(Record.from_json(receiver.records("inventory")[-1]))
    assert [(gpu.vendor, gpu.driver) for gpu in told.on_bus] == [
        ("NVIDIA", None),
        ("AMD", "amdgpu"),
    ]
    config = str(agent.directory / "config.toml")
    command = [sys.executable, "-m", "gpuvigil", "collect", "--config", config, "--status"]
    line = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "on the PCI bus, without a driver: NVIDIA GPU 0000:1b:00.0" in line
    assert "not supported, and not read: AMD GPU 0000:43:00.0 (amdgpu)" in line


def test_an_xid_is_an_event_at_once(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    driver.xid(1, 79)
    (event,) = wait_until("the event", lambda: receiver.events("xid"), 2.0)
    assert event["subject"] == f"c/n1/gpu/{UUIDS[1]}"
    assert event["body"] == {"event": "xid", "message": "Xid 79", "xid": 79}


def test_one_hung_gpu_does_not_stop_the_others(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    others = [uuid for uuid in UUIDS if uuid != UUIDS[1]]
    driver.hang(1)
    wait_until("one silent GPU", rows_are(receiver, [UUIDS[1]], is_silent))
    seen = len(receiver.lines("gpu"))
    wait_until("more ticks", lambda: len(receiver.lines("gpu")) > seen + 8)
    assert rows_are(receiver, others, is_up)()
    assert (
        f'gpuvigil_gpu_up{{cluster="c",node="n1",uuid="{UUIDS[0]}",model="NVIDIA H100 80GB HBM3"}} 1\n'
        in watching.metrics()
    )
    assert UUIDS[1] not in "".join(
        row for row in watching.metrics().splitlines() if row.startswith("gpuvigil_gpu_up{")
    )
    (event,) = receiver.events("driver_silent")
    assert event["subject"] == f"c/n1/gpu/{UUIDS[1]}"
    assert node_field(receiver, "driver_answering") == 1
    driver.release()
    wait_until("all GPUs up again", rows_are(receiver, UUIDS, is_up))
    (event,) = wait_until("the end of it", lambda: receiver.events("driver_back"))
    assert event["subject"] == f"c/n1/gpu/{UUIDS[1]}"


def test_a_driver_that_hangs_as_a_whole_leaves_the_agent_shipping(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    driver.hang_all()
    wait_until("silence of all GPUs", rows_are(receiver, UUIDS, is_silent))
    node = wait_until("a row of the node", lambda: node_row(receiver))
    assert field(node, "driver_answering") == 0
    assert field(node, "gpus_answering") == 0
    assert 'gpuvigil_node_driver_answering{cluster="c",node="n1"} 0\n' in watching.metrics()
    # On a busy machine the driver may have been silent before: each silence is told once.
    silences = receiver.events("driver_silent")
    assert len(silences) == len(receiver.events("driver_back")) + 1
    assert {event["subject"] for event in silences} == {"c/n1"}
    driver.release()
    wait_until("all GPUs up again", rows_are(receiver, UUIDS, is_up))
    wait_until(
        "the end of it",
        lambda: len(receiver.events("driver_back")) == len(receiver.events("driver_silent")),
    )
    assert {event["subject"] for event in receiver.events("driver_back")} == {"c/n1"}


def test_a_reader_whose_calls_all_hang_is_replaced(
    agent: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    agent.settings["reader_patience_seconds"] = 1.5
    agent.environment = driver.environment()
    agent.start()
    wait_until("rows", rows_are(receiver, UUIDS, is_up))
    first = agent.reader()
    driver.hang_all()
    wait_until("another reader", lambda: agent.reader() not in {first, None})
    # The new one hangs as well, which nobody may take for an answer.
    wait_until(
        "a restart told",
        lambda: node_field(receiver, "reader_restarts"),
    )
    assert rows_are(receiver, UUIDS, is_silent)()
    driver.release()
    wait_until("all GPUs up again", rows_are(receiver, UUIDS, is_up))
    assert len(receiver.events("driver_silent")) == 1


def test_a_lost_gpu_stays_visible_also_after_a_restart_of_the_agent(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    def is_lost(line: Line) -> bool:
        return field(line, "up") == 0 and reason(line) == Unmeasured.LOST

    driver.lose(3)
    wait_until("the lost GPU", rows_are(receiver, [UUIDS[3]], is_lost))
    (event,) = receiver.events("gpu_lost")
    assert event["subject"] == f"c/n1/gpu/{UUIDS[3]}"
    watching.stop()
    before = len(receiver.lines("gpu"))
    # After a boot the driver does not even list it, and the others move up.
    driver.set(3, missing=1)
    watching.start()
    wait_until("ticks of the new agent", lambda: len(receiver.lines("gpu")) > before + 8)
    assert rows_are(receiver, [UUIDS[3]], is_lost)()
    node = wait_until("a row of the node", lambda: node_row(receiver))
    assert (field(node, "gpus_expected"), field(node, "gpus_answering")) == (4, 3)


def test_a_gpu_that_comes_back_is_told(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    driver.lose(0)
    wait_until("the loss", lambda: receiver.events("gpu_lost"))
    driver.restore(0)
    wait_until("the return", lambda: receiver.events("gpu_back"))
    wait_until("its numbers", rows_are(receiver, [UUIDS[0]], is_up))


def test_a_reset_is_an_event_and_energy_never_falls(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    driver.set(0, power_milliwatts=700_000, pcie_replays=5)
    wait_until("replays", lambda: gpu_field(receiver, UUIDS[0], "pcie_replays") == 5)
    driver.reset(0)
    (event,) = wait_until("the reset", lambda: receiver.events("gpu_reset"))
    assert event["subject"] == f"c/n1/gpu/{UUIDS[0]}"
    driver.set(0, pcie_replays=2)
    wait_until(
        "more replays",
        lambda: gpu_field(receiver, UUIDS[0], "pcie_replays") == 7,
    )
    mine = [line for line in receiver.lines("gpu") if tag(line, "uuid") == UUIDS[0]]
    mine.sort(key=lambda line: line.at_ns or 0)
    energy = [field(line, "energy_joules") for line in mine]
    assert energy == sorted(energy)


def test_a_killed_reader_is_replaced(watching: Agent, receiver: Receiver) -> None:
    first = watching.reader()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until("another reader", lambda: watching.reader() not in {first, None})
    seen = len(receiver.lines("gpu"))
    wait_until("its rows", lambda: len(receiver.lines("gpu")) > seen + 4)


def test_a_frozen_reader_is_replaced(agent: Agent, driver: FakeDriver, receiver: Receiver) -> None:
    agent.settings["reader_patience_seconds"] = 3.0
    agent.environment = driver.environment()
    agent.start()
    wait_until("rows", rows_are(receiver, UUIDS, is_up))
    first = agent.reader()
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    wait_until("silence of all GPUs", rows_are(receiver, UUIDS, is_silent))
    wait_until("another reader", lambda: agent.reader() not in {first, None})
    wait_until("all GPUs up again", rows_are(receiver, UUIDS, is_up))


def test_a_killed_agent_leaves_no_reader_behind(watching: Agent) -> None:
    reader = watching.reader()
    watching.kill()
    wait_until("the reader's end", lambda: not Path(f"/proc/{reader}").exists())


def test_a_clean_stop_leaves_no_reader_and_goes_on_where_it_was(
    watching: Agent, receiver: Receiver
) -> None:
    reader = watching.reader()
    assert watching.stop() == 0
    assert not Path(f"/proc/{reader}").exists()
    watching.start()
    boots = wait_until("a second boot", lambda: len(receiver.events("boot")) == 2)
    assert boots


def test_a_node_without_a_driver_says_so_once_and_watches_its_ports(
    agent: Agent, receiver: Receiver, tmp_path: Path
) -> None:
    tree = PortTree(tmp_path / "agent/sys")
    tree.infiniband("mlx5_0")
    agent.environment = {"LD_LIBRARY_PATH": ""}
    agent.start()
    wait_until("rows of the port", lambda: len(receiver.lines("port")) > 3)
    assert agent.said().count("no NVIDIA driver: watching ports only") == 1
    node = wait_until("a row of the node", lambda: node_row(receiver))
    assert field(node, "gpus_expected") == 0
    assert field(node, "driver_answering") is None
    assert not receiver.lines("gpu")


def test_a_port_that_goes_down_and_up_is_told_within_two_seconds(
    agent: Agent, receiver: Receiver, tmp_path: Path
) -> None:
    tree = PortTree(tmp_path / "agent/sys")
    tree.infiniband("mlx5_0")
    agent.settings.update(gpus=False, tick_seconds=10, port_poll_seconds=1)
    agent.start()
    wait_until("a row of the port", lambda: receiver.lines("port"))
    tree.down("mlx5_0")
    (event,) = wait_until("down", lambda: receiver.events("port_down"), 2.0)
    assert event["subject"] == "c/n1/port/mlx5_0/1"
    tree.up("mlx5_0")
    wait_until("up", lambda: receiver.events("port_up"), 2.0)


def test_a_hub_that_was_away_gets_everything_once(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    good = receiver.behave
    receiver.behave = lambda _: None
    began = len(receiver.attempts)
    wait_until("attempts in vain", lambda: len(receiver.attempts) > began + 2)
    driver.xid(2, 48)
    wait_until("bodies on disk", lambda: len(list(watching.directory.glob("spool/*.body"))) > 3)
    receiver.behave = good
    wait_until("the event", lambda: receiver.events("xid"))
    wait_until("an empty spool", lambda: not list(watching.directory.glob("spool/*.body")))
    identities = [r.identity for r in receiver.accepted if not r.is_records]
    assert len(identities) == len(set(identities))
    live = sorted(int(i[3] or 0) for i in identities if i[2] == "live")
    assert live == list(range(1, len(live) + 1))


def test_an_event_survives_kill_9_of_the_agent(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    good = receiver.behave
    receiver.behave = lambda _: None
    driver.xid(2, 48)
    # What is being sent is on disk before that.
    wait_until("an attempt", lambda: any(b'"xid"' in r.content for r in list(receiver.attempts)))
    watching.kill()
    receiver.behave = good
    watching.start()
    (event,) = wait_until("the event", lambda: receiver.events("xid"))
    assert event["body"]["xid"] == 48


def test_the_reader_carries_nothing_that_it_does_not_need() -> None:
    script = "import collector.reader, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    costly = {"prometheus_client", "http.client", "ssl", "logging", "tomllib", "asyncio"}
    assert not (costly | {"gpuvigil.model"}) & set(loaded.stdout.split())


def test_a_missing_token_is_one_line_and_exit_code_2(agent: Agent) -> None:
    agent.start()
    agent.end()
    (agent.directory / "token").unlink()
    agent.start()
    assert agent.process is not None
    assert agent.process.wait(10) == 2
    assert "cannot read the collector token in" in agent.said()
    assert "put it there, or name another file in hub.collector_token_file" in agent.said()
    assert agent.said().count("\n") == 1


def test_a_token_that_the_hub_refuses_is_named_by_its_file_and_the_end_is_told(
    agent: Agent, receiver: Receiver
) -> None:
    receiver.behave = lambda _: Reply(status=401)
    agent.start()
    file = agent.directory / "token"
    todo = f"write a collector token that this hub knows into {file}"
    wait_until("what to do", lambda: todo in agent.said())
    assert agent.stop() == 0
    assert "collector stopped spool_bytes=" in agent.said()


def test_what_the_page_says_of_a_node(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    driver.xid(1, 48)
    wait_until("the event", lambda: receiver.events("xid"))
    named = f'uuid="{UUIDS[1]}"'

    def told() -> bool:
        lines = [line for line in watching.metrics().splitlines() if named in line]
        xid = any('xid="48"} 1' in line for line in lines)
        return xid and any(line.startswith("gpuvigil_gpu_info{") for line in lines)

    wait_until("its Xid and its names", told)
    assert "gpuvigil_node_last_tick_timestamp_seconds{" in watching.metrics()
    watching.stop()
    watching.settings["metrics_details"] = False
    watching.start()
    wait_until("the page", lambda: "gpuvigil_gpu_info{" in watching.metrics())
    assert "gpuvigil_driver_calls_total" not in watching.metrics()


def test_two_agents_on_one_spool_are_refused(watching: Agent, tmp_path: Path) -> None:
    second = Agent(tmp_path / "second", "http://127.0.0.1:1")
    second.settings["spool_directory"] = watching.settings["spool_directory"]
    second.start()
    assert second.process is not None
    assert second.process.wait(10) == 2
    assert "is used by another collector" in second.said()


def test_who_computes_on_a_gpu_is_told_until_it_ends(
    agent: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    agent.environment = driver.environment()
    driver.set_processes(1, {os.getpid(): 1 << 30})
    began = datetime.now(timezone.utc)
    agent.start()
    (held,) = wait_until("the holder", lambda: receiver.records("allocation"))
    assert held["subject"] == f"c/n1/gpu/{UUIDS[1]}"
    assert held["body"]["holder"] == f"pid {os.getpid()}"
    assert held["body"]["ended_at"] is None
    # This process is older; that it was there at the first look is said.
    assert held["body"]["began_before"] is True
    assert from_text(held["at"]) > began
    # Whoever goes while the agent is away is found to be gone.
    agent.stop()
    driver.set_processes(1, {})
    agent.start()
    wait_until("the end", lambda: len(receiver.records("allocation")) == 2)
    ended = receiver.records("allocation")[-1]
    assert (ended["id"], ended["version"]) == (held["id"], 2)
    assert ended["body"]["ended_at"] is not None


def test_a_wiped_memory_makes_no_old_hold_young(
    agent: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    agent.environment = driver.environment()
    driver.set_processes(1, {os.getpid(): 1 << 30})
    agent.start()
    (old,) = wait_until("the holder", lambda: receiver.records("allocation"))
    # A restart tells nothing anew.
    agent.stop()
    receiver.accepted.clear()
    agent.start()
    wait_until("the inventory", lambda: receiver.records("inventory"))
    agent.stop()
    assert receiver.records("allocation") == []
    (agent.directory / "spool/node.json").unlink()
    receiver.held = [old]
    agent.start()
    wait_until("the inventory", lambda: receiver.records("inventory"))
    wait_until("a question", lambda: receiver.asked)
    driver.set_processes(1, {})

    def ends() -> list[dict[str, Any]]:
        return [one for one in receiver.records("allocation") if one["body"]["ended_at"]]

    wait_until("its end", lambda: [one for one in ends() if one["id"] == old["id"]])
    (end,) = [one for one in ends() if one["id"] == old["id"]]
    assert (end["at"], end["version"]) == (old["at"], 2)
    # What was seen before the hub had answered is of no length.
    for one in receiver.records("allocation"):
        if one["id"] != old["id"] and one["body"]["ended_at"]:
            assert one["body"]["ended_at"] == one["at"]
    young = {one["id"] for one in receiver.records("allocation")} - {old["id"]}
    assert young <= {one["id"] for one in ends()}
