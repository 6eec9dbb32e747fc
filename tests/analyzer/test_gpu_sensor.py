"""A utilisation that is stuck at 0 % is a sensor's fault, and nobody's idleness."""

from dataclasses import replace

import pytest

from analyzer.correlation.all_detectors import DETECTORS
from analyzer.detectors.gpu_sensor import contradicting_sensors, says_whether_it_contradicts

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
        (600.0, None, 0),
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


@pytest.mark.parametrize(("percent", "count"), [(4.9, 0), (5.0, 1)])
def test_multiprocessors_that_work_contradict_it_at_any_power(percent: float, count: int) -> None:
    found = contradicting_sensors(stuck(90.0, sm_activity_percent=percent).window())
    assert len(found) == count
    if found:
        assert "SM activity: 5 % (limit 5 %)" in told(found[0])
    scene = stuck(90.0, sm_activity_percent=percent)
    assert says_whether_it_contradicts(scene.window(), incident("gpu_sensor", gpu())) is bool(count)


def test_each_sample_must_say_so_over_most_of_the_span() -> None:
    assert contradicting_sensors(stuck(utilization_percent=1).window()) == []
    rested = stuck().changed(gpu(), {"power_watts": 90.0}, 240)
    assert contradicting_sensors(rested.window()) == []
    for seconds, count in ((240.0, 0), (260.0, 1)):
        since = stuck().without(lambda s, at=seconds: (NOON - s.at).total_seconds() > at)  # type: ignore[misc]
        assert len(contradicting_sensors(since.window())) == count


def test_it_is_over_once_something_is_used_and_not_while_the_gpu_rests() -> None:
    one = incident("gpu_sensor", gpu())
    assert says_whether_it_contradicts(stuck(500.0).window(), one)
    assert says_whether_it_contradicts(ONE.window(), one)
    assert not says_whether_it_contradicts(stuck(90.0).window(), one)


@pytest.mark.parametrize("memory", [0, 40])
def test_its_holder_is_not_called_idle(memory: int) -> None:
    scene = replace(
        stuck(memory_utilization_percent=memory), allocations=(allocation(gpu(), "job 7"),)
    )
    window = scene.window()
    assert {one.fault for it in DETECTORS for one in it.find(window)} == {"gpu_sensor"}
