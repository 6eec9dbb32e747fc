"""What is told of ranks that come last to their job's collectives, by what else is known of them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.gpu_slow import DETECTOR, slow_gpus
from analyzer.evidence.draws_least import DRAWS, learned
from analyzer.evidence.last_ranks import LAST_TITLES, Why
from analyzer.window.usual import Usual
from gpuvigil.model import (
    Collective,
    Event,
    EventKind,
    Finding,
    RankState,
    RankStatus,
    Severity,
    Source,
)

from .scene import NOON, SETTINGS, Scene, event, gpu, healthy, in_one_job, node

GPUS = [gpu(number, index) for number in (1, 2) for index in range(4)]


def last(cost: int | None = None, before: int | None = None, seconds: int | None = None) -> Event:
    """Of the rank on the first GPU, a minute ago, last for so many seconds."""
    said = Collective(
        by=Source.INSPECTOR,
        holder="job 7",
        stand=RankState.FIRST,
        operation="AllReduce",
        ranks=(RankStatus(rank=3, stand=RankState.FIRST, gpu=gpu().gpu, microseconds=210),),
        compared=240,
        percent=92,
        microseconds=840,
        cost=cost,
        cost_before=before,
        seconds=seconds,
    )
    at = NOON - timedelta(seconds=60)
    return replace(event(EventKind.COLLECTIVE, node(), at), collectives=(said,))


def job(first: Mapping[str, Any] | None = None) -> Scene:
    """Eight GPUs at 550 W and 1,980 MHz, and what the first of them tells else."""
    return in_one_job(healthy(nodes=2, gpus=4), GPUS, lost=0.0).changed(gpu(), first or {})


def found(scene: Scene, **more: Any) -> list[Finding]:
    return slow_gpus(scene.with_events(last(**more)).window((DETECTOR,)))


# What is told of a rank whose GPU draws as the others does not depend on that, once it turned slow.
@pytest.mark.parametrize(
    ("cost", "before", "severity"),
    [
        (50, 25, Severity.WARNING),
        (50, 26, Severity.INFO),
        (25, 0, Severity.WARNING),
        (50, None, Severity.INFO),
        (None, None, Severity.INFO),
    ],
)
def test_who_comes_last_and_did_not_when_the_job_was_young_has_become_slow(
    cost: int | None, before: int | None, severity: Severity
) -> None:
    """Whether it was dealt more is not known where that is not known."""
    (it,) = found(job(), cost=cost, before=before)
    assert (it.subject, it.severity, it.condition) == (gpu(), severity, "last_in_collectives")
    assert ("has become slow" in it.title) is (severity is Severity.WARNING)
    # Its node said so at two looks: another one of the analyzer's would say the same.
    assert it.certain is (severity is Severity.WARNING)
    assert "Keep the GPU out" not in it.action


@pytest.mark.parametrize(
    # A minute ago it was told, at the second of two looks; looks are a minute apart, and the second is
    # half a minute after the first, or a fifth more than what was read.
    ("seconds", "ago"),
    [(None, 120.0), (0, 120.0), (25, 145.0), (40, 178.0), (90, 240.0), (2**53 - 1, 3600.0)],
)
def test_it_began_to_come_last_before_what_was_read_at_the_first_of_two_looks(
    seconds: int | None, ago: float
) -> None:
    """Halfway to the look before; with its job at the earliest."""
    scene = job()
    began = NOON - timedelta(hours=1)
    scene = replace(
        scene, allocations=tuple(replace(it, started_at=began) for it in scene.allocations)
    )
    (it,) = found(scene, cost=50, before=0, seconds=seconds)
    assert (NOON - it.since).total_seconds() == ago


def test_where_its_own_work_is_told_it_began_no_sooner_than_is_certain() -> None:
    """An incident keeps the earliest beginning that it was told."""
    scene = job({"step_own_seconds": 1.0})
    (it,) = found(scene, cost=50, before=0, seconds=90)
    assert (NOON - it.since).total_seconds() == 210.0


def test_who_was_slow_from_the_start_has_been_since_its_job_began() -> None:
    scene = job({"power_watts": 520.0})
    (it,) = found(scene, cost=50, before=50, seconds=10)
    assert it.since == min(held.started_at for held in scene.allocations)


def test_it_is_told_how_much_of_the_job_s_time_it_costs() -> None:
    words = "rank 3 is in AllReduce for 210 µs, the shortest in 92 % of 240"
    said = [
        evidence.value
        for cost, before in ((75, 0), (75, None), (None, None))
        for evidence in found(job(), cost=cost, before=before)[0].evidence
    ]
    assert said == [
        f"{words}: 7.5 % of the job's time, 0 % at first, by NCCL Inspector",
        f"{words}: 7.5 % of the job's time, by NCCL Inspector",
        f"{words}, by NCCL Inspector",
    ]


@pytest.mark.parametrize(("watts", "severity"), [(533.4, Severity.WARNING), (533.6, Severity.INFO)])
def test_who_always_came_last_and_draws_less_than_those_that_wait_has_been_slow(
    watts: float, severity: Severity
) -> None:
    """By 3 %: whoever was dealt more draws no less."""
    (it,) = found(job({"power_watts": watts}), cost=50, before=50)
    assert (it.subject, it.severity, it.condition) == (gpu(), severity, "last_in_collectives")
    assert ("been slow since it began" in it.title) is (severity is Severity.WARNING)


@pytest.mark.parametrize(("share", "count"), [(0.9699, 1), (0.9701, 0)])
def test_so_has_who_draws_less_than_it_usually_does_beside_others(share: float, count: int) -> None:
    """By 3 % less than the 2 % more that it drew in earlier jobs; by less it draws as the others."""
    usual: Mapping[str, Usual] = {}
    for number in range(2):
        window = replace(
            job({"power_watts": 561.0}).window((DETECTOR,)),
            usual=usual,
            now=NOON + number * timedelta(seconds=SETTINGS.steady_seconds),
        )
        usual = {DRAWS.name: learned(window)}
    scene = job({"power_watts": 561.0 * share}).with_events(last(cost=50, before=50))
    told = slow_gpus(replace(scene.window((DETECTOR,)), usual=usual))
    assert [(it.severity, it.title) for it in told] == [
        (Severity.WARNING, LAST_TITLES[Why.BEGUN])
    ] * count


def test_less_power_for_a_minute_says_nothing_of_the_job_s_start() -> None:
    scene = job().changed(gpu(), {"power_watts": 520.0}, 65.0)
    assert [it.severity for it in found(scene, cost=50, before=50)] == [Severity.INFO]


@pytest.mark.parametrize(
    ("hertz", "is_gpu"), [(1_900_700_000, True), (1_900_900_000, False), (None, False)]
)
def test_who_comes_last_at_a_lower_clock_is_its_gpu(hertz: int | None, is_gpu: bool) -> None:
    """By 4 %."""
    (it,) = found(job({"sm_clock_hertz": hertz}), cost=50, before=50)
    assert (it.subject, it.title.startswith("GPU slows its job down")) == (gpu(), is_gpu)
    assert (it.severity is Severity.WARNING) is is_gpu
    assert ("SM clock" in {e.name for e in it.evidence}) is is_gpu


@pytest.mark.parametrize(
    # A clock 4.1 % lower, which is 41.9 of a thousand.
    ("cost", "before", "is_gpu", "severity"),
    [
        (83, None, True, Severity.WARNING),
        (84, None, False, Severity.INFO),
        (84, 84, False, Severity.INFO),
        # Of what it costs more than when the job was young, where that is told.
        (183, 100, True, Severity.WARNING),
        (184, 100, False, Severity.WARNING),
        (124, 100, False, Severity.INFO),
        (None, None, True, Severity.WARNING),
    ],
)
def test_a_lower_clock_is_to_blame_where_it_explains_half_of_what_the_others_wait(
    cost: int | None, before: int | None, is_gpu: bool, severity: Severity
) -> None:
    """A rank that was dealt more draws more, too, and at its power limit runs lower for it."""
    scene = job({"sm_clock_hertz": 1_898_700_000, "power_watts": 560.0})
    (it,) = found(scene, cost=cost, before=before)
    assert (it.title.startswith("GPU slows its job down"), it.severity) == (is_gpu, severity)
    assert not (it.certain and is_gpu)


def test_where_many_run_lower_no_clock_is_a_gpu_s_own() -> None:
    scene = job()
    for subject in GPUS[:3]:
        scene = scene.changed(subject, {"sm_clock_hertz": 1_880_000_000})
    assert [it.title.startswith("GPU") for it in found(scene, cost=50, before=50)] == [False]


def test_what_ranks_tell_of_their_own_work_says_more() -> None:
    scene = job()
    for subject in GPUS:
        told = {"step_own_seconds": 1.0, "step_own_first_seconds": 1.0, "step_seconds": 1.6,
                "step_age_seconds": 0.5, "step_p99_seconds": 2.0}  # fmt: skip
        scene = scene.changed(subject, told)
    assert found(scene, cost=50, before=0) == []


@pytest.mark.parametrize("age", [0.5, 500.0])
@pytest.mark.parametrize(("seconds", "is_told"), [(1.0246, False), (1.0248, True)])
def test_a_rank_that_works_as_the_others_by_now_is_not_told_though_it_was_quicker_at_first(
    seconds: float, is_told: bool, age: float
) -> None:
    """By half of a twentieth; while the job pauses, too."""
    scene = job()
    for subject in GPUS:
        works, first = (seconds, 0.98) if subject == gpu() else (1.0, 1.0)
        told = {"step_own_seconds": works, "step_own_first_seconds": first, "step_seconds": 1.6,
                "step_age_seconds": age, "step_p99_seconds": 2.0}  # fmt: skip
        scene = scene.changed(subject, told)
    assert bool(found(scene, cost=50, before=0)) is is_told
