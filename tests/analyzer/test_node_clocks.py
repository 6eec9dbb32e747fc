"""A node whose clocks somebody set lower while a job on other nodes waits for it: a note."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.gpu_clocks import stuck_clocks
from analyzer.detectors.gpu_slow import slow_gpus
from gpuvigil.model import Finding, Severity, Subject

from .scene import NOON, SETTINGS, Scene, allocation, gpu, healthy, in_one_job, incident, node, told

# What was half an hour ago must lie before the steady span.
LONG = replace(SETTINGS, trend_seconds=900.0)
FULL = 1_980_000_000
LOWER: Mapping[str, Any] = {"sm_clock_hertz": 1_700_000_000}
NODES = {number: [gpu(number, index) for index in range(4)] for number in (1, 2, 3, 4)}


def job(
    *lower: Subject, fields: Mapping[str, Any] = LOWER, nodes: int = 2, seconds: float = 300.0
) -> Scene:
    """One job over so many nodes of four GPUs, some of which run lower for `seconds`."""
    sound = replace(healthy(nodes=nodes, gpus=4, seconds=900.0), settings=LONG)
    scene = in_one_job(sound, [it for n in range(1, nodes + 1) for it in NODES[n]], lost=0.0)
    for subject in lower:
        scene = scene.changed(subject, fields, seconds)
    return scene


def found(scene: Scene) -> list[Finding]:
    return stuck_clocks(scene.window())


def test_a_node_that_its_job_on_other_nodes_waits_for_is_a_note_and_blames_no_hardware() -> None:
    (it,) = found(job(*NODES[1]))
    assert (it.fault, it.subject, it.severity) == ("gpu_clocks", node(), Severity.INFO)
    assert (it.condition, it.members) == ("node_clocks", tuple(NODES[1]))
    assert it.action.startswith("See whether somebody set them")
    assert told(it) == (
        "info; GPUs: 4 of the node; SM clock: 1700 MHz at most in 5 min"
        " (peers 1980 MHz on 4 GPUs of the job on other nodes); before: 1980 MHz within 15 min"
    )


def test_where_nobody_waits_it_is_nobody_s_matter() -> None:
    scene = job(*NODES[1])
    assert found(replace(scene, allocations=())) == []
    of_each = [
        replace(it, holder=allocation(it.subject, f"job {it.subject.node[-1]}").holder)
        for it in scene.allocations
    ]
    assert found(replace(scene, allocations=tuple(of_each))) == []


@pytest.mark.parametrize(("number", "count"), [(3, 1), (2, 0)])
def test_it_is_three_quarters_of_the_job_s_gpus_there(number: int, count: int) -> None:
    assert len([it for it in found(job(*NODES[1][:number])) if it.condition]) == count


def test_what_all_of_the_job_have_or_three_nodes_is_no_matter_of_one() -> None:
    assert found(job(*NODES[1], *NODES[2])) == []
    assert len(found(job(*NODES[1], *NODES[2], nodes=4))) == 2
    assert found(job(*NODES[1], *NODES[2], *NODES[3], nodes=4)) == []


@pytest.mark.parametrize(("hertz", "count"), [(1_781_999_999, 1), (1_782_000_001, 0)])
def test_under_nine_tenths_of_the_highest_a_clock_is_low(hertz: int, count: int) -> None:
    assert len(found(job(*NODES[1], fields={"sm_clock_hertz": hertz}))) == count


@pytest.mark.parametrize(("before", "count"), [(1_835_999_999, 0), (1_836_000_001, 1)])
def test_each_reached_eight_hundredths_more_before(before: int, count: int) -> None:
    scene = job(*NODES[1], fields={"sm_clock_hertz": before}, seconds=1e9)
    for subject in NODES[1]:
        scene = scene.changed(subject, LOWER, 300.0)
    assert len(found(scene)) == count


@pytest.mark.parametrize(("others", "count"), [(1_835_999_999, 0), (1_836_000_001, 1)])
def test_the_others_run_eight_hundredths_faster(others: int, count: int) -> None:
    scene = job(*NODES[1])
    for subject in NODES[2]:
        scene = scene.changed(subject, {"sm_clock_hertz": others}, 300.0)
    assert len(found(scene)) == count


@pytest.mark.parametrize(("others", "count"), [(2, 0), (3, 1)])
def test_three_gpus_on_other_nodes_tell(others: int, count: int) -> None:
    scene = job(*NODES[1])
    held = [it for it in scene.allocations if it.subject not in NODES[2][others:]]
    assert len(found(replace(scene, allocations=tuple(held)))) == count


@pytest.mark.parametrize(("seconds", "count"), [(0, 1), (1, 0)])
def test_the_job_has_them_for_as_long_as_the_past_that_they_are_held_against(
    seconds: int, count: int
) -> None:
    begun = NOON - timedelta(seconds=LONG.trend_seconds - seconds)
    scene = job(*NODES[1])
    held = tuple(replace(it, started_at=begun) for it in scene.allocations)
    assert len(found(replace(scene, allocations=held))) == count


@pytest.mark.parametrize(("percent", "count"), [(49, 0), (50, 1)])
def test_it_works(percent: int, count: int) -> None:
    fields = {**LOWER, "utilization_percent": percent}
    assert len(found(job(*NODES[1], fields=fields))) == count


@pytest.mark.parametrize(
    "counter",
    [
        "power_cap_seconds",
        "software_thermal_slowdown_seconds",
        "hardware_thermal_slowdown_seconds",
        "power_brake_seconds",
    ],
)
@pytest.mark.parametrize(("per_second", "count"), [(0.1, 1), (0.11, 0)])
def test_what_the_power_limit_heat_or_a_brake_explains_nobody_set(
    counter: str, per_second: float, count: int
) -> None:
    """Of lines over 290 of the 300 s."""
    scene = job(*NODES[1])
    for subject in NODES[1]:
        scene = scene.rising(subject, counter, per_second)
    assert len(found(scene)) == count


@pytest.mark.parametrize(("watts", "count"), [(494.0, 1), (496.0, 0)])
def test_where_nobody_reads_the_power_limit_s_time_it_draws_less_than_before(
    watts: float, count: int
) -> None:
    """A tenth less than 550 W: what its own limit holds down draws what it drew."""
    scene = job(*NODES[1], fields={**LOWER, "power_watts": watts})
    for subject in NODES[1]:
        scene = scene.changed(subject, {"power_cap_seconds": None})
    assert len(found(scene)) == count


def test_it_stands_for_as_long_as_the_job_waits() -> None:
    """Once the past is as low, too."""
    long_ago = job(*NODES[1], seconds=1e9)
    assert found(long_ago) == []
    stands = incident("gpu_clocks", node(), condition="node_clocks")
    (it,) = found(replace(long_ago, recent_incidents=(stands,)))
    assert [one.name for one in it.evidence] == ["GPUs", "SM clock"]
    assert found(replace(long_ago, recent_incidents=(incident("gpu_clocks", node()),))) == []
    over = replace(stands, resolved_at=NOON)
    assert found(replace(long_ago, recent_incidents=(over,))) == []


def test_no_gpu_s_own_slowness_is_told_beside_it() -> None:
    assert slow_gpus(job(*NODES[1]).window()) == []
