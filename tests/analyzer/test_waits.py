"""How long a node lately let the hub wait, and that it is awaited for longer."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.node_silent import Hearing, hearing
from analyzer.window.waits import Waits
from gpuvigil.model import Subject

from .scene import NOON, healthy, inventory, node

SECOND = timedelta(seconds=1)
NODES = [node(n).key for n in range(1, 9)]
SLOW = node(1).key


Told = dict[str, float]


def told(
    *waits: float, listening: float = -1.0, many: bool = False, tick_seconds: float = 10.0
) -> Told:
    """What is known after these waits for one node, or for all of them, one after the other."""
    known, now = Waits(), 0.0
    own = {key: replace(inventory(Subject.parse(key)), tick_seconds=tick_seconds) for key in NODES}
    begin = NOON + listening * SECOND
    found: Told = {}
    for wait in (0.0, *waits):
        end = now + wait
        while now < end:
            now = min(now + 10.0, end)
            if not many and now < end:
                others = dict.fromkeys(NODES[1:], NOON + now * SECOND)
                last = NOON + (end - wait) * SECOND
                known.after({**others, SLOW: last}, begin, NOON + now * SECOND, own)
        heard = dict.fromkeys(NODES, NOON + now * SECOND)
        found = dict(known.after(heard, begin, NOON + now * SECOND, own))
    return found


@pytest.mark.parametrize(
    ("wait", "found"), [(19.9, {}), (20.0, {SLOW: 20.0}), (300.0, {SLOW: 300.0}), (300.1, {})]
)
def test_a_habit_is_no_shorter_than_two_ticks_and_no_longer_than_five_minutes(
    wait: float, found: Told
) -> None:
    assert told(wait, wait) == pytest.approx(found)


@pytest.mark.parametrize(("wait", "found"), [(119.9, {}), (120.0, {SLOW: 120.0})])
def test_of_a_node_that_is_due_once_a_minute_two_minutes_are_a_wait(
    wait: float, found: Told
) -> None:
    """Else all nodes of such a site would wait at every pass, and none of them would be told apart."""
    assert told(wait, wait, tick_seconds=60.0) == pytest.approx(found)


def test_what_happened_once_is_no_habit() -> None:
    assert told(200.0) == {}
    assert told(200.0, 100.0) == {SLOW: 100.0}
    assert told(100.0, 200.0, 50.0) == {SLOW: 100.0}


def test_waits_count_for_six_hours_at_least_and_twelve_at_most() -> None:
    waits = Waits()

    def heard(seconds: float) -> Told:
        at = NOON + seconds * SECOND
        return dict(waits.after({SLOW: at}, NOON - SECOND, at, {}))

    for seconds in (0, 100, 200):
        found = heard(seconds)
    assert found == {SLOW: 100.0}
    for hours in (6, 11.9):
        for seconds in range(-10, 11, 10):
            found = heard(hours * 3600 + seconds)
        assert found == {SLOW: 100.0}
    for seconds in range(0, 30, 10):
        found = heard(12.1 * 3600 + seconds)
    assert found == {}


def test_what_many_waited_for_at_once_or_while_the_hub_was_away_is_nobodys_wait() -> None:
    assert told(100.0, 100.0, many=True) == {}
    assert told(100.0, 100.0, listening=500.0) == {}


@pytest.mark.parametrize(("silent", "says"), [(149.9, Hearing.HEARD), (150.0, Hearing.SILENT)])
def test_a_node_is_awaited_for_half_as_long_again(silent: float, says: Hearing) -> None:
    scene = healthy()
    scene = replace(scene, heard={**scene.heard, node().key: NOON - silent * SECOND})
    window = replace(scene.window(), usual_gap_seconds={node().key: 100.0})
    assert hearing(window, node()) is says
