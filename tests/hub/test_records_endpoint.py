"""Requests for records, with a clock that is moved by hand: allowances, clocks, and who waits."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.applications import Starlette

from gpuvigil.clock import ManualClock, to_text
from gpuvigil.config import HubSettings
from gpuvigil.model import AllocationState, Record, RecordKind
from hub.auth.viewing import RecordFilter
from hub.endpoints.records import RecordsEndpoint
from hub.http.bearer import Bearer, Scope
from hub.http.long_poll import CommitNotifier
from hub.http.responses import EXCEPTION_HANDLERS, MemoryBudget
from hub.records import RecordBook, open_records
from hub.telemetry.counters import Counters
from tests.hub.talk import Reply, identity

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
MIB = 1024 * 1024
SERVICE = Bearer(scope=Scope.SERVICE)
COLLECTOR = Bearer(scope=Scope.COLLECTOR)
NODE = Bearer(scope=Scope.NODE, cluster="test", node="n1")
OTHER = Bearer(scope=Scope.NODE, cluster="test", node="n2")
SCHEDULER = Bearer(scope=Scope.SCHEDULER, cluster="test")
SILENCE, EVENT = RecordKind.SILENCE, RecordKind.EVENT


class Endpoint:
    """The endpoint of the records, asked without a server."""

    def __init__(self, directory: Path, **more: Any) -> None:
        large: dict[str, Any] = {"body_bytes": 256 * MIB, "body_lines_count": 200_000}
        settings = HubSettings(data_directory=directory, records_url="", **{**large, **more})
        self.clock, self.news, self.counters = ManualClock(NOON), CommitNotifier(), Counters()
        self.book = RecordBook(open_records(settings))
        self.sent: list[tuple[tuple[str, str], timedelta]] = []
        records = RecordsEndpoint(
            self.book,
            self.news,
            settings,
            self.clock,
            self.counters,
            leaving=MemoryBudget(64 * MIB),
            sent=lambda node, ahead: self.sent.append((node, ahead)),
            viewing=RecordFilter(self.book, self.clock, lambda: "secret"),
        )
        self.app = Starlette(routes=records.routes(), exception_handlers=EXCEPTION_HANDLERS)

    async def answer(
        self,
        bearer: Bearer,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        leaves: bool = False,
        stays: bool = False,
    ) -> Reply:
        """What a request is answered; who `leaves` does so with its last byte, who `stays` sends more."""
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "method": "GET" if body is None else "POST",
            "path": f"/api/v1/{path}",
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()],
            "state": {"bearer": bearer},
        }
        told: list[dict[str, Any]] = []
        parts: list[dict[str, Any]] = [
            {"type": "http.request", "body": body or b"", "more_body": stays}
        ]
        if leaves:
            parts.append({"type": "http.disconnect"})

        async def receive() -> dict[str, Any]:
            return parts.pop(0) if parts else await asyncio.Future()

        async def send(message: dict[str, Any]) -> None:
            told.append(message)

        async with asyncio.timeout(10):
            await self.app(scope, receive, send)  # type: ignore[arg-type]
        content = b"".join(it.get("body", b"") for it in told)
        return Reply(status=told[0]["status"], headers={}, body=content)

    def ask(self, bearer: Bearer, target: str, body: bytes | None = None, **more: Any) -> Reply:
        """The same, one after the other."""
        return asyncio.run(self.answer(bearer, target, body, **more))

    def writes(self, bearer: Bearer, body: bytes = b"") -> int:
        """The status of records that are written."""
        return self.ask(bearer, "records", body).status


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    found = Endpoint(tmp_path)
    yield found
    found.book.close()


def a_record(name: str = "a", kind: RecordKind = EVENT, **more: Any) -> Record:
    return Record(**{"kind": kind, "id": name, "at": NOON, "subject": "test/n1", **more})


def line(record: Record) -> bytes:
    return json.dumps(record.to_json()).encode()


# --- a node's allowance ---------------------------------------------------------------------------


def test_a_node_writes_twenty_thousand_records_at_once_and_as_many_again_in_an_hour(
    endpoint: Endpoint,
) -> None:
    assert endpoint.writes(NODE, b"\n" * 19_998) == 200
    assert endpoint.writes(NODE) == 200
    assert endpoint.writes(NODE) == 429
    assert endpoint.writes(OTHER) == 200
    endpoint.clock.advance(0.17)
    assert endpoint.writes(NODE) == 429
    endpoint.clock.advance(0.02)
    assert endpoint.writes(NODE, b"\n" * 20_000) == 200
    # 20,000 of them have to grow back before the next.
    endpoint.clock.advance(3600.1)
    assert endpoint.writes(NODE) == 429
    endpoint.clock.advance(0.2)
    assert endpoint.writes(NODE) == 200


@pytest.mark.medium
def test_a_node_writes_128_mib_at_once(endpoint: Endpoint) -> None:
    lines = (b"x" * (MIB - 1) + b"\n") * 8
    # What is wrong with the first line ends it soon, and is no refusal to take more.
    for _ in range(15):
        assert endpoint.writes(NODE, lines) == 400
    assert endpoint.writes(NODE, lines[1:]) == 400
    assert endpoint.writes(NODE, b" ") == 200
    assert endpoint.writes(NODE) == 429
    assert endpoint.writes(OTHER) == 200
    endpoint.clock.advance(0.001)
    assert endpoint.writes(NODE) == 200


def test_who_writes_for_all_nodes_has_no_allowance(endpoint: Endpoint) -> None:
    for bearer in (SERVICE, COLLECTOR):
        for _ in range(2):
            assert endpoint.writes(bearer, b"\n" * 20_000) == 200


def test_a_flood_is_told_in_the_log_every_ten_minutes(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> int:
        assert endpoint.writes(NODE) == 429
        return caplog.text.count("records refused")

    endpoint.writes(NODE, b"\n" * 100_000)
    assert (told(), told()) == (1, 1)
    endpoint.clock.advance(599.5)
    assert told() == 1
    endpoint.clock.advance(0.5)
    assert told() == 2


def test_a_scheduler_without_its_token_is_told_in_the_log_every_ten_minutes(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    def told(kind: RecordKind) -> int:
        assert endpoint.writes(COLLECTOR, line(a_record(kind=kind))) == 403
        return caplog.text.count("a scheduler's records refused")

    assert told(SILENCE) == 0
    both = b"\n".join(line(a_record(kind=it)) for it in (RecordKind.JOB, RecordKind.SCHEDULER))
    reply = endpoint.ask(COLLECTOR, "records", both)
    assert "kind job, scheduler: a scheduler's token may" in reply.json["message"]
    assert told(RecordKind.JOB) == 1
    endpoint.clock.advance(599.5)
    assert told(RecordKind.JOB) == 1
    endpoint.clock.advance(0.5)
    assert (told(SILENCE), told(RecordKind.JOB)) == (1, 2)


# --- what is written ------------------------------------------------------------------------------


def test_a_record_of_a_node_has_a_mebibyte_and_one_of_a_service_may_have_more(
    endpoint: Endpoint,
) -> None:
    record = line(a_record("test/n1|x"))
    for bearer, below, above in ((NODE, 200, 413), (COLLECTOR, 200, 413), (SERVICE, 200, 200)):
        assert endpoint.writes(bearer, record.ljust(MIB) + b"\n" + b" " * 100) == below
        assert endpoint.writes(bearer, b" " * 100 + b"\n" + record.ljust(MIB + 1)) == above


def test_how_far_a_clock_is_ahead_is_told_by_who_may_speak_for_the_node(endpoint: Endpoint) -> None:
    headers = {**identity(1), "Gpuvigil-Sent-At": to_text(NOON + 3 * SECOND)}
    for bearer, told in ((OTHER, 0), (NODE, 1), (SERVICE, 2), (COLLECTOR, 3)):
        endpoint.ask(bearer, "records", b"", headers=headers)
        endpoint.ask(bearer, "records", b"")
        assert endpoint.sent == [(("test", "n1"), 3 * SECOND)] * told


def test_what_is_written_is_counted_and_a_line_at_fault_is_named(endpoint: Endpoint) -> None:
    body = b"\n".join([line(a_record("a")), b" ", line(a_record("b")), line(a_record("b"))])
    reply = endpoint.ask(SERVICE, "records", body)
    assert (reply.status, reply.json) == (200, {"sequence": 2})
    count = endpoint.counters.registry.get_sample_value("gpuvigil_hub_records_total")
    assert count == 2
    reply = endpoint.ask(SERVICE, "records", body + b"\n{}")
    assert (reply.status, "line 5" in reply.json["message"]) == (400, True)
    again = json.dumps({"kind": "event", "owner": "o", "ids": [], "records": [{}]}).encode()
    reply = endpoint.ask(SERVICE, "finish", again)
    assert (reply.status, "record 1:" in reply.json["message"]) == (400, True)


def a_node(number: int) -> Bearer:
    return Bearer(scope=Scope.NODE, cluster="test", node=f"n{number}")


async def held(
    endpoint: Endpoint, target: str, sizes: Sequence[int]
) -> Sequence[asyncio.Future[Reply]]:
    """Bodies of different nodes that were begun and do not end."""
    asked = [
        asyncio.ensure_future(endpoint.answer(a_node(number), target, b" " * size, stays=True))
        for number, size in enumerate(sizes)
    ]
    await asyncio.sleep(0.02)
    return asked


@pytest.mark.parametrize(("queue_bytes", "left"), [(0, 0), (20_100, 100)])
def test_there_is_room_for_two_of_the_largest_bodies_and_for_a_queue(
    tmp_path: Path, queue_bytes: int, left: int
) -> None:
    endpoint = Endpoint(tmp_path, body_bytes=10_000, queue_bytes=queue_bytes)

    async def asked() -> list[int]:
        waiting = await held(endpoint, "records", [10_000, 10_000])
        assert not any(one.done() for one in waiting)
        found = [
            (await endpoint.answer(SERVICE, target, b" " * size)).status
            for target in ("records", "finish")
            for size in (left, left + 1)
        ]
        for one in waiting:
            one.cancel()
        return found

    with closing(endpoint.book):
        assert asyncio.run(asked()) == [200, 429, 400, 429]


def test_questions_have_a_mebibyte_of_their_own(endpoint: Endpoint) -> None:
    async def asked() -> list[int]:
        waiting = await held(endpoint, "claim", [10_000] * 104)
        left = MIB - 104 * 10_000
        found = [
            (await endpoint.answer(SERVICE, "claim", claim().ljust(size))).status
            for size in (left, left + 1)
        ]
        for one in waiting:
            one.cancel()
        return found

    assert asyncio.run(asked()) == [200, 429]


# --- what is asked for ----------------------------------------------------------------------------


def test_a_node_reads_its_own_inventory_and_who_holds_its_gpus(endpoint: Endpoint) -> None:
    def held(name: str, state: AllocationState, **more: Any) -> Record:
        ended = {} if state is AllocationState.HELD else {"ended_at": to_text(NOON)}
        return a_record(name, RecordKind.ALLOCATION, body=ended, **more)

    endpoint.book.write(
        [
            a_record("test/n1", RecordKind.INVENTORY),
            a_record("test/n2", RecordKind.INVENTORY, subject="test/n2"),
            a_record("test/n1", EVENT),
            held("open", AllocationState.HELD, subject="test/n1/gpu/1"),
            held("over", AllocationState.ENDED, subject="test/n1/gpu/1"),
            held("other", AllocationState.HELD, subject="test/n2/gpu/1"),
        ]
    )

    def found(bearer: Bearer, query: str) -> Any:
        reply = endpoint.ask(bearer, f"inventory?{query}")
        return [it["id"] for it in reply.json["records"]] if reply.status == 200 else reply.status

    assert found(NODE, "cluster=test&node=n1") == ["test/n1"]
    assert found(NODE, "cluster=test&node=n1&held=1") == ["test/n1", "open"]
    assert found(COLLECTOR, "cluster=test&node=n2&held=1") == ["test/n2", "other"]
    assert found(NODE, "cluster=test&node=n2") == 403
    assert found(NODE, "cluster=tes&node=n1") == 403
    for query in ("cluster=test", "node=n1", "cluster=test&node=", "cluster=test&node=%00"):
        assert found(COLLECTOR, query) == 400


def test_a_holders_allocations_are_found_among_all(endpoint: Endpoint) -> None:
    held = RecordKind.ALLOCATION
    for number, holder in enumerate(("job 7", "job 77", "job 7", 'pod a/"job 7"', "job 70")):
        body = {"holder": holder, "command": '"holder": "job 7"', "ended_at": None}
        assert endpoint.writes(SERVICE, line(a_record(f"a{number}", held, body=body))) == 200

    def found(holder: str) -> list[str]:
        asked = urlencode({"kind": "allocation", "holder": holder})
        reply = endpoint.ask(SERVICE, f"records?{asked}")
        return [it["id"] for it in json.loads(reply.body)["records"]]

    assert found("job 7") == ["a0", "a2"]
    assert found('pod a/"job 7"') == ["a3"]
    assert found("job 7_") == found("job %") == []


def test_what_cannot_be_stored_cannot_be_asked_for(endpoint: Endpoint) -> None:
    for key in ("id", "parent", "subject", "holder", "states"):
        assert endpoint.ask(SERVICE, f"records?kind=event&{key}=x").status == 200
        assert endpoint.ask(SERVICE, f"records?kind=event&{key}=%00").status == 400, key


def test_what_is_finished_is_named_by_texts_in_a_list(endpoint: Endpoint) -> None:
    right = {"kind": "event", "owner": "o", "ids": [], "records": []}
    assert endpoint.ask(SERVICE, "finish", json.dumps(right).encode()).status == 200
    wrongs: list[dict[str, object]] = [
        {"owner": ""},
        {"owner": 1},
        {"owner": "\0"},
        {"ids": "a"},
        {"ids": [""]},
        {"ids": ["a", 1]},
        {"ids": ["\0"]},
        {"kind": "gossip"},
        {"records": {}},
    ]
    for wrong in wrongs:
        body = json.dumps({**right, **wrong}).encode()
        assert endpoint.ask(SERVICE, "finish", body).status == 400, wrong


def test_a_number_is_a_number(endpoint: Endpoint) -> None:
    for wait in ("", "x", "nan", "-0.1", "1e400"):
        path = f"changes?after=0&kinds=event&wait={wait}"
        assert endpoint.ask(SERVICE, path).status == 400, wait


def test_who_knows_nothing_yet_is_told_where_to_begin(endpoint: Endpoint) -> None:
    endpoint.book.write([a_record("a"), a_record("b")])
    asked = "changes?kinds=event&wait=3600&after="
    assert endpoint.ask(SERVICE, f"{asked}-1").json == {"records": [], "sequence": 2}
    reply = endpoint.ask(SERVICE, f"{asked}0").json
    assert ([it["id"] for it in reply["records"]], reply["sequence"]) == (["a", "b"], 2)
    nothing = endpoint.ask(SERVICE, "changes?kinds=event&after=2")
    assert nothing.json == {"records": [], "sequence": 2}


# --- claims and long polls ------------------------------------------------------------------------


def claim(**more: object) -> bytes:
    asked = {"kind": "silence", "owner": "o", "lease_seconds": 60, **more}
    return json.dumps(asked).encode()


def claimed(endpoint: Endpoint, **more: object) -> list[str]:
    reply = endpoint.ask(SERVICE, "claim", claim(**more))
    return [it["id"] for it in reply.json["records"]]


def due(name: str, seconds: float = 0.0) -> Record:
    return a_record(name, SILENCE, due_at=NOON + timedelta(seconds=seconds))


def test_a_claim_takes_a_hundred_unless_told_otherwise(endpoint: Endpoint) -> None:
    endpoint.book.write([due(f"{number:03}") for number in range(103)])
    assert claimed(endpoint, limit=2) == ["000", "001"]
    assert len(claimed(endpoint)) == 100
    assert claimed(endpoint) == ["102"]
    assert claimed(endpoint) == []
    endpoint.clock.advance(59)
    assert claimed(endpoint) == []
    endpoint.clock.advance(1)
    assert len(claimed(endpoint, limit=1000)) == 103


def test_a_claim_is_a_short_question(endpoint: Endpoint) -> None:
    assert endpoint.ask(SERVICE, "claim", claim().ljust(10_000)).status == 200
    assert endpoint.ask(SERVICE, "claim", claim().ljust(10_001)).status == 413


@pytest.mark.parametrize(
    ("target", "body"),
    [("claim", claim(wait_seconds=1)), ("changes?after=0&kinds=silence&wait=1", None)],
)
def test_who_waits_is_woken_by_what_it_waits_for_alone(
    endpoint: Endpoint, target: str, body: bytes | None
) -> None:
    async def told() -> Any:
        waits = asyncio.ensure_future(endpoint.answer(SERVICE, target, body))
        await asyncio.sleep(0.1)
        assert (await endpoint.answer(SERVICE, "records", line(a_record("a")))).status == 200
        await asyncio.sleep(0.05)
        assert not waits.done()
        assert (await endpoint.answer(SERVICE, "records", line(due("b")))).status == 200
        return (await asyncio.wait_for(waits, 0.8)).json

    reply = asyncio.run(told())
    assert ([it["id"] for it in reply["records"]], reply.get("sequence", 2)) == (["b"], 2)


def test_a_hub_that_stops_lets_everybody_go(endpoint: Endpoint) -> None:
    endpoint.news.close()
    assert claimed(endpoint, wait_seconds=20) == []
    path = "changes?after=0&kinds=silence&wait=20"
    assert endpoint.ask(SERVICE, path).json == {"records": [], "sequence": 0}


def test_who_went_away_while_it_waited_holds_no_lease(endpoint: Endpoint) -> None:
    async def told() -> Reply:
        asked = endpoint.answer(SERVICE, "claim", claim(wait_seconds=20), leaves=True)
        waits = asyncio.ensure_future(asked)
        await asyncio.sleep(0.1)
        await endpoint.answer(SERVICE, "records", line(due("a")))
        return await waits

    assert asyncio.run(told()).json == {"records": []}
    assert claimed(endpoint) == ["a"]


@pytest.mark.medium
def test_five_hundred_of_one_token_may_wait(endpoint: Endpoint) -> None:
    def waits() -> asyncio.Future[Reply]:
        path = "changes?after=0&kinds=event&wait=20"
        return asyncio.ensure_future(endpoint.answer(NODE, path))

    async def asked() -> None:
        waiting = [waits() for _ in range(500)]
        assert (await waits()).status == 429
        assert not any(one.done() for one in waiting)
        waiting[0].cancel()
        with suppress(asyncio.CancelledError):
            await waiting[0]
        waiting[0] = waits()
        assert (await waits()).status == 429
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(asked())
