"""Whom a job that stands waits for, when it only pauses, and when one of its ranks is gone."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from analyzer.detectors.gpu_hung import DETECTOR, hung_jobs
from gpuvigil.model import Finding

from .scene import NOON, Scene, allocation, gpu, healthy, node, told

# Every line is ten seconds old.
LATE: Mapping[str, Any] = {"step_age_seconds": 70.0, "step_p99_seconds": 2.0}
WORK, INPUT, COLLECTIVE, CHECKPOINT, EVALUATION, STOPPED = range(6)


def found(scene: Scene) -> list[Finding]:
    return hung_jobs(scene.window((DETECTOR,)))


def job(*ranks: Mapping[str, Any]) -> Scene:
    """A job of one rank on each node, and what each says."""
    count = len(ranks)
    scene = healthy(nodes=count, gpus=1, seconds=60.0)
    for number, said in enumerate(ranks, 1):
        scene = scene.changed(gpu(number), {"rank": number - 1, **said})
    them = tuple(allocation(gpu(number), "job 7") for number in range(1, count + 1))
    return replace(scene, allocations=them)


def late(phase: int | None, seconds: float | None = 65.0) -> dict[str, Any]:
    return {**LATE, "step_phase": phase, "step_phase_seconds": seconds}


@pytest.mark.parametrize(
    ("phases", "blamed"),
    [
        ((COLLECTIVE, COLLECTIVE, INPUT), "rank 2, node-3 GPU 0: waits for its input for 65 s"),
        ((COLLECTIVE, COLLECTIVE, WORK), "rank 2, node-3 GPU 0: still at its own work for 65 s"),
        ((COLLECTIVE, WORK, WORK), ""),  # as many as wait, or more
        ((COLLECTIVE, WORK), ""),
        ((COLLECTIVE, COLLECTIVE, COLLECTIVE), ""),
        ((None, None, WORK), ""),  # nobody says that they wait
        ((None, None, STOPPED), "rank 2, node-3 GPU 0: stopped by a signal for 65 s"),
        ((WORK, COLLECTIVE, STOPPED), "rank 2, node-3 GPU 0: stopped by a signal for 65 s"),
    ],
)
def test_of_a_job_that_stands_the_rank_is_named_that_did_not_come_so_far(
    phases: tuple[int | None, ...], blamed: str
) -> None:
    (it,) = found(job(*map(late, phases)))
    assert it.condition == "no_steps"
    assert it.subject == (node(3) if blamed else node(1))
    named = [evidence.value for evidence in it.evidence if "wait for" in evidence.name]
    assert named == ([blamed] if blamed else [])


def test_a_job_of_which_all_ranks_are_stopped_is_suspended() -> None:
    assert found(job(late(STOPPED, None), late(STOPPED, None))) == []
    (it,) = found(job(late(STOPPED, None), late(None)))
    assert "rank 0, node-1 GPU 0: stopped by a signal;" in told(it)


@pytest.mark.parametrize("phase", [CHECKPOINT, EVALUATION])
@pytest.mark.parametrize(("seconds", "count"), [(1799.9, 0), (1800.0, 1), (None, 1)])
def test_a_pause_that_a_rank_tells_is_no_hang_for_half_an_hour(
    phase: int, seconds: float | None, count: int
) -> None:
    """The others wait for it in a barrier."""
    assert len(found(job(late(COLLECTIVE), late(phase, seconds)))) == count


# --- a rank that is gone --------------------------------------------------------------------------

WAITS: Mapping[str, Any] = {"step_age_seconds": 13.0, "step_seconds": 0.5}


def gone(seconds: float = 12.0) -> dict[str, Any]:
    return {"rank_gone_seconds": seconds, "step_age_seconds": None}


def test_a_rank_that_is_gone_is_told_while_the_others_wait() -> None:
    (it,) = found(job(WAITS, gone(), WAITS))
    assert (it.subject, it.members, it.holder, it.condition) == (gpu(2), (), "", "rank_gone")
    assert it.certain
    (other,) = found(job(WAITS, gone(), WAITS, {**WAITS, "step_seconds": 9.0}))
    assert not other.certain
    assert told(it) == (
        "warning; process gone: rank 1, node-2 GPU 0, for 12 s: it left its step file behind;"
        " other ranks: 2 of 2 wait, with no step for up to 13 s"
        " (limit 2 s and 2 of their usual steps)"
    )
    assert (NOON - it.since).total_seconds() == 22.0
    (it,) = found(job(WAITS, gone(), WAITS, gone(9.0)))
    assert (it.subject, it.members, it.holder) == (node(2), (gpu(2), gpu(4)), "c|job 7")


@pytest.mark.parametrize(
    ("other", "count"),
    [
        ({"step_age_seconds": 2.0, "step_seconds": 1.0}, 1),
        ({"step_age_seconds": 1.9, "step_seconds": 0.1}, 0),
        ({"step_age_seconds": 4.0, "step_seconds": 2.0}, 1),
        ({"step_age_seconds": 3.9, "step_seconds": 2.0}, 0),
        ({"step_age_seconds": 9.0, "step_seconds": None}, 0),
        ({"step_age_seconds": 9.0, "step_seconds": 1.0, "step_phase": CHECKPOINT}, 0),
        ({"step_age_seconds": 9.0, "step_seconds": 1.0, "step_phase": COLLECTIVE}, 1),
        ({"step_age_seconds": None, "step_seconds": None}, 0),
    ],
)
def test_who_waits_has_made_no_step_for_two_seconds_and_two_of_its_usual_ones(
    other: Mapping[str, Any], count: int
) -> None:
    scene = job(gone(2.0), other)
    assert len([it for it in found(scene) if it.condition == "rank_gone"]) == count


@pytest.mark.parametrize(("age", "count"), [(10.0, 1), (9.9, 0)])
def test_a_job_that_goes_on_without_a_rank_is_fine(age: float, count: int) -> None:
    """A step that ended two seconds after it may have been on its way."""
    other = {"step_age_seconds": age, "step_seconds": 0.5}
    assert len(found(job(gone(12.0), WAITS, other))) == count


@pytest.mark.parametrize(("dead", "count"), [(2, 1), (3, 0)])
def test_a_job_that_loses_most_of_its_ranks_ends(dead: int, count: int) -> None:
    assert len(found(job(*[gone()] * dead, WAITS, WAITS))) == count


def test_of_a_job_that_lost_a_rank_nothing_else_is_said() -> None:
    scene = job({**LATE, "step_age_seconds": 100.0, "step_seconds": 1.0}, gone(99.0))
    assert [it.condition for it in found(scene)] == ["rank_gone"]
    # A rank of another job, or of nobody, has no others.
    alone = replace(scene, allocations=scene.allocations[:1])
    assert [it.condition for it in found(alone)] == ["no_steps"]
