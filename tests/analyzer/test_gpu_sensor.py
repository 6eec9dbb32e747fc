"""A utilisation that is stuck at 0 % is a sensor's fault, and nobody's idleness."""

from dataclasses import replace

import pytest

from analyzer.correlation.all_detectors import DETECTORS
from analyzer.detectors.gpu_sensor import contradicting_sensors, would_show_contradiction

from .scene import NOON, Scene, allocation, gpu, healthy, incident, told

ONE = healthy(nodes=1)


def stuck(watts: float = 500.0, **more: float | None) -> Scene:
    fields = {"utilization_percent": 0, "memory_utilization_percent": 0, "power_watts": watts}
    return ONE.changed(gpu(), {**fields, **more})


@pytest.mark.parametrize(
    ("watts", "limit", "count"),
    [
        (209.9, 700.0, 0),
        (210.0, 700.0, 1),
        # Small boards rest at more of their limit.
        (149.9, 400.0, 0),
        (150.0, 400.0, 1),
        (35.9, 72.0, 0),
        (36.0, 72.0, 1),
        # One whose limit nobody reads has that of its model.
        (209.9, None, 0),
        (210.0, None, 1),
    ],
)
def test_no_gpu_at_rest_draws_three_tenths_of_its_limit(
    watts: float, limit: float | None, count: int
) -> None:
    found = contradicting_sensors(stuck(watts, power_limit_watts=limit).window())
    assert len(found) == count
    if watts == 210.0:
        assert told(found[0]).startswith(
            "info; utilisation: 0 % at each of 30 samples; power: 210 W over 5 min (limit 210 W)"
        )


@pytest.mark.parametrize(("watts", "count"), [(419.9, 0), (420.0, 1)])
def test_a_model_that_is_not_known_may_rest_at_what_the_largest_does(
    watts: float, count: int
) -> None:
    scene = replace(stuck(watts, power_limit_watts=None), inventories=())
    assert len(contradicting_sensors(scene.window())) == count


@pytest.mark.parametrize(("percent", "count"), [(4.9, 0), (5.0, 1)])
def test_multiprocessors_that_work_contradict_it_at_any_power(percent: float, count: int) -> None:
    found = contradicting_sensors(stuck(90.0, sm_activity_percent=percent).window())
    assert len(found) == count
    if found:
        assert "SM activity: 5 % (limit 5 %)" in told(found[0])
    scene = stuck(90.0, sm_activity_percent=percent)
    assert would_show_contradiction(scene.window(), incident("gpu_sensor", gpu())) is bool(count)


def test_each_sample_must_say_so_over_most_of_the_span() -> None:
    assert contradicting_sensors(stuck(utilization_percent=1).window()) == []
    rested = stuck().changed(gpu(), {"power_watts": 90.0}, 240)
    assert contradicting_sensors(rested.window()) == []
    for seconds, count in ((240.0, 0), (260.0, 1)):
        since = stuck().without(lambda s, at=seconds: (NOON - s.at).total_seconds() > at)  # type: ignore[misc]
        assert len(contradicting_sensors(since.window())) == count


def test_it_is_over_once_something_is_used_and_not_while_the_gpu_rests() -> None:
    one = incident("gpu_sensor", gpu())
    assert would_show_contradiction(stuck(500.0).window(), one)
    assert would_show_contradiction(ONE.window(), one)
    assert not would_show_contradiction(stuck(90.0).window(), one)


@pytest.mark.parametrize("memory", [0, 40])
def test_its_holder_is_not_called_idle(memory: int) -> None:
    scene = replace(
        stuck(memory_utilization_percent=memory), allocations=(allocation(gpu(), "job 7"),)
    )
    window = scene.window()
    assert {one.fault for it in DETECTORS for one in it.find(window)} == {"gpu_sensor"}


def still(watts: float = 380.0, lines: int = 20, **more: int) -> Scene:
    """In so many of its newest lines the GPU drew so much, before 100 W, all at 58 °C."""
    scene = ONE.changed(gpu(), {"temperature_celsius": 58, "power_watts": 100.0})
    scene = scene.changed(gpu(), {"power_watts": watts}, 10.0 * lines + 5.0)
    return scene.changed(gpu(), more, 15.0)


@pytest.mark.parametrize(
    ("scene", "count"),
    [
        (still(379.9), 0),
        (still(380.0), 1),
        (still(temperature_celsius=59), 0),
        # Of 30 lines.
        (still(lines=7), 0),
        (still(lines=8), 1),
        (still(lines=22), 1),
        (still(lines=23), 0),
    ],
)
def test_a_temperature_that_stands_still_while_power_comes_and_goes_is_no_temperature(
    scene: Scene, count: int
) -> None:
    found = contradicting_sensors(scene.window())
    assert [it.condition for it in found] == ["temperature_stuck"] * count


@pytest.mark.parametrize(
    ("celsius", "watts", "count"), [(5, 210.0, 1), (6, 210.0, 0), (5, 209.9, 0)]
)
def test_no_core_at_work_is_as_cold_as_no_air_is(celsius: int, watts: float, count: int) -> None:
    scene = ONE.changed(gpu(), {"temperature_celsius": celsius, "power_watts": watts})
    assert [it.condition for it in contradicting_sensors(scene.window())] == [
        "temperature_stuck"
    ] * count


def test_a_temperature_is_believed_again_once_it_moves() -> None:
    one = replace(incident("gpu_sensor", gpu()), condition="temperature_stuck")
    assert not would_show_contradiction(still().window(), one)
    assert would_show_contradiction(still(temperature_celsius=59).window(), one)
