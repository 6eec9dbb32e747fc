"""A fault of the sensors becomes a message, in seconds, on real processes."""

import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import duckdb
import pytest

from gpuvigil.faults.gpu_states import gpu_state
from gpuvigil.model import GpuState, Inventory, RecordKind, Unmeasured
from tests.end_to_end.conftest import Site, about
from tests.polling import wait_until

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def test_an_xid_79_is_told_in_seconds_with_what_to_do(site: Site) -> None:
    site.driver.xid(3, 79)
    alert = site.told("gpu_lost").payload["alerts"][0]
    site.driver.lose(3)
    wait_until("the GPU is gone", lambda: [row for row in site.gpus() if row["up"] == 0])
    assert alert["labels"]["severity"] == "critical"
    assert alert["labels"]["node"] == "node-1"
    assert "GPU 3" in alert["annotations"]["summary"]
    assert "reboot" in alert["annotations"]["action"].lower()
    assert "79" in alert["annotations"]["evidence"]


def test_what_only_the_kernel_says_is_told_in_seconds(fresh_site: Site) -> None:
    """An SXid, which NVML has no word for, with the lines that belong to it."""
    switch = "nvidia-nvswitch1: SXid (PCI:0000:c1:00.0): 10003"
    fresh_site.kernel_says(
        f"{switch}, Fatal, Link -1 Host_unhandled_interrupt",
        f"{switch}, Severity 1 Engine instance 0 Sub-engine instance 00",
        f"{switch}, Data {{0x00000001, 0x00000001}}",
    )
    alert = fresh_site.told("nvswitch_error").payload["alerts"][0]
    assert alert["labels"]["severity"] == "critical"
    assert "SXid 10003" in alert["annotations"]["summary"]
    assert "reset all its GPUs and switches" in alert["annotations"]["action"]
    assert "reported at" in alert["annotations"]["evidence"]


def test_a_fatal_xid_within_a_burst_of_nonfatal_ones_is_told_as_critical(site: Site) -> None:
    (record,) = site.client().records(RecordKind.INVENTORY)
    gpu = Inventory.from_record(record).gpus[3]
    place = str(gpu.pci_address).lower()[4:].rpartition(".")[0]
    site.kernel_says(
        *(
            f"NVRM: Xid (PCI:{place}): 145, RLW_CTRL {word} XC1 i0 Link 08 (0x0 0x0 0x0 0x0 0x0 0x0)"
            for word in ("Nonfatal", "Fatal", "Nonfatal")
        )
    )

    def told() -> list[dict[str, dict[str, str]]]:
        messages = about(site.receiver.received(), "gpu_xid", "firing")
        alerts = [one.payload["alerts"][0] for one in messages]
        return [one for one in alerts if one["labels"]["severity"] == "critical"]

    alert = wait_until("the fatal one", told)[-1]
    assert "Xid 145: NVLink unit RLW_CTRL reports a fatal error" in alert["annotations"]["summary"]
    assert "RLW_CTRL nonfatal link 8" in alert["annotations"]["evidence"]
    # A reset cures it, for the tests that follow.
    site.kernel_says(f"nvidia {place}.0: reset done")


def test_a_lost_gpu_is_one_incident_until_it_is_back(site: Site) -> None:
    site.driver.lose(5)
    fired = site.told("gpu_lost")
    lost = wait_until(
        "the row of the lost GPU", lambda: [row for row in site.gpus() if row["up"] == 0]
    )
    assert [(row["index"], row["unmeasured_reason"]) for row in lost] == [(5, Unmeasured.LOST)]
    assert lost[0]["utilization_percent"] is None
    site.driver.restore(5)
    resolved = site.told("gpu_lost", "resolved")
    assert resolved.payload["alerts"][0]["fingerprint"] == fired.payload["alerts"][0]["fingerprint"]
    assert len(site.incidents()) == 1


def test_a_port_that_goes_down_is_told_in_seconds_and_again_when_it_is_up(site: Site) -> None:
    wait_until("both ports are seen", lambda: len(site.latest("port", ["up"])) == 2)
    site.ports.down("mlx5_1")
    fired = site.told("port_down")
    assert "mlx5_1" in fired.payload["alerts"][0]["annotations"]["summary"]
    site.ports.up("mlx5_1")
    site.told("port_down", "resolved")


def test_a_held_gpu_that_computes_nothing_is_named_with_its_holder(site: Site) -> None:
    site.driver.set(2, utilization_gpu_percent=0, utilization_memory_percent=0)
    site.driver.set_processes(2, {os.getpid(): 60_000_000_000})
    message = site.told("gpu_idle_held")
    alert = message.payload["alerts"][0]
    assert alert["labels"]["severity"] == "info"
    assert "GPU 2" in alert["annotations"]["summary"]
    assert f"pid {os.getpid()}" in str(alert["annotations"])


def all_but(site: Site, index: int) -> list[dict[str, object]] | None:
    """The rows of all GPUs once all but one are up, None before."""
    rows = site.gpus()
    up = {row["index"] for row in rows if row["up"] == 1}
    return rows if up == set(range(8)) - {index} else None


def test_one_hung_gpu_costs_only_its_own_numbers(site: Site) -> None:
    site.driver.hang(4)
    site.told("gpu_silent")
    rows = wait_until("seven GPUs answer and one does not", lambda: all_but(site, 4))
    (hung,) = [row for row in rows if row["up"] != 1]
    assert hung["up"] is None
    assert hung["unmeasured_reason"] == Unmeasured.DRIVER_NOT_ANSWERING
    site.driver.release()
    site.told("gpu_silent", "resolved")


def test_a_driver_that_hangs_whole_leaves_the_agent_shipping(site: Site) -> None:
    site.driver.hang_all()
    site.told("driver_silent")
    rows = site.gpus()
    assert len(rows) == 8
    assert {row["unmeasured_reason"] for row in rows} == {Unmeasured.DRIVER_NOT_ANSWERING}
    assert {row["up"] for row in rows} == {None}
    assert not about(site.receiver.received(), "gpu_silent", "firing")
    # Ports are watched meanwhile.
    site.ports.down("mlx5_0")
    site.told("port_down")
    site.driver.release()
    site.told("driver_silent", "resolved")


def test_a_release_makes_every_gpu_unavailable_and_opens_no_incident(site: Site) -> None:
    def reasons() -> set[object]:
        return {row["unmeasured_reason"] for row in site.gpus()}

    command = [sys.executable, "-m", "gpuvigil", "collect", "--config", str(site.config)]
    subprocess.run([*command, "--release", "1h"], check=True, capture_output=True)
    wait_until("released GPUs", lambda: reasons() == {Unmeasured.RELEASED_FOR_MAINTENANCE})
    # Longer than the window in which the analyzer would find something.
    time.sleep(6.0)
    assert reasons() == {Unmeasured.RELEASED_FOR_MAINTENANCE}
    states = {gpu_state(row, held=False, faults={}) for row in site.gpus()}
    assert states == {(GpuState.UNAVAILABLE, "released for maintenance")}
    assert site.incidents() == []
    subprocess.run([*command, "--reattach"], check=True, capture_output=True)
    wait_until("all GPUs are read again", lambda: reasons() == {None})
    time.sleep(2.0)
    assert site.incidents() == []
    assert site.receiver.received() == []


def test_a_node_that_lost_its_memory_gets_its_lost_gpu_back_from_the_hub(site: Site) -> None:
    site.driver.lose(6)
    fired = site.told("gpu_lost")
    site.processes["collect"].kill()
    site.processes["collect"].wait()
    shutil.rmtree(site.directory / "spool")
    site.driver.set(6, missing=1)
    site.start("collect", site.driver.environment())
    lost = wait_until(
        "the row of the lost GPU after the restart",
        lambda: [
            row
            for row in site.gpus()
            if row["up"] == 0 and float(str(row["unmeasured_seconds"] or 0)) > 2
        ],
    )
    assert [row["uuid"] for row in lost] == ["GPU-00000000-0000-4000-8000-000000000006"]
    assert len(site.incidents()) == 1
    again = about(site.receiver.received(), "gpu_lost", "firing")
    assert {one.payload["alerts"][0]["startsAt"] for one in again} == {
        fired.payload["alerts"][0]["startsAt"]
    }


def test_a_killed_hub_costs_no_alert_and_doubles_none(fresh_site: Site) -> None:
    before = datetime.now(timezone.utc)
    acknowledged = fresh_site.lines("gpu", before)
    fresh_site.hub.kill()
    fresh_site.driver.xid(1, 79)
    fresh_site.driver.lose(1)
    time.sleep(1.0)  # the outage itself: collectors spool, nobody answers
    fresh_site.hub.start()
    fresh_site.told("gpu_lost")
    assert fresh_site.lines("gpu", before) >= acknowledged
    fresh_site.driver.restore(1)
    fresh_site.told("gpu_lost", "resolved")
    fired = about(fresh_site.receiver.received(), "gpu_lost", "firing")
    assert len({one.payload["alerts"][0]["startsAt"] for one in fired}) == 1
    assert len(fresh_site.incidents()) == 1
    fresh_site.stop()
    fresh_site.hub.stop()
    assert doubled_lines(fresh_site.hub.data) == 0


def doubled_lines(data: Path) -> int:
    """Lines of one GPU with the same time, read from the store's own file."""
    (file,) = data.glob("*.duckdb")
    with duckdb.connect(str(file), read_only=True) as store:
        found = store.sql(
            'select count(*) - count(distinct (cluster, node, uuid, "at")) from gpu'
        ).fetchall()
    return int(found[0][0])


def test_a_silent_node_has_stopped_reporting_and_hides_its_gpus(site: Site) -> None:
    # One that nobody holds may reboot, and is awaited for longer.
    site.driver.set_processes(3, {os.getpid(): 60_000_000_000})
    held = partial(site.client().records, RecordKind.ALLOCATION, states=["held"])
    wait_until("somebody holds a GPU", lambda: bool(held()))
    site.processes["collect"].send_signal(signal.SIGSTOP)
    try:
        message = site.told("node_silent")
    finally:
        site.processes["collect"].send_signal(signal.SIGCONT)
    assert "stopped reporting" in message.payload["alerts"][0]["annotations"]["summary"]
    assert {
        one.payload["alerts"][0]["labels"]["alertname"] for one in site.receiver.received()
    } == {"node_silent"}
    site.told("node_silent", "resolved")
