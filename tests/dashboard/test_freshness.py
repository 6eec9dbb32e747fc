"""When nodes are silent only because the hub was away, and when for a reason of their own."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from dashboard.data.freshness import GRACE_SECONDS, CatchUp
from dashboard.model.facts import Facts
from gpuvigil.model import Subject
from gpuvigil.model.reporting import ARRIVAL, late_after

from .scene import NOON, TICK, busy_fleet, node

A, B = node("a"), node("b")
BEFORE = busy_fleet([A, B])
AWAY = 40.0  # longer than a node may be silent
_A_LITTLE = 0.1


def after(
    seconds: float, last: Mapping[Subject, float], listening_since: float | None = None
) -> Facts:
    """So long after noon; `last`: how long after noon each node was heard last."""
    return replace(
        BEFORE,
        now=_at(seconds),
        last_seen={(one.cluster, one.node): _at(it) for one, it in last.items()},
        listening_since=None if listening_since is None else _at(listening_since),
    )


def _at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_after_an_outage_nodes_have_their_time_to_send_again() -> None:
    catch_up, facts = CatchUp(), after(AWAY, {A: -1.0, B: -1.0})
    assert catch_up.missing(BEFORE, facts, 100.0, AWAY) == 2
    assert catch_up.missing(BEFORE, facts, 100.0 + GRACE_SECONDS, None) == 2
    assert catch_up.missing(BEFORE, facts, 100.0 + GRACE_SECONDS + _A_LITTLE, None) == 0
    back = after(AWAY + 5.0, {A: AWAY + 4.0, B: AWAY + 4.0})
    catch_up = CatchUp()
    assert catch_up.missing(BEFORE, facts, 100.0, AWAY) == 2
    assert catch_up.missing(BEFORE, back, 105.0, None) == 0


def test_a_hub_that_answered_in_time_was_not_away() -> None:
    assert CatchUp().missing(BEFORE, after(AWAY, {A: -1.0, B: AWAY}), 100.0, None) == 0


def test_a_node_that_was_overdue_before_the_hub_went_is_silent_for_a_reason_of_its_own() -> None:
    allowed = late_after(TICK).total_seconds()
    on_time = after(AWAY, {A: -allowed, B: -1.0})
    overdue = after(AWAY, {A: -allowed - _A_LITTLE, B: -1.0})
    assert CatchUp().missing(BEFORE, on_time, 100.0, AWAY) == 2
    assert CatchUp().missing(BEFORE, overdue, 100.0, AWAY) == 1


def test_a_hub_that_answers_late_under_load_is_not_back_after_an_outage() -> None:
    assert CatchUp().missing(BEFORE, after(7.0, {A: -24.0, B: 6.0}), 100.0, 7.0) == 0


def test_nor_is_one_that_is_late_for_who_looks_again_after_a_while() -> None:
    long_ago = after(600.0, {A: 300.0, B: 595.0})
    assert CatchUp().missing(BEFORE, long_ago, 100.0, 7.0) == 0


@pytest.mark.parametrize(
    ("heard", "missing"),
    [
        (ARRIVAL.total_seconds(), 2),
        (ARRIVAL.total_seconds() + _A_LITTLE, 0),
        (AWAY - ARRIVAL.total_seconds() - _A_LITTLE, 0),
        (AWAY - ARRIVAL.total_seconds(), 1),
    ],
)
def test_a_hub_that_heard_a_node_meanwhile_was_slow_and_not_away(
    heard: float, missing: int
) -> None:
    facts = after(AWAY, {A: -1.0, B: heard})
    assert CatchUp().missing(BEFORE, facts, 100.0, AWAY) == missing


def test_a_hub_that_was_started_meanwhile_was_away_whatever_it_has_heard_since() -> None:
    last = {A: -1.0, B: AWAY - ARRIVAL.total_seconds() - _A_LITTLE}
    assert CatchUp().missing(BEFORE, after(AWAY, last, 30.0), 100.0, AWAY) == 1
    assert CatchUp().missing(BEFORE, after(AWAY, last, -_A_LITTLE), 100.0, AWAY) == 0
