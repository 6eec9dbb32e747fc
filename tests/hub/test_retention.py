"""Records grow old, and only what is over is forgotten."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from gpuvigil.clock import SystemClock, to_text
from gpuvigil.config import HubSettings
from gpuvigil.model import Record, RecordKind
from hub.embedded import Embedded
from hub.records import RecordBook, open_records
from hub.records.retention import BATCH
from hub.telemetry.body import Body
from hub.telemetry.committer import Committer
from hub.telemetry.counters import Counters
from tests.polling import wait_until

LIMIT = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
BEFORE, AFTER = LIMIT - timedelta(days=1), LIMIT + timedelta(days=1)
EVERY = tuple(RecordKind)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RecordBook]:
    url = ""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").database()
    made = RecordBook(open_records(HubSettings(data_directory=tmp_path, records_url=url)))
    yield made
    made.close()


def a_record(kind: RecordKind, name: str, at: datetime = BEFORE, **more: Any) -> Record:
    return Record(**{"kind": kind, "id": name, "at": at, "subject": "c/n1", **more})


def left(book: RecordBook) -> set[str]:
    return {it["id"] for it in book.changes(0, EVERY)[0]}


def incident(name: str, state: str, resolved_at: datetime | None = None, **more: Any) -> Record:
    body = {"state": state, "resolved_at": None if resolved_at is None else to_text(resolved_at)}
    return a_record(RecordKind.INCIDENT, name, body=body, **more)


def test_events_and_ended_allocations_are_forgotten_and_held_ones_are_not(book: RecordBook) -> None:
    allocation, event = RecordKind.ALLOCATION, RecordKind.EVENT
    book.write(
        [
            a_record(event, "old event"),
            a_record(event, "young event", AFTER),
            a_record(allocation, "held", body={"ended_at": None}),
            a_record(allocation, "ended long ago", body={"ended_at": to_text(BEFORE)}),
            a_record(allocation, "ended lately", body={"ended_at": to_text(AFTER)}),
            a_record(RecordKind.INVENTORY, "inventory", AFTER),
            a_record(RecordKind.PULSE, "analyzer"),
            a_record(RecordKind.PULSE, "alerts:gone"),
            a_record(RecordKind.PULSE, "alerts:here", AFTER),
        ]
    )
    assert book.forget(LIMIT) == 3
    pulses = {"analyzer", "alerts:here"}
    assert left(book) == {"young event", "held", "ended lately", "inventory", *pulses}


def test_a_node_that_is_gone_is_forgotten_with_what_never_ended_on_it(book: RecordBook) -> None:
    nodes = {"c/n1": BEFORE, "c/n10": AFTER, "c/n2": BEFORE, "c/n3": BEFORE, "selftest/n": BEFORE}
    book.write(a_record(RecordKind.INVENTORY, key, at, subject=key) for key, at in nodes.items())
    lately = {"ended_at": to_text(AFTER)}
    for node in nodes:
        on_it: dict[str, Any] = {"kind": RecordKind.ALLOCATION, "subject": f"{node}/gpu/GPU-1"}
        book.write(
            [
                a_record(name=f"held on {node}", body={"ended_at": None}, **on_it),
                a_record(name=f"ended on {node}", body=lately, **on_it),
            ]
        )
    # Of whom an incident still speaks is not gone.
    book.write([incident("stands", "open", subject="c/n2")])
    book.write([incident("stands on a GPU", "open", subject="c/n3/gpu/GPU-1")])
    assert book.forget(LIMIT) == 4
    there = {"c/n10", "c/n2", "c/n3"}
    kept = {*there, *(f"held on {node}" for node in there), *(f"ended on {node}" for node in nodes)}
    assert left(book) == {*kept, "stands", "stands on a GPU"}


def test_what_a_node_ran_on_stays_until_something_else_was_there_before_the_limit(
    book: RecordBook,
) -> None:
    just_before = LIMIT - timedelta(microseconds=1)
    times = {
        "c/n1": [BEFORE - timedelta(days=9), BEFORE, just_before, AFTER],
        "c/n10": [BEFORE, LIMIT],
        "c/n2": [BEFORE],
    }
    keys = {(node, at): f"{node}|{to_text(at)}" for node in times for at in times[node]}
    book.write(
        a_record(RecordKind.SETUP, name, at, subject=node) for (node, at), name in keys.items()
    )
    assert book.forget(LIMIT) == 2
    gone = {keys["c/n1", times["c/n1"][0]], keys["c/n1", BEFORE]}
    assert left(book) == set(keys.values()) - gone
    # A node that nobody tells of any more ran on nothing.
    book.write([a_record(RecordKind.INVENTORY, "c/n10", BEFORE, subject="c/n10")])
    assert book.forget(LIMIT) == 3
    assert not any(name.startswith("c/n10") for name in left(book))


def test_what_gpus_usually_are_of_a_node_that_is_gone_is_forgotten(book: RecordBook) -> None:
    kind = RecordKind.USUAL
    book.write([a_record(kind, "c/n1", subject="c/n1"), a_record(kind, "c/n2", AFTER)])
    assert book.forget(LIMIT) == 1
    assert left(book) == {"c/n2"}


def test_usage_is_forgotten_by_its_quarter(book: RecordBook) -> None:
    book.write([a_record(RecordKind.USAGE, "old"), a_record(RecordKind.USAGE, "young", AFTER)])
    assert book.forget(LIMIT) == 1
    assert left(book) == {"young"}


def test_a_resolved_incident_goes_with_its_steps_notices_and_acknowledgements(
    book: RecordBook,
) -> None:
    book.write([incident("over", "resolved", BEFORE), incident("lately", "resolved", AFTER)])
    for parent in ("over", "lately"):
        for kind in (RecordKind.TRANSITION, RecordKind.NOTICE, RecordKind.ACKNOWLEDGEMENT):
            book.write([a_record(kind, f"{kind.value} of {parent}", parent=parent)])
    assert book.forget(LIMIT) == 4
    kinds = ("transition", "notice", "acknowledgement")
    assert left(book) == {"lately", *(f"{kind} of lately" for kind in kinds)}


def test_what_alerts_says_without_an_incident_is_forgotten_and_what_may_stand_is_not(
    book: RecordBook,
) -> None:
    step, notice = RecordKind.TRANSITION, RecordKind.NOTICE
    for parent in ("idle-1-notice-1", "self-digest-mail-2026-01-01", "self-analyzer", "i-1"):
        book.write(
            a_record(kind, f"{kind.value} {parent}", parent=parent) for kind in (step, notice)
        )
    book.write(
        [
            a_record(step, "over", parent="self-collectors"),
            a_record(step, "stands", parent="self-collectors"),
            a_record(notice, "young", AFTER, parent="idle-2-notice-1"),
            a_record(notice, "waits", parent="idle-3-notice-1", due_at=AFTER),
        ]
    )
    assert book.forget(LIMIT) == 6
    kept = {"transition self-analyzer", "transition i-1", "notice i-1"}
    assert left(book) == {*kept, "stands", "young", "waits"}


@pytest.mark.parametrize("state", ["open", "acknowledged", "flapping"])
def test_an_active_incident_keeps_the_events_it_rests_on(book: RecordBook, state: str) -> None:
    below = "c/n1/gpu/GPU-1"
    book.write(
        [
            incident("stands", state, subject=below),
            a_record(RecordKind.TRANSITION, "its first step", parent="stands"),
            a_record(RecordKind.EVENT, "its event", subject=below),
            a_record(RecordKind.EVENT, "another's event", subject="c/n1/gpu/GPU-10"),
        ]
    )
    assert book.forget(LIMIT) == 1
    assert left(book) == {"stands", "its first step", "its event"}


@pytest.mark.medium
def test_any_number_is_forgotten(book: RecordBook) -> None:
    lately = {"ended_at": to_text(AFTER)}
    book.write(a_record(RecordKind.ALLOCATION, f"a{n}", body=lately) for n in range(BATCH))
    book.write(a_record(RecordKind.EVENT, f"e{n}") for n in range(BATCH + 1))
    assert book.forget(LIMIT) == BATCH + 1
    assert len(left(book)) == BATCH


@pytest.mark.medium
def test_records_are_forgotten_in_the_pass_that_forgets_telemetry(
    book: RecordBook, tmp_path: Path
) -> None:
    now = SystemClock().now()
    two_days_ago = now - timedelta(days=2)
    book.write([a_record(RecordKind.EVENT, "old", two_days_ago)])
    book.write([a_record(RecordKind.EVENT, "young", now)])
    store = Embedded(tmp_path / "t.duckdb", 256 * 1024 * 1024, 1)
    settings = HubSettings(records_days=1.0)
    committer = Committer(store, settings, SystemClock(), Counters(), book.forget)
    committer.start()
    try:
        # The first look comes with the first body, or after a minute.
        assert committer.put(a_body())
        wait_until("the old record's end", lambda: left(book) == {"young"})
    finally:
        committer.stop()
        store.close()


def a_body() -> Body:
    return Body(
        text=b"node,node=n1 load_average=1",
        precision="ns",
        received_at=LIMIT,
        identity=None,
        done=lambda _: None,
    )
