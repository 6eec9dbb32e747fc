"""Which of a job's two GPUs is slow, and what only looks like it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.correlation.visibility import is_visible
from analyzer.detectors.gpu_slow import slow_gpus
from gpuvigil.model import Finding, Severity, Subject

from .scene import NOON, SETTINGS, Scene, gpu, healthy, in_one_job, incident

FAR = replace(SETTINGS, steady_seconds=100.0, trend_seconds=400.0)
PAIR = (gpu(1, 0), gpu(1, 1))
QUIET = healthy(nodes=2, gpus=4)
LESS, WAITS = 484.0, 517.0  # of 550 W: 12 and 6 % less


def found(scene: Scene) -> list[Finding]:
    return slow_gpus(replace(scene, settings=FAR).window())


def of_two(
    watts: float = LESS,
    other: float = WAITS,
    lost: float = 0.15,
    seconds: float = 105.0,
    gpus: tuple[Subject, ...] = PAIR,
    **fields: Any,
) -> Scene:
    """The first GPU draws so many watts since then, and has these other fields; the second one draws `other`."""
    scene = QUIET.changed(gpus[0], {"power_watts": watts, **fields}, seconds)
    scene = scene.changed(gpus[1], {"power_watts": other}, seconds)
    return in_one_job(scene, gpus, lost=lost, seconds=seconds)


def test_of_two_gpus_the_one_that_the_other_waits_for_is_told_with_numbers() -> None:
    (finding,) = found(of_two())
    assert (finding.subject, finding.severity) == (gpu(), Severity.WARNING)
    assert (NOON - finding.since).total_seconds() == pytest.approx(105.0, abs=11.0)
    job, power, watts = finding.evidence
    assert job.value == "job 7 gets 15 % less done than in the 5 min before"
    assert power.value.startswith("-6.4 % in 1.66667 min")
    assert (power.limit, power.peers) == ("-3.2 %", "the job's other GPU")
    assert (watts.value, watts.peers) == ("484 W at 1980 MHz", "517 W at 1980 MHz")


def test_the_two_may_be_on_two_nodes() -> None:
    (finding,) = found(of_two(gpus=(gpu(2, 0), gpu(1, 0))))
    assert finding.subject == gpu(2, 0)


@pytest.mark.parametrize(("other", "count"), [(530.0, 1), (535.0, 0), (550.0, 0), (560.0, 0)])
def test_where_the_other_one_draws_as_before_it_has_more_to_do_and_none_is_slow(
    other: float, count: int
) -> None:
    """It waits for a sixth of the time, and must draw less by a fifth of that."""
    assert len(found(of_two(other=other))) == count


@pytest.mark.parametrize(
    ("watts", "lost", "count"), [(498.0, 0.15, 1), (502.0, 0.15, 0), (498.0, 0.2, 0)]
)
def test_the_slow_one_draws_less_than_the_other_one_by_a_fifth_of_what_the_job_lost(
    watts: float, lost: float, count: int
) -> None:
    assert len(found(of_two(watts=watts, other=516.0, lost=lost))) == count


@pytest.mark.parametrize(("lost", "count"), [(0.06, 0), (0.07, 1), (0.32, 1), (0.34, 0)])
def test_the_job_lost_seven_percent_of_its_pace_and_a_third_at_most(
    lost: float, count: int
) -> None:
    """In logarithms 0.07 and 0.4; one that lost more does something else."""
    assert len(found(of_two(watts=420.0, other=490.0, lost=lost))) == count


@pytest.mark.parametrize(("percent", "count"), [(91, 1), (90, 0)])
def test_one_that_rests_while_the_other_one_works_may_save_for_it(percent: int, count: int) -> None:
    """The other one is used for 93 %."""
    assert len(found(of_two(utilization_percent=percent))) == count


@pytest.mark.parametrize(("lost", "count"), [(0.14, 1), (0.13, 0)])
def test_two_that_do_not_move_the_same_bytes_do_not_do_the_same(lost: float, count: int) -> None:
    """As where one computes what the other one only receives."""
    scene = of_two(gpus=PAIR)
    one = replace(QUIET, samples=scene.samples)
    one = in_one_job(one, PAIR[:1], lost=0.15, seconds=105.0)
    assert len(found(in_one_job(one, PAIR[1:], lost=lost, seconds=105.0))) == count


def test_without_traffic_between_them_none_is_told() -> None:
    scene = of_two()
    for subject in PAIR:
        scene = scene.changed(subject, {"nvlink_receive_bytes": None, "step_seconds": 1.0})
        scene = scene.changed(subject, {"step_seconds": 1.2}, 105)
    assert found(scene) == []


def test_it_takes_both_for_all_of_the_time_and_no_third_one() -> None:
    assert found(in_one_job(of_two(), [gpu(1, 2)], lost=0.15, seconds=105.0)) == []
    scene = of_two()
    alone = tuple(a for a in scene.allocations if a.subject == gpu())
    assert found(replace(scene, allocations=alone)) == []
    young = tuple(replace(a, started_at=NOON - timedelta(minutes=6)) for a in scene.allocations)
    assert found(replace(scene, allocations=young)) == []


def test_a_minute_tells_nothing_of_two_nor_does_what_is_over() -> None:
    assert slow_gpus(of_two(seconds=65.0).window()) == []
    scene = of_two()
    for subject in PAIR:
        scene = scene.changed(subject, {"power_watts": 550.0}, 65)
    assert found(scene) == []


@pytest.mark.parametrize(("back", "is_over"), [(550.0, True), (525.0, False)])
def test_it_is_over_where_it_came_back_to_the_other_one(back: float, is_over: bool) -> None:
    scene = QUIET.changed(gpu(), {"power_watts": LESS}).changed(PAIR[1], {"power_watts": WAITS})
    scene = scene.changed(gpu(), {"power_watts": back}, 105)
    scene = scene.changed(PAIR[1], {"power_watts": 550.0}, 105)
    scene = replace(in_one_job(scene, PAIR, lost=-0.15, seconds=105.0), settings=FAR)
    stands = replace(incident("gpu_slow", gpu()), since=NOON - timedelta(hours=1))
    assert is_visible(scene.window(), stands) is is_over
