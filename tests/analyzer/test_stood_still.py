"""What a job must do, and for how long, to be said to stand still at 0 %, and until when."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.gpu_hung import DETECTOR, hung_jobs, says_whether_it_works
from gpuvigil.model import Finding, Subject

from .scene import NOON, SETTINGS, Scene, allocation, gpu, healthy, incident, node, told

SECOND = timedelta(seconds=1)
RESTS = {"utilization_percent": 0, "memory_utilization_percent": 0}
# Twenty lines of thirty are two thirds of the trend span.
LONG, SHORT = 215.0, 195.0
HOURS = replace(SETTINGS, steady_seconds=100.0, trend_seconds=300.0, underused_after_seconds=900.0)
GPUS = (gpu(1), gpu(1, 1), gpu(2), gpu(2, 1))


def resting(
    seconds: float = LONG,
    fields: Mapping[str, Any] | None = None,
    gpus: tuple[Subject, ...] = GPUS,
    used: int = 93,
    **of_job: Any,
) -> Scene:
    """A job on two nodes, whose GPUs were used so much until so long ago and did nothing since."""
    scene = replace(healthy(nodes=2, seconds=890.0), settings=HOURS)
    for one in gpus:
        scene = scene.changed(one, {"utilization_percent": used})
        scene = scene.changed(one, {**RESTS, **(fields or {})}, seconds)
    held = tuple(replace(allocation(one, "job 7"), **of_job) for one in gpus)
    return replace(scene, allocations=held)


def young() -> Scene:
    """Lines came for 700 s of 900; before that nobody measured anything."""
    begin = NOON - 710 * SECOND
    return resting().without(lambda sample: sample.at < begin)


def found(scene: Scene) -> list[Finding]:
    return hung_jobs(scene.window((DETECTOR,)))


def test_a_job_that_stands_still_is_told_once_of_all_of_its_gpus() -> None:
    (it,) = found(resting())
    assert told(it) == (
        "warning; utilisation: under 1 % for 4 min (peers 93 % in the mean of 0.166667 h before);"
        " GPUs: 4 on 2 nodes, held by job 7"
    )
    assert (it.subject, it.members, it.condition) == (node(1), GPUS, "stands_still")
    assert (NOON - it.since).total_seconds() == pytest.approx(220.0)


@pytest.mark.parametrize(
    ("scene", "count"),
    [
        (resting(SHORT), 0),
        (young(), 0),  # nobody knows what it did for most of the hours
        (resting(used=80), 1),
        (resting(used=79), 0),  # it rests for a fifth of the time anyway
        (resting(fields={"utilization_percent": 1}), 0),
        (resting(fields={"memory_utilization_percent": 1}), 0),
        (resting(fields={"memory_utilization_percent": None}), 1),
        (resting(fields={"sm_activity_percent": 1.0}), 0),
        (resting(fields={"sm_activity_percent": 0.9}), 1),
        (resting(fields={"power_watts": 210.0}), 0),  # its utilisation is read wrongly
        (resting(fields={"power_watts": 209.0}), 1),
        (resting(fields={"compute_processes": 0}), 0),  # its program has ended
        (resting(fields={"compute_processes": None}), 1),
        (resting(fields={"utilization_percent": None}), 0),
        (resting(gpus=GPUS[:2]), 1),
        (resting(gpus=GPUS[:1]), 0),  # between two kernels of one program
        (resting(started_at=NOON - 600 * SECOND), 1),
        (resting(started_at=NOON - 599 * SECOND), 0),
        (resting(command="vllm serve"), 0),  # it waits for requests
        (resting(fields={"step_age_seconds": 20.0}), 0),  # its steps tell
    ],
)
def test_a_job_stands_still_from_its_limits_on(scene: Scene, count: int) -> None:
    assert len(found(scene)) == count


def test_a_job_of_which_one_gpu_works_or_is_not_read_does_not_stand_still() -> None:
    works = resting().changed(GPUS[3], {"utilization_percent": 1}, 25.0)
    assert found(works) == []
    assert found(resting().without(lambda sample: sample.subject == GPUS[3])) == []


def test_a_job_that_writes_may_be_at_a_checkpoint() -> None:
    scene = resting().changed(node(2), {"shared_write_bytes": 0})
    assert found(scene.turned(node(2), "shared_write_bytes", 0.0, 51e6, 300.0)) == []
    assert len(found(scene.turned(node(2), "shared_write_bytes", 0.0, 49e6, 300.0))) == 1


@pytest.mark.parametrize(
    ("fault", "subject", "count"),
    [
        ("host_mount", node(2), 0),
        ("gpu_lost", gpu(2), 0),
        ("host_mount", node(3), 1),
        ("gpu_hung", node(1), 1),  # it is what stands
    ],
)
def test_a_job_that_something_else_holds_up_is_that_matter(
    fault: str, subject: Subject, count: int
) -> None:
    scene = replace(resting(), stood=(incident(fault, subject),))
    assert len(found(scene)) == count


@pytest.mark.parametrize(
    ("scene", "shows"),
    [
        (resting(), False),
        (resting(5000.0), False),  # nothing shows any more that it worked
        (resting().changed(gpu(), {"utilization_percent": 1}, 25.0), None),
        (resting(fields={"utilization_percent": 1}), None),
        (resting(ended_at=NOON), None),
        (resting(started_at=NOON), None),  # another job has them
        (Scene(), None),
    ],
)
def test_a_job_stands_still_until_any_of_it_works_or_it_ends(
    scene: Scene, shows: bool | None
) -> None:
    members = tuple(one.key for one in GPUS)
    stands = incident("gpu_hung", node(), members=members, condition="stands_still")
    assert says_whether_it_works(scene.window((DETECTOR,)), stands) is shows
