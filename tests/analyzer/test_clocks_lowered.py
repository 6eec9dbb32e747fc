"""Clocks that are set lower on several nodes are one matter, told against each GPU's own past."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.clocks_lowered import lowered_clocks, would_show_lowered_clocks
from analyzer.detectors.gpu_clocks import stuck_clocks
from gpuvigil.model import Subject

from .scene import NOON, SETTINGS, Scene, gpu, healthy, incident, node, told

# What was half an hour ago must lie before the steady span.
LONG = replace(SETTINGS, trend_seconds=900.0)
FULL = 1_980_000_000
HELD = (
    "power_cap_seconds",
    "software_thermal_slowdown_seconds",
    "hardware_thermal_slowdown_seconds",
    "power_brake_seconds",
)


def lowered(*nodes: int, hertz: int = 1_700_000_000, gpus: int = 2, of: int = 4) -> Scene:
    """The clocks of so many GPUs of these nodes were set lower five minutes ago."""
    scene = replace(healthy(nodes=of, seconds=900.0), settings=LONG)
    for number in nodes:
        for index in range(gpus):
            scene = scene.changed(gpu(number, index), {"sm_clock_hertz": hertz}, 300.0)
    return scene


def found(scene: Scene) -> list[tuple[Subject, tuple[Subject, ...]]]:
    return [
        (one.subject, tuple(it for it in one.members if it.kind == "node"))
        for one in lowered_clocks(scene.window())
    ]


THREE = [(node(1), (node(2), node(3)))]


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        (lowered(1, 2, 3), THREE),
        (lowered(1, 2), []),
        (lowered(1, 2, 3, gpus=1), []),  # half of a node's GPUs
        (lowered(1, 2, 3, 4), [(node(1), (node(2), node(3), node(4)))]),
        (lowered(1, 2, 3, hertz=int(0.899 * FULL)), THREE),
        (lowered(1, 2, 3, hertz=int(0.901 * FULL)), []),
    ],
    ids=["three", "two", "half", "all", "just low", "not low"],
)
def test_three_nodes_that_fell_are_one_finding(
    scene: Scene, expected: list[tuple[Subject, tuple[Subject, ...]]]
) -> None:
    assert found(scene) == expected
    # Nobody's neighbours tell of it.
    if expected:
        assert stuck_clocks(scene.window()) == []


@pytest.mark.parametrize(("before", "count"), [(1_835_999_999, 0), (1_836_000_001, 1)])
def test_each_gpu_reached_eight_hundredths_more_before(before: int, count: int) -> None:
    scene = lowered(1, 2, 3)
    samples = [
        replace(s, fields={**s.fields, "sm_clock_hertz": before})
        if s.fields.get("sm_clock_hertz") == FULL
        else s
        for s in scene.samples
    ]
    assert len(found(replace(scene, samples=tuple(samples)))) == count


@pytest.mark.medium
@pytest.mark.parametrize("counter", HELD)
def test_what_power_or_heat_holds_down_nobody_set_and_what_is_not_read_says_nothing(
    counter: str,
) -> None:
    for per_second, count in ((0.09, 1), (0.11, 0)):
        held = lowered(1, 2, 3).rising(gpu(), counter, per_second)
        held = held.rising(gpu(1, 1), counter, per_second)
        assert len(found(held)) == count
    unread = lowered(1, 2, 3)
    for index in range(2):
        unread = unread.changed(gpu(1, index), {counter: None})
    assert found(unread) == []


def test_who_rests_tells_nothing() -> None:
    for percent, count in ((50, 1), (49, 0)):
        scene = lowered(1, 2, 3)
        for index in range(2):
            scene = scene.changed(gpu(1, index), {"utilization_percent": percent})
        assert len(found(scene)) == count


def test_it_stands_while_any_of_its_nodes_is_low_and_keeps_its_name() -> None:
    one = incident("clocks_lowered", node(2), members=(node(2).key, node(3).key))
    long_ago = lowered(1, 2, 3).changed(gpu(), {"sm_clock_hertz": 1_700_000_000})
    for number in (1, 2, 3):
        for index in range(2):
            long_ago = long_ago.changed(gpu(number, index), {"sm_clock_hertz": 1_700_000_000})
    assert found(long_ago) == []
    assert found(replace(long_ago, recent_incidents=(one,))) == [(node(2), (node(3),))]
    over = replace(one, resolved_at=NOON - timedelta(minutes=1))
    assert found(replace(long_ago, recent_incidents=(over,))) == []
    (again,) = lowered_clocks(replace(lowered(1, 2, 3), recent_incidents=(one,)).window())
    gpus = [gpu(number, index) for number in (1, 2, 3) for index in range(2)]
    # Whose jobs are hit is known by the GPUs.
    assert (again.subject, again.members) == (node(2), tuple(sorted([node(1), node(3), *gpus])))
    assert told(again) == (
        "warning; nodes: node-1, node-2, node-3; SM clock: 1700 MHz at most (limit 1980 MHz on H100); "
        "before: 1980 MHz within half an hour"
    )
    assert would_show_lowered_clocks(lowered().window(), one)
    rest = lowered()
    for number in (2, 3):
        for index in range(2):
            rest = rest.changed(gpu(number, index), {"utilization_percent": 0})
    assert not would_show_lowered_clocks(rest.window(), one)


@pytest.mark.medium
@pytest.mark.parametrize(("nodes", "last"), [(10, "node-9"), (11, "node-8 and 1 more")])
def test_evidence_names_ten_nodes(nodes: int, last: str) -> None:
    (one,) = lowered_clocks(lowered(*range(1, nodes + 1), of=nodes).window())
    assert one.evidence[0].value.endswith(last)
