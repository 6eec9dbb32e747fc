"""Alerts itself in simulated time: its own decisions, dispatchers and digests on a real outbox.

What runs is what the service runs: `tell`, `hand_out`, a `Dispatcher` per channel and the `SelfChecker`, with
the hub's records in SQLite or, for a month, in memory. Left out are threads and HTTP: one loop goes from moment to moment, and
what the channels are given is written down instead of sent.
"""

import heapq
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement

from alerts.channels import configured
from alerts.delivery.dispatcher import Dispatcher, hand_out
from alerts.delivery.hub_access import Context
from alerts.delivery.self_check import SelfChecker
from alerts.messages.channel import Channel, Delivered, Outcome
from alerts.messages.message import Message
from alerts.routing.notice import Notice
from alerts.routing.situation import SituationReader
from alerts.service import decide_transitions
from gpuvigil.clock import ManualClock, to_text
from gpuvigil.config import AlertsSettings, load
from gpuvigil.errors import HubRefused
from gpuvigil.hub_client import Hub
from gpuvigil.log import Log
from gpuvigil.model import Record, RecordKind
from gpuvigil.model.subject import SIMULATED_CLUSTER
from hub.records import LeaseLostError, RecordBook
from hub.records.database import open_sqlite
from hub.records.record_book import held_by, under
from hub.records.tables import record

from .fleet import Played
from .shelf import ShelfHub, Shelves

# The watch looks every 5 s; what it finds here, digests, is there once a day.
WATCHED = timedelta(hours=1)
CLUSTER = "lab"
# As it is shipped, and as a site may set it up; `month/*.toml`.
CONFIGURATIONS = ("shipped", "site")
# After the month's end, for the last day's digest and what waits for the next morning.
AFTER = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Every version of every notice that was written, and when which record is due."""

    notices: list[Notice] = field(default_factory=list)
    due: dict[RecordKind, dict[str, datetime]] = field(default_factory=lambda: defaultdict(dict))

    def enter(self, records: Sequence[Record]) -> Sequence[Record]:
        """Note what is written, and give it back."""
        for one in records:
            self.leave(one.kind, [one.id])
            if one.due_at is not None:
                self.due[one.kind][one.id] = one.due_at
            if one.kind is RecordKind.NOTICE:
                self.notices.append(Notice.from_record(one))
        return records

    def leave(self, kind: RecordKind, ids: Iterable[str]) -> None:
        """These are due no more."""
        for id_ in ids:
            self.due[kind].pop(id_, None)

    def next(self, kind: RecordKind) -> datetime | None:
        """When the next record of a kind is due."""
        return min(self.due[kind].values(), default=None)


class SimulatedHub(Hub):
    """The hub's records at hand, by a clock of one's own."""

    def __init__(self, book: RecordBook, clock: ManualClock, ledger: Ledger) -> None:
        super().__init__("http://127.0.0.1:1", str)
        self._book = book
        self._clock = clock
        self._ledger = ledger

    def write_records(self, records: Iterable[Record]) -> int:
        return self._book.write(self._ledger.enter(list(records)))[0]

    def records(
        self,
        kind: RecordKind,
        *,
        parent: str | None = None,
        subject: str | None = None,
        holder: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        states: Collection[str] = (),
        limit: int = 10_000,
    ) -> tuple[Record, ...]:
        wanted: list[ColumnElement[bool]] = [record.c.kind == kind.value]
        wanted += [] if parent is None else [record.c.parent == parent]
        wanted += [] if subject is None else [under(subject)]
        wanted += [] if holder is None else [held_by(holder)]
        wanted += [] if since is None else [record.c.at >= to_text(since)]
        wanted += [] if until is None else [record.c.at < to_text(until)]
        wanted += [record.c.state.in_(sorted(states))] if states else []
        return _records(self._book.find(wanted, limit))

    def record(self, kind: RecordKind, id_: str) -> Record | None:
        found = _records(self._book.find([record.c.kind == kind.value, record.c.id == id_], 1))
        return found[0] if found else None

    def claim(
        self,
        kind: RecordKind,
        owner: str,
        *,
        lease_seconds: float,
        limit: int = 100,
        wait_seconds: float = 0.0,
    ) -> tuple[Record, ...]:
        del wait_seconds  # nothing else happens meanwhile
        lease = timedelta(seconds=lease_seconds)
        return _records(self._book.claim(kind, owner, self._clock.now(), lease, limit))

    def finish(
        self, kind: RecordKind, owner: str, ids: Sequence[str], records: Iterable[Record] = ()
    ) -> None:
        written = list(records)
        try:
            self._book.finish(kind, owner, ids, written, self._clock.now())
        except LeaseLostError as error:
            raise HubRefused("the lease is lost", 409) from error
        self._ledger.leave(kind, ids)
        self._ledger.enter(written)

    def status(self) -> Mapping[str, Any]:
        return {"nodes": []}


class NotedHub(ShelfHub):
    """The hub's records in memory, with a ledger beside them."""

    def __init__(self, shelves: Shelves, clock: ManualClock, ledger: Ledger) -> None:
        super().__init__(shelves, clock)
        self._ledger = ledger

    def write_records(self, records: Iterable[Record]) -> int:
        return super().write_records(self._ledger.enter(list(records)))

    def finish(
        self, kind: RecordKind, owner: str, ids: Sequence[str], records: Iterable[Record] = ()
    ) -> None:
        super().finish(kind, owner, ids)
        self._ledger.leave(kind, ids)
        self.write_records(records)


class Recorder:
    """What stands in for a configured channel: its profile and its pace, and a list for its post."""

    def __init__(self, real: Channel, clock: ManualClock) -> None:
        self.profile, self.timeout_seconds, self.pace = (
            real.profile,
            real.timeout_seconds,
            real.pace,
        )
        self._clock = clock
        self.told: list[tuple[datetime, Message]] = []
        real.close()

    def deliver(self, message: Message) -> Outcome:
        self.told.append((self._clock.now(), message))
        return Delivered(receipt=str(len(self.told)))

    def close(self) -> None:
        """There is nothing to close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What came of it: every version of every notice, and each channel's messages."""

    notices: Sequence[Notice]
    messages: Mapping[str, Sequence[tuple[datetime, Message]]]


@dataclass(slots=True)
class _Office:
    """The parts of one alerts process, moved by hand."""

    context: Context
    clock: ManualClock
    ledger: Ledger
    recorders: Sequence[Recorder]
    dispatchers: Mapping[str, Dispatcher] = field(init=False)
    watch: SelfChecker = field(init=False)
    situations: SituationReader = field(init=False)
    hub: Hub = field(init=False)

    def __post_init__(self) -> None:
        self.hub = self.context.connect()
        self.dispatchers = {
            one.profile.name: Dispatcher(one, self.context) for one in self.recorders
        }
        self.watch = SelfChecker(self.context, list(self.dispatchers.values()))
        self.situations = SituationReader(self.context.connect(), self.context.settings)

    def work(self) -> None:
        """Decide on everything that came, and deliver all that is due."""
        routes = [one.profile for one in self.recorders]
        while self._is_due(RecordKind.TRANSITION):
            decide_transitions(self.hub, self.context, routes, self.situations)
        while self._is_due(RecordKind.NOTICE) or self._waiting():
            hand_out(self.hub, self.context, self.dispatchers)
            for dispatcher in self.dispatchers.values():
                if dispatcher.pulse()["waiting"]:
                    _unless_taken(dispatcher)

    def next_due(self) -> datetime | None:
        """When a notice is to be looked at again."""
        return self.ledger.next(RecordKind.NOTICE)

    def _is_due(self, kind: RecordKind) -> bool:
        at = self.ledger.next(kind)
        return at is not None and at <= self.clock.now()

    def _waiting(self) -> bool:
        return any(one.pulse()["waiting"] for one in self.dispatchers.values())


def configuration(name: str, folder: Path) -> AlertsSettings:
    """One of `CONFIGURATIONS`; its secrets lie in `folder`."""
    (folder / "routing-key").write_text(f"{0:032x}\n", encoding="ascii")
    file = folder / f"{name}.toml"
    file.write_bytes(Path(__file__).with_name(f"{name}.toml").read_bytes())
    return load(file).alerts


def run(played: Played, settings: AlertsSettings, folder: Path | None = None) -> Told:
    """Let alerts tell of a month; its records are in SQLite in `folder`, or in memory."""
    clock, ledger = ManualClock(played.start), Ledger()
    if folder is None:
        shelves = Shelves()
        return _run(played, settings, clock, ledger, lambda: NotedHub(shelves, clock, ledger))
    book = RecordBook(open_sqlite(folder / "records.sqlite"))
    try:
        return _run(played, settings, clock, ledger, lambda: SimulatedHub(book, clock, ledger))
    finally:
        book.close()


def _run(
    played: Played,
    settings: AlertsSettings,
    clock: ManualClock,
    ledger: Ledger,
    connect: Callable[[], Hub],
) -> Told:
    recorders = [Recorder(one, clock) for one in configured(settings)]
    context = Context(
        connect=connect,
        owner="alerts",
        settings=settings,
        clock=clock,
        stop=threading.Event(),
        log=Log("alerts"),
    )
    office = _Office(context=context, clock=clock, ledger=ledger, recorders=recorders)
    office.hub.write_records(as_real(one.to_record()) for one in played.inventories)
    _live(office, _coming(played), played.end + AFTER)
    return Told(notices=ledger.notices, messages={one.profile.name: one.told for one in recorders})


def _live(
    office: _Office, coming: list[tuple[datetime, int, tuple[Record, ...]]], end: datetime
) -> None:
    """From one moment to the next at which there is something to do."""
    clock, watched = office.clock, office.clock.now()
    while True:
        known = [at for at in (office.next_due(), watched) if at is not None]
        at = min([*known, *(it[0] for it in coming[:1])])
        if at > end:
            return
        clock.advance(max((at - clock.now()).total_seconds(), 0.0))
        while coming and coming[0][0] <= clock.now():
            office.hub.write_records(heapq.heappop(coming)[2])
        if watched <= clock.now():
            office.watch.step()
            watched += WATCHED
        office.work()


def _coming(played: Played) -> list[tuple[datetime, int, tuple[Record, ...]]]:
    """What is written and when, as a heap; of one moment in the order of their story."""
    coming: list[tuple[datetime, tuple[Record, ...]]] = [
        (one.at, (one.to_record(),)) for one in played.silences
    ]
    # Each with the incident as it then was, which the analyzer writes with it.
    coming += [
        (one.at, (as_real(Record.from_json(one.snapshot)), as_real(one.to_record())))
        for one in played.steps
    ]
    heap = [(at, number, records) for number, (at, records) in enumerate(coming)]
    heapq.heapify(heap)
    return heap


def as_real(record: Record) -> Record:
    """The same of a cluster that is not simulated: of one that is, no pager would hear."""
    text = json.dumps(record.to_json()).replace(f"{SIMULATED_CLUSTER}/", f"{CLUSTER}/")
    return Record.from_json(json.loads(text))


def _unless_taken(dispatcher: Dispatcher) -> None:
    """As the service's loops: a lease that ended while a receiver's pace was kept is claimed anew."""
    try:
        dispatcher.step()
    except HubRefused as error:
        if error.status != 409:
            raise


def _records(found: Iterable[Mapping[str, Any]]) -> tuple[Record, ...]:
    """What `RecordBook` found; it leaves bodies as the text that they are kept as."""
    return tuple(Record.from_json({**one, "body": json.loads(one["body"])}) for one in found)
