"""How long a node lately let the hub wait, and that it is awaited for longer."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.node_silent import Hearing, hearing
from analyzer.window.waits import Waits

from .scene import NOON, healthy, node

SECOND = timedelta(seconds=1)
NODES = [node(n).key for n in range(1, 9)]
SLOW = node(1).key


@pytest.mark.parametrize(
    ("wait", "told"), [(19.9, {}), (20.0, {SLOW: 20.0}), (300.0, {SLOW: 300.0}), (300.1, {})]
)
def test_a_habit_is_no_shorter_than_two_ticks_and_no_longer_than_five_minutes(
    wait: float, told: dict[str, float]
) -> None:
    waits = Waits()
    for now in range(0, int(wait) + 1, 10):
        heard = dict.fromkeys(NODES[1:], NOON + now * SECOND)
        waits.after({**heard, SLOW: NOON}, NOON - SECOND, NOON + now * SECOND)
    heard = dict.fromkeys(NODES[1:], NOON + wait * SECOND)
    assert waits.after({**heard, SLOW: NOON + wait * SECOND}, NOON - SECOND, NOON) == told


def test_the_longest_wait_counts_for_six_hours_at_least_and_twelve_at_most() -> None:
    waits = Waits()

    def heard(seconds: float) -> dict[str, float]:
        at = NOON + seconds * SECOND
        return dict(waits.after({SLOW: at}, NOON - SECOND, at))

    assert heard(0) == {}
    assert heard(100) == {SLOW: 100.0}
    assert heard(150) == {SLOW: 100.0}
    for hours in (6, 11.9):
        for seconds in range(-10, 11, 10):
            told = heard(hours * 3600 + seconds)
        assert told == {SLOW: 100.0}
    for seconds in range(0, 30, 10):
        told = heard(12.1 * 3600 + seconds)
    assert told == {}


def test_what_many_waited_for_at_once_or_while_the_hub_was_away_is_nobodys_wait() -> None:
    waits = Waits()
    waits.after(dict.fromkeys(NODES, NOON), NOON - SECOND, NOON)
    later = NOON + 100 * SECOND
    assert waits.after(dict.fromkeys(NODES, later), NOON - SECOND, later) == {}
    away = Waits()
    away.after({SLOW: NOON}, NOON - SECOND, NOON)
    assert away.after({SLOW: later}, later - SECOND, later) == {}


@pytest.mark.parametrize(("silent", "says"), [(149.9, Hearing.HEARD), (150.0, Hearing.SILENT)])
def test_a_node_is_awaited_for_half_as_long_again(silent: float, says: Hearing) -> None:
    scene = healthy()
    scene = replace(scene, heard={**scene.heard, node().key: NOON - silent * SECOND})
    window = replace(scene.window(), waited={node().key: 100.0})
    assert hearing(window, node()) is says
