"""What is asked for is found by its index, however much there is of its kind."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from gpuvigil.config import HubSettings
from gpuvigil.model import Record, RecordKind
from hub.records import RecordBook, open_records
from hub.records.tables import record

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NOTICE = RecordKind.NOTICE


@pytest.fixture
def book(tmp_path: Path) -> Iterator[RecordBook]:
    made = RecordBook(open_records(HubSettings(data_directory=tmp_path)))
    made.write(_notice(number) for number in range(60))
    yield made
    made.close()


def _notice(number: int) -> Record:
    return Record(
        kind=NOTICE,
        id=f"n{number}",
        at=NOON,
        subject="c",
        parent=f"i{number % 20}",
        due_at=NOON + timedelta(seconds=number),
        body={"state": ("due", "sent", "held")[number % 3]},
    )


def _plans(book: RecordBook) -> list[str]:
    """How SQLite goes about each question from now on."""
    plans: list[str] = []

    def explain(_: Any, cursor: Any, statement: str, given: Any, *__: Any) -> None:
        if statement.startswith("SELECT"):
            steps = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", given)
            plans.append("; ".join(step[3] for step in steps))

    event.listen(book.transactions.engine, "before_cursor_execute", explain)
    return plans


def test_an_incidents_notices_are_found_among_all(book: RecordBook) -> None:
    plans = _plans(book)
    wanted = [record.c.kind == NOTICE.value, record.c.parent == "i3"]
    assert [it["id"] for it in book.find(wanted, 2, few=True)] == ["n23", "n43"]
    assert "record_by_parent (kind=? AND parent=?)" in plans[0]


def test_the_newest_of_several_states_are_found_without_the_others(book: RecordBook) -> None:
    plans = _plans(book)
    wanted = [record.c.kind == NOTICE.value]
    found = book.find(wanted, 3, states=["sent", "held", "no such"])
    assert [it["id"] for it in found] == ["n56", "n58", "n59"]
    assert plans[0].count("record_by_state (kind=? AND state=?)") == 3
    assert [it["id"] for it in book.find(wanted, 1, states=["due"])] == ["n57"]


def test_what_is_due_next_is_known_without_a_look_at_all_that_is_due_later(
    book: RecordBook,
) -> None:
    assert book.due_in(NOTICE, NOON - timedelta(minutes=1)) == timedelta(minutes=1)
    claimed = book.claim(NOTICE, "me", NOON + timedelta(seconds=2), timedelta(seconds=9), 10)
    assert [it["id"] for it in claimed] == ["n0", "n1", "n2"]
    plans = _plans(book)
    assert book.due_in(NOTICE, NOON + timedelta(seconds=2.5)) == timedelta(seconds=0.5)
    assert book.claim(NOTICE, "me", NOON + timedelta(seconds=2.5), timedelta(), 10) == []
    assert all("record_due (kind=? AND due_at" in plan for plan in plans), plans
    assert book.due_in(NOTICE, NOON + timedelta(hours=1)) == timedelta(seconds=3 - 3600)
