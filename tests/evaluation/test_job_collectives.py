"""What NCCL Inspector's files of simulated jobs say, and of whom."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from evaluation.training_jobs.collectives import Inspectors, _clocks, is_read
from gpuvigil.model import Event, EventKind
from simulator.fleet import FaultOrder, Fleet, FleetSettings, build
from simulator.fleet.jobs import Job

BARE = FleetSettings(
    seed=14, nodes=4, days=1.0 / 24.0, gpus_per_node=4, life=False, steps=True, demand=2.0,
    mix=(("even", 1.0),),
)  # fmt: skip
START = 1200.0


def read_job(settings: FleetSettings) -> Job:
    jobs = [it for it in build(settings).plan.jobs if is_read(it)]
    return next(it for it in jobs if it.start < 0.0 and it.end > 3600.0)


def heard(fleet: Fleet, inspectors: Inspectors | None = None) -> list[Event]:
    inspectors = inspectors or Inspectors(fleet)
    blocks = [inspectors.heard(it) for it in fleet.blocks(block_seconds=1800.0)]
    for block in blocks:
        assert len(block.events) == len(block.event_arrivals)
    found = [it for block in blocks for it in block.events if it.kind is EventKind.COLLECTIVE]
    return sorted(found, key=lambda it: it.at)


def slowed(magnitude: float, kind: str = "slow rank") -> tuple[Job, Fleet]:
    job = read_job(BARE)
    gpu = job.gpus[2]
    order = FaultOrder(
        kind=kind, node=gpu // 4, gpu=gpu % 4, start_seconds=START, seconds=2400.0,
        magnitude=magnitude,
    )  # fmt: skip
    return job, build(replace(BARE, faults=(order,)))


@pytest.mark.medium
@pytest.mark.parametrize(
    # Of the 0.87 of a step that its own work takes.
    ("magnitude", "is_told"), [(0.5, True), (0.05, True), (0.02, False)],
)  # fmt: skip
def test_who_is_slow_comes_last_where_its_job_s_collectives_are_read(
    magnitude: float, is_told: bool
) -> None:
    job, fleet = slowed(magnitude)
    inspectors = Inspectors(fleet)
    events = heard(fleet, inspectors)
    assert bool(events) is is_told
    assert len(inspectors.last) == len(events)
    for event in events:
        (said,) = event.collectives
        assert said.cost == pytest.approx(870 * magnitude, rel=0.2)
        assert said.cost_before is None or said.cost_before < 25
        assert (said.ranks[0].rank, said.holder) == (2, str(job.holder))
        assert said.ranks[0].gpu == fleet.plan.topology.uuids[job.gpus[2]]
        assert event.at >= fleet.at(START)
    # The same is told again after ten minutes.
    gaps = np.diff([it.at.timestamp() for it in events])
    assert (gaps >= 600.0).all()


@pytest.mark.medium
def test_of_sound_ranks_none_comes_last_but_where_the_work_was_cut_unevenly() -> None:
    assert heard(build(BARE)) == []
    staged = replace(BARE, seed=1, mix=(("staged", 1.0),))
    job, events = read_job(staged), heard(build(staged))
    # Four ranks have a quarter more to do, and none of them comes last again and again.
    assert len(job.gpus) == 16
    assert events == []


@pytest.mark.medium
def test_who_saves_for_the_others_comes_last_to_one_collective_and_is_not_told() -> None:
    fleet = build(replace(BARE, mix=(("saving", 1.0),)))
    inspectors = Inspectors(fleet, 1.0)
    assert heard(fleet, inspectors) == []
    files = next(it for it in Inspectors(fleet, 1.0)._files if it.waits)
    longest = np.zeros(len(files.job.gpus))
    begun = files.job.start + files.job.workload.startup_seconds
    for at in np.arange(begun, begun + 900.0, 10.0).tolist():
        files.work(at, np.ones(len(longest)))
        for _, _, times in files.lines:
            longest = np.maximum(longest, times)
    assert longest[0] < 1e7
    assert longest[1:].min() > 1e8


@pytest.mark.parametrize(("share", "all_of"), [(0.0, False), (1.0, True)])
def test_of_how_many_jobs_collectives_are_read_is_chosen(share: float, all_of: bool) -> None:
    fleet = build(BARE)
    trains = [it for it in fleet.plan.jobs if len(it.gpus) > 1]
    assert {is_read(it, share) for it in trains} == {all_of}
    assert len(Inspectors(fleet, share)._files) == len(trains) * all_of


def test_a_job_that_stands_still_writes_nothing() -> None:
    _, fleet = slowed(0.0, "stopped rank")
    inspectors = Inspectors(fleet)
    for block in fleet.blocks(block_seconds=1800.0):
        inspectors.heard(block)
    job = read_job(BARE)
    files = next(it for it in inspectors._files if it.job.number == job.number)
    lines = list(files.lines)
    files.work(START + 60.0, np.ones(len(job.gpus)))
    assert list(files.lines) == lines
    assert files.awaited_ranks(range(4), ["10.0.0.1"] * 4) == []


def test_clocks_are_shares_of_the_highest_in_the_order_of_time() -> None:
    origin = BARE.start
    table = pa.table(
        {
            "uuid": ["b", "a", "a", "a"],
            "at": pa.array(
                [int(1e6 * (origin.timestamp() + it)) for it in (0, 20, 10, 0)],
                pa.timestamp("us", "UTC"),
            ),
            "sm_clock_hertz": [1000, 1500, None, 2000],
            "sm_clock_max_hertz": [2000, 2000, 2000, 2000],
        }
    )
    found = {
        uuid: (at.tolist(), share.tolist()) for uuid, (at, share) in _clocks(table, origin).items()
    }
    assert found == {"a": ([0.0, 20.0], [1.0, 0.75]), "b": ([0.0], [0.5])}
    assert _clocks(table.drop_columns(["sm_clock_hertz"]), origin) == {}
