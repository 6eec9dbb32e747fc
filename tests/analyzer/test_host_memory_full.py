"""A host whose memory ran full: how little is left, for how long, and beside what."""

from dataclasses import replace

import pytest

from analyzer.detectors.host_memory_full import full_hosts
from gpuvigil.model import Finding, Severity

from .scene import NOON, SETTINGS, Scene, healthy, incident, node, told

LONG = replace(SETTINGS, trend_seconds=900.0)
TOTAL = 2 * 1024**4
LEFT = TOTAL // 200


def host(left: int = LEFT, had: int = TOTAL // 2, seconds: float = 300.0) -> Scene:
    """Of two hosts one has so much of its memory left since so long ago, and had more before."""
    scene = replace(healthy(seconds=900.0), settings=LONG)
    for number in (1, 2):
        fields = {"memory_total_bytes": TOTAL, "memory_available_bytes": had}
        scene = scene.changed(node(number), fields)
    return scene.changed(node(), {"memory_available_bytes": left}, seconds)


def found(scene: Scene) -> list[Finding]:
    return full_hosts(scene.window())


def test_a_host_whose_memory_ran_full_says_how_much_is_left() -> None:
    (it,) = found(host())
    assert (it.subject, it.severity) == (node(), Severity.WARNING)
    assert told(it) == "warning; memory left: 10.2 GiB at most in 5 min (limit 1 % of 2048 GiB)"


@pytest.mark.parametrize(("left", "count"), [(TOTAL // 100 - 1, 1), (TOTAL // 100 + 1, 0)])
def test_under_a_hundredth_is_left_at_every_sample(left: int, count: int) -> None:
    assert len(found(host(left))) == count
    assert len(found(host(left).changed(node(), {"memory_available_bytes": TOTAL // 5}, 15.0))) == 0


@pytest.mark.parametrize(("seconds", "count"), [(290.0, 0), (300.0, 1)])
def test_for_the_whole_steady_span(seconds: float, count: int) -> None:
    assert len(found(host(seconds=seconds))) == count


@pytest.mark.parametrize(("seconds", "count"), [(240, 0), (250, 1)])
def test_four_fifths_of_the_span_were_read(seconds: int, count: int) -> None:
    """Between the first line and the last, ten seconds ago."""
    late = host().without(
        lambda it: it.subject == node() and seconds < (NOON - it.at).total_seconds() <= 300
    )
    assert len(found(late)) == count


@pytest.mark.parametrize(("had", "count"), [(TOTAL // 20 - 1, 0), (TOTAL // 20 + 1, 1)])
def test_what_was_set_aside_for_good_is_nobody_s_trouble(had: int, count: int) -> None:
    assert len(found(host(had=had))) == count


def test_it_goes_on_as_long_as_it_stays_so() -> None:
    stands = incident("host_memory_full", node())
    assert len(found(replace(host(had=LEFT), recent_incidents=(stands,)))) == 1
    over = replace(stands, resolved_at=NOON)
    assert found(replace(host(had=LEFT), recent_incidents=(over,))) == []
    assert found(replace(host(left=TOTAL // 50), recent_incidents=(stands,))) == []


def test_a_host_of_which_nobody_knows_how_much_it_has_says_nothing() -> None:
    assert found(host().changed(node(), {"memory_total_bytes": None})) == []
    assert found(host().changed(node(), {"memory_available_bytes": None})) == []
