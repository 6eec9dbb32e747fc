"""Faults leave the secondary traces of the real ones: at peers, in single links, in inventories."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from gpuvigil.model import Event, EventKind, GpuIdentity, Inventory
from simulator.fleet import Block, FaultOrder, Fleet
from simulator.fleet.kinds import KINDS
from tests.simulator.fleet import runs

pytestmark = [pytest.mark.slow, pytest.mark.site]

START, SECONDS = 3600.0, 7200.0
QUIET = runs.with_settings(seed=7, nodes=6, demand=1.0, workloads=("tensor parallel",), days=0.2)


@cache
def place() -> tuple[int, tuple[int, ...]]:
    """A GPU of a job that runs throughout on several nodes; and the job's GPUs."""
    jobs = runs.planned(QUIET).plan.jobs
    held = [job for job in jobs if job.start < START - 900.0 and job.end > START + SECONDS]
    job = max(held, key=lambda job: len(job.gpus))
    return job.gpus[3], job.gpus


def with_fault(kind: str, magnitude: float | None = None) -> tuple[Fleet, tuple[Block, ...]]:
    node, slot = divmod(place()[0], 8)
    target = KINDS[kind].target
    order = FaultOrder(
        kind=kind,
        node=node,
        gpu=slot if target == "gpu" else None,
        port=slot if target == "port" else None,
        start_seconds=START,
        seconds=SECONDS,
        magnitude=magnitude,
    )
    settings = replace(QUIET, faults=(order,), life=False)
    return runs.planned(settings), runs.played(settings)


def events(blocks: tuple[Block, ...]) -> list[Event]:
    return [event for block in blocks for event in block.events]


def xids(blocks: tuple[Block, ...]) -> list[int | None]:
    return [event.xid for event in events(blocks) if event.kind is EventKind.XID]


def inventories(blocks: tuple[Block, ...]) -> list[Inventory]:
    """Those of the fault's node, in their order."""
    name = f"sim-{place()[0] // 8:05d}"
    return [one for block in blocks for one in block.inventories if one.subject.node == name]


def rows_of(blocks: tuple[Block, ...], gpu: int, measurement: str = "gpu") -> list[dict[str, Any]]:
    uuid = runs.planned(QUIET).plan.topology.uuid(gpu)
    rows = runs.whole(blocks, measurement).to_pylist()
    return [row for row in rows if row["uuid"] == uuid]


def indices(gpus: tuple[GpuIdentity, ...]) -> Iterator[int | None]:
    return (gpu.index for gpu in gpus)


def test_peers_of_a_dead_gpu_spin_until_their_job_is_ended() -> None:
    _, blocks = with_fault("GSP hang")
    peer = place()[1][-1]
    tick = int((START + 300.0) / runs.TICK_SECONDS)
    spinning = rows_of(blocks, peer)[tick]
    assert spinning["utilization_percent"] == 100
    assert spinning["power_watts"] < 260
    after = rows_of(blocks, peer)[tick + 10]
    assert after["compute_processes"] == 0
    assert xids(blocks) == [119, 154]


def test_a_gpu_that_is_lost_comes_back_with_another_boot() -> None:
    _, blocks = with_fault("off the bus")
    first, *_, last = [one.boot for one in inventories(blocks)]
    assert first != last
    assert [one.missing != {} for one in inventories(blocks)] == [False, True, False]
    assert {79, 154} <= set(xids(blocks))
    told = [event.message for event in events(blocks) if event.xid == 79]
    assert told[0].startswith("Xid 79: GPU has fallen off the bus. [0000:")


def test_indices_move_up_where_a_gpu_did_not_come_up() -> None:
    _, blocks = with_fault("missing since boot")
    gone = place()[0] % 8
    while_missing = next(one for one in inventories(blocks) if one.missing)
    expected = [*range(gone), None, *range(gone, 7)]
    assert list(indices(while_missing.gpus)) == expected
    neighbour = rows_of(blocks, place()[0] + 1)
    assert [neighbour[0]["index"], neighbour[100]["index"]] == [gone + 1, gone]
    assert neighbour[-1]["index"] == gone + 1


def test_one_nvlink_counts_and_the_gpu_names_it() -> None:
    _, blocks = with_fault("NVLink CRC", 1.0)
    gpu = place()[0]
    counting = [row for row in rows_of(blocks, gpu, "nvlink") if row["crc_errors"] > 10]
    (link,) = {row["link"] for row in counting}
    assert len(counting) > 100  # a row whenever it has news
    late = rows_of(blocks, gpu)[150]
    assert late["nvlink_worst_link"] == int(link)
    assert late["nvlink_crc_errors"] >= late["nvlink_worst_link_errors"] > 3000
    others = [row for row in rows_of(blocks, gpu, "nvlink") if row["link"] != link]
    assert 17 * 3 <= len(others) <= 17 * 6  # the hourly rows


def test_links_that_are_down_are_down_in_their_rows() -> None:
    _, blocks = with_fault("NVLink down", 2.0)
    rows = rows_of(blocks, place()[0], "nvlink")
    down = {row["link"] for row in rows if row["up"] == 0}
    assert len(down) == 2
    assert all(row["up"] == 1 for row in rows if row["link"] not in down)
    assert rows_of(blocks, place()[0])[100]["nvlink_links_up"] == 16
    assert set(xids(blocks)) == {74}


def test_drift_stands_in_the_inventory_and_in_modes() -> None:
    _, blocks = with_fault("VBIOS drift")
    versions = [{gpu.vbios for gpu in one.gpus} for one in inventories(blocks)]
    assert [len(different) for different in versions] == [1, 2, 1]
    _, blocks = with_fault("MIG mode drift")
    sliced = rows_of(blocks, place()[0])[100]
    assert (sliced["mig_mode"], sliced["utilization_percent"]) == (1, None)
    assert sliced["power_watts"] > 50


def test_a_narrow_link_only_slows_what_is_faster_than_it() -> None:
    _, blocks = with_fault("PCIe width", 1.0)
    narrow = rows_of(blocks, place()[0])[100]
    assert narrow["pcie_width"] == 1
    assert 0 < narrow["pcie_receive_bytes_per_second"] <= 3.4e9
    assert narrow["pcie_recoveries"] == 1


def test_a_healthy_fleet_has_errors_now_and_then() -> None:
    rows = runs.whole(runs.played(runs.with_settings(nodes=40, days=0.5), tick_seconds=600.0))
    for field in ("pcie_replays", "nvlink_crc_errors", "remapped_rows_uncorrected"):
        some = sum(value > 0 for value in rows[field].to_pylist()[-320:])
        assert 0 < some < 160, field
    ports = runs.whole(
        runs.played(runs.with_settings(nodes=40, days=0.5), tick_seconds=600.0), "port"
    )
    assert any((value or 0) > 5 for value in ports["symbol_errors"].to_pylist()[-400:])
