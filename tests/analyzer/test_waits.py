"""How long a node lately let the hub wait, and that it is awaited for longer."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.node_silent import Hearing, hearing, silent_nodes
from analyzer.window.waits import Waited, Waits

from .scene import NOON, SETTINGS, healthy, node
from .scene import told as told_of

SECOND = timedelta(seconds=1)
NODES = [node(n).key for n in range(1, 9)]
SLOW = node(1).key


Told = dict[str, float]


def told(*waits: float, listening: float = -1.0, many: bool = False) -> Told:
    """What is known after these waits for one node, or for all of them, one after the other."""
    known, now = Waits(), 0.0
    found: Told = {}
    for wait in (0.0, *waits):
        end = now + wait
        while now < end:
            now = min(now + 10.0, end)
            if not many and now < end:
                others = dict.fromkeys(NODES[1:], NOON + now * SECOND)
                last = NOON + (end - wait) * SECOND
                known.after({**others, SLOW: last}, NOON + listening * SECOND, NOON + now * SECOND)
        heard = dict.fromkeys(NODES, NOON + now * SECOND)
        found = dict(known.after(heard, NOON + listening * SECOND, NOON + now * SECOND).usual)
    return found


@pytest.mark.parametrize(
    ("wait", "found"), [(19.9, {}), (20.0, {SLOW: 20.0}), (300.0, {SLOW: 300.0}), (300.1, {})]
)
def test_a_habit_is_no_shorter_than_two_ticks_and_no_longer_than_five_minutes(
    wait: float, found: Told
) -> None:
    assert told(wait, wait) == pytest.approx(found)


def test_what_happened_once_is_no_habit() -> None:
    assert told(200.0) == {}
    assert told(200.0, 100.0) == {SLOW: 100.0}
    assert told(100.0, 200.0, 50.0) == {SLOW: 100.0}


def test_waits_count_for_six_hours_at_least_and_twelve_at_most() -> None:
    waits = Waits()

    def heard(seconds: float) -> Told:
        at = NOON + seconds * SECOND
        return dict(waits.after({SLOW: at}, NOON - SECOND, at).usual)

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
    window = replace(scene.window(), waited=Waited(usual={node().key: 100.0}))
    assert hearing(window, node()) is says


def dropped(*gaps: float, between: float = 750.0, often: float = 10.0) -> Waited:
    """What is known once a node was heard again after these gaps, and `often` between them."""
    known, now, times = Waits(), 0.0, [0.0]
    for gap in gaps:
        end = now + between
        while now < end:
            now += often
            times.append(now)
        now += gap
        times.append(now)
    found = Waited()
    last = 0.0
    for step in range(int(now // 10) + 1):
        at = step * 10.0
        last = max(one for one in times if one <= at)
        heard = {**dict.fromkeys(NODES[1:], NOON + at * SECOND), SLOW: NOON + last * SECOND}
        found = known.after(heard, NOON - SECOND, NOON + at * SECOND)
    return found


@pytest.mark.parametrize(
    ("gaps", "drops"),
    [
        ((150.0,), ()),
        ((150.0, 140.0), ()),  # the first is not a quarter of an hour ago
        ((150.0, 140.0, 150.0), (150.0, 140.0, 150.0)),
        ((90.0, 90.0, 90.0), (90.0, 90.0, 90.0)),
        ((80.0, 80.0, 80.0), ()),
        ((80.0, 90.0, 90.0), ()),
        # Away for more than a third of the time.
        ((400.0, 400.0), ()),
    ],
)
def test_who_is_silent_again_and_again_drops_out(
    gaps: tuple[float, ...], drops: tuple[float, ...]
) -> None:
    found = dropped(*gaps)
    assert found.drops == ({SLOW: drops} if drops else {})
    # It is not awaited for longer because of that.
    assert bool(found.usual) is (not drops and sum(g <= 300.0 for g in gaps) > 1)


def test_who_sends_every_few_minutes_does_not_drop_out() -> None:
    found = dropped(*[150.0] * 12, between=10.0)
    assert (found.drops, found.usual) == ({}, {SLOW: 150.0})
    with_holes = dropped(*[150.0] * 3, between=750.0, often=30.0)
    assert with_holes.drops == {}


@pytest.mark.parametrize(("seconds", "told"), [(20.0, False), (40.0, True)])
def test_a_node_that_drops_out_again_is_told_while_it_is_silent(seconds: float, told: bool) -> None:
    late = replace(SETTINGS, silent_verdict_seconds=540.0)
    scene = replace(healthy(), settings=late)
    heard = {**scene.heard, node().key: NOON - seconds * SECOND}
    window = replace(scene, heard=heard).window()
    assert silent_nodes(window) == []
    drops = Waited(drops={node().key: (150.0, 140.0)})
    found = silent_nodes(replace(window, waited=drops))
    assert [one.subject for one in found] == ([node()] if told else [])
    if told:
        assert "2 times before within the hour, for up to 150 s" in told_of(found[0])
