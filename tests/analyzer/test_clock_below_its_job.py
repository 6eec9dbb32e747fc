"""A clock that stays below those of its job's others, which do the same work."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.gpu_clocks import stuck_clocks
from gpuvigil.model import Finding, Severity, Subject

from .scene import NOON, SETTINGS, Scene, gpu, healthy, in_one_job

GPUS = [gpu(number, index) for number in (1, 2) for index in range(4)]
SOUND = healthy(nodes=2, gpus=4)
# 1,980 MHz is the highest.
LOWER = {"sm_clock_hertz": 1_850_000_000}


def job(fields: Mapping[str, Any], *slow: Subject, seconds: float = 1e9) -> Scene:
    scene = in_one_job(SOUND, GPUS, lost=0.0)
    for subject in slow or (gpu(),):
        scene = scene.changed(subject, fields, seconds)
    return scene


def found(scene: Scene) -> list[Finding]:
    return stuck_clocks(scene.window())


@pytest.mark.parametrize(("hertz", "count"), [(1_900_700_000, 1), (1_900_900_000, 0)])
def test_a_clock_4_percent_below_its_job_s_is_told_with_what_the_others_reach(
    hertz: int, count: int
) -> None:
    them = found(job({"sm_clock_hertz": hertz}))
    assert [(it.subject, it.severity) for it in them] == [(gpu(), Severity.WARNING)] * count
    assert [it.evidence[0].peers for it in them] == ["1980 MHz"] * count


def test_without_a_job_or_in_a_young_one_a_clock_may_be_that_of_other_work() -> None:
    scene = job(LOWER)
    assert found(replace(scene, allocations=())) == []
    begun = NOON - timedelta(seconds=SETTINGS.steady_seconds)

    def held(at: timedelta) -> Scene:
        return replace(
            scene, allocations=tuple(replace(it, started_at=begun + at) for it in scene.allocations)
        )

    assert len(found(held(timedelta(0)))) == 1
    assert found(held(timedelta(seconds=1))) == []


def test_of_three_nobody_is_the_middle() -> None:
    scene = job(LOWER)
    held = [it for it in scene.allocations if it.subject in GPUS[:3]]
    assert found(replace(scene, allocations=tuple(held))) == []
    four = [it for it in scene.allocations if it.subject in GPUS[:4]]
    assert len(found(replace(scene, allocations=tuple(four)))) == 1


def test_one_that_was_at_its_clock_within_the_span_does_rise() -> None:
    length = SETTINGS.steady_seconds
    assert found(job(LOWER, seconds=length - 10.0)) == []
    assert len(found(job(LOWER, seconds=length + 10.0))) == 1


def test_what_the_power_cap_explains_or_nobody_reads_is_none() -> None:
    assert len(found(job(LOWER).rising(gpu(), "power_cap_seconds", 0.05))) == 1
    assert found(job(LOWER).rising(gpu(), "power_cap_seconds", 0.15)) == []
    assert found(job({**LOWER, "power_cap_seconds": None})) == []


def test_what_a_node_s_gpus_do_together_or_somebody_set_is_a_setting() -> None:
    assert found(job(LOWER, *GPUS[:4])) == []
    assert found(job({**LOWER, "clock_event_reasons": 0x2})) == []
    assert len(found(job({**LOWER, "clock_event_reasons": 0x4}))) == 1


@pytest.mark.parametrize(("other", "count"), [(1_904_000_000, 1), (1_902_000_000, 0)])
def test_it_stands_out(other: int, count: int) -> None:
    """1.7 times as far below the middle as any other."""
    scene = job(LOWER).changed(gpu(2, 1), {"sm_clock_hertz": other})
    assert len(found(scene)) == count
