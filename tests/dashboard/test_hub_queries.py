"""What the hub is asked for, and how much work the answers are."""

import time
from collections import Counter
from typing import Any

import pytest

from dashboard.data.hub_queries import load
from dashboard.model.facts import Facts
from gpuvigil.clock import ManualClock
from gpuvigil.model import Record, RecordKind, Severity
from tests.alerts.month.shelf import ShelfHub, Shelves
from tests.dashboard.scene import NOON, gpu, incident, node, notice, pulses
from tests.processor import allowed


class Counting(ShelfHub):
    """A client that counts its questions for records, and remembers how much it asked for."""

    def __init__(self, shelves: Shelves) -> None:
        super().__init__(shelves, ManualClock(NOON))
        self.asked: Counter[RecordKind] = Counter()
        self.most: dict[RecordKind, int] = {}

    def records(self, kind: RecordKind, **asked: Any) -> tuple[Record, ...]:
        """See `Hub.records`."""
        self.asked[kind] += 1
        self.most[kind] = asked.get("limit", 10_000)
        return super().records(kind, **asked)


def storm(count: int) -> Counting:
    """As many incidents that stand, each told once."""
    shelves = Shelves()
    for index in range(count):
        one = incident("gpu_lost", gpu(0, node(f"n-{index}")), Severity.CRITICAL)
        shelves.keep(one.to_record())
        shelves.keep(notice(one))
    return Counting(shelves)


def test_who_was_told_is_asked_only_where_it_is_shown() -> None:
    hub = storm(20)
    facts = load(hub, messages=False).onto(Facts(now=NOON))
    assert (len(facts.incidents), facts.notices) == (20, ())
    assert hub.asked[RecordKind.NOTICE] == 1
    facts = load(hub).onto(Facts(now=NOON))
    assert (len(facts.incidents), len(facts.notices)) == (20, 20)


def test_all_that_stands_is_asked_for_not_the_newest_ten_thousand() -> None:
    hub = storm(1)
    load(hub)
    kinds = (RecordKind.ALLOCATION, RecordKind.INCIDENT, RecordKind.NOTICE)
    assert {hub.most[kind] for kind in kinds} == {100_000}


@pytest.mark.medium
def test_what_was_told_of_a_storm_is_not_looked_through_for_each_sign_of_life() -> None:
    book = load(storm(4_000))
    began = time.process_time()
    for _ in range(1_000):
        book.apply(pulses())
    assert time.process_time() - began < allowed(1.5)  # it was 6 s
