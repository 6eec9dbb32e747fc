"""A host whose processors heat slows down: for how much of the time, and where nobody counts it."""

from dataclasses import replace

import pytest

from analyzer.detectors.host_throttled import throttled_hosts
from gpuvigil.model import Finding, Severity

from .scene import NOON, Scene, healthy, node, told

TIME, TIMES = "cpu_throttled_milliseconds", "cpu_throttles"


def host(share: float, times_a_second: float = 2.0) -> Scene:
    """Of two hosts one is slowed down for this share of the time, the other for the half of a fifth."""
    scene = healthy(seconds=310.0)
    for number, part in ((1, share), (2, 0.1)):
        fields = {TIME: 7_000, TIMES: 90}
        scene = scene.changed(node(number), fields).rising(node(number), TIME, 1000.0 * part)
        scene = scene.rising(node(number), TIMES, times_a_second)
    return scene


def found(scene: Scene) -> list[Finding]:
    return throttled_hosts(scene.window())


def test_a_host_says_for_how_much_of_the_time_heat_slowed_it_down_and_how_often() -> None:
    (it,) = found(host(0.4))
    assert (it.subject, it.severity) == (node(), Severity.WARNING)
    assert told(it) == (
        "warning; heat slowed its processors down: 40 % of the time (limit under 20 %);"
        " it began: 580 times in 5 min"
    )


@pytest.mark.parametrize(("share", "count"), [(0.198, 0), (0.202, 1)])
def test_from_a_fifth_of_the_time_on(share: float, count: int) -> None:
    assert len(found(host(share))) == count


@pytest.mark.parametrize(("seconds", "count"), [(230, 0), (250, 1)])
def test_four_fifths_of_the_span_were_read(seconds: int, count: int) -> None:
    late = host(0.4).without(
        lambda it: it.subject == node() and (NOON - it.at).total_seconds() > seconds
    )
    assert len(found(late)) == count


def test_one_long_time_that_ended_lately_is_all_of_the_span_at_most() -> None:
    scene = host(0.0, 0.0).changed(node(), {TIME: 7_000 + 3_600_000}, 60.0)
    (it,) = found(scene)
    assert "100 % of the time" in told(it)


def test_a_kernel_that_counts_no_time_says_nothing_however_often_it_happens() -> None:
    scene = host(0.4, 50.0).changed(node(), {TIME: None})
    assert found(scene) == []
    assert found(healthy(seconds=310.0)) == []


def test_a_kernel_that_counts_only_time_is_enough() -> None:
    (it,) = found(host(0.4).changed(node(), {TIMES: None}))
    assert told(it).endswith("40 % of the time (limit under 20 %)")


def test_a_start_of_the_counter_anew_is_no_time() -> None:
    scene = host(0.0)
    assert found(replace(scene.changed(node(), {TIME: 0}, 60.0))) == []
