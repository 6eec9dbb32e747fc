"""The endpoints for records, as `docs/wire.md` describes them."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import ColumnElement
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gpuvigil.clock import Clock, from_text, to_text
from gpuvigil.config import HubSettings
from gpuvigil.hub_client import LONGEST_WAIT_SECONDS
from gpuvigil.log import Log
from gpuvigil.model import SCHEDULER_KINDS, AllocationState, Record, RecordKind, Subject

from ..auth.authorization import MAKE_TOKEN, check_kinds, check_reading, check_subjects
from ..auth.viewing import RecordFilter
from ..bodies.deduplication import Node, sender
from ..http.bearer import Bearer, Scope, foreign
from ..http.limits import Allowance, Cooldown, FairQueue
from ..http.long_poll import CommitNotifier
from ..http.responses import (
    MemoryBudget,
    Refused,
    answer_of,
    body_from,
    in_thread,
    json_of,
    question_of,
)
from ..records.record_book import (
    MOST_FOUND_BYTES,
    LeaseLostError,
    RecordBook,
    TooMuchError,
    held_by,
    under,
)
from ..records.tables import record
from ..records.validation import record_of, storable
from ..telemetry.counters import Counters

_LOG = Log("hub")

_MOST_RECORDS = 100_000

# Largest record of a collector. A line is parsed in one go, which nothing can interrupt.
LARGEST_RECORD_BYTES = 1024 * 1024
# Limits of one node's token. A node that comes back after a week has fewer records to send.
RECORDS_PER_HOUR = 20_000
BYTES_PER_HOUR = 128 * 1024 * 1024
_HOUR_SECONDS = 3600.0
_LOG_AGAIN_SECONDS = 600.0

# Most long polls of one token: each commit makes every one of them query again.
MOST_WAITING = 500

_MOST_STATES = 100
_LARGEST_CLAIM_BYTES = 10_000
_MOST_ASKING_BYTES = 1024 * 1024

# The database takes one writer at a time; a few more bodies are parsed and checked meanwhile.
_WRITING = 4
_READING = 8
_T = TypeVar("_T")


class RecordsEndpoint:
    """Accepts and returns records; each commit wakes the requests that wait for changes."""

    def __init__(  # noqa: PLR0913 - the parts of a hub
        self,
        book: RecordBook,
        news: CommitNotifier,
        settings: HubSettings,
        clock: Clock,
        counters: Counters,
        *,
        leaving: MemoryBudget,
        sent: Callable[[Node, timedelta], None],
        viewing: RecordFilter,
    ) -> None:
        """`leaving` bounds the memory for answers that are being sent.

        `sent` is called with the node that sent records, and how far its time of sending is ahead
        of the hub's time.
        """
        self._leaving = leaving
        self._sent = sent
        self._viewing = viewing
        self._book = book
        self._news = news
        self._settings = settings
        self._clock = clock
        self._counters = counters
        # Room for one of the largest bodies, beside as much for all others.
        self._arriving = MemoryBudget(max(settings.queue_bytes, 2 * settings.body_bytes))
        # Readers never wait for writers.
        self._asking = MemoryBudget(_MOST_ASKING_BYTES)
        self._writing = FairQueue(_WRITING)
        self._reading = FairQueue(_READING)
        self._allowed_records = Allowance(RECORDS_PER_HOUR, _HOUR_SECONDS)
        self._allowed_bytes = Allowance(BYTES_PER_HOUR, _HOUR_SECONDS)
        self._flood = Cooldown(_LOG_AGAIN_SECONDS)
        self._unscoped = Cooldown(_LOG_AGAIN_SECONDS)
        self._waiting = Counter[Bearer]()

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/records", self.write, methods=["POST"]),
            Route("/api/v1/records", self.find, methods=["GET"]),
            Route("/api/v1/inventory", self.inventory, methods=["GET"]),
            Route("/api/v1/changes", self.changes, methods=["GET"]),
            Route("/api/v1/claim", self.claim, methods=["POST"]),
            Route("/api/v1/finish", self.finish, methods=["POST"]),
        ]

    async def write(self, request: Request) -> Response:
        bearer: Bearer = request.state.bearer
        self._update_clock(bearer, request.headers)
        self._check_allowance(bearer)
        with self._arriving.of(bearer) as held:
            largest = self._settings.body_bytes
            body = await body_from(request.receive, request.headers, largest, held)
            self._check_lines(bearer, body)
            if bearer.scope is Scope.NODE:
                now = self._clock.monotonic()
                self._allowed_records.use(bearer, body.count(b"\n") + 1, now)
                self._allowed_bytes.use(bearer, len(body), now)
            # Parsed bodies are many times as large: only a few are parsed at a time.
            async with self._writing.turn(bearer):
                return self._kept(*await in_thread(lambda: self._written(bearer, body)))

    def _check_allowance(self, bearer: Bearer) -> None:
        """Raise Refused (429) when a node writes too many records: nothing else bounds them."""
        now = self._clock.monotonic()
        if self._allowed_records.allows(bearer, 1, now) and self._allowed_bytes.allows(
            bearer, 1, now
        ):
            return
        text = (
            f"{bearer.cluster}/{bearer.node} writes too many records: {RECORDS_PER_HOUR} or"
            f" {BYTES_PER_HOUR} bytes within an hour"
        )
        if self._flood.is_over(now):
            _LOG.warning("records refused", why=text)
        raise Refused(429, text, 60)

    def _update_clock(self, bearer: Bearer, headers: Mapping[str, str]) -> None:
        found = sender(headers)
        if found is None:
            return
        node, sent_at = found
        if bearer.writes_for_any_node or node == (bearer.cluster, bearer.node):
            self._sent(node, sent_at - self._clock.now())

    def _check_lines(self, bearer: Bearer, body: bytes) -> None:
        most = self._settings.body_lines_count
        if body.count(b"\n") > most:
            raise Refused(413, f"the body has more than {most} lines; send smaller ones")
        longest = max(map(len, body.split(b"\n")))
        if bearer.scope is not Scope.SERVICE and longest > LARGEST_RECORD_BYTES:
            raise Refused(413, f"a record is larger than {LARGEST_RECORD_BYTES} bytes")

    def _written(
        self, bearer: Bearer, body: bytes
    ) -> tuple[tuple[int, int], Collection[RecordKind]]:
        records = _records(body)
        kinds = {it.kind for it in records}
        try:
            check_kinds(bearer, kinds)
        except Refused:
            if kinds & SCHEDULER_KINDS and self._unscoped.is_over(self._clock.monotonic()):
                _LOG.warning(
                    "a scheduler's records refused", scope=bearer.scope.value, todo=MAKE_TOKEN
                )
            raise
        check_subjects(bearer, records, self._book.subjects)
        return self._book.write(records), kinds

    async def find(self, request: Request) -> Response:
        asked = request.query_params
        wanted = _wanted(asked)
        states = _states(asked["states"]) if asked.get("states") else []
        limit = int(_number(asked.get("limit", "10000"), "limit", 1, _MOST_RECORDS))
        bearer: Bearer = request.state.bearer
        kind = _kind(asked.get("kind"))
        cluster = check_reading(bearer, {kind})
        if cluster is not None:
            wanted.append(under(cluster))
        look = partial(self._book.find, wanted, limit, states=states, few="parent" in asked)
        return await self._read(bearer, lambda: self._found_answer(bearer, look, asked))

    async def inventory(self, request: Request) -> Response:
        """Answer with the inventory of the node `node` in `cluster`: all that a collector may read.

        With `held`, also with its open allocations, which say who holds its GPUs.
        """
        asked = request.query_params
        if not asked.get("cluster") or not asked.get("node"):
            raise Refused(400, "cluster and node must be given")
        for key in ("cluster", "node"):
            _storable(asked[key], key)
        bearer: Bearer = request.state.bearer
        own = (bearer.cluster, bearer.node) == (asked["cluster"], asked["node"])
        if bearer.scope is Scope.NODE and not own:
            raise Refused(403, foreign(bearer, asked["node"]))
        node = Subject(cluster=asked["cluster"], node=asked["node"]).key
        wanted = [record.c.kind == RecordKind.INVENTORY.value, record.c.id == node]
        of_node = [record.c.kind == RecordKind.ALLOCATION.value, under(node)]
        open_now = [AllocationState.HELD.value]

        def find() -> list[dict[str, Any]]:
            found = self._book.find(wanted, _MOST_RECORDS)
            if asked.get("held"):
                found += self._book.find(of_node, _MOST_RECORDS, states=open_now)
            return found

        return await self._read(bearer, lambda: self._found_answer(bearer, find))

    async def changes(self, request: Request) -> Response:
        asked = request.query_params
        after = int(_number(asked.get("after", ""), "after", -1, 2**53))
        kinds = {_kind(name) for name in asked.get("kinds", "").split(",") if name}
        wait = _number(asked.get("wait", "0"), "wait", 0, 3600)
        bearer: Bearer = request.state.bearer
        check_reading(bearer, kinds)
        if after == -1:
            sequence = await self._read(bearer, self._book.sequence)
            return JSONResponse({"records": [], "sequence": sequence})
        end = self._clock.monotonic() + min(wait, LONGEST_WAIT_SECONDS)
        with self._one_who_waits(bearer):
            return await self._changes(bearer, after, kinds, end)

    async def _changes(
        self, bearer: Bearer, after: int, kinds: Collection[RecordKind], end: float
    ) -> Response:
        while True:
            waiter = self._news.waiter(kinds)
            look = partial(self._changes_answer, bearer, after, kinds)
            answer, sequence, found = await self._read(bearer, look)
            left = end - self._clock.monotonic()
            if found or left <= 0 or self._news.closed:
                return answer
            # All changes up to here are of other kinds.
            after = sequence
            await self._news.wait(waiter, left)

    async def claim(self, request: Request) -> Response:
        bearer: Bearer = request.state.bearer
        with self._asking.of(bearer) as held:
            asked = await question_of(request, _LARGEST_CLAIM_BYTES, held)
        kind, owner = _kind(asked.get("kind")), _name(asked, "owner")
        lease = timedelta(seconds=_number(asked.get("lease_seconds"), "lease_seconds", 0, 86_400))
        limit = int(_number(asked.get("limit", 100), "limit", 1, 10_000))
        wait = _number(asked.get("wait_seconds", 0), "wait_seconds", 0, 3600)
        end = self._clock.monotonic() + min(wait, LONGEST_WAIT_SECONDS)
        while True:
            waiter = self._news.waiter({kind})
            take = partial(self._book.claim, kind, owner, self._clock.now(), lease, limit)
            async with self._writing.turn(bearer):
                found = await in_thread(take)
            left = end - self._clock.monotonic()
            if found or left <= 0 or self._news.closed:
                return await run_in_threadpool(self._answer, bearer, found)
            due_in = await self._read(bearer, partial(self._book.due_in, kind, self._clock.now()))
            if due_in is not None:
                left = min(left, due_in.total_seconds())
            await self._news.wait(waiter, left)
            if await request.is_disconnected():
                # The client is gone: a lease for it would block all others.
                return JSONResponse({"records": []})

    async def finish(self, request: Request) -> Response:
        bearer: Bearer = request.state.bearer
        with self._arriving.of(bearer) as held:
            asked = await question_of(request, self._settings.body_bytes, held)
            kind, owner = _kind(asked.get("kind")), _name(asked, "owner")
            ids = _texts(asked.get("ids"), "ids")
            given = asked.get("records", [])
            if not isinstance(given, list):
                raise Refused(400, "records must be a list")
            async with self._writing.turn(bearer):
                records = await run_in_threadpool(_records_of, given)
                now = self._clock.now()
                try:
                    kept = await in_thread(
                        lambda: self._book.finish(kind, owner, ids, records, now)
                    )
                except LeaseLostError as error:
                    raise Refused(409, f"{owner!r} no longer holds the lease: {error}") from None
        return self._kept(kept, {it.kind for it in records})

    @contextmanager
    def _one_who_waits(self, bearer: Bearer) -> Iterator[None]:
        if self._waiting[bearer] >= MOST_WAITING:
            raise Refused(429, f"{MOST_WAITING} requests with this token wait already", 5)
        self._waiting[bearer] += 1
        try:
            yield
        finally:
            self._waiting[bearer] -= 1

    async def _read(self, bearer: Bearer, work: Callable[[], _T]) -> _T:
        async with self._reading.turn(bearer):
            return await in_thread(work)

    def _found_answer(
        self,
        bearer: Bearer,
        find: Callable[[], list[dict[str, Any]]],
        asked: Mapping[str, str] | None = None,
    ) -> Response:
        try:
            return self._answer(bearer, self._viewing.shown(bearer, find(), asked))
        except TooMuchError:
            raise Refused(
                413,
                f"the records have more than {MOST_FOUND_BYTES} bytes; ask for fewer with limit,"
                " since or until",
            ) from None

    def _changes_answer(
        self, bearer: Bearer, after: int, kinds: Collection[RecordKind]
    ) -> tuple[Response, int, int]:
        """Return the answer with the changes, the sequence to go on from, and their number."""
        records, sequence = self._book.changes(after, kinds)
        cluster = check_reading(bearer, kinds)
        if cluster is not None:
            records = [it for it in records if it["subject"].startswith(f"{cluster}/")]
        records = self._viewing.shown(bearer, records)
        return self._answer(bearer, records, sequence=sequence), sequence, len(records)

    def _answer(self, bearer: Bearer, records: Iterable[dict[str, Any]], **more: int) -> Response:
        """Return the records as a JSON answer, written one by one; their bodies are JSON already.

        Writing 10,000 at once would block all other threads.
        """
        written = ",".join(_written(it) for it in records)
        rest = "".join(f',"{key}":{value}' for key, value in more.items())
        content = f'{{"records":[{written}]{rest}}}'.encode()
        return answer_of(content, "application/json", self._leaving.held(bearer))

    def _kept(self, answer: tuple[int, int], kinds: Collection[RecordKind]) -> Response:
        sequence, kept = answer
        self._counters.records.inc(kept)
        self._news.notify(kinds)
        return JSONResponse({"sequence": sequence})


def _written(found: dict[str, Any]) -> str:
    body = found.pop("body")
    return f'{json.dumps(found)[:-1]},"body":{body}}}'


def _records(body: bytes) -> list[Record]:
    """Return the record in each line that is not blank; Refused names the line that is wrong."""
    return [
        record_of(json_of(line, f"line {number}"), f"line {number}")
        for number, line in enumerate(body.split(b"\n"), 1)
        if line.strip()
    ]


def _records_of(given: list[Any]) -> list[Record]:
    return [record_of(value, f"record {number}") for number, value in enumerate(given, 1)]


def _wanted(asked: Mapping[str, str]) -> list[ColumnElement[bool]]:
    """Return the conditions that a query sets for records."""
    for key in ("id", "parent", "subject", "holder", "states"):
        _storable(asked.get(key, ""), key)
    wanted = [record.c.kind == _kind(asked.get("kind")).value]
    if "id" in asked:
        wanted.append(record.c.id == asked["id"])
    if "parent" in asked:
        wanted.append(record.c.parent == asked["parent"])
    if "subject" in asked:
        wanted.append(under(asked["subject"]))
    if "holder" in asked:
        wanted.append(held_by(asked["holder"]))
    if "since" in asked:
        wanted.append(record.c.at >= to_text(_time(asked["since"], "since")))
    if "until" in asked:
        wanted.append(record.c.at < to_text(_time(asked["until"], "until")))
    return wanted


def _states(text: str) -> list[str]:
    states = set(text.split(","))
    if len(states) > _MOST_STATES:
        raise Refused(400, f"states may name {_MOST_STATES}")
    return sorted(states)


def _kind(name: object) -> RecordKind:
    try:
        return RecordKind(name)
    except ValueError:
        known = ", ".join(kind.value for kind in RecordKind)
        raise Refused(400, f"kind {name!r} is none of {known}") from None


def _name(asked: Mapping[str, Any], key: str) -> str:
    (name,) = _texts([asked.get(key)], key)
    return name


def _texts(values: object, key: str) -> Collection[str]:
    """Return a list of non-empty texts that can be stored; Refused (400) for anything else."""
    texts = [it for it in values if isinstance(it, str) and it] if isinstance(values, list) else []
    if not isinstance(values, list) or len(texts) < len(values):
        raise Refused(400, f"{key} must be text that is not empty")
    for text in texts:
        _storable(text, key)
    return texts


def _storable(text: str, key: str) -> None:
    try:
        storable(text)
    except ValueError:
        raise Refused(400, f"{key} cannot be stored") from None


def _number(value: object, key: str, lowest: float, highest: float) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) else None
    except (ValueError, OverflowError):
        number = None
    if number is None or not lowest <= number <= highest:
        raise Refused(400, f"{key} must be a number from {lowest:g} to {highest:g}")
    return number


def _time(text: str, key: str) -> datetime:
    try:
        return from_text(text)
    except ValueError:
        raise Refused(400, f"{key} must be a time like 2026-01-31T12:00:00Z") from None
