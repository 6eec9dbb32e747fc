"""A GPU of which nobody tells any more, while the others of its node go on."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.gpu_lost import DETECTOR, lost_gpus
from gpuvigil.model import EventKind, Finding, Severity, Subject

from .scene import NOON, Scene, event, gpu, healthy

CALM = healthy(nodes=2, seconds=400.0)


def ended(scene: Scene, *gone: Subject, ago: float) -> Scene:
    """Nothing is told of these in the last seconds."""
    since = NOON - timedelta(seconds=ago)
    return scene.without(lambda it: it.subject in gone and it.at > since)


def found(scene: Scene) -> list[Finding]:
    return lost_gpus(scene.window((DETECTOR,)))


def test_its_last_line_is_long_before_theirs() -> None:
    (one,) = found(ended(CALM, gpu(), ago=130.0))
    assert (one.fault, one.condition, one.severity) == ("gpu_lost", "gpu_unread", Severity.WARNING)
    assert (one.subject, one.since) == (gpu(), NOON - timedelta(seconds=130))
    assert not one.certain
    assert found(ended(CALM, gpu(), ago=120.0)) == []


def test_who_is_read_seldom_is_awaited_for_five_lines() -> None:
    seldom = CALM.without(lambda it: it.at.second % 30 != 0)
    slow = replace(
        seldom,
        inventories=tuple(replace(it, tick_seconds=30.0) for it in seldom.inventories),
        settings=replace(seldom.settings, window_seconds=120.0),
    )
    assert found(ended(slow, gpu(), ago=150.0)) == []
    assert [it.subject for it in found(ended(slow, gpu(), ago=180.0))] == [gpu()]


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(ended(CALM, gpu(), gpu(1, 1), ago=200.0), id="the whole node is silent"),
        pytest.param(
            ended(ended(CALM, gpu(), ago=300.0), gpu(1, 1), ago=100.0), id="the other one, too"
        ),
        pytest.param(
            replace(
                ended(CALM, gpu(), ago=200.0),
                inventories=tuple(replace(it, gpus=it.gpus[1:]) for it in CALM.inventories),
            ),
            id="its node has it no more",
        ),
        pytest.param(
            ended(CALM, gpu(), ago=200.0).changed(gpu(1, 1), {"index": 0}),
            id="another one has its place",
        ),
    ],
)
def test_what_else_ends_lines_is_no_lost_gpu(scene: Scene) -> None:
    assert found(scene) == []


def test_a_gpu_that_is_told_as_lost_is_told_once() -> None:
    scene = ended(CALM, gpu(), ago=130.0).with_events(event(EventKind.GPU_LOST, gpu(), NOON))
    assert [it.condition for it in found(scene)] == [""]
