"""Counters that only grow, against a model of the hardware that counts."""

import json
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.rows.monotone_counters import MonotoneCounters

READINGS = st.lists(st.integers(0, 2**64 - 1), min_size=1)
WIDTHS = st.sampled_from([32, 64])


@given(readings=READINGS)
def test_a_counter_never_falls_and_its_increase_is_what_was_counted(readings: list[int]) -> None:
    counters = MonotoneCounters()
    values = [counters.update("a", raw)[0] for raw in readings]
    assert values == sorted(values)
    counted = sum(
        after - before if after >= before else after for before, after in pairwise(readings)
    )
    assert values[-1] - values[0] == counted


@given(readings=READINGS)
def test_a_fall_is_told_once(readings: list[int]) -> None:
    counters = MonotoneCounters()
    falls = sum(counters.update("a", raw)[1] for raw in readings)
    assert falls == sum(b < a for a, b in pairwise(readings))


@given(before=READINGS, after=READINGS, from_zero=st.booleans())
def test_a_restart_of_the_collector_changes_nothing(
    before: list[int], after: list[int], from_zero: bool
) -> None:
    whole, first = MonotoneCounters(), MonotoneCounters()
    for raw in before:
        whole.update("a", raw, from_zero=from_zero)
        first.update("a", raw, from_zero=from_zero)
    second = MonotoneCounters.from_json(json.loads(json.dumps(first.to_json())))
    for raw in after:
        assert second.update("a", raw, from_zero=from_zero) == whole.update(
            "a", raw, from_zero=from_zero
        )


def test_what_was_counted_since_it_was_first_seen_starts_at_zero() -> None:
    counters = MonotoneCounters()
    assert counters.update("energy", 5000.5, from_zero=True) == (0.0, False)
    assert counters.update("energy", 5010.5, from_zero=True) == (10.0, False)
    assert counters.update("energy", 2.0, from_zero=True) == (12.0, True)


@given(readings=st.lists(st.integers(0, 2**32 - 1), min_size=1), width=WIDTHS)
def test_no_reading_makes_a_counter_that_wraps_fall(readings: list[int], width: int) -> None:
    counters = MonotoneCounters()
    values = [counters.update("a", raw, wraps_at=2**width)[0] for raw in readings]
    assert values == sorted(values)


@dataclass
class Node:
    """Hardware that counts in `width` bits, and a collector that reads it.

    `seen` is the oracle: all that was counted, less what a reset took away before it was read.
    """

    width: int
    register: int
    counters: MonotoneCounters = field(default_factory=MonotoneCounters)
    seen: int = 0
    untold: int = 0  # counted since the last reading
    first: float | None = None
    last: float = 0.0

    def count(self, amount: int) -> None:
        # Between two readings a counter does not get far round its range.
        amount = min(amount, 2 ** (self.width - 3) - 1 - self.untold)
        self.register = (self.register + amount) % 2**self.width
        self.untold += amount

    def reset(self, _: int) -> None:
        """The GPU, or the driver's memory of it. A reading after it shows a fall, or nothing."""
        # One that cannot be seen, since nothing or more was counted since, is not in this model.
        self.read(0)
        if self.register > 2 ** (self.width - 1):
            return  # nor one close to the end of the range, which looks like a wrap
        self.register = self.untold = 0
        self.read(0)

    def boot(self, counted: int) -> None:
        """Whatever was not read is lost; and a lot may be counted before the collector runs."""
        self.restart(0)
        self.untold, self.register = 0, 0
        self.counters.restart(lambda name: name == "a")
        self.count(counted)

    def restart(self, _: int) -> None:
        self.counters = MonotoneCounters.from_json(json.loads(json.dumps(self.counters.to_json())))

    def read(self, _: int) -> None:
        value, _ = self.counters.update("a", self.register, wraps_at=2**self.width)
        if self.first is None:
            self.first, self.untold = value, 0
        self.seen += self.untold
        self.untold = 0
        assert value >= self.last
        self.last = value


@given(data=st.data())
def test_the_increase_is_what_was_counted_over_wraps_resets_boots_and_restarts(
    data: st.DataObject,
) -> None:
    width = data.draw(WIDTHS)
    node = Node(width=width, register=data.draw(st.integers(0, 2**width - 1)))
    node.read(0)
    names = st.sampled_from(["count", "count", "read", "reset", "boot", "restart"])
    for name in data.draw(st.lists(names, max_size=30)):
        getattr(node, name)(data.draw(st.integers(0, 2**width - 1)))
    node.read(0)
    assert node.first is not None
    assert node.last - node.first == node.seen


@pytest.mark.parametrize("width", [32, 64])
def test_a_wrap_is_no_reset(width: int) -> None:
    counters = MonotoneCounters()
    counters.update("a", 2**width - 10, wraps_at=2**width)
    assert counters.update("a", 5, wraps_at=2**width) == (2**width + 5, False)


def test_a_reset_is_no_wrap() -> None:
    counters = MonotoneCounters()
    counters.update("a", 3_000_000_000, wraps_at=2**32)
    assert counters.update("a", 5, wraps_at=2**32) == (3_000_000_005, True)


def test_a_counter_that_is_full_stays_where_it_is() -> None:
    counters = MonotoneCounters()
    for _ in range(3):
        assert counters.update("a", 255) == (255, False)


def test_a_boot_is_counted_from_zero_also_when_no_reading_fell() -> None:
    counters = MonotoneCounters()
    counters.update("mlx5_0 1 link_downed", 2)
    counters.update("other", 7)
    counters.restart(lambda name: name.endswith(" link_downed"))
    assert counters.update("mlx5_0 1 link_downed", 3) == (5, False)
    assert counters.update("other", 7) == (7, False)
