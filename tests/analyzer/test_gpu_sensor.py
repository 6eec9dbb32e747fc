"""A utilisation that is stuck at 0 % is a sensor's fault, and nobody's idleness."""

from dataclasses import replace

import pytest

from analyzer.correlation.all_detectors import DETECTORS
from analyzer.detectors.gpu_sensor import contradicting_sensors, says_whether_it_contradicts

from .scene import NOON, Scene, allocation, gpu, healthy, incident, told

ONE = healthy(nodes=1)


def stuck(watts: float = 500.0, **more: float) -> Scene:
    fields = {"utilization_percent": 0, "memory_utilization_percent": 0, "power_watts": watts}
    return ONE.changed(gpu(), {**fields, **more})


@pytest.mark.parametrize(("watts", "count"), [(349.9, 0), (350.0, 1)])
def test_no_gpu_at_rest_draws_half_of_its_limit(watts: float, count: int) -> None:
    found = contradicting_sensors(stuck(watts).window())
    assert len(found) == count
    if found:
        assert told(found[0]).startswith(
            "info; utilisation: 0 % at each of 30 samples; power: 350 W over 5 min"
        )


def test_each_sample_must_say_so_over_most_of_the_span() -> None:
    assert contradicting_sensors(stuck(utilization_percent=1).window()) == []
    rested = stuck().changed(gpu(), {"power_watts": 90.0}, 150)
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
