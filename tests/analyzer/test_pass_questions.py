"""The questions of a pass: over several connections at once, each asked one at a time."""

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from analyzer.correlation.all_detectors import DETECTORS, questions
from analyzer.hub_queries import rows
from analyzer.window.window import Span
from gpuvigil.config import AnalyzerSettings
from gpuvigil.errors import StoreError
from gpuvigil.store import Aggregate
from gpuvigil.store.memory import MemoryStore

from .scene import NOON

NEEDS = questions(DETECTORS)
LONG, HALF_AN_HOUR = (Span.TREND, Span.IDLE), timedelta(minutes=30)


class Meeting(MemoryStore):
    """Answers its first question when another is asked of the other one, and none beside its own."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self.barrier, self.busy, self.asked = barrier, threading.Lock(), 0

    def window(
        self, measurement: str, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> pa.Table:
        assert self.busy.acquire(blocking=False), "two questions at once over one connection"
        try:
            if not self.asked:
                self.barrier.wait(30)
            self.asked += 1
            return super().window(measurement, aggregates, start, end)
        finally:
            self.busy.release()


class Refusing(MemoryStore):
    def window(
        self, measurement: str, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> pa.Table:
        raise StoreError("no room")


def test_two_connections_are_asked_at_once_and_each_one_question_at_a_time() -> None:
    barrier = threading.Barrier(2)
    stores = [Meeting(barrier), Meeting(barrier)]
    answers = rows(stores, NEEDS, NOON, AnalyzerSettings())
    assert list(answers) == list(NEEDS)
    assert all(store.asked for store in stores)


def test_what_the_store_refuses_ends_the_pass() -> None:
    with pytest.raises(StoreError, match="no room"):
        rows([Refusing(), Refusing()], NEEDS, NOON, AnalyzerSettings())


class Counting(MemoryStore):
    """Knows what was asked of windows: the measurement, how far back, and how much."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, timedelta, frozenset[Aggregate]]] = []

    def window(
        self, measurement: str, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> pa.Table:
        self.asked.append((measurement, end - start, frozenset(aggregates)))
        return super().window(measurement, aggregates, start, end)


def test_spans_of_one_length_are_one_question_whose_answer_serves_them_all() -> None:
    store, settings = Counting(), AnalyzerSettings()
    assert settings.trend_seconds == settings.idle_after_seconds
    answers = rows([store], NEEDS, NOON, settings)
    assert answers["gpu", Span.TREND] is answers["gpu", Span.IDLE]
    ranges = [(measurement, length) for measurement, length, _ in store.asked]
    assert len(ranges) == len(set(ranges))
    (asked,) = (it for name, length, it in store.asked if (name, length) == ("gpu", HALF_AN_HOUR))
    assert asked == {it for span in LONG for it in NEEDS["gpu", span].aggregates}


def test_spans_of_another_length_and_what_is_asked_rarely_are_questions_of_their_own() -> None:
    store = Counting()
    settings = AnalyzerSettings(idle_after_seconds=1801.0, underused_after_seconds=1800.0)
    answers = rows([store], NEEDS, NOON, settings)
    alike = [answers["gpu", span] for span in (*LONG, Span.UNDERUSED)]
    assert len({id(it) for it in alike}) == len(alike)
    asked = {(length, it) for name, length, it in store.asked if name == "gpu"}
    assert (HALF_AN_HOUR, frozenset(NEEDS["gpu", Span.TREND].aggregates)) in asked
    assert (HALF_AN_HOUR, frozenset(NEEDS["gpu", Span.UNDERUSED].aggregates)) in asked
