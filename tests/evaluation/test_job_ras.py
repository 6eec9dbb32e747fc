"""What NCCL's RAS says of simulated jobs, and when their collectors ask."""

from dataclasses import replace
from itertools import pairwise

import pytest

from evaluation.training_jobs.ras import RasAnswers, is_asked
from gpuvigil.model import Event, EventKind, RankState, Source
from simulator.fleet import FaultOrder, Fleet, FleetSettings, build
from simulator.fleet.jobs import Job

BARE = FleetSettings(
    seed=14, nodes=4, days=1.0 / 24.0, gpus_per_node=4, life=False, steps=True, demand=2.0,
    mix=(("even", 1.0),),
)  # fmt: skip
START = 1200.0


def asked_job(settings: FleetSettings) -> Job:
    jobs = [it for it in build(settings).plan.jobs if is_asked(it, 1.0)]
    return next(it for it in jobs if it.start < 0.0 and it.end > 3600.0 and len(it.gpus) > 4)


def heard(fleet: Fleet, share: float = 1.0) -> list[Event]:
    ras = RasAnswers(fleet, share)
    blocks = [ras.heard(it) for it in fleet.blocks(block_seconds=1800.0)]
    for block in blocks:
        assert len(block.events) == len(block.event_arrivals)
    found = [it for block in blocks for it in block.events if it.kind is EventKind.COLLECTIVE]
    return sorted(found, key=lambda it: it.at)


def with_fault(kind: str, rank: int) -> tuple[Job, Fleet]:
    job = asked_job(BARE)
    gpu = job.gpus[rank]
    order = FaultOrder(
        kind=kind, node=gpu // 4, gpu=gpu % 4, start_seconds=START, seconds=1200.0,
    )  # fmt: skip
    return job, build(replace(BARE, faults=(order,)))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("kind", "stand", "ranks"),
    [
        ("dead process", RankState.DEAD, [2]),
        ("stopped rank", RankState.UNREACHABLE, [2]),
        ("stuck rank", RankState.BEHIND, [2]),
        ("stuck collective", RankState.TOGETHER, []),
        ("stuck checkpoint", RankState.TOGETHER, []),
    ],
)
def test_a_job_that_hangs_is_asked_and_says_which_rank_the_others_wait_for(
    kind: str, stand: RankState, ranks: list[int]
) -> None:
    job, fleet = with_fault(kind, 2)
    events = [it for it in heard(fleet) if it.collectives[0].holder == str(job.holder)]
    assert events
    topology = fleet.plan.topology
    home = topology.gpu_subject(job.gpus[2]).of_node()
    for event in events:
        (said,) = event.collectives
        assert (said.by, said.stand, said.size) == (Source.RAS, stand, len(job.gpus))
        assert [it.rank for it in said.ranks] == ranks
        # Its own node alone knows which GPU that is.
        own = topology.uuids[job.gpus[2]] if event.subject == home else None
        assert [it.gpu for it in said.ranks] == [own] * len(ranks)
    first = (events[0].at - fleet.at(START)).total_seconds()
    assert 60.0 + 30.0 <= first <= 500.0
    # The same node asks again a minute later, then two, then four.
    mine = [it.at for it in events if it.subject == events[0].subject]
    gaps = [(late - early).total_seconds() for early, late in pairwise(mine)]
    assert gaps == sorted(gaps)
    assert all(gap >= 90.0 for gap in gaps)


@pytest.mark.medium
def test_a_node_whose_own_process_is_stopped_gets_no_answer() -> None:
    job, fleet = with_fault("stopped rank", 0)
    home = fleet.plan.topology.gpu_subject(job.gpus[0]).of_node()
    events = [it for it in heard(fleet) if it.collectives[0].holder == str(job.holder)]
    said = {it.subject == home: it.collectives[0].stand for it in events}
    assert said.pop(True, RankState.SILENT) is RankState.SILENT
    assert said == {False: RankState.UNREACHABLE}


@pytest.mark.medium
@pytest.mark.parametrize("mix", ["even", "judging", "saving", "staged"])
def test_of_a_job_that_pauses_for_long_no_rank_is_named(mix: str) -> None:
    said = [it.collectives[0] for it in heard(build(replace(BARE, mix=((mix, 1.0),))))]
    assert {it.stand for it in said} <= {RankState.TOGETHER}
    assert not any(it.ranks for it in said)


@pytest.mark.medium
def test_a_job_that_may_not_be_asked_says_nothing() -> None:
    assert heard(with_fault("dead process", 2)[1], 0.0) == []
