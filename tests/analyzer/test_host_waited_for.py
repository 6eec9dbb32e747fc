"""When a node's host holds its jobs up, and when they use their GPUs less by themselves."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.gpu_slow import DETECTOR, slow_gpus, would_show_slow_gpu
from gpuvigil.model import Finding, Severity, Subject

from .scene import NOON, SETTINGS, Scene, allocation, gpu, healthy, incident, node, told

HERE = tuple(gpu(1, index) for index in range(4))
THERE = tuple(gpu(2, index) for index in range(4))
LATELY = 105.0  # the steady span, and a little more
WAITS = "cpu_pressure_microseconds"
HEAT, HEATS = "cpu_throttled_milliseconds", "cpu_throttles"
SHORT = replace(SETTINGS, steady_seconds=100.0, trend_seconds=300.0)


def starved(
    used: int = 50,
    before: int = 93,
    gpus: Iterable[Subject] = HERE,
    jobs: tuple[str, str] = ("job 7", "job 8"),
    load: tuple[float, float] = (40.0, 60.0),
    waits: tuple[float, float] | None = None,
) -> Scene:
    """Two nodes; the jobs of the first one's GPUs, of two and two, use some of them less since a while ago.

    Beside them the node's load before and since, and the percent of the time in which a task waited.
    """
    scene = replace(healthy(nodes=2, gpus=4, seconds=300.0), settings=SHORT)
    for one in HERE:
        scene = scene.changed(one, {"utilization_percent": before})
    for one in gpus:
        scene = scene.changed(one, {"utilization_percent": used}, LATELY)
    scene = scene.changed(node(), {"load_average": load[0]})
    scene = scene.changed(node(), {"load_average": load[1]}, LATELY)
    if waits is not None:
        scene = scene.changed(node(), {WAITS: 0})
        scene = scene.turned(node(), WAITS, 1e4 * waits[0], 1e4 * waits[1], LATELY)
    held = [allocation(one, jobs[index // 2]) for index, one in enumerate(HERE)]
    return replace(scene, allocations=tuple(held))


def found(scene: Scene) -> list[Finding]:
    them = slow_gpus(scene.window((DETECTOR,)))
    return [one for one in them if one.condition == "host_short"]


def test_a_node_whose_jobs_use_their_gpus_less_since_its_load_rose_is_told_with_numbers() -> None:
    (it,) = found(starved(waits=(1.0, 60.0)))
    assert (it.subject, it.members, it.severity) == (node(), HERE, Severity.WARNING)
    assert told(it) == (
        "warning; GPUs: 4 of the node used 50 % of the time (peers 93 % before);"
        " tasks wait for a processor: 60 % of the time (limit under 20 %);"
        " load average: 60 (peers 40 before)"
    )


@pytest.mark.parametrize(
    ("scene", "count"),
    [
        (starved(used=69), 1),
        (starved(used=70), 0),  # a quarter less
        (starved(used=5), 1),
        (starved(used=4), 0),  # they do nothing: that is another matter
        (starved(before=80), 1),
        (starved(before=79), 0),
        (starved(gpus=HERE[:3]), 1),
        (starved(gpus=HERE[:2]), 0),  # one of its jobs
        (starved(load=(40.0, 59.0)), 0),
        (starved(load=(3.0, 7.0)), 1),
        (starved(load=(3.0, 6.9)), 0),
        (starved(load=(60.0, 60.0)), 0),
        (starved(load=(60.0, 60.0), waits=(1.0, 20.0)), 1),
        (starved(load=(60.0, 60.0), waits=(1.0, 19.9)), 0),
        (starved(load=(60.0, 60.0), waits=(9.0, 20.0)), 1),
        (starved(load=(60.0, 60.0), waits=(10.5, 20.0)), 0),  # as before, nearly
    ],
)
def test_a_host_is_waited_for_from_its_limits_on(scene: Scene, count: int) -> None:
    assert len(found(scene)) == count


def heated(
    share: tuple[float, float] | None, a_minute: tuple[float, float] = (0.0, 60.0), **how: Any
) -> Scene:
    """The two nodes, with the first one's heat before and since: the share of the time, and how often."""
    scene = starved(load=(60.0, 60.0), **how).changed(node(), {HEAT: None, HEATS: 7})
    if share is not None:
        scene = scene.changed(node(), {HEAT: 7})
        scene = scene.turned(node(), HEAT, 1e3 * share[0], 1e3 * share[1], LATELY)
    return scene.turned(node(), HEATS, a_minute[0] / 60.0, a_minute[1] / 60.0, LATELY)


def test_a_node_whose_jobs_use_their_gpus_less_since_it_is_hot_names_the_heat() -> None:
    (it,) = found(heated((0.0, 0.15)))
    assert it.title == "Node slows its jobs down: heat slows its processors"
    assert "cools the processors" in it.action
    assert told(it).endswith("heat slowed its processors down: 15 % of the time")
    (it,) = found(heated(None))
    assert told(it).endswith("heat slowed its processors down: 60 times a minute")


@pytest.mark.parametrize(
    ("scene", "count"),
    [
        (heated((0.0, 0.051)), 1),
        (heated((0.0, 0.049)), 0),
        (heated((0.05, 0.11)), 1),
        (heated((0.06, 0.11)), 0),  # as before, nearly
        (heated(None, (0.0, 1.8)), 1),
        (heated(None, (0.0, 0.6)), 0),
        (heated(None, (10.0, 21.0)), 1),
        (heated(None, (10.0, 19.0)), 0),
        (heated((0.0, 0.0)), 0),  # the time says that it was for moments
        (heated((0.0, 0.15), used=70), 0),
        (heated((0.0, 0.15), jobs=("job 7", "job 7")), 0),  # its own doing, perhaps
    ],
)
def test_heat_is_the_cause_from_its_limits_on(scene: Scene, count: int) -> None:
    assert len(found(scene)) == count


def of_one_job(*gpus: Subject, **how: Any) -> Scene:
    held = tuple(allocation(one, "job 7") for one in (*HERE, *gpus))
    return replace(starved(**how), allocations=held)


def test_what_one_job_does_on_its_only_node_is_its_own_unless_its_tasks_wait() -> None:
    assert found(of_one_job()) == found(of_one_job(used=5)) == []
    assert len(found(of_one_job(waits=(1.0, 20.0)))) == 1


def test_a_job_whose_gpus_on_other_nodes_go_on_waits_for_this_one() -> None:
    assert len(found(of_one_job(*THERE))) == 1
    all_less = of_one_job(*THERE)
    for one in THERE:
        all_less = all_less.changed(one, {"utilization_percent": 50}, LATELY)
    assert found(all_less) == []
    only_one = of_one_job(*THERE).changed(THERE[0], {"utilization_percent": 50}, LATELY)
    assert found(only_one) == []


def test_a_job_that_began_on_the_node_brings_its_own_load() -> None:
    for ago, count in ((301, 1), (299, 0)):
        begun = NOON - timedelta(seconds=ago)
        short = replace(allocation(HERE[0], "job 9"), started_at=begun, ended_at=NOON)
        scene = starved()
        assert len(found(replace(scene, allocations=(*scene.allocations, short)))) == count


def test_it_takes_a_job_that_has_had_its_gpus_all_the_time() -> None:
    for ago, count in ((300, 1), (299, 0)):
        begun = NOON - timedelta(seconds=ago)
        scene = starved()
        young = tuple(replace(one, started_at=begun) for one in scene.allocations)
        assert len(found(replace(scene, allocations=young))) == count


@pytest.mark.parametrize(
    ("scene", "over"),
    [
        (starved(), False),
        (starved(before=60, used=81), True),
        (starved(before=60, used=79), False),
        (starved(before=60, used=81, gpus=HERE[:3]), False),
        (replace(starved(), allocations=()), True),
        (starved().without(lambda sample: sample.subject in HERE), False),
    ],
)
def test_it_is_over_when_its_gpus_are_used_a_third_more_or_its_jobs_end(
    scene: Scene, over: bool
) -> None:
    members = tuple(one.key for one in HERE)
    stands = incident("gpu_slow", node(), members=members, condition="host_short")
    assert would_show_slow_gpu(scene.window((DETECTOR,)), stands) is over
