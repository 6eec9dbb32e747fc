"""A node that goes on telling of itself, and of none of its GPUs."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.driver_silent import DETECTOR, silent_drivers, would_show_unread_driver
from gpuvigil.model import EventKind, Finding, Severity

from .scene import NOON, SETTINGS, Scene, event, healthy, incident, node

SPANS = replace(SETTINGS, steady_seconds=600.0, trend_seconds=1800.0)
CALM = replace(healthy(nodes=2, seconds=1800.0), settings=SPANS)


def ended(ago: float, scene: Scene = CALM) -> Scene:
    """Nothing is told of the first node's GPUs in the last seconds."""
    since = NOON - timedelta(seconds=ago)
    return scene.without(
        lambda it: it.subject.gpu is not None and it.subject.node == "node-1" and it.at > since
    )


def found(scene: Scene) -> list[Finding]:
    return silent_drivers(scene.window((DETECTOR,)))


def test_it_is_told_after_nine_minutes() -> None:
    assert found(ended(530.0)) == []
    (one,) = found(ended(540.0))
    assert (one.fault, one.condition, one.severity) == (
        *("driver_silent", "driver_unread"),
        Severity.WARNING,
    )
    assert (one.subject, one.since) == (node(), NOON - timedelta(seconds=540))


def test_it_is_told_at_more_than_one_look_where_lines_come_by_the_minute() -> None:
    settings = replace(SPANS, tick_seconds=60.0, window_seconds=240.0)
    by_the_minute = replace(CALM, settings=settings).without(
        lambda it: (NOON - it.at) % timedelta(minutes=1) != timedelta(0)
    )
    assert [len(found(ended(60.0 * minutes, by_the_minute))) for minutes in (8, 9, 10, 20)] == [
        0,
        1,
        1,
        1,
    ]


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(
            ended(1200.0).without(
                lambda it: (
                    it.subject == node()
                    and timedelta(seconds=530) < NOON - it.at < timedelta(seconds=1200)
                )
            ),
            id="the node was away for as long, and came back without its exporter of GPUs",
        ),
        pytest.param(
            ended(540.0).without(
                lambda it: it.subject == node() and it.at > NOON - timedelta(seconds=500)
            ),
            id="the node is silent as well",
        ),
        pytest.param(
            ended(540.0).with_events(event(EventKind.BOOT, node(), NOON - timedelta(minutes=1))),
            id="it was started anew",
        ),
    ],
)
def test_what_else_ends_lines_is_no_silent_driver(scene: Scene) -> None:
    assert found(scene) == []


def test_it_stands_until_a_gpu_is_read_again() -> None:
    one = replace(incident("driver_silent", node()), condition="driver_unread")
    assert would_show_unread_driver(ended(540.0).window(), one) is False
    assert would_show_unread_driver(CALM.window(), one) is True
    assert would_show_unread_driver(CALM.window(), incident("driver_silent", node())) is None
