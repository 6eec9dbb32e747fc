"""What the fleet's programs tell of their steps: in the collector's fields, and as their work goes."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from accounting.jobs.bound import Bound
from collector.sensors.steps import PHASES, Progress
from simulator.fleet import FaultOrder, FleetSettings, build
from simulator.fleet.holding import CHECKPOINT, COLLECTIVE, INPUT, STOPPED, WORK
from simulator.fleet.jobs import Job
from simulator.fleet.steps import (
    EARLY_SECONDS,
    FIELDS,
    ReportLevel,
    makes_steps_from,
    report_level,
    step_seconds,
)
from simulator.fleet.trainings import TRAININGS
from simulator.fleet.workloads import WORKLOADS

from . import runs

BARE = FleetSettings(
    seed=4, nodes=8, days=1.0 / 24.0, gpus_per_node=4, life=False, steps=True, demand=2.0,
    mix=(("talking inside", 1.0),),
)  # fmt: skip
FROM, LASTS = 1500.0, 900.0


def job(said: ReportLevel) -> Job:
    """One that runs all the while, and tells so much."""
    jobs = runs.planned(BARE).plan.jobs
    return next(
        it for it in jobs if it.start < 0.0 and it.end > 3600.0 and report_level(it) is said
    )


def ordered(kind: str, said: ReportLevel, magnitude: float | None = None) -> FleetSettings:
    gpu = job(said).gpus[1]
    order = FaultOrder(
        kind=kind,
        node=gpu // 4,
        gpu=gpu % 4,
        start_seconds=FROM,
        seconds=LASTS,
        magnitude=magnitude,
    )
    return replace(BARE, faults=(order,))


@cache
def told(settings: FleetSettings, said: ReportLevel, seconds: float) -> list[Mapping[str, Any]]:
    """What each rank of the job told at the first tick from then on."""
    fleet = runs.planned(settings)
    rows = runs.whole(runs.played(settings, 10.0)).to_pylist()
    found = []
    for gpu in job(said).gpus:
        uuid = fleet.plan.topology.uuids[gpu]
        mine = [
            it
            for it in rows
            if it["uuid"] == uuid and (it["at"] - settings.start).total_seconds() >= seconds
        ]
        found.append(mine[0])
    return found


def test_the_fields_are_the_collector_s() -> None:
    assert set(FIELDS) == set(Progress().fields())
    assert PHASES.index("checkpoint") == CHECKPOINT
    assert len(PHASES) == STOPPED


def test_nobody_tells_steps_where_the_fleet_does_not() -> None:
    quiet = replace(BARE, steps=False, mix=(("data parallel", 1.0),), days=0.01)
    columns = {name for it in runs.played(quiet) for name in it.tables["gpu"].column_names}
    assert columns.isdisjoint(FIELDS)
    with pytest.raises(ValueError, match="is no fault"):
        build(replace(quiet, faults=(FaultOrder(kind="slow rank", node=0, start_seconds=0, seconds=60, gpu=0),)))  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("said", [ReportLevel.STEPS, ReportLevel.PAUSES, ReportLevel.OWN])
def test_programs_tell_all_or_some_of_it(said: ReportLevel) -> None:
    first = told(BARE, said, FROM)[0]
    there = {name for name in FIELDS if first.get(name) is not None}
    plain = {"step", "step_age_seconds", "step_p99_seconds", "rank", "step_seconds"}
    pauses = plain | {
        "step_input_seconds",
        "step_phase",
        "step_phase_seconds",
        "checkpoint_age_seconds",
    }
    own = pauses | {"step_own_seconds", "step_own_first_seconds"}
    assert (
        there == {ReportLevel.STEPS: plain, ReportLevel.PAUSES: pauses, ReportLevel.OWN: own}[said]
    )


@pytest.mark.medium
def test_steps_take_what_the_job_says_and_are_counted() -> None:
    before, after = (told(BARE, ReportLevel.OWN, it)[0] for it in (FROM, FROM + 200.0))
    usual = step_seconds(job(ReportLevel.OWN)) or 0.0
    assert before["step_seconds"] == pytest.approx(usual, rel=0.15)
    gained = after["step"] - before["step"]
    assert gained == pytest.approx(200.0 / before["step_seconds"], rel=0.1)
    assert 0.0 <= after["step_age_seconds"] <= 1.1 * after["step_seconds"]


@pytest.mark.medium
def test_a_slow_rank_works_longer_and_all_make_fewer_steps() -> None:
    slow = ordered("slow rank", ReportLevel.OWN, magnitude=0.3)
    before, after = (told(slow, ReportLevel.OWN, it) for it in (FROM - 60.0, FROM + 60.0))
    times = [new["step_own_seconds"] / old["step_own_seconds"] for new, old in zip(after, before, strict=True)]  # fmt: skip
    assert times[1] == pytest.approx(1.3, rel=0.04)
    assert max(times[0], *times[2:]) < 1.06
    assert all(new["step_seconds"] > 1.05 * old["step_seconds"] for new, old in zip(after, before, strict=True))  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize(
    ("kind", "phases"),
    [
        ("stopped rank", {STOPPED}),
        ("stuck rank", {WORK, INPUT}),
        ("stuck collective", {COLLECTIVE}),
        ("stuck checkpoint", {CHECKPOINT}),
    ],
)
def test_a_job_that_hangs_makes_no_steps_and_says_what_its_ranks_do(
    kind: str, phases: set[int]
) -> None:
    settings = ordered(kind, ReportLevel.OWN)
    ranks = told(settings, ReportLevel.OWN, FROM + 120.0)
    assert ranks[1]["step_phase"] in phases
    others = {it["step_phase"] for it in (ranks[0], *ranks[2:])}
    assert others == (phases if kind.startswith("stuck c") else {COLLECTIVE})
    assert all(118.0 < it["step_age_seconds"] < 132.0 + it["step_seconds"] for it in ranks)


@pytest.mark.medium
def test_a_dead_process_is_told_early_and_by_its_file() -> None:
    settings = ordered("dead process", ReportLevel.OWN)
    ranks = told(settings, ReportLevel.OWN, FROM + EARLY_SECONDS)
    early = (ranks[1]["at"] - settings.start).total_seconds()
    assert early == pytest.approx(FROM + EARLY_SECONDS, abs=0.01)
    assert [it["rank_gone_seconds"] for it in ranks] == [None, EARLY_SECONDS, None, None]
    assert ranks[1]["rank"] == 1
    assert ranks[1]["step"] is None
    assert all(it["step_age_seconds"] >= 2.0 for it in (ranks[0], *ranks[2:]))


def test_of_what_is_said_to_be_plain_the_account_has_a_word() -> None:
    known = {*WORKLOADS.values(), *TRAININGS.values()}
    assert {it.bound for it in known if it.bound} <= {it.value for it in Bound}


@pytest.mark.medium
def test_a_job_pauses_as_its_programs_tell_it() -> None:
    """At each tick: it does while a checkpoint is told, and its steps go on when that is over."""
    mine = job(ReportLevel.OWN)
    topology = runs.planned(BARE).plan.topology
    rows = [
        it
        for it in runs.whole(runs.played(BARE, 10.0)).to_pylist()
        if it["uuid"] == topology.uuids[mine.gpus[0]] and it["step_phase"] is not None
    ]
    told = [it["step_phase"] == CHECKPOINT for it in rows]
    ticks = [10.0 * ((it["at"] - BARE.start).total_seconds() // 10.0) for it in rows]
    over = [makes_steps_from(mine, it) for it in ticks]
    assert [end > at for end, at in zip(over, ticks, strict=True)] == told
    assert any(told)
    assert all(0.0 <= end - at <= 25.0 for end, at in zip(over, ticks, strict=True))
    assert all(makes_steps_from(mine, end) == end for end in over)


def test_a_starved_training_reads_much_and_one_that_saves_writes_much() -> None:
    """Per second, on nodes that one job has to itself; few read from no file system."""

    def moved(key: str, column: str) -> list[float]:
        fleet = replace(BARE, mix=((key, 1.0),), days=0.5 / 24.0)
        table = runs.whole(runs.played(fleet, 10.0), "node").sort_by("at")
        names = table["node"].to_pylist()
        told = list(zip(names, table[column].to_pylist(), strict=True))
        first, last = dict(reversed(told)), dict(told)
        return [(last[node] - first[node]) / 1790.0 for node in first]

    assert max(moved("starved", "shared_read_bytes")) == pytest.approx(4 * 150e6, rel=0.02)
    assert max(moved("saving", "shared_read_bytes")) < 4 * 2.1e6
    assert max(moved("saving", "shared_write_bytes")) > 4e8


def test_a_pause_that_is_over_but_for_a_rounding_error_is_over() -> None:
    """Jobs begin at moments that are no whole seconds, so that the end of a pause may fall just before it."""
    jobs = runs.planned(replace(BARE, mix=(("saving", 1.0),))).plan.jobs
    mine = next(it for it in jobs if it.workload.rhythm is not None)
    for start in np.linspace(1000.0, 3600.0, 50).tolist():
        for moment in range(4000, 4300, 30):
            end = makes_steps_from(replace(mine, start=start), float(moment))
            assert moment <= end <= moment + mine.workload.checkpoint_seconds
