"""The limits of records, each just below and just above; in the hub's own process."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import true

from gpuvigil.clock import to_text
from gpuvigil.config import HubSettings
from gpuvigil.model import Record, RecordKind
from hub.http.responses import Refused
from hub.records import LeaseLostError, RecordBook, open_records
from hub.records.record_book import under
from hub.records.validation import record_of
from tests.hub.in_process import HubThread
from tests.hub.talk import Reply, ask
from tests.servers import HubProcess

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
MIB = 1024 * 1024
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
TRANSITION, NOTICE, EVENT = RecordKind.TRANSITION, RecordKind.NOTICE, RecordKind.EVENT


def one(name: str = "a", **more: Any) -> Record:
    return Record(**{"kind": NOTICE, "id": name, "at": NOON, "subject": "c/n1", **more})


@pytest.fixture
def book(tmp_path: Path) -> Iterator[RecordBook]:
    found = RecordBook(open_records(HubSettings(data_directory=tmp_path, records_url="")))
    yield found
    found.close()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubThread(tmp_path_factory.mktemp("limits"), {"body_lines_count": 10_000}) as running:
        yield running


def names(found: list[dict[str, Any]]) -> list[str]:
    return [it["id"] for it in found]


# --- leases ---------------------------------------------------------------------------------------


def test_a_lease_is_somebody_elses_until_its_end_and_free_from_then_on(book: RecordBook) -> None:
    book.write([one(due_at=NOON)])
    assert names(book.claim(NOTICE, "a", NOON - SECOND, HOUR, 10)) == []
    assert names(book.claim(NOTICE, "a", NOON, HOUR, 10)) == ["a"]
    assert names(book.claim(NOTICE, "b", NOON + HOUR - SECOND, HOUR, 10)) == []
    assert names(book.claim(NOTICE, "b", NOON + HOUR, HOUR, 10)) == ["a"]


def test_a_claim_that_has_become_stale_cannot_be_finished(book: RecordBook) -> None:
    book.write([one(due_at=NOON), one("other", due_at=NOON)])
    book.claim(NOTICE, "a", NOON, HOUR, 10)
    result = one("result", kind=EVENT)
    with pytest.raises(LeaseLostError):
        book.finish(NOTICE, "a", ["a"], [result], NOON + HOUR)
    assert book.changes(0, [EVENT])[0] == []  # nothing of it is kept
    book.finish(NOTICE, "a", ["a"], [result], NOON + HOUR - SECOND)
    assert names(book.changes(0, [EVENT])[0]) == ["result"]
    # What is finished already may be finished again by the same, and by nobody else.
    book.finish(NOTICE, "a", ["a"], [], NOON + 2 * HOUR)
    with pytest.raises(LeaseLostError):
        book.finish(NOTICE, "b", ["a"], [], NOON)
    with pytest.raises(LeaseLostError):
        book.finish(NOTICE, "a", ["a", "of which nobody knows"], [], NOON)


def test_who_waits_for_work_knows_when_the_next_is_due_or_free_again(book: RecordBook) -> None:
    assert book.due_in(NOTICE, NOON) is None
    book.write([one(due_at=NOON + HOUR)])
    assert book.due_in(NOTICE, NOON) == HOUR
    assert book.due_in(NOTICE, NOON + HOUR) == timedelta(0)
    book.claim(NOTICE, "a", NOON + HOUR, 2 * HOUR, 1)
    assert book.due_in(NOTICE, NOON + HOUR) == 2 * HOUR
    book.write([one("sooner", due_at=NOON + HOUR + SECOND)])
    assert book.due_in(NOTICE, NOON + HOUR) == SECOND
    assert book.due_in(TRANSITION, NOON) is None


# --- what is kept, and asked for ------------------------------------------------------------------


def test_of_one_version_twice_in_a_body_the_first_is_kept(book: RecordBook) -> None:
    book.write([one(body={"n": 1}), one(body={"n": 2}), one("b", version=2), one("b")])
    found = {it["id"]: it for it in book.find([true()], 10)}
    assert '"n":1' in found["a"]["body"].replace(" ", "")
    assert found["b"]["version"] == 2


def test_changes_begin_after_what_is_known_and_the_newest_are_found_first(book: RecordBook) -> None:
    sequence, kept = book.write([one(name) for name in "abc"])
    assert (sequence, kept, book.sequence()) == (3, 3, 3)
    assert (names(book.changes(2, [NOTICE])[0]), book.changes(2, [NOTICE])[1]) == (["c"], 3)
    assert book.changes(3, [NOTICE]) == ([], 3)
    for few in (False, True):
        assert names(book.find([true()], 2, few=few)) == ["b", "c"]


def test_a_state_is_asked_for_with_others_or_alone(book: RecordBook) -> None:
    states = {"a": "open", "b": "held", "c": "open", "d": "sent"}
    book.write([one(name, body={"state": state}) for name, state in states.items()])
    assert names(book.find([true()], 10, states=["open"])) == ["a", "c"]
    assert names(book.find([true()], 2, states=["open", "held"])) == ["b", "c"]


def test_under_a_node_are_its_gpus_and_not_those_of_one_that_begins_alike(book: RecordBook) -> None:
    for subject in ("c/n1", "c/n1/gpu/1", "c/n10", "c/n10/gpu/1", "c"):
        book.write([one(subject, subject=subject)])
    assert names(book.find([under("c/n1")], 10)) == ["c/n1", "c/n1/gpu/1"]
    assert len(book.find([under("c")], 10)) == 5


@pytest.mark.slow
def test_an_answer_of_changes_has_ten_thousand_and_says_where_to_go_on(book: RecordBook) -> None:
    book.write([one(f"{number:05}") for number in range(10_001)])
    found, sequence = book.changes(0, [NOTICE])
    assert (len(found), sequence) == (10_000, 10_000)
    rest, sequence = book.changes(sequence, [NOTICE])
    assert (names(rest), sequence) == (["10000"], 10_001)


def of_bytes(name: str, size: int) -> Record:
    """One whose body is so many bytes of text."""
    return one(name, body={"a": "x" * (size - len('{"a": ""}'))})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "first"),
    [
        ((16 * MIB, 16 * MIB, 0), ["0", "1"]),
        ((16 * MIB, 16 * MIB + 1), ["0"]),
        ((32 * MIB + 1, 32 * MIB), ["0"]),
    ],
)
def test_an_answer_of_changes_has_32_mib_or_one_record_and_says_where_to_go_on(
    book: RecordBook, sizes: tuple[int, ...], first: list[str]
) -> None:
    book.write([of_bytes(str(number), max(size, 32)) for number, size in enumerate(sizes)])
    found, sequence = book.changes(0, [NOTICE])
    assert (names(found), sequence) == (first, len(first))
    rest, sequence = book.changes(sequence, [NOTICE])
    assert (names(rest), sequence) == ([str(len(first))], len(sizes))


# --- what a record may be -------------------------------------------------------------------------


def refused(**more: Any) -> str | None:
    try:
        record_of({**one().to_json(), **more}, "line 1")
    except Refused as error:
        return str(error)
    return None


def nested(depth: int) -> Any:
    return {"a": nested(depth - 1)} if depth else 1


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ({"version": 1}, {"version": 0}),
        ({"version": 2**63 - 1}, {"version": 2**63}),
        ({"at": "1970-01-01T00:00:00Z"}, {"at": "1969-12-31T23:59:59Z"}),
        ({"at": "2199-12-31T23:59:59Z"}, {"at": "2200-01-01T00:00:00Z"}),
        ({"due_at": "2199-12-31T23:59:59Z"}, {"due_at": "2200-01-01T00:00:00Z"}),
        ({"id": "x" * 1024}, {"id": "x" * 1025}),
        ({"id": "ü" * 512}, {"id": "ü" * 513}),
        ({"subject": "c/..x"}, {"subject": "c/.."}),
        ({"subject": "c/n"}, {"subject": "c/%2e"}),
        ({"body": nested(31)}, {"body": nested(32)}),
        ({"kind": "event"}, {"kind": "gossip"}),
    ],
)
def test_a_record_is_kept_up_to_the_limit_and_refused_beyond(
    inside: dict[str, Any], outside: dict[str, Any]
) -> None:
    assert refused(**inside) is None
    assert refused(**outside) is not None


# --- what may be asked ----------------------------------------------------------------------------


def asked(hub: HubProcess, path: str, body: bytes | None = None) -> Reply:
    return ask(f"{hub.url}/api/v1/{path}", body, token=hub.service_token)


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("records?kind=event&limit=1", "records?kind=event&limit=0"),
        ("records?kind=event&limit=100000", "records?kind=event&limit=100001"),
        (
            "records?kind=event&states=" + ",".join(map(str, range(100))),
            "records?kind=event&states=" + ",".join(map(str, range(101))),
        ),
        ("changes?after=-1&kinds=event", "changes?after=-2&kinds=event"),
        (f"changes?after={2**53}&kinds=event", f"changes?after={2**53 + 2}&kinds=event"),
        ("changes?after=-1&wait=3600", "changes?after=-1&wait=3601"),
        ("changes?after=-1&wait=0", "changes?after=-1&wait=-1"),
    ],
)
def test_a_number_is_taken_up_to_its_limit(hub: HubProcess, inside: str, outside: str) -> None:
    assert asked(hub, inside).status == 200
    assert asked(hub, outside).status == 400


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ('"lease_seconds": 0', '"lease_seconds": -1'),
        ('"lease_seconds": 86400', '"lease_seconds": 86401'),
        ('"lease_seconds": 1, "limit": 1', '"lease_seconds": 1, "limit": 0'),
        ('"lease_seconds": 1, "limit": 10000', '"lease_seconds": 1, "limit": 10001'),
        ('"lease_seconds": 1, "wait_seconds": 0', '"lease_seconds": 1, "wait_seconds": 3601'),
    ],
)
def test_a_claim_is_taken_up_to_its_limits(hub: HubProcess, inside: str, outside: str) -> None:
    for limits, status in ((inside, 200), (outside, 400)):
        body = f'{{"kind": "silence", "owner": "a", {limits}}}'.encode()
        assert asked(hub, "claim", body).status == status


def test_what_is_asked_for_is_what_is_found(hub: HubProcess) -> None:
    client = hub.hub()
    made = [
        one("a", kind=EVENT, subject="c/n1", parent="p"),
        one("b", kind=EVENT, subject="c/n1/gpu/1", at=NOON + SECOND),
        one("c", kind=EVENT, subject="c/n2", parent="q", at=NOON + HOUR),
    ]
    client.write_records(made)

    def found(**question: str) -> list[str]:
        more = "".join(f"&{key}={value}" for key, value in question.items())
        return names(asked(hub, f"records?kind=event{more}").json["records"])

    assert found() == ["a", "b", "c"]
    assert found(id="b") == ["b"]
    assert found(parent="q") == ["c"]
    assert found(subject="c/n1") == ["a", "b"]
    assert found(since=to_text(NOON + SECOND)) == ["b", "c"]
    assert found(until=to_text(NOON + SECOND)) == ["a"]
    assert found(limit="2") == ["b", "c"]


def test_who_waits_is_answered_at_once_when_there_is_something(hub: HubProcess) -> None:
    client = hub.hub()
    sequence = client.write_records([one("waits", kind=TRANSITION, due_at=NOON)])
    assert len(client.changes(sequence - 1, [TRANSITION], wait_seconds=30).records) == 1
    assert len(client.claim(TRANSITION, "a", lease_seconds=60, wait_seconds=30)) == 1
    assert client.changes(sequence, [TRANSITION], wait_seconds=0).records == ()
    assert client.claim(TRANSITION, "a", lease_seconds=60) == ()
    assert client.changes(-1, [TRANSITION]).sequence == sequence


def test_a_new_record_and_the_end_of_a_lease_wake_who_waits_for_work(hub: HubProcess) -> None:
    client = hub.hub()
    soon = datetime.now(timezone.utc) + timedelta(seconds=0.5)
    client.write_records([one("soon", kind=RecordKind.SILENCE, due_at=soon)])
    taken = client.claim(RecordKind.SILENCE, "a", lease_seconds=0.5, wait_seconds=20)
    assert [it.id for it in taken] == ["soon"]
    assert datetime.now(timezone.utc) >= soon
    again = client.claim(RecordKind.SILENCE, "b", lease_seconds=60, wait_seconds=20)
    assert [it.id for it in again] == ["soon"]
    client.finish(RecordKind.SILENCE, "b", ["soon"], [replace(one("done"), kind=EVENT)])


def test_many_lines_are_taken_and_more_are_not(hub: HubProcess) -> None:
    client = hub.hub()
    before = client.status()["sequence"]
    body = b"\n" * 10_000
    assert asked(hub, "records", body).status == 200
    assert asked(hub, "records", body + b"\n").status == 413
    assert client.status()["sequence"] == before
