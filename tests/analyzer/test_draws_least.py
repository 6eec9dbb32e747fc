"""Who is slow, also since its job began, by what its GPU draws beside those that wait for it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.gpu_slow import DETECTOR, slow_gpus, would_show_slow_gpu
from analyzer.evidence.draws_least import DRAWS, learned
from analyzer.window.usual import Usual
from analyzer.window.window import Window
from gpuvigil.model import Finding, Severity, Subject

from .scene import NOON, SETTINGS, Scene, gpu, healthy, in_one_job, incident

GPUS = [gpu(number, index) for number in (1, 2) for index in range(4)]
LOOK = timedelta(seconds=SETTINGS.steady_seconds)
TOLD = {"step_own_seconds": 1.0}


def job(first: Mapping[str, Any], others: Mapping[str, Any] | None = None) -> Scene:
    """Eight GPUs at 550 W and one pace; of the first of them and of all others what is told else."""
    scene = in_one_job(healthy(nodes=2, gpus=4), GPUS, lost=0.0).changed(gpu(), first)
    for one in GPUS[1:] if others else ():
        scene = scene.changed(one, others or {})
    return scene


def watts(share: float, **more: Any) -> dict[str, Any]:
    return {"power_watts": 550.0 * share, **more}


def before(*scenes: Scene) -> Mapping[str, Usual]:
    """What a look at each taught."""
    usual: Mapping[str, Usual] = {}
    for number, scene in enumerate(scenes):
        window = replace(scene.window((DETECTOR,)), usual=usual, now=NOON + number * LOOK)
        usual = {DRAWS.name: learned(window)}
    return usual


SOUND = before(job({}), job({}))


def window_of(scene: Scene, usual: Mapping[str, Usual] = SOUND) -> Window:
    return replace(scene.window((DETECTOR,)), usual=usual)


def found(scene: Scene, usual: Mapping[str, Usual] = SOUND) -> list[Finding]:
    return slow_gpus(window_of(scene, usual))


@pytest.mark.parametrize(("of_job", "count"), [(209.0, 0), (211.0, 1)])  # of 700 W
def test_nobody_is_waited_for_in_a_job_that_rests(of_job: float, count: int) -> None:
    scene = job({"power_watts": 0.9 * of_job}, {"power_watts": of_job})
    assert len(found(scene)) == count
    taught = learned(scene.window((DETECTOR,)))
    assert (taught.looks > 0.0).sum() == count * len(GPUS)


@pytest.mark.parametrize(
    ("share", "count"), [(0.9401, 0), (0.9399, 1), (0.7047, 1), (0.7046, 0)]
)  # from 6 % on, and up to where it does something else than they do
def test_who_draws_less_than_the_others_and_than_it_usually_does_is_waited_for(
    share: float, count: int
) -> None:
    them = found(job(watts(share)))
    assert len(them) == count
    for it in them:
        assert (it.subject, it.condition) == (gpu(), "slow_rank")
        assert it.severity is Severity.WARNING
        assert it.title.startswith("A rank of the job is slow")
        assert it.evidence[0].peers == "7 other GPUs of the job"


@pytest.mark.parametrize(("share", "count"), [(0.9549, 1), (0.9551, 0)])
def test_a_minute_alone_says_nothing_where_the_whole_span_is_not_5_percent_below(
    share: float, count: int
) -> None:
    assert len(found(job(watts(share)).changed(gpu(), watts(0.93), 65.0))) == count


def test_what_a_gpu_drew_in_the_jobs_before_is_its_chips() -> None:
    usual = before(*[job(watts(0.9))] * 2)
    assert found(job(watts(0.9)), usual) == []
    assert len(found(job(watts(0.84)), usual)) == 1


@pytest.mark.parametrize("usual", [{}, before(job({}))])
def test_of_a_gpu_that_was_hardly_seen_nothing_is_told(usual: Mapping[str, Usual]) -> None:
    assert found(job(watts(0.9)), usual) == []


def test_a_lower_clock_explains_less_power_and_one_that_nobody_tells_does_not() -> None:
    assert found(job(watts(0.92, sm_clock_hertz=1_980_000_000 * 0.97))) == []
    none = {"sm_clock_hertz": None}
    assert len(found(job(watts(0.92, **none), none))) == 1


@pytest.mark.parametrize(
    "fields",
    [
        TOLD,  # its ranks tell their own work, which says more
        {"nvlink_receive_bytes": None},  # who knows whether it does what the others do
    ],
)
def test_what_is_no_slow_rank(fields: Mapping[str, Any]) -> None:
    assert found(job(watts(0.9, **fields))) == []


def test_one_that_moved_other_bytes_has_other_work() -> None:
    scene = job(watts(0.9))

    def moved(share: float) -> Scene:
        return replace(
            scene,
            samples=tuple(
                replace(it, fields={**it.fields, "nvlink_receive_bytes": int(share * it.fields["nvlink_receive_bytes"])})
                if it.subject == gpu()
                else it
                for it in scene.samples
            ),
        )  # fmt: skip

    assert len(found(moved(0.99))) == 1
    assert found(moved(0.98)) == []


@pytest.mark.parametrize("slow", [gpu(1), gpu(2)])
def test_gpus_of_a_node_that_is_read_less_often_are_compared_with_each_other(slow: Subject) -> None:
    """Every third line of the first node is missing; the other one's GPUs are compared without it."""
    scene = job({}).changed(slow, watts(0.9))
    lost = set(sorted({it.at for it in scene.samples}, reverse=True)[1::3])
    rare = scene.without(lambda it: it.subject in GPUS[:4] and it.at in lost)
    assert [it.subject for it in found(rare)] == [slow]


@pytest.mark.parametrize(("percent", "count"), [(91, 1), (89, 0)])
@pytest.mark.parametrize("seconds", [1e9, 60.0])
def test_one_that_rests_while_the_others_spin_saves_for_them(
    percent: int, seconds: float, count: int
) -> None:
    """By 3 points of the 93 % of the others, in all of the span or in its last minute."""
    scene = job(watts(0.9)).changed(gpu(), {"utilization_percent": percent}, seconds)
    assert len(found(scene)) == count


@pytest.mark.parametrize(("other", "count"), [(1.063, 1), (1.065, 0)])
def test_none_stands_out_where_another_one_comes_near(other: float, count: int) -> None:
    """1.7 times as far as any that is not told."""
    scene = job(watts(0.9)).changed(GPUS[5], watts(other))
    slow = [it.subject for it in found(scene)]
    assert (gpu() in slow, len(slow)) == (bool(count), count)


@pytest.mark.parametrize(
    ("shares", "is_fine"), [((0.971,), True), ((0.969,), False), ((0.9, 1.0), False)]
)
def test_it_is_over_where_it_draws_nearly_what_it_did(
    shares: Sequence[float], is_fine: bool
) -> None:
    """In the last minute, and over the span: a pause in which all draw the same is no proof."""
    scene = job(watts(shares[0]))
    scene = scene.changed(gpu(), watts(shares[-1]), 60.0)
    turned = incident("gpu_slow", gpu(), condition="slow_rank")
    assert would_show_slow_gpu(window_of(scene), turned) is is_fine
    assert would_show_slow_gpu(window_of(scene), incident("gpu_slow", gpu())) is False


@pytest.mark.parametrize(("gpus", "times", "count"), [(3, 0.91, 1), (3, 0.90, 0), (2, 0.90, 1)])
def test_where_a_third_of_a_job_has_another_clock_power_at_it_tells_nothing(
    gpus: int, times: float, count: int
) -> None:
    """The clocks of a node that somebody set: its power at a clock is not that of the others."""
    scene = job(watts(0.9))
    for one in GPUS[-gpus:]:
        scene = scene.changed(one, watts(times**2, sm_clock_hertz=1_980_000_000 * times))
    assert len(found(scene)) == count


@pytest.mark.parametrize("clockless", [0, 4])
def test_a_node_whose_clocks_somebody_set_makes_no_other_rank_slow(clockless: int) -> None:
    """In the middle of the span, beside GPUs that report no clock: what the others draw at theirs seemed less."""
    scene = job({})
    for one in GPUS[2:4]:
        scene = scene.changed(one, watts(0.77, sm_clock_hertz=1_485_000_000), 150)
    for one in GPUS[len(GPUS) - clockless :]:
        scene = scene.changed(one, {"sm_clock_hertz": None})
    assert found(scene) == []


@pytest.mark.parametrize(("clock", "count"), [(0.9513, 1), (0.9511, 0)])
def test_what_a_gpu_drew_at_another_clock_than_its_job_s_is_not_its_usual_draw(
    clock: float, count: int
) -> None:
    """By 5 %: it seemed to draw more, and is not slow once its clock is back."""
    lower = job({"sm_clock_hertz": round(1_980_000_000 * clock)})
    assert len(found(job({}), before(lower, lower))) == count
