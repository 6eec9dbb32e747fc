"""Every fault changes what it says, where it says, and nothing else."""

from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import Subject
from simulator.fleet import FaultOrder, Fleet, Truth, build
from simulator.fleet.kinds import KINDS
from tests.simulator.fleet import runs

pytestmark = [pytest.mark.slow, pytest.mark.site]

START, SECONDS = 3600.0, 10_800.0
QUIET = runs.with_settings(demand=0.9)
OF_THE_LEAF = {"congestion", "leaf down"}


def order(kind: str) -> FaultOrder:
    """The fault where a job runs throughout."""
    jobs = runs.planned(QUIET).plan.jobs
    held = next(
        job
        for job in jobs
        if job.workload.key == "data parallel" and job.start < START - 1800.0 and job.end > 2e4
    )
    node, slot = divmod(held.gpus[0], 8)
    target = KINDS[kind].target
    whole = KINDS[kind].hours[0] >= 1e6
    return FaultOrder(
        kind=kind,
        node=node,
        start_seconds=0.0 if whole else START,
        seconds=21_600.0 if whole else SECONDS,
        gpu=slot if target == "gpu" else None,
        port=slot if target == "port" else None,
    )


def around(fleet: Fleet, fault: FaultOrder) -> set[str]:
    """The nodes on which the fault may show: its own, its rack's, and those of its jobs."""
    topology = fleet.plan.topology
    nodes = {fault.node, *topology.nodes_of_rack(topology.places[fault.node].rack)}
    near = frozenset(range(topology.nodes) if fault.kind in OF_THE_LEAF else nodes)
    for job in runs.planned(QUIET).plan.jobs:
        of_job = {gpu // 8 for gpu in job.gpus}
        if fault.kind in OF_THE_LEAF and len(of_job) == 1:
            continue
        if job.end > fault.start_seconds and of_job & near:
            nodes |= of_job
    return {topology.places[node].name for node in nodes}


def without(table: pa.Table, nodes: set[str]) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table["node"], pa.array(sorted(nodes)))))


def same(left: pa.Table, right: pa.Table) -> bool:
    """Whether two tables hold the same; a column that one lacks is empty."""
    if left.num_rows != right.num_rows:
        return False
    names = sorted({*left.column_names, *right.column_names})
    return all(column(left, name).equals(column(right, name)) for name in names)


def column(table: pa.Table, name: str) -> pa.Array:
    """Floats or texts; nothing but nulls when the table lacks it."""
    if name not in table.column_names:
        return pa.nulls(table.num_rows, pa.float64())
    found = table[name].combine_chunks()
    return found.cast(pa.float64()) if pa.types.is_integer(found.type) else found


@cache
def digest_of_the_quiet() -> str:
    return runs.digest(runs.played(QUIET))


@cache
def quiet(measurement: str) -> pa.Table:
    return runs.whole(runs.played(QUIET), measurement)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_fault_changes_its_surroundings_and_nothing_else(kind: str) -> None:
    fault = order(kind)
    settings = replace(QUIET, faults=(fault,))
    fleet, sick, well = runs.planned(settings), runs.played(settings), runs.played(QUIET)
    near = around(fleet, fault)
    for measurement in ("gpu", "port", "node", "nvlink"):
        if measurement == "port" and kind in OF_THE_LEAF:
            continue
        here, there = runs.whole(sick, measurement), quiet(measurement)
        assert same(without(here, near), without(there, near)), measurement
    assert runs.digest(sick) != digest_of_the_quiet()
    for before, now in zip(well, sick, strict=True):
        if (before.end - QUIET.start).total_seconds() <= fault.start_seconds:
            assert now.tables["gpu"].equals(before.tables["gpu"])
            assert [e.id for e in now.events] == [e.id for e in before.events]


@cache
def row(kind: str, after: float = 1800.0) -> dict[str, Any]:
    """The row of the fault's GPU that long after its start."""
    fault = order(kind)
    until = QUIET.start + timedelta(seconds=fault.start_seconds + after + runs.TICK_SECONDS)
    fleet = build(replace(QUIET, faults=(fault,)))
    *_, block = fleet.blocks(end=until, tick_seconds=runs.TICK_SECONDS)
    subject = fleet.plan.topology.gpu_subject(fault.node * 8 + (fault.gpu or 0))
    table = runs.whole([block])
    *_, found = table.filter(pc.equal(table["uuid"], subject.gpu)).to_pylist()
    return dict(found)


def value(kind: str, field: str) -> float | None:
    found: float | None = row(kind)[field]
    return found


def test_faults_are_to_be_seen_in_the_fields_where_drivers_tell_them() -> None:
    assert value("off the bus", "up") == 0
    assert value("off the bus", "power_watts") is None
    assert value("off the bus", "unmeasured_seconds") == 1800
    assert value("missing since boot", "up") == 0
    assert value("GSP hang", "up") is None
    assert value("GSP hang", "unmeasured_reason") == 4
    assert value("remap pending", "remap_pending") == 1
    assert value("ECC mode drift", "ecc_mode") == 0
    assert value("PCIe width", "pcie_width") in {8, 4, 2, 1}
    assert (value("SBE storm", "ecc_corrected_errors") or 0) > 1000
    assert (value("lowered power limit", "power_limit_watts") or 0) < 640
    assert int(value("power brake", "clock_event_reasons") or 0) & 0x80
    assert value("hung process", "utilization_percent") == 100
    assert (value("hung process", "power_watts") or 0) < 250
    assert (value("stuck clocks", "sm_clock_hertz") or 0) < 1.75e9
    assert (value("HW thermal", "temperature_celsius") or 0) > 80
    assert value("zombie memory", "memory_used_bytes") == 31_000_000_000


@pytest.mark.parametrize("is_read", [True, False])
def test_a_mount_that_does_not_answer_shows_where_the_machine_itself_is_read(is_read: bool) -> None:
    hung = FaultOrder(kind="stale mount", node=0, start_seconds=600.0, seconds=600.0)
    settings = runs.with_settings(nodes=2, days=0.02, faults=(hung,), host_sensors=is_read)
    table = runs.whole(runs.played(settings), "node")
    assert ("mounts_hung" in table.column_names) is is_read
    if is_read:
        found = table.filter(pc.greater(table["mounts_hung"], 0))
        assert len(found) == 10
        assert len(set(found["node"].to_pylist())) == 1


def test_there_are_enough_kinds_and_each_says_what_to_do() -> None:
    assert len(KINDS) >= 35
    for kind in KINDS.values():
        assert kind.cause
        assert kind.action.endswith(".")
        assert kind.sizes == () or kind.unit


def test_a_magnitude_is_as_ordered() -> None:
    fault = replace(order("slow GPU"), magnitude=0.07)
    truth = build(replace(QUIET, faults=(fault,))).truths()[0]
    assert (truth.magnitude, truth.unit) == (0.07, "share of the speed")


@pytest.mark.parametrize("magnitudes", [("rack inlet", 5.0, 20.0), ("heatsink", 0.1, 0.6)])
def test_a_larger_magnitude_shows_more(magnitudes: tuple[str, float, float]) -> None:
    kind, low, high = magnitudes
    hottest = []
    for size in (low, high):
        fault = replace(order(kind), magnitude=size)
        settings = replace(QUIET, faults=(fault,))
        core = runs.grid(runs.planned(settings), runs.played(settings), "temperature_celsius")
        hottest.append(core[150:230, fault.node * 8 + (fault.gpu or 0)].mean())
    assert hottest[1] > hottest[0] + 3


DRAWN = runs.with_settings(life=True, days=3.0, nodes=40, fault_rate=800.0)


def test_truths_survive_json() -> None:
    truths = build(DRAWN).truths()
    assert len({truth.id for truth in truths}) == len(truths) > 40
    assert [Truth.from_json(truth.to_json()) for truth in truths] == truths


def test_truths_lie_within_the_horizon_and_apart() -> None:
    truths = build(DRAWN).truths()
    last: dict[tuple[Subject, str], Truth] = {}
    for truth in truths:
        assert DRAWN.start <= truth.start <= truth.detectable_from <= truth.end <= DRAWN.end
        before = last.get((truth.subject, truth.fault))
        assert before is None or before.end < truth.start
        last[truth.subject, truth.fault] = truth


def test_every_kind_can_be_drawn() -> None:
    settings = runs.with_settings(nodes=120, days=4.0, life=False, fault_rate=400.0)
    assert {truth.fault for truth in runs.planned(settings).truths()} == set(KINDS)


def test_what_a_watcher_cannot_be_asked_is_refused() -> None:
    for bad, words in (
        (FaultOrder(kind="gremlins", node=0, start_seconds=0.0, seconds=1.0), "gremlins"),
        (FaultOrder(kind="slow GPU", node=0, start_seconds=0.0, seconds=1.0), "needs a gpu"),
        (FaultOrder(kind="PSU", node=99, start_seconds=0.0, seconds=1.0), "no node 99"),
    ):
        with pytest.raises(ValueError, match=words):
            build(replace(QUIET, faults=(bad,)))


def test_every_field_is_of_the_catalogue() -> None:
    for measurement in ("gpu", "port", "node", "nvlink"):
        catalogue = MEASUREMENTS[measurement]
        known = {*catalogue.tags, "at", *(metric.name for metric in catalogue.metrics)}
        assert set(runs.whole(runs.played(QUIET), measurement).column_names) <= known


def test_a_fault_that_needs_work_to_show_itself_is_hidden_without() -> None:
    busy = order("slow GPU")
    idle = replace(busy, start_seconds=0.0, seconds=60.0)
    assert [t.hidden for t in build(replace(QUIET, faults=(busy,))).truths()] == [False]
    assert [t.hidden for t in build(replace(QUIET, faults=(idle,))).truths()] == [True]


def test_a_job_that_another_fault_ends_does_not_hang_on() -> None:
    short = runs.with_settings(demand=0.9, workloads=("sweep",))
    first = next(
        job
        for job in runs.planned(short).plan.jobs
        if job.start < START and START + 1200.0 < job.end < START + SECONDS
    )
    node, slot = divmod(first.gpus[0], 8)
    gone = FaultOrder(kind="off the bus", node=node, gpu=slot, start_seconds=START, seconds=SECONDS)
    # It begins while the job is about to end for the GPU that is gone.
    hangs = replace(gone, kind="hung process", start_seconds=START + 10.0)
    jobs = build(replace(short, faults=(gone, hangs))).plan.jobs
    (ended,) = (job for job in jobs if job.number == first.number)
    assert ended.struck
    assert START + 10.0 < ended.end < START + 1200.0


@pytest.mark.parametrize(("after", "hidden"), [(240.0, True), (600.0, False)])
def test_what_a_job_showed_before_another_fault_ended_it_could_be_seen(
    after: float, hidden: bool
) -> None:
    hangs = order("hung process")
    lost = replace(order("off the bus"), start_seconds=START + after)
    first, _ = build(replace(QUIET, faults=(hangs, lost))).truths()
    assert (first.fault, first.hidden) == ("hung process", hidden)


def test_a_job_that_hangs_is_named_by_any_of_its_gpus() -> None:
    hangs = order("hung process")
    (truth,) = build(replace(QUIET, faults=(hangs,))).truths()
    jobs = runs.planned(QUIET).plan.jobs
    (job,) = (
        it
        for it in jobs
        if it.start < START < it.end and hangs.node * 8 + (hangs.gpu or 0) in it.gpus
    )
    assert len({truth.subject, *truth.also}) == len(job.gpus)


def test_a_job_that_hangs_holds_its_gpus_until_the_fault_is_over() -> None:
    short = runs.with_settings(demand=0.9, workloads=("sweep",))
    end = START + SECONDS
    jobs = runs.planned(short).plan.jobs
    first = next(job for job in jobs if job.start < START and START + 600.0 < job.end < end)
    node, slot = divmod(first.gpus[0], 8)
    fault = FaultOrder(
        kind="hung process", node=node, gpu=slot, start_seconds=START, seconds=SECONDS
    )
    hung, *others = (
        job
        for job in build(replace(short, faults=(fault,))).plan.jobs
        if job.start < end and job.end > START and not set(first.gpus).isdisjoint(job.gpus)
    )
    assert (hung.number, hung.end, others) == (first.number, end, [])
