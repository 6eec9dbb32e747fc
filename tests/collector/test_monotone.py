"""Counters that only grow."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from collector.monotone import Monotone

READINGS = st.lists(st.integers(0, 2**64 - 1), min_size=1)


@given(readings=READINGS)
def test_a_counter_never_falls_and_its_increase_is_what_was_counted(readings: list[int]) -> None:
    counters = Monotone()
    values = [counters.take("a", raw)[0] for raw in readings]
    assert values == sorted(values)
    counted = sum(
        after - before if after >= before else after for before, after in pairwise(readings)
    )
    assert values[-1] - values[0] == counted


@given(readings=READINGS)
def test_a_fall_is_told_once(readings: list[int]) -> None:
    counters = Monotone()
    falls = sum(counters.take("a", raw)[1] for raw in readings)
    assert falls == sum(b < a for a, b in pairwise(readings))


@given(before=READINGS, after=READINGS, from_zero=st.booleans())
def test_a_restart_of_the_collector_changes_nothing(
    before: list[int], after: list[int], from_zero: bool
) -> None:
    whole, first = Monotone(), Monotone()
    for raw in before:
        whole.take("a", raw, from_zero=from_zero)
        first.take("a", raw, from_zero=from_zero)
    second = Monotone.from_json(json.loads(json.dumps(first.to_json())))
    for raw in after:
        assert second.take("a", raw, from_zero=from_zero) == whole.take(
            "a", raw, from_zero=from_zero
        )


def test_what_was_counted_since_it_was_first_seen_starts_at_zero() -> None:
    counters = Monotone()
    assert counters.take("energy", 5000.5, from_zero=True) == (0.0, False)
    assert counters.take("energy", 5010.5, from_zero=True) == (10.0, False)
    assert counters.take("energy", 2.0, from_zero=True) == (12.0, True)
