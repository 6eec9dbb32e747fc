"""Records: kept once, followed without a gap, claimed by one."""

import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from gpuvigil.errors import HubRefused
from gpuvigil.hub_client import Hub
from gpuvigil.model import Allocation, AllocationState, Holder, Record, RecordKind, Subject
from tests.hub.in_process import HubThread
from tests.hub.talk import ask
from tests.servers import HubProcess

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
EVENT, NOTICE, TRANSITION = RecordKind.EVENT, RecordKind.NOTICE, RecordKind.TRANSITION
INCIDENT = RecordKind.INCIDENT


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)]
)
def settings(request: pytest.FixtureRequest) -> dict[str, object]:
    """Where the records lie."""
    if request.param == "sqlite":
        return {}
    return {"records_url": request.getfixturevalue("postgresql").database()}


@pytest.fixture(scope="module")
def records_hub(
    tmp_path_factory: pytest.TempPathFactory, settings: dict[str, object]
) -> Iterator[HubProcess]:
    with HubThread(tmp_path_factory.mktemp("records"), settings) as process:
        yield process


@pytest.fixture
def client(records_hub: HubProcess) -> Hub:
    return records_hub.hub()


def a_record(name: str, kind: RecordKind = EVENT, **more: Any) -> Record:
    return Record(**{"kind": kind, "id": name, "at": NOON, "subject": "test/n1", **more})


def now_of(client: Hub) -> int:
    return client.changes(-1, [EVENT]).sequence


def names(records: tuple[Record, ...]) -> list[str]:
    return [it.id for it in records]


def test_what_was_kept_comes_back_as_it_was(client: Hub) -> None:
    given = a_record("whole", parent="p", due_at=NOON, version=3, body={"a": [1, None, "ü"]})
    sequence = client.write_records([given])
    (found,) = client.records(EVENT, parent="p")
    assert found == replace(given, sequence=sequence)


def test_the_same_or_a_lower_version_changes_nothing(client: Hub) -> None:
    first = client.write_records([a_record("v", version=2, body={"n": 2})])
    assert client.write_records([a_record("v", version=2, body={"n": 0})]) == first
    assert client.write_records([a_record("v", version=1, body={"n": 1})]) == first
    assert client.changes(first - 1, [EVENT]).records[0].body == {"n": 2}


def test_a_higher_version_replaces_and_is_a_new_change(client: Hub) -> None:
    first = client.write_records([a_record("w"), a_record("w", version=2, body={"n": 2})])
    second = client.write_records([a_record("w", version=3, body={"n": 3})])
    assert second == first + 1
    changes = client.changes(first - 1, [EVENT])
    assert [(it.id, it.body) for it in changes.records] == [("w", {"n": 3})]


def test_kinds_with_the_same_id_are_different_records(client: Hub) -> None:
    client.write_records([a_record("same"), a_record("same", NOTICE)])
    assert "same" in names(client.records(NOTICE))
    assert "same" in names(client.records(EVENT))


def test_records_are_found_by_subject_state_and_time(client: Hub) -> None:
    client.write_records(
        [
            a_record("node", INCIDENT, subject="Find/n1", body={"state": "open"}),
            a_record("gpu", INCIDENT, subject="Find/n1/gpu/0", body={"state": "resolved"}),
            a_record("late", INCIDENT, subject="Find/n1/gpu/1", at=NOON + timedelta(hours=1)),
            a_record("other", INCIDENT, subject="Find/n10", body={"state": "open"}),
            a_record("case", INCIDENT, subject="find/n1", body={"state": "open"}),
            a_record("wild", INCIDENT, subject="Find/n_/x", body={"state": "open"}),
        ]
    )
    assert names(client.records(INCIDENT, subject="Find/n1")) == ["node", "gpu", "late"]
    assert names(client.records(INCIDENT, subject="Find/n_")) == ["wild"]
    found = client.records(INCIDENT, subject="Find", states={"open", "closed"})
    assert names(found) == ["node", "other", "wild"]
    assert names(client.records(INCIDENT, since=NOON + timedelta(seconds=1))) == ["late"]
    assert names(client.records(INCIDENT, subject="Find", limit=2)) == ["other", "wild"]


def test_the_longest_names_are_kept_and_found(client: Hub) -> None:
    # Random letters, which no index can make smaller.
    letters = random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=1024)
    name = "".join(letters)
    given = a_record(name, INCIDENT, subject=name, parent=name, body={"state": name})
    client.write_records([given])
    found = client.records(INCIDENT, parent=name, subject=name, states={name})
    assert names(found) == [name]


def test_a_record_is_found_by_its_name(client: Hub) -> None:
    client.write_records([a_record("named", INCIDENT), a_record("named", NOTICE)])
    found = client.record(INCIDENT, "named")
    assert found is not None
    assert (found.kind, found.id) == (INCIDENT, "named")
    assert client.record(INCIDENT, "nam") is None
    assert client.record(INCIDENT, "") is None


def test_one_bad_record_keeps_the_whole_body_out(records_hub: HubProcess, client: Hub) -> None:
    start = now_of(client)
    good = json.dumps(a_record("with-bad").to_json())
    for bad in (
        "not json",
        "[]",
        "{}",
        '{"kind": "event", "id": "x", "at": "yesterday", "subject": "s"}',
        '{"kind": "event", "id": "", "at": "2026-01-31T12:00:00Z", "subject": "s"}',
        '{"kind": "gossip", "id": "x", "at": "2026-01-31T12:00:00Z", "subject": "s"}',
        '{"kind": "event", "id": "\\ud800", "at": "2026-01-31T12:00:00Z", "subject": "s"}',
        '{"kind": "event", "id": "x", "at": "2026-01-31T12:00:00Z", "subject": "\\u0000"}',
        '{"kind": "event", "id": "x", "at": "0001-01-31T12:00:00Z", "subject": "s"}',
        '{"kind": "event", "id": "x", "at": "2026-01-31T12:00:00Z", "subject": "s", "version": 1e400}',
        '{"kind": "event", "id": "x", "at": "2026-01-31T12:00:00Z", "subject": "s", "version": 1e30}',
        '{"kind": "event", "id": "x", "at": "2026-01-31T12:00:00Z", "subject": "s", "body": {"a": NaN}}',
        '{"kind": "event", "id": "x", "at": "2026-01-31T12:00:00Z", "subject": "s", "body": {"a": 1e400}}',
        '{"kind": "event", "id": "x", "at": "2026-01-31T12:00:00Z", "subject": "s", "body": {"a": "\\ud800"}}',
        '{"kind": "event", "id": "x", "at": "2026-01-31T12:00:00Z", "subject": "s", "body": {"a": '
        + "[" * 100_000
        + "}}",
        '{"kind": "event", "id": "x", "at": "2026-01-31T12:00:00Z", "subject": "s", "body": {"a": '
        + "[" * 50
        + "]" * 50
        + "}}",
        '{"kind": "event", "id": "x", "at": "2026-01-31T12:00:00Z", "subject": "s", "body": {"state": "\\u0000"}}',
        '{"kind": "event", "at": "2026-01-31T12:00:00Z", "subject": "s", "id": "'
        + "x" * 1025
        + '"}',
        "\x80",
    ):
        body = f"{good}\n{bad}".encode("latin-1")
        answer = ask(f"{records_hub.url}/api/v1/records", body, token=records_hub.service_token)
        assert answer.status == 400, bad[:100]
        assert "line 2" in answer.json["message"], bad[:100]
    assert client.changes(start, list(RecordKind), wait_seconds=0).records == ()


def test_a_record_that_is_no_record_is_400_with_a_line_that_says_why(
    records_hub: HubProcess,
) -> None:
    good = a_record("well-formed").to_json()
    wrong: list[tuple[dict[str, object], str]] = [
        ({"kind": None}, "without a kind"),
        ({"kind": {}}, "kind '{}'"),
        ({"at": "9999-12-31T23:59:59Z"}, "from 1970 to 2199"),
        ({"at": "2200-01-01T00:00:00Z"}, "from 1970 to 2199"),
        ({"due_at": "2200-01-01T00:00:00Z"}, "from 1970 to 2199"),
        ({"at": "1969-12-31T23:59:59.999999Z"}, "from 1970 to 2199"),
        ({"subject": "test/n1/../n2"}, "'.' or '..'"),
        ({"subject": "test/%2e%2e"}, "'.' or '..'"),
        ({"subject": "./n1"}, "'.' or '..'"),
        ({"subject": ".."}, "'.' or '..'"),
    ]
    url = f"{records_hub.url}/api/v1/records"

    def told(record: Mapping[str, object]) -> tuple[int, str]:
        answer = ask(url, json.dumps(record).encode(), token=records_hub.service_token)
        return answer.status, answer.json.get("message", "")

    for wrongly, why in wrong:
        status, message = told({**good, **wrongly})
        assert (status, "line 1: " in message, why in message) == (400, True, True), message
        assert "\n" not in message
    status, message = told({key: value for key, value in good.items() if key != "kind"})
    assert (status, "without a kind; known are event, " in message) == (400, True)
    fine = (
        {"at": "2199-12-31T23:59:59.999999Z"},
        {"at": "1970-01-01T00:00:00Z"},
        {"subject": "test/n1..n2"},
        {"subject": "test/..."},
    )
    for number, change in enumerate(fine):
        assert told({**good, "id": f"just-well-formed-{number}", **change})[0] == 200


def test_a_collector_writes_what_nodes_know_and_nothing_else(records_hub: HubProcess) -> None:
    collector = records_hub.collector_hub()
    assert collector.write_records([a_record("from-node")]) > 0
    with pytest.raises(HubRefused, match="incident") as caught:
        collector.write_records([a_record("ok"), a_record("not-ok", INCIDENT)])
    assert caught.value.status == 403
    with pytest.raises(HubRefused) as caught:
        collector.records(EVENT)
    assert caught.value.status == 403


def test_changes_wait_for_their_kind_and_come_at_once(records_hub: HubProcess, client: Hub) -> None:
    after = now_of(client)
    woken: list[tuple[float, list[str]]] = []

    def follow() -> None:
        found = records_hub.hub().changes(after, [NOTICE], wait_seconds=10)
        woken.append((time.monotonic(), names(found.records)))

    waiting = threading.Thread(target=follow)
    waiting.start()
    client.write_records([a_record("not-it")])
    # Long enough for the wait to have begun, short enough not to matter.
    time.sleep(0.2)
    sent = time.monotonic()
    client.write_records([a_record("it", NOTICE)])
    waiting.join(timeout=15)
    ((at, found),) = woken
    assert found == ["it"]
    assert at - sent < 5.0  # of the ten that it would have waited


def test_a_wait_for_nothing_ends_in_time_and_says_where_to_go_on(client: Hub) -> None:
    after = client.write_records([a_record("before-nothing")])
    started = time.monotonic()
    found = client.changes(after - 1, [NOTICE], wait_seconds=0.2)
    assert (found.records, found.sequence) == ((), after)
    assert 0.2 <= time.monotonic() - started < 5


@pytest.mark.medium
def test_a_follower_misses_no_commit_of_many_writers(records_hub: HubProcess, client: Hub) -> None:
    after = now_of(client)
    seen: list[str] = []

    def write(writer: int) -> None:
        hub = records_hub.hub()
        for number in range(25):
            hub.write_records([a_record(f"many-{writer}-{number}", TRANSITION)])

    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in writers:
        thread.start()
    while len(seen) < 100:
        found = client.changes(after, [TRANSITION], wait_seconds=5)
        assert found.sequence > after
        after = found.sequence
        seen += names(found.records)
    for thread in writers:
        thread.join()
    assert sorted(seen) == sorted(f"many-{w}-{n}" for w in range(4) for n in range(25))


@pytest.mark.slow
def test_many_changes_come_in_parts(client: Hub) -> None:
    after = now_of(client)
    client.write_records(a_record(f"part-{n}", RecordKind.PULSE) for n in range(10_050))
    first = client.changes(after, [RecordKind.PULSE])
    rest = client.changes(first.sequence, [RecordKind.PULSE])
    assert (len(first.records), len(rest.records)) == (10_000, 50)
    assert now_of(client) == rest.sequence


def test_allocations_that_are_held_are_told_from_those_that_have_ended(client: Hub) -> None:
    held, ended = {"ended_at": None, "state": "ended"}, {"ended_at": "2026-01-31T12:00:00Z"}
    client.write_records(
        a_record(name, RecordKind.ALLOCATION, parent="held-or-not", body=held)
        for name in ("stays", "ends")
    )
    client.write_records(
        [a_record("ends", RecordKind.ALLOCATION, parent="held-or-not", version=2, body=ended)]
    )

    def asked(*states: AllocationState) -> list[str]:
        found = client.records(RecordKind.ALLOCATION, parent="held-or-not", states=states)
        return names(found)

    assert asked(AllocationState.HELD) == ["stays"]
    assert asked(AllocationState.ENDED) == ["ends"]
    assert asked() == ["stays", "ends"]


def test_only_what_is_due_is_claimed_earliest_first(client: Hub) -> None:
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    kind = RecordKind.ALLOCATION
    client.write_records(
        [
            a_record("second", kind, due_at=NOON + timedelta(seconds=1)),
            a_record("first", kind, due_at=NOON),
            a_record("never", kind),
            a_record("soon", kind, due_at=soon),
        ]
    )
    assert names(client.claim(kind, "a", lease_seconds=60)) == ["first", "second"]
    assert client.claim(kind, "b", lease_seconds=60) == ()


def test_two_claimants_never_get_the_same_record(records_hub: HubProcess, client: Hub) -> None:
    kind = RecordKind.NOTICE
    client.write_records(a_record(f"work-{n}", kind, due_at=NOON) for n in range(200))
    got: list[list[str]] = [[] for _ in range(4)]

    def work(worker: int) -> None:
        hub = records_hub.hub()
        while found := hub.claim(kind, f"worker-{worker}", lease_seconds=60, limit=7):
            got[worker] += names(found)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    assert sorted(name for part in got for name in part) == sorted(f"work-{n}" for n in range(200))


def test_a_lease_that_ends_gives_the_record_to_the_next_and_409_to_the_first(client: Hub) -> None:
    kind = RecordKind.INVENTORY
    client.write_records([a_record("leased", kind, due_at=NOON)])
    assert names(client.claim(kind, "slow", lease_seconds=0.3)) == ["leased"]
    assert client.claim(kind, "next", lease_seconds=60) == ()
    assert names(client.claim(kind, "next", lease_seconds=60, wait_seconds=10)) == ["leased"]
    start = now_of(client)
    with pytest.raises(HubRefused) as caught:
        client.finish(kind, "slow", ["leased"], [a_record("too-late")])
    assert caught.value.status == 409
    assert now_of(client) == start
    client.finish(kind, "next", ["leased"], [a_record("in-time")])
    assert "in-time" in names(client.changes(start, [EVENT]).records)
    assert client.claim(kind, "third", lease_seconds=60) == ()


def test_finishing_twice_is_finishing_once_since_an_answer_may_get_lost(client: Hub) -> None:
    client.write_records([a_record("twice", TRANSITION, due_at=NOON)])
    claimed = client.claim(TRANSITION, "a", lease_seconds=60)
    assert "twice" in names(claimed)
    client.finish(TRANSITION, "a", ["twice"], [a_record("done", body={"n": 1})])
    client.finish(TRANSITION, "a", ["twice"], [a_record("done", body={"n": 1})])
    for owner, name in (("b", "twice"), ("a", "unknown")):
        with pytest.raises(HubRefused) as caught:
            client.finish(TRANSITION, owner, [name])
        assert caught.value.status == 409


def test_finished_work_may_be_due_again_later(client: Hub) -> None:
    kind = RecordKind.PULSE
    work = a_record("again", kind, due_at=NOON)
    client.write_records([work])
    client.claim(kind, "a", lease_seconds=60)
    soon = datetime.now(timezone.utc) + timedelta(seconds=0.3)
    later = replace(work, due_at=soon, version=2)
    for _ in range(2):
        client.finish(kind, "a", ["again"], [later])
    assert client.claim(kind, "b", lease_seconds=60) == ()
    assert names(client.claim(kind, "b", lease_seconds=60, wait_seconds=10)) == ["again"]


def test_a_claim_waits_for_a_record_that_is_written_later(
    records_hub: HubProcess, client: Hub
) -> None:
    found: list[str] = []

    def wait() -> None:
        hub = records_hub.hub()
        found.extend(names(hub.claim(INCIDENT, "a", lease_seconds=60, wait_seconds=10)))

    waiting = threading.Thread(target=wait)
    waiting.start()
    client.write_records([a_record("awaited", INCIDENT, due_at=NOON)])
    waiting.join(timeout=15)
    assert found == ["awaited"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("claim", b"[]"),
        ("claim", b'{"kind": "event"}'),
        ("claim", b'{"kind": "event", "owner": "a", "lease_seconds": "long"}'),
        ("claim", b'{"kind": "event", "owner": "a", "lease_seconds": 1e400}'),
        ("claim", b'{"kind": ["event"], "owner": "a", "lease_seconds": 1}'),
        ("finish", b'{"kind": "event", "owner": "a", "ids": "x"}'),
        ("finish", b'{"kind": "event", "owner": "a", "ids": [1]}'),
        ("finish", b'{"kind": "event", "owner": "a", "ids": ["x"], "records": {}}'),
        ("changes?after=x&kinds=event", None),
        ("changes?after=0&kinds=gossip", None),
        ("records", None),
        ("records?kind=event&id=%00", None),
        ("records?kind=event&states=%00", None),
        ("inventory?cluster=%00&node=n", None),
        ("records?kind=event&since=x", None),
        ("records?kind=event&limit=0", None),
        ("telemetry/window", b"garbage"),
        ("telemetry/window", b'{"measurement": {}}'),
        ("telemetry/latest", b'{"measurement": "gpu", "fields": ["up"], "since": 5}'),
        ("telemetry/series", b'{"measurement": "gpu", "fields": ["up"], "step_seconds": 0}'),
        ("telemetry/window", b'{"measurement": "gpu", "aggregates": [["p95", "up"]]}'),
        ("telemetry/window", b'{"measurement": "gpu", "aggregates": [[["mean"], "up"]]}'),
    ],
)
def test_garbage_is_400_and_named(records_hub: HubProcess, path: str, body: bytes | None) -> None:
    answer = ask(f"{records_hub.url}/api/v1/{path}", body, token=records_hub.service_token)
    assert answer.status == 400
    assert answer.json["code"] == "invalid"
    assert answer.json["message"]


@pytest.mark.server
def test_records_survive_a_kill(
    tmp_path: Path, settings: dict[str, object], request: pytest.FixtureRequest
) -> None:
    if settings:
        settings = {"records_url": request.getfixturevalue("postgresql").database()}
    with HubProcess(tmp_path, settings) as process:
        client = process.hub()
        for number in range(20):
            client.write_records([a_record(f"kept-{number}", due_at=NOON)])
        assert len(client.claim(EVENT, "a", lease_seconds=60, limit=5)) == 5
        process.kill()
        process.restart()
        client = process.hub()
        assert len(client.changes(0, [EVENT]).records) == 20
        assert len(client.claim(EVENT, "b", lease_seconds=60)) == 15
        client.finish(EVENT, "a", [f"kept-{number}" for number in range(5)])


def test_a_collector_reads_one_nodes_inventory_and_nothing_else(records_hub: HubProcess) -> None:
    client, collector = records_hub.hub(), records_hub.collector_hub()
    mine = Subject(cluster="inv", node="n 1")
    assert collector.inventory(mine) is None
    for name, version in (("n 1", 1), ("n 1", 2), ("n 2", 3)):
        subject = Subject(cluster="inv", node=name).key
        client.write_records(
            [a_record(subject, RecordKind.INVENTORY, subject=subject, version=version)]
        )
    found = collector.inventory(mine)
    assert found is not None
    assert (found.id, found.version) == (mine.key, 2)
    # Who holds its GPUs now is told beside it, where that is asked for.
    gpus = [Subject(cluster="inv", node=name, gpu=f"GPU-{name}") for name in ("n 1", "n 11")]
    for gpu in gpus:
        one = Allocation(
            subject=gpu, holder=Holder.parse("pid 7"), user="ada", command="train", started_at=NOON
        )
        over = replace(one, holder=Holder.parse("pid 6"), ended_at=NOON)
        client.write_records([one.to_record(), over.to_record()])
    assert [(one.kind, one.subject) for one in collector.had(mine)] == [
        (RecordKind.INVENTORY, mine.key),
        (RecordKind.ALLOCATION, gpus[0].key),
    ]
    assert collector.inventory(mine) == found
    for path in ("inventory", "inventory?cluster=inv", "inventory?node=n"):
        answer = ask(f"{records_hub.url}/api/v1/{path}", token=records_hub.collector_token)
        assert answer.status == 400
