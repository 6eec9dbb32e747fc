"""When a node has stopped reporting, and when that is no matter of nodes."""

from datetime import datetime, timedelta, timezone

import pytest

from gpuvigil.model.reporting import are_most, at_once, late_after, late_by_one_cause, silent_after

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
HEARD = frozenset(range(100, 116))


def late(count: int, apart: timedelta = SECOND) -> dict[int, datetime]:
    return {number: NOON + number * apart for number in range(count)}


@pytest.mark.parametrize(
    ("tick", "allowed", "seconds"), [(1.0, 30.0, 30.0), (10.0, 30.0, 30.0), (20.0, 30.0, 60.0)]
)
def test_a_node_has_stopped_after_three_ticks_and_never_before_what_is_set(
    tick: float, allowed: float, seconds: float
) -> None:
    assert silent_after(allowed, tick).total_seconds() == seconds
    assert late_after(tick) < silent_after(allowed, tick)


@pytest.mark.parametrize(
    ("some", "nodes", "most"), [(3, 3, False), (4, 4, True), (15, 32, False), (16, 32, True)]
)
def test_half_of_the_nodes_are_most_and_four_at_the_least(
    some: int, nodes: int, most: bool
) -> None:
    assert are_most(some, nodes) is most


@pytest.mark.parametrize(("count", "middle"), [(15, 0), (16, 16)])
def test_half_of_the_nodes_at_once_have_their_cause_in_the_middle(count: int, middle: int) -> None:
    assert len(late_by_one_cause(late(count), HEARD, {})) == middle


def test_those_that_stopped_one_after_the_other_have_causes_of_their_own() -> None:
    apart = timedelta(minutes=5)
    assert len(at_once(late(3, apart / 2))) == 3
    assert len(at_once(late(3, apart / 2 + SECOND))) == 2
    assert late_by_one_cause(late(30, apart), HEARD, {}) == frozenset()


def test_a_rack_that_stopped_while_another_is_heard_has_a_cause_of_its_own() -> None:
    racks = dict.fromkeys(range(16), "a") | dict.fromkeys(HEARD, "b")
    assert late_by_one_cause(late(16), HEARD, racks) == frozenset()
    assert len(late_by_one_cause(late(16), HEARD, {**racks, 3: "b"})) == 16
    # Where nothing else is there that could be heard, nobody can tell it from the middle.
    assert len(late_by_one_cause(late(16), (), racks)) == 16
    assert len(late_by_one_cause(late(16), HEARD, dict.fromkeys((*range(16), *HEARD), "a"))) == 16


@pytest.mark.parametrize(("count", "middle"), [(7, 0), (8, 8)])
def test_a_quarter_is_enough_where_neighbours_in_the_same_racks_are_heard(
    count: int, middle: int
) -> None:
    heard = range(100, 124)
    racks = {number: "ab"[number % 2] for number in (*range(count), *heard)}
    assert len(late_by_one_cause(late(count), heard, racks)) == middle
    # Two whole racks, and one: what they share may be a feed.
    apart = racks | dict.fromkeys(heard, "c")
    assert late_by_one_cause(late(count), heard, apart) == frozenset()
    one = dict.fromkeys((*range(count), *heard), "a")
    assert late_by_one_cause(late(count), heard, one) == frozenset()
