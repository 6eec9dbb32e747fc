"""Who was heard when, in our own clock."""

from datetime import timedelta
from typing import Any

import pyarrow as pa

from analyzer.hub_queries import Earlier, NodeContacts, offsets, wrong_clocks
from analyzer.window.rows import Rows
from analyzer.window.window import Span
from gpuvigil.clock import to_text

from .scene import NOON, node

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


def status(now: timedelta, received: timedelta, started: timedelta = -HOUR) -> dict[str, Any]:
    one = {
        "cluster": "c",
        "node": "node-1",
        "received_at": to_text(NOON + received),
        "offset_seconds": -600.0,
    }
    return {
        "now": to_text(NOON + now),
        "started_at": to_text(NOON + started),
        "nodes": [{**one, "received_at": to_text(NOON - 2 * HOUR)}, one],
    }


def test_the_hub_s_clock_is_turned_into_ours() -> None:
    reading = NodeContacts(30 * SECOND).read_status(status(100 * SECOND, 96 * SECOND), NOON)
    assert reading.last_seen == {node().key: NOON - 4 * SECOND}
    assert reading.listening_since == NOON - HOUR - 100 * SECOND


def test_a_hub_that_started_anew_has_listened_only_since_then() -> None:
    ear = NodeContacts(30 * SECOND)
    ear.read_status(status(0 * SECOND, -SECOND), NOON)
    reading = ear.read_status(status(10 * SECOND, -SECOND, started=5 * SECOND), NOON + 10 * SECOND)
    assert reading.listening_since == NOON + 5 * SECOND


def test_what_was_not_heard_while_we_were_away_is_nobody_s_silence() -> None:
    ear = NodeContacts(30 * SECOND)
    ear.read_status(status(0 * SECOND, -SECOND), NOON)
    reading = ear.read_status(status(100 * SECOND, -SECOND), NOON + 100 * SECOND)
    assert reading.listening_since == NOON + 100 * SECOND
    reading = ear.read_status(status(110 * SECOND, -SECOND), NOON + 110 * SECOND)
    assert reading.listening_since == NOON + 100 * SECOND


def test_offsets_are_by_node() -> None:
    assert offsets(status(0 * SECOND, 0 * SECOND)) == {node().key: -600 * SECOND}


def test_clocks_that_the_hub_calls_wrong_are_by_node_and_an_older_hub_tells_of_none() -> None:
    told = status(0 * SECOND, 0 * SECOND)
    assert wrong_clocks(told) == {}
    one = {"cluster": "c", "node": "node-1", "offset_seconds": -600.0}
    assert wrong_clocks({**told, "wrong_clocks": [one]}) == {node().key: -600.0}
    assert NodeContacts(30 * SECOND).read_status({**told, "wrong_clocks": [one]}, NOON).clocks == {
        node().key: -600.0
    }


def test_answers_over_hours_take_a_hundredth_of_the_time_and_are_ten_minutes_old_at_most() -> None:
    now, cost, asked = 0.0, 2.0, 0

    def ask() -> Rows:
        nonlocal now, asked
        now, asked = now + cost, asked + 1
        return Rows(pa.table({}))

    earlier, key = Earlier(lambda: now), ("gpu", Span.UNDERUSED)
    first = earlier.over_hours(key, ask)
    now = 201.9
    assert earlier.over_hours(key, ask) is first
    now = 202.0
    assert earlier.over_hours(key, ask) is not first
    assert asked == 2
    cost = 60.0
    now = 500.0
    earlier.over_hours(key, ask)
    now = 560.0 + 599.9
    earlier.over_hours(key, ask)
    assert asked == 3
    now = 560.0 + 600.0
    earlier.over_hours(key, ask)
    assert asked == 4
    earlier.over_hours(("inference", Span.UNDERUSED), ask)
    assert asked == 5
