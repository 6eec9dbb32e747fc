"""The questions of a pass: over several connections at once, each asked one at a time."""

import threading
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
import pytest

from analyzer.correlation.all_detectors import DETECTORS, questions
from analyzer.hub_queries import rows
from gpuvigil.config import AnalyzerSettings
from gpuvigil.errors import StoreError
from gpuvigil.store import Aggregate
from gpuvigil.store.memory import MemoryStore

from .scene import NOON

NEEDS = questions(DETECTORS)


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
