"""Whether the jobs behind a bad port are known to be slower, or to go on as before."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.correlation.impact import impact
from gpuvigil.faults import FAULTS
from gpuvigil.model import Finding, Impact, Incident, Subject

from .scene import NOON, SETTINGS, Scene, gpu, healthy, in_one_job, incident, port

MINUTES = replace(SETTINGS, steady_seconds=600.0, trend_seconds=1800.0)
FLEET = replace(healthy(nodes=4, seconds=1900.0), settings=MINUTES)
MINE = [gpu(number, index) for number in (1, 2) for index in range(2)]
THEIRS = [gpu(1, 0), gpu(3, 0)]
AT_PACE = "job 7 of alice: its pace is unchanged (4 GPUs on 2 nodes)"
MAY = "job 7 of alice: 4 GPUs on 2 nodes may suffer from this port"


def bad(
    seconds: float, fault: str = "port_errors", at: Subject | None = None, **more: Any
) -> Finding:
    return Finding(
        fault=fault,
        subject=at or port(),
        severity=FAULTS[fault].severity,
        since=NOON - timedelta(seconds=seconds),
        evidence=(),
        detector="test",
        action="",
        source="",
        **more,
    )


def of(scene: Scene, found: Finding) -> Impact:
    return impact(scene.window(), found)


def slower(lost: float, seconds: float) -> Impact:
    """Return the impact of a fault `seconds` ago since which the job makes this much less pace."""
    return of(in_one_job(FLEET, MINE, lost, seconds), bad(seconds))


def test_a_job_that_goes_on_at_its_pace_is_not_said_to_suffer() -> None:
    found = slower(0.0, 300.0)
    assert (found.text, found.slower, found.running) == (AT_PACE, False, True)
    lost = slower(0.2, 300.0)
    assert (lost.text, lost.slower) == (MAY, None)


@pytest.mark.parametrize("seconds", [65.0, 610.0])
@pytest.mark.parametrize(("lost", "is_same"), [(0.049, True), (0.051, False), (-0.051, False)])
def test_the_same_pace_is_within_5_percent_of_the_earlier_one(
    seconds: float, lost: float, is_same: bool
) -> None:
    assert slower(lost, seconds).slower is (False if is_same else None)


@pytest.mark.parametrize(
    ("seconds", "is_known"), [(59.0, False), (60.0, True), (900.0, True), (901.0, False)]
)
def test_it_is_known_from_a_minute_on_and_while_the_time_before_is_in_sight(
    seconds: float, is_known: bool
) -> None:
    scene = in_one_job(FLEET, MINE, 0.0)
    assert of(scene, bad(seconds)).slower is (False if is_known else None)


def test_a_finding_that_begins_with_its_newest_sample_is_as_old_as_its_incident() -> None:
    scene = in_one_job(FLEET, MINE, 0.0)
    assert of(scene, bad(10.0)).slower is None
    stands = incident("port_errors", port(), since=-timedelta(minutes=5))
    assert of(replace(scene, recent_incidents=(stands,)), bad(10.0)).slower is False
    other = incident("port_errors", port(2), since=-timedelta(minutes=5))
    assert of(replace(scene, recent_incidents=(other,)), bad(10.0)).slower is None


def test_once_known_it_stays_so_while_the_pace_stays() -> None:
    old = bad(7200.0)
    kept = replace(incident("port_errors", port()), impact=Impact(slower=False))

    def told(lost: float, *stands: Incident) -> bool | None:
        scene = replace(in_one_job(FLEET, MINE, lost, 590.0), recent_incidents=tuple(stands))
        return of(scene, old).slower

    assert told(0.0) is None
    assert told(0.0, kept) is False
    assert told(0.1, kept) is None
    assert told(0.0, replace(kept, resolved_at=NOON)) is None
    assert told(0.0, replace(kept, impact=Impact())) is None


def test_of_several_jobs_all_must_go_on_as_before() -> None:
    scene = in_one_job(FLEET, MINE[1:], 0.0)
    both = in_one_job(scene, THEIRS, 0.0)
    others = [replace(it, holder=replace(it.holder, name="8")) for it in both.allocations[3:]]
    both = replace(both, allocations=(*both.allocations[:3], *others))
    found = of(both, bad(300.0))
    assert found.text == ("job 7 of alice and 1 more: their pace is unchanged (5 GPUs on 3 nodes)")
    moved = replace(both, samples=in_one_job(both, THEIRS, 0.2, 300.0).samples)
    assert of(moved, bad(300.0)).slower is None


def test_too_few_gpus_or_too_young_a_job_say_nothing_of_its_pace() -> None:
    scene = in_one_job(FLEET, MINE, 0.0)
    some = scene.without(lambda it: it.subject in MINE[:2])
    few = scene.without(lambda it: it.subject in MINE[:3])
    assert [of(it, bad(300.0)).slower for it in (some, few)] == [False, None]
    began = NOON - timedelta(seconds=1799)
    young = tuple(replace(it, started_at=began) for it in scene.allocations)
    assert of(replace(scene, allocations=young), bad(300.0)).slower is None


def test_a_job_that_waits_or_gets_less_through_is_slower_whatever_its_pace() -> None:
    scene = in_one_job(FLEET, MINE, 0.0)
    less = of(scene, bad(300.0, lost=0.15))
    assert (less.slower, less.text) == (
        True,
        "job 7 of alice moves 15 % less data (4 GPUs on 2 nodes)",
    )
    halted = of(scene, bad(300.0, halted=True))
    assert (halted.slower, halted.text) == (
        True,
        "job 7 of alice: 4 GPUs on 2 nodes wait for this port",
    )


def test_it_is_said_of_ports_alone() -> None:
    scene = in_one_job(FLEET, MINE, 0.0)
    hot = of(scene, bad(300.0, "gpu_hot", gpu()))
    assert (hot.slower, hot.running) == (None, True)
    idle = of(FLEET, bad(300.0))
    assert (idle.slower, idle.running) == (None, False)
