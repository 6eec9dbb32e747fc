"""A node that is read once a minute, and loses some of its bodies: how long it may be silent."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.node_silent import DETECTOR, Hearing, hearing, silent_nodes
from gpuvigil.config import AnalyzerSettings

from .scene import NODE_FIELDS, NOON, Sample, Scene, healthy, node

SECOND, TICK = timedelta(seconds=1), 60.0


def silent_for(seconds: float, lost: Callable[[int], bool], tick: float = TICK) -> Scene:
    """A node that was last heard so long ago; `lost`: which of its bodies before that never came."""
    heard = NOON - seconds * SECOND
    scene = healthy(nodes=1, seconds=0.0, gpus=0)
    samples = tuple(
        Sample(subject=node(), at=heard - (number * tick + 0.5) * SECOND, fields=NODE_FIELDS)
        for number in range(int(7200 / tick))
        if number == 0 or not lost(number)
    )
    return replace(
        scene,
        samples=samples,
        inventories=(replace(scene.inventories[0], tick_seconds=tick),),
        heard={node().key: heard},
        settings=AnalyzerSettings(),
    )


def is_told(scene: Scene) -> bool:
    return bool(silent_nodes(scene.window((DETECTOR,))))


def test_what_a_minute_s_reader_lost_is_known_for_as_long_as_it_may_stay_silent_by_chance() -> None:
    def half(number: int) -> bool:
        return number % 2 == 1

    # Ten of its bodies in a row are lost every other day.
    for seconds in (200.0, 400.0, 620.0, 900.0):
        scene = silent_for(seconds, half)
        assert hearing(scene.window((DETECTOR,)), node()) is Hearing.HEARD
        assert not is_told(scene)
    assert is_told(silent_for(1100.0, half))


@pytest.mark.parametrize("every", [2000, 15])
def test_a_minute_s_reader_that_loses_hardly_any_is_told_as_before(every: int) -> None:
    assert is_told(silent_for(600.0, lambda number: number % every == 3))
    assert not is_told(silent_for(580.0, lambda number: number % every == 3))


def test_one_that_is_read_every_ten_seconds_is_told_by_the_last_ten_minutes() -> None:
    def long_ago(number: int) -> bool:
        return number > 70 and number % 2 == 1

    assert is_told(silent_for(545.0, long_ago, 10.0))
    window = silent_for(60.0, long_ago, 10.0).window((DETECTOR,))
    assert hearing(window, node()) is Hearing.SILENT
