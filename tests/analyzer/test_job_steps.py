"""Whom a job that stands waits for, when it only pauses, and when one of its ranks is gone."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
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
        # A program that tells its input and no collectives waits in its work for who has no input.
        ((WORK, WORK, INPUT), "rank 2, node-3 GPU 0: waits for its input for 65 s"),
        ((WORK, INPUT), ""),
        ((COLLECTIVE, WORK, INPUT), ""),
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
    # Who is waited for is told at the first look; of a job that stands as one a second must say so.
    assert it.certain is bool(blamed)


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
    (other,) = found(job(WAITS, gone(), WAITS, {**WAITS, "step_phase": EVALUATION}))
    assert not other.certain
    assert told(it) == (
        "warning; process gone: rank 1, node-2 GPU 0, for 12 s: it left its step file behind;"
        " other ranks: 2 of 2 wait, with no step for up to 13 s"
        " (limit 2 s)"
    )
    assert (NOON - it.since).total_seconds() == 22.0
    (it,) = found(job(WAITS, gone(), WAITS, gone(9.0)))
    assert (it.subject, it.members, it.holder) == (node(2), (gpu(2), gpu(4)), "c|job 7")


@pytest.mark.parametrize(
    ("other", "count"),
    [
        ({"step_age_seconds": 2.0, "step_seconds": 9.0}, 1),
        ({"step_age_seconds": 1.9, "step_seconds": 0.1}, 0),
        ({"step_age_seconds": 9.0, "step_seconds": None}, 1),
        # It will wait when its checkpoint is written.
        ({"step_age_seconds": 0.1, "step_seconds": 1.0, "step_phase": CHECKPOINT}, 1),
        ({"step_age_seconds": 9.0, "step_seconds": 1.0, "step_phase": COLLECTIVE}, 1),
        ({"step_age_seconds": None, "step_seconds": None}, 0),
    ],
)
def test_who_waits_has_made_no_step_for_two_seconds(other: Mapping[str, Any], count: int) -> None:
    scene = job(gone(2.0), other)
    assert len([it for it in found(scene) if it.condition == "rank_gone"]) == count


def test_a_rank_that_died_while_the_others_pause_is_told_before_they_wait() -> None:
    for pause in (CHECKPOINT, EVALUATION):
        pauses = {**WAITS, "step_phase": pause}
        (it,) = found(job(pauses, gone(), pauses))
        assert (it.certain, it.severity.value) == (True, "warning")
        assert it.title == "A rank of the job has died, and the others will wait for it"
        assert told(it).endswith("other ranks: 2 of 2 at a checkpoint or an evaluation")


@pytest.mark.parametrize(("later", "certain"), [(4.9, False), (5.0, True)])
def test_what_was_read_of_a_rank_before_another_was_gone_says_nothing(
    later: float, certain: bool
) -> None:
    """Gone for five seconds by lines that are ten seconds old."""
    early = {**WAITS, "step_age_seconds": 1.0, "step_phase": EVALUATION}
    scene = job(WAITS, gone(5.0), early)
    old = NOON - timedelta(seconds=10.0 + later)
    kept = [
        replace(it, at=old) if it.subject == gpu(3) and it.at > NOON - timedelta(seconds=15) else it
        for it in scene.samples
        if it.subject != gpu(3) or it.at > NOON - timedelta(seconds=15)
    ]
    (it,) = found(replace(scene, samples=tuple(kept)))
    assert (it.condition, it.certain) == ("rank_gone", certain)


@pytest.mark.parametrize(("seconds", "certain"), [(3.9, [True]), (4.0, [])])
def test_what_was_read_of_a_rank_too_soon_after_another_was_gone_says_nothing(
    seconds: float, certain: list[bool]
) -> None:
    """A step that ended within two seconds after it was on its way; one that ended later was not."""
    early = {"step_age_seconds": 1.9, "step_seconds": 0.5}
    assert [it.certain for it in found(job(WAITS, gone(seconds), early))] == certain


@pytest.mark.parametrize(("age", "count"), [(10.0, 1), (9.9, 0)])
def test_a_job_that_goes_on_without_a_rank_is_fine(age: float, count: int) -> None:
    """A step that ended two seconds after it may have been on its way."""
    other = {"step_age_seconds": age, "step_seconds": 0.5}
    assert len(found(job(gone(12.0), WAITS, other))) == count


@pytest.mark.parametrize(("dead", "count"), [(2, 1), (3, 0)])
def test_a_job_that_loses_most_of_its_ranks_ends(dead: int, count: int) -> None:
    assert len(found(job(*[gone()] * dead, WAITS, WAITS))) == count


def test_of_a_job_that_lost_a_rank_nothing_else_is_said() -> None:
    waits = {**LATE, "step_age_seconds": 100.0, "step_seconds": 1.0, "step_phase": COLLECTIVE}
    scene = job(waits, gone(99.0))
    assert [it.condition for it in found(scene)] == ["rank_gone"]
    # A rank of another job, or of nobody, has no others.
    alone = replace(scene, allocations=scene.allocations[:1])
    assert [it.condition for it in found(alone)] == ["no_steps"]


@pytest.mark.parametrize(
    ("phases", "age", "count"),
    [
        # Some are waited for: one and a half times the longest steps.
        ((COLLECTIVE, COLLECTIVE, WORK), 67.4, 0),
        ((COLLECTIVE, COLLECTIVE, WORK), 67.5, 1),
        ((COLLECTIVE, COLLECTIVE, STOPPED), 67.5, 1),
        # All do the same: five times, as before.
        ((COLLECTIVE, COLLECTIVE, COLLECTIVE), 224.9, 0),
        ((COLLECTIVE, COLLECTIVE, COLLECTIVE), 225.0, 1),
        ((INPUT, INPUT, INPUT), 224.9, 0),
    ],
)
def test_a_rank_that_the_others_wait_for_is_told_sooner_than_a_pause_of_all(
    phases: tuple[int, ...], age: float, count: int
) -> None:
    said = {"step_age_seconds": age, "step_p99_seconds": 45.0}
    assert len(found(job(*({**said, "step_phase": it} for it in phases)))) == count


WATTS = {"power_limit_watts": 700.0}
FULL = {**WATTS, "utilization_percent": 98}


@pytest.mark.parametrize(
    ("phase", "watts", "age", "count"),
    [
        (None, 279.0, 70.0, 1),
        (None, 281.0, 70.0, 0),
        (None, 281.0, 1799.0, 0),
        (None, 281.0, 1801.0, 1),
        (WORK, 281.0, 70.0, 1),
    ],
)
def test_a_job_that_tells_its_steps_alone_may_be_at_an_evaluation_while_its_gpus_work(
    phase: int | None, watts: float, age: float, count: int
) -> None:
    said = {**LATE, **FULL, "step_age_seconds": age, "power_watts": watts, "step_phase": phase}
    assert len(found(job(said, said))) == count


@pytest.mark.parametrize(("percent", "count"), [(5, 1), (6, 0), (97, 0), (98, 1)])
def test_or_at_a_light_one_while_they_neither_idle_nor_spin(percent: int, count: int) -> None:
    said = {**LATE, **WATTS, "power_watts": 130.0, "utilization_percent": percent}
    assert len(found(job(said, said))) == count


@pytest.mark.parametrize(
    ("megabytes", "age", "count"), [(49.0, 70.0, 1), (51.0, 70.0, 0), (51.0, 601.0, 1)]
)
def test_a_job_that_tells_its_steps_alone_may_be_at_a_checkpoint_while_its_node_writes(
    megabytes: float, age: float, count: int
) -> None:
    said = {**LATE, **FULL, "step_age_seconds": age, "power_watts": 120.0}
    scene = job(said, said).changed(node(1), {"shared_write_bytes": 0})
    scene = scene.turned(node(1), "shared_write_bytes", 0.0, megabytes * 1e6, 60.0)
    assert len(found(scene)) == count


SPINS = {"utilization_percent": 98, "power_watts": 279.0, **WATTS}
IDLE = {"utilization_percent": 4, "power_watts": 90.0, **WATTS}


def spinning(
    phase: int | None, *others: Mapping[str, Any], idle: Mapping[str, Any] = IDLE, **more: Any
) -> Scene:
    """Four ranks whose steps stopped: the last one's GPU is idle, the others' spin."""
    said = {**LATE, "step_age_seconds": 45.0, "step_phase": phase, **more}
    waits = others or (SPINS,) * 3
    return job(*({**said, **it} for it in (*waits, idle)))


@pytest.mark.parametrize(
    ("phase", "changed", "count"),
    [
        (None, {}, 1),
        (WORK, {}, 1),
        (COLLECTIVE, {}, 0),  # what the ranks say themselves speaks first
        (INPUT, {}, 0),
        (None, {"step_age_seconds": 44.9}, 0),
        (None, {"step_p99_seconds": 30.0}, 1),
        (None, {"step_p99_seconds": 30.1}, 0),
    ],
)
def test_an_idle_gpu_is_waited_for_while_the_others_spin(
    phase: int | None, changed: Mapping[str, Any], count: int
) -> None:
    them = found(spinning(phase, **changed))
    assert len(them) == count
    for it in them:
        assert (it.certain, it.subject) == (True, node(4))
        named = [one.value for one in it.evidence if "wait for" in one.name]
        assert named == ["rank 3, node-4 GPU 0: its GPU is idle while the others' spin"]


@pytest.mark.parametrize(
    ("waits", "idle", "blamed"),
    [
        ({}, {}, True),
        ({"utilization_percent": 97}, {}, False),
        ({"power_watts": 280.0}, {}, False),  # it works
        ({"power_watts": None}, {}, False),
        ({}, {"utilization_percent": 5}, False),
        ({}, {"utilization_percent": None}, False),
    ],
)
def test_a_gpu_spins_or_is_idle_from_its_limits_on(
    waits: Mapping[str, Any], idle: Mapping[str, Any], blamed: bool
) -> None:
    others = (SPINS, SPINS, {**SPINS, **waits})
    assert bool(found(spinning(WORK, *others, idle={**IDLE, **idle}))) is blamed
    # As many as are waited for wait.
    assert found(spinning(WORK, IDLE, SPINS, SPINS)) == []


def test_a_first_rank_may_save_without_a_word_while_the_others_wait() -> None:
    """Of a program that tells its steps alone; one that tells its pauses would say so."""
    first = (IDLE, SPINS, SPINS)
    assert found(spinning(None, *first, idle=SPINS)) == []
    assert len(found(spinning(WORK, *first, idle=SPINS))) == 1
    assert found(spinning(None, idle={**IDLE, "rank": None})) == []


@pytest.mark.parametrize(("looks", "age", "count"), [(4, 45.0, 1), (4, 44.9, 0), (3, 45.0, 0)])
def test_a_rank_that_a_signal_keeps_stopped_is_no_rank_that_pauses(
    looks: int, age: float, count: int
) -> None:
    """Of a program that tells its steps alone, whose pauses take two minutes; six looks a minute."""
    said = {**LATE, "step_age_seconds": age, "step_p99_seconds": 120.0}
    scene = job(said, said, said)
    scene = scene.changed(gpu(2), {"step_phase": STOPPED}, 10.0 * looks + 5.0)
    them = found(scene)
    assert len(them) == count
    for it in them:
        assert (it.certain, it.subject) == (True, node(2))
        assert "limit 45 s for a rank that a signal keeps stopped" in told(it)
    # It ran at one of the looks, as a rank that a profiler stops does.
    ran = scene.changed(gpu(2), {"step_phase": WORK}, 1e9)
    assert found(ran.changed(gpu(2), {"step_phase": STOPPED}, 10.0 * looks + 5.0)) == []
