"""A port that went down with its switch has five minutes from when the switch is back."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.port_down import DETECTOR
from gpuvigil.model import EventKind, Incident, Subject

from .scene import NOON, Scene, event, healthy, incident, port

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
FIVE = healthy(nodes=5, seconds=400)


def switch(**more: Any) -> Incident:
    """It took the ports of four nodes five minutes ago."""
    members = tuple(port(n).key for n in (2, 3, 4))
    return replace(incident("switch_down", port(1), -5 * MINUTE, members=members), **more)


def told(stood: Incident | None, *down: int, seconds: float = 290.0) -> list[Subject]:
    scene: Scene = FIVE
    for number in down:
        scene = scene.changed(port(number), {"up": 0, "physical_state": 2}, seconds)
    scene = replace(scene, recent_incidents=() if stood is None else (stood,))
    return [it.subject for it in DETECTOR.find(scene.window((DETECTOR,)))]


def test_the_last_ports_of_a_switch_that_comes_back_are_still_its_own() -> None:
    assert told(None, 2) == [port(2)]
    assert told(switch(), 2) == []
    assert told(switch(), 1, 2) == []
    # While three are down it is the switch, which takes them over itself.
    assert told(switch(), 2, 3, 4) == [port(2), port(3), port(4)]


@pytest.mark.parametrize(("ago", "expected"), [(5 * MINUTE - SECOND, []), (5 * MINUTE, [port(2)])])
def test_a_port_has_five_minutes_from_the_end_of_the_incident(
    ago: timedelta, expected: list[Subject]
) -> None:
    assert told(switch(resolved_at=NOON - ago), 2) == expected


def test_another_port_or_one_that_was_down_before_is_told_for_itself() -> None:
    assert told(switch(), 5) == [port(5)]
    before = FIVE.changed(port(2), {"up": 0, "physical_state": 2}, 125.0)
    for ago, expected in ((121, [port(2)]), (119, [])):
        fell = event(EventKind.PORT_DOWN, port(2), NOON - ago * SECOND)
        scene = replace(before.with_events(fell), recent_incidents=(switch(since=NOON - MINUTE),))
        found = DETECTOR.find(scene.window((DETECTOR,)))
        assert [it.subject for it in found] == expected
    assert told(replace(switch(), fault="port_errors"), 2) == [port(2)]


def test_a_port_is_up_from_its_event_on_and_not_only_from_its_next_numbers() -> None:
    scene = replace(FIVE, recent_incidents=(switch(),))
    for number in (2, 3, 4):
        scene = scene.changed(port(number), {"up": 0, "physical_state": 2}, 290.0)
    rises = event(EventKind.PORT_UP, port(3), NOON - SECOND)
    found = DETECTOR.find(scene.with_events(rises).window((DETECTOR,)))
    assert [it.subject for it in found] == []
