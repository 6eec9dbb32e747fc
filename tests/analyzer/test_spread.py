"""When samples stand for a whole span: plenty of them, or fewer that lie evenly."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from analyzer.evidence.spread import Part, stands_for
from analyzer.window.window import Need, Span
from gpuvigil.config import AnalyzerSettings
from gpuvigil.store import Aggregate, Function

from .scene import GPU_FIELDS, NOON, Sample, Scene, gpu, inventory, node

SPAN, LAST = 1000.0, 250.0  # seconds; a sample in ten is all of them
SETTINGS = AnalyzerSettings(idle_after_seconds=SPAN)


def stands(whole: float, last: float, first_ago: float = SPAN, last_seconds: float = LAST) -> bool:
    """So many samples in the span and in its last part; the oldest came so long ago."""
    scene = Scene(
        samples=(Sample(subject=gpu(), at=NOON - timedelta(seconds=first_ago), fields=GPU_FIELDS),),
        inventories=(replace(inventory(node()), tick_seconds=10.0),),
        settings=SETTINGS,
    )
    up = Aggregate(function=Function.COUNT, field="up")
    rows = scene.rows(Need(measurement="gpu", span=Span.IDLE, aggregates=(up,)))
    window = replace(scene.window(()), rows={("gpu", Span.IDLE): rows})
    (found,) = stands_for(
        window,
        rows,
        Part(counted=np.array([whole]), seconds=SPAN),
        Part(counted=np.array([last]), seconds=last_seconds),
    )
    return bool(found)


@pytest.mark.parametrize(
    ("whole", "last", "expected"),
    [
        (80, 25, True),  # four fifths may lie as they like
        (80, 0, True),
        (79, 0, False),
        (79, 10, True),
        (20, 5, True),  # a fifth, evenly
        (19, 5, False),
        (42, 6, True),
        (40, 4, False),  # 4 in 250 s, 36 in 750 s
        (40, 5, True),
        (40, 19, False),  # 19 in 250 s, 21 in 750 s
        (40, 18, True),
        (40, float("nan"), False),
    ],
)
def test_a_fifth_of_the_samples_will_do_where_they_lie_evenly(
    whole: float, last: float, expected: bool
) -> None:
    assert stands(whole, last) is expected


@pytest.mark.parametrize(("ago", "expected"), [(SPAN, True), (800.0, True), (799.9, False)])
def test_the_first_fifth_of_the_span_may_be_missing(ago: float, expected: bool) -> None:
    assert stands(100, 25, first_ago=ago) is expected
    assert stands(40, 10, first_ago=ago) is expected


@pytest.mark.parametrize(("whole", "expected"), [(6, True), (5, False)])
def test_of_a_slow_node_there_are_six_samples_at_least(whole: int, expected: bool) -> None:
    """At 100 seconds a tick a span has ten, and eight are plenty."""
    scene = Scene(inventories=(replace(inventory(node()), tick_seconds=100.0),), settings=SETTINGS)
    sample = Sample(subject=gpu(), at=NOON - timedelta(seconds=SPAN), fields=GPU_FIELDS)
    scene = replace(scene, samples=(sample,))
    rows = scene.rows(Need(measurement="gpu", span=Span.IDLE))
    window = scene.window(())
    parts = (
        Part(counted=np.array([float(whole)]), seconds=SPAN),
        Part(counted=np.array([whole / 4.0]), seconds=LAST),
    )
    (found,) = stands_for(window, rows, *parts)
    assert bool(found) is expected


def test_a_last_part_that_is_all_of_the_span_says_nothing_of_how_samples_lie() -> None:
    assert stands(80, 80, last_seconds=SPAN)
    assert not stands(79, 79, last_seconds=SPAN)
