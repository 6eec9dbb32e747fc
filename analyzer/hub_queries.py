"""The analyzer's queries to the hub: telemetry for a pass, records for a start."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from accounting.hardware.repeat_offenders import SPAN
from gpuvigil.clock import EPOCH, from_text
from gpuvigil.config import AnalyzerSettings
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE, TRANSITIONS, Patience, Signal, State
from gpuvigil.model import (
    SELFTEST_CLUSTER,
    UNREADABLE,
    Acknowledgement,
    AllocationState,
    Incident,
    Record,
    RecordKind,
    Subject,
    Transition,
)
from gpuvigil.model.selftest_nodes import over
from gpuvigil.store import Store

from .analysis import Reading
from .evidence.planned_silence import BATCH, LAST_WORDS
from .fleet_state import MEMORY
from .incidents.acknowledgement import pending
from .incidents.book import Book, rebuild
from .incidents.returning import comes_back_within
from .window.index import Indices
from .window.rows import Rows
from .window.window import Key, Need, Span

Value = TypeVar("Value")
# A measurement and how far back it is read; see `question_of`.
Question = tuple[str, Span | timedelta]

# Queries over hours are expensive and their answers change little: they may take a hundredth of the
# time, and an answer is used for at most 600 s.
ASKED_RARELY = frozenset({Span.UNDERUSED})
_SHARE_OF_TIME, _OLDEST_SECONDS = 0.01, 600.0

# The records that wake the analyzer or describe the fleet.
KINDS = frozenset(
    {
        RecordKind.EVENT,
        RecordKind.ALLOCATION,
        RecordKind.INVENTORY,
        RecordKind.ACKNOWLEDGEMENT,
        RecordKind.SCHEDULER,
        RecordKind.RMA,
        RecordKind.RETIREMENT,
        RecordKind.SWITCH,
        RecordKind.EQUIPMENT,
    }
)
# The states in which an incident can be acknowledged.
_TAKEABLE = frozenset(s for s, signal in TRANSITIONS if signal is Signal.ACKNOWLEDGED)
# The most that the hub gives in one answer.
_MOST_RECORDS = 100_000


class Earlier:
    """A cache that earlier passes leave to later ones. One thread at a time.

    Indices are reused while the subjects stay the same, and answers over hours are cached until
    they may be asked for again.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.indices = Indices()
        self._monotonic = monotonic
        self._kept: dict[Question, tuple[float, Rows]] = {}

    def over_hours(self, question: Question, ask: Callable[[], Rows]) -> Rows:
        """Return the cached answer to a question, or call `ask` once it is due."""
        begun = self._monotonic()
        due_at, kept = self._kept.get(question, (begun, None))
        if kept is not None and begun < due_at:
            return kept
        found = ask()
        ended = self._monotonic()
        rest = min((ended - begun) / _SHARE_OF_TIME, _OLDEST_SECONDS)
        self._kept[question] = (ended + rest, found)
        return found


def question_of(need: Need, settings: AnalyzerSettings) -> Question:
    """Return a need's measurement and length of span; needs of one question share one answer.

    The newest lines, and spans that are asked rarely, are questions of their own.
    """
    apart = need.span is Span.NOW or need.span in ASKED_RARELY
    return need.measurement, need.span if apart else span_of(need.span, settings)


def together(needs: Iterable[Need], settings: AnalyzerSettings) -> dict[Question, Need]:
    """Return one need per question, with the aggregates of all needs that share the question."""
    alike: dict[Question, list[Need]] = {}
    for need in needs:
        alike.setdefault(question_of(need, settings), []).append(need)
    return {
        question: replace(
            them[0], aggregates=tuple(sorted({it for need in them for it in need.aggregates}))
        )
        for question, them in alike.items()
    }


def rows(
    stores: Sequence[Store],
    needs: Mapping[Key, Need],
    now: datetime,
    settings: AnalyzerSettings,
    earlier: Earlier | None = None,
    without: Collection[str] = (),
) -> dict[Key, Rows]:
    """Return the rows of each need, asking each question once, except rows of the nodes `without`.

    The `stores` are asked in parallel, each one question at a time: most of a pass is waiting for
    answers. Questions over hours may get a cached answer of an `earlier` pass. `without` has keys.
    """
    before, free = earlier or Earlier(), SimpleQueue[Store]()
    for store in stores:
        free.put(store)

    def ask(need: Need) -> pa.Table:
        start, store = now - span_of(need.span, settings), free.get()
        try:
            if need.span is Span.NOW:
                return store.latest(need.measurement, need.fields, start)
            return store.window(need.measurement, need.aggregates, start, now)
        finally:
            free.put(store)

    def found(table: pa.Table) -> Rows:
        table = _without(table, without)
        return Rows(table, before.indices.of(table))

    def ask_anew(need: Need) -> Rows:
        return found(ask(need))

    asked = together(needs.values(), settings)
    often = {it: need for it, need in asked.items() if need.span not in ASKED_RARELY}
    with ThreadPoolExecutor(len(stores)) as threads:
        tables = dict(zip(often, threads.map(ask, often.values()), strict=True))
    answers = {question: found(table) for question, table in tables.items()}
    for question, need in asked.items():
        if question not in often:
            answers[question] = before.over_hours(question, partial(ask_anew, need))
    return {key: answers[question_of(need, settings)] for key, need in needs.items()}


def _without(table: pa.Table, nodes: Collection[str]) -> pa.Table:
    """Return a table without the rows of these nodes, which are always nodes of a selftest."""
    if not nodes:
        return table
    marked = pc.equal(table["cluster"], SELFTEST_CLUSTER)
    if not pc.any(marked).as_py():
        return table
    names = [Subject.parse(key).node for key in nodes]
    gone = pc.and_(marked, pc.is_in(table["node"], value_set=pa.array(names, pa.string())))
    return table.filter(pc.invert(gone))


def without_old_selftests(reading: Reading) -> Reading:
    """Return a reading without the nodes of finished selftests, which it lists in `over`."""
    gone = over(reading.last_seen, reading.now)
    if not gone:
        return reading
    return replace(
        reading,
        last_seen={key: at for key, at in reading.last_seen.items() if key not in gone},
        clocks={key: ahead for key, ahead in reading.clocks.items() if key not in gone},
        over=gone,
    )


def span_of(span: Span, settings: AnalyzerSettings) -> timedelta:
    """Return a span's length; the newest line may be as old as the recent span is long."""
    return timedelta(
        seconds={
            Span.NOW: settings.window_seconds,
            Span.RECENT: settings.window_seconds,
            Span.IDLE: settings.idle_after_seconds,
            Span.UNDERUSED: settings.underused_after_seconds,
            Span.FLAP: settings.port_flap_window_seconds,
            Span.STEADY: settings.steady_seconds,
            Span.TREND: settings.trend_seconds,
        }[span]
    )


def newest_at(answers: Mapping[Key, Rows]) -> datetime | None:
    """Return the time of the newest line of all, None when there is none."""
    times = [
        float(answer.values("at").max())
        for (_, span), answer in answers.items()
        if span is Span.NOW and len(answer)
    ]
    return EPOCH + timedelta(microseconds=max(times)) if times else None


def subjects(answers: Mapping[Key, Rows]) -> int:
    """Return how many subjects have a newest line, over all measurements."""
    return sum(len(answer) for (_, span), answer in answers.items() if span is Span.NOW)


class NodeContacts:
    """When the hub last heard each node, on the analyzer's clock, and since when it listens."""

    def __init__(self, patience: timedelta) -> None:
        self._patience = patience
        self._listened_at: datetime | None = None
        self._since: datetime | None = None

    def read_status(self, status: Mapping[str, Any], now: datetime) -> Reading:
        """Return a reading without rows from the hub's status: who reports, and whose clock is wrong.

        After the hub was restarted, or the analyzer was away for longer than the patience,
        listening starts anew: what was not heard meanwhile is no node's silence.
        """
        offset = now - from_text(status["now"])
        started_at = from_text(status["started_at"]) + offset
        if self._listened_at is not None and now - self._listened_at > self._patience:
            self._since = now
        self._listened_at = now
        self._since = started_at if self._since is None else max(self._since, started_at)
        heard: dict[str, datetime] = {}
        for node in status["nodes"]:
            key = _node(node).key
            at = from_text(node["received_at"]) + offset
            heard[key] = max(heard.get(key, at), at)
        return Reading(
            now=now,
            last_seen=heard,
            listening_since=self._since,
            clocks=wrong_clocks(status),
            ahead=offset,
        )


def offsets(status: Mapping[str, Any]) -> dict[str, timedelta]:
    """Return how far each node's clock is ahead of the hub's, by node key."""
    return {
        _node(node).key: timedelta(seconds=node["offset_seconds"])
        for node in status["nodes"]
        if node.get("offset_seconds") is not None
    }


def wrong_clocks(status: Mapping[str, Any]) -> dict[str, float]:
    """Return by how many seconds each clock that the hub calls wrong is ahead, by node key."""
    return {
        _node(node).key: node["offset_seconds"]
        for node in status.get("wrong_clocks", ())  # a hub of an older version lists none
    }


def _node(node: Mapping[str, Any]) -> Subject:
    return Subject(cluster=node["cluster"], node=node["node"])


@dataclass(frozen=True, slots=True, kw_only=True)
class StartState:
    """The hub's content at a start, and the sequence after which changes are new."""

    sequence: int
    records: tuple[Record, ...]
    book: Book
    lately: tuple[Incident, ...]  # all that began within the span of repeat offenders
    acknowledgements: tuple[Acknowledgement, ...]  # of incidents not acknowledged yet
    unreadable: tuple[str, ...]  # ids of records that another version wrote


def read_start_state(hub: Hub, now: datetime, patience: Patience) -> StartState:
    """Read everything needed to continue after a start as if the analyzer had never stopped."""
    # The sequence is read first: what is committed meanwhile is read twice rather than never.
    sequence = hub.changes(-1, KINDS, wait_seconds=0.0).sequence
    active = [state.value for state in ACTIVE]
    unreadable: list[str] = []
    kept = hub.records(RecordKind.INCIDENT, states=active, limit=_MOST_RECORDS)
    over = hub.records(RecordKind.INCIDENT, states=[State.RESOLVED.value], limit=_MOST_RECORDS)
    known = _read(Incident.from_record, (*kept, *over), unreadable)
    incidents = not_over(known, now, patience)
    transitions: list[Transition] = []
    taken: list[Acknowledgement] = []
    for incident in incidents:
        steps = hub.records(RecordKind.TRANSITION, parent=incident.id)
        transitions += _read(Transition.from_record, steps, unreadable)
        if State(incident.state) in _TAKEABLE:
            said = hub.records(RecordKind.ACKNOWLEDGEMENT, parent=incident.id)
            taken += _read(Acknowledgement.from_record, pending(said, steps), unreadable)
    since = now - MEMORY
    records = [
        *hub.records(RecordKind.INVENTORY, limit=_MOST_RECORDS),
        *hub.records(RecordKind.SCHEDULER, limit=_MOST_RECORDS),
        *hub.records(RecordKind.RETIREMENT, limit=_MOST_RECORDS),
        *hub.records(RecordKind.SWITCH, since=since, limit=_MOST_RECORDS),
        *hub.records(RecordKind.EQUIPMENT, since=since, limit=_MOST_RECORDS),
        # The allocations that ended last may have been hit by a fault.
        *hub.records(RecordKind.ALLOCATION, states=[AllocationState.ENDED]),
        *hub.records(RecordKind.ALLOCATION, states=[AllocationState.HELD], limit=_MOST_RECORDS),
        *hub.records(RecordKind.EVENT, since=since, limit=_MOST_RECORDS),
    ]
    # A fault that stands for longer than a day still rests on its events.
    for incident in incidents:
        if incident.since < since:
            node = incident.subject.of_node().key
            # A node's last event may lie before its last body, from which its silence counts.
            before = incident.since - LAST_WORDS - BATCH
            records += hub.records(RecordKind.EVENT, subject=node, since=before)
    return StartState(
        sequence=sequence,
        records=tuple(records),
        book=rebuild(incidents, transitions, now, patience),
        lately=tuple(one for one in known if now - one.since <= SPAN),
        acknowledgements=tuple(taken),
        unreadable=tuple(unreadable),
    )


def _read(
    from_record: Callable[[Record], Value], records: Iterable[Record], unreadable: list[str]
) -> list[Value]:
    """Return the records that can be read; append the ids of the others to `unreadable`."""
    values = []
    for record in records:
        try:
            values.append(from_record(record))
        except UNREADABLE:
            unreadable.append(record.id)
    return values


def not_over(known: Sequence[Incident], now: datetime, patience: Patience) -> list[Incident]:
    """Return incidents that stand, may still return, or are or were covered by one of these."""
    kept = [
        incident
        for incident in known
        if State(incident.state) in ACTIVE
        or _may_return(incident, now, comes_back_within(incident, patience))
    ]
    # An older version did not write what covers an incident: one of the same node may.
    nodes = {i.subject.of_node() for i in kept if State(i.state) in ACTIVE}
    ids = {incident.id for incident in kept}
    unnamed = [i for i in known if not i.covered_by and i.id not in ids]
    kept += [i for i in unnamed if i.subject.of_node() in nodes and _may_return(i, now, MEMORY)]
    waiting = [incident for incident in known if incident.covered_by and incident.id not in ids]
    while waiting:
        prints = {incident.fingerprint for incident in kept}
        more = [incident for incident in waiting if incident.covered_by in prints]
        if not more:
            break
        kept += more
        waiting = [incident for incident in waiting if incident.covered_by not in prints]
    return kept


def _may_return(incident: Incident, now: datetime, window: timedelta) -> bool:
    return incident.resolved_at is not None and now - incident.resolved_at <= window
