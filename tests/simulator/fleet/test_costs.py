"""A truth says what its fault cost which job, where the plan knows it."""

from dataclasses import replace
from functools import cache

import pytest

from simulator.fleet import FaultOrder, Truth, build
from simulator.fleet.jobs import Job
from tests.simulator.fleet import runs

pytestmark = pytest.mark.slow

QUIET = runs.with_settings(demand=0.9)
START, SECONDS = 7200.0, 3600.0


@cache
def struck() -> Job:
    """A job over several nodes that runs through the fault, without it."""
    return next(
        job
        for job in runs.planned(QUIET).plan.jobs
        if len(job.gpus) > 8 and job.start < START - 1200.0 and job.end > START + SECONDS
    )


@cache
def truth(kind: str, magnitude: float | None = None, port: int | None = None) -> Truth:
    node, slot = divmod(struck().gpus[0], 8)
    order = FaultOrder(
        kind=kind, node=node, start_seconds=START, seconds=SECONDS, gpu=slot, port=port,
        magnitude=magnitude,
    )  # fmt: skip
    (found,) = build(replace(QUIET, faults=(order,))).truths()
    return found


def test_a_job_that_dies_loses_what_it_did_since_its_last_checkpoint() -> None:
    cost = dict(truth("off the bus").costs or ())
    held = cost[struck().holder] / len(struck().gpus)
    every = struck().workload.checkpoint_every
    # The dead job holds its GPUs for half a minute to ten.
    assert 30.0 <= held <= every + 600.0
    assert truth("off the bus").cost_gpu_seconds == sum(cost.values())


def test_a_slow_gpu_costs_its_whole_job_its_share() -> None:
    cost = dict(truth("slow GPU", 0.2).costs or ())
    assert cost == {struck().holder: pytest.approx(0.2 * SECONDS * len(struck().gpus))}


@pytest.mark.parametrize(
    ("work", "lost"), [("steady inference", 0.0), ("data starved", 0.0), ("cpu offload", 0.0521)]
)
def test_a_slow_gpu_costs_only_the_time_in_which_work_goes_at_its_pace(
    work: str, lost: float
) -> None:
    """A server waits for requests, and a GPU without input for that; an offload is at the GPU for 22 % of the time."""
    alone = runs.with_settings(demand=0.9, workloads=(work,))
    job = next(
        job
        for job in runs.planned(alone).plan.jobs
        if job.start < START and job.end > START + SECONDS
    )
    node, slot = divmod(job.gpus[0], 8)
    order = FaultOrder(
        kind="slow GPU", node=node, gpu=slot, start_seconds=START, seconds=SECONDS, magnitude=0.2
    )
    (found,) = build(replace(alone, faults=(order,))).truths()
    assert found.pace_lost == pytest.approx(lost, abs=1e-4)
    per_gpu = dict(found.costs or ()).get(job.holder, 0.0) / len(job.gpus)
    assert per_gpu == pytest.approx(lost * SECONDS, abs=1.0)


def test_congestion_costs_jobs_over_several_nodes_and_no_others() -> None:
    cost = dict(truth("congestion", 0.5, 0).costs or ())
    assert cost[struck().holder] == pytest.approx(0.5 * SECONDS * len(struck().gpus))
    small = {job.holder for job in runs.planned(QUIET).plan.jobs if len(job.gpus) <= 8}
    assert not small & set(cost)


def test_what_takes_no_work_costs_nothing_and_what_heat_costs_is_not_known() -> None:
    assert truth("InfoROM").costs == ()
    assert truth("InfoROM").cost_gpu_seconds == 0.0
    assert truth("heatsink").costs is None
    assert truth("heatsink").cost_gpu_seconds is None


def test_the_share_of_its_pace_that_a_job_loses_is_known() -> None:
    assert truth("slow GPU", 0.2).pace_lost == pytest.approx(0.2)
    assert truth("congestion", 0.5, 0).pace_lost == 0.5
    assert truth("off the bus").pace_lost == 1.0
    assert truth("InfoROM").pace_lost == 0.0
    assert truth("heatsink").pace_lost is None


def test_a_fault_strikes_only_jobs_that_those_before_it_have_left() -> None:
    node, slot = divmod(struck().gpus[0], 8)
    other = next(gpu // 8 for gpu in struck().gpus if gpu // 8 != node)
    slow = FaultOrder(kind="slow node network", node=other, start_seconds=START, seconds=SECONDS)
    dead = FaultOrder(
        kind="off the bus", node=node, gpu=slot, start_seconds=START - 1000.0, seconds=SECONDS
    )

    def hidden(*faults: FaultOrder) -> bool:
        found = {it.fault: it for it in build(replace(QUIET, faults=faults)).truths()}
        return found[slow.kind].hidden

    assert not hidden(slow)
    assert hidden(dead, slow)


@pytest.mark.parametrize("kind", ["off the bus", "heatsink", "InfoROM"])
def test_it_is_kept_with_the_truth(kind: str) -> None:
    assert Truth.from_json(truth(kind).to_json()) == truth(kind)
