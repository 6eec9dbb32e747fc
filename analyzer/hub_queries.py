"""Everything the analyzer asks the hub: numbers for a pass, records for a start."""

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
from gpuvigil.lifecycle import STANDING, TRANSITIONS, Patience, Signal, State
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
# A measurement, and how far back; see `question_of`.
Question = tuple[str, Span | timedelta]

# Answers over hours cost much and change little: they take a hundredth of the time, and are no older than this.
ASKED_RARELY = frozenset({Span.UNDERUSED})
_SHARE_OF_TIME, _OLDEST_SECONDS = 0.01, 600.0

# What wakes the analyzer, or tells it about the fleet.
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
    }
)
# An incident in one of these can be taken.
_TAKEABLE = frozenset(s for s, signal in TRANSITIONS if signal is Signal.ACKNOWLEDGED)
# The most that the hub gives in one answer.
_MOST_RECORDS = 100_000


class Earlier:
    """What passes before this one leave to it. One thread at a time.

    Subjects that are still there are not named anew, and answers over hours are kept until they may
    be asked for again.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.indices = Indices()
        self._monotonic = monotonic
        self._kept: dict[Question, tuple[float, Rows]] = {}

    def over_hours(self, question: Question, ask: Callable[[], Rows]) -> Rows:
        """What `ask` says, or what it said a while ago."""
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
    """Needs of one question get one answer; the newest lines, and what is asked rarely, stand apart."""
    apart = need.span is Span.NOW or need.span in ASKED_RARELY
    return need.measurement, need.span if apart else span_of(need.span, settings)


def together(needs: Iterable[Need], settings: AnalyzerSettings) -> dict[Question, Need]:
    """What is asked: of spans that are as long as each other everything at once."""
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
    """One answer per question, for all detectors; not of the nodes `without`, by key.

    Each of the `stores` is asked one question at a time, all of them at once: most of a pass is waiting for answers.
    What is asked of hours may be an answer that an `earlier` pass had.
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
    """The rows of the others; of those nodes only a selftest has any, and mostly nobody."""
    if not nodes:
        return table
    marked = pc.equal(table["cluster"], SELFTEST_CLUSTER)
    if not pc.any(marked).as_py():
        return table
    names = [Subject.parse(key).node for key in nodes]
    gone = pc.and_(marked, pc.is_in(table["node"], value_set=pa.array(names, pa.string())))
    return table.filter(pc.invert(gone))


def without_old_selftests(reading: Reading) -> Reading:
    """What a pass read, with nothing of the nodes of selftests that are over."""
    gone = over(reading.heard, reading.now)
    if not gone:
        return reading
    return replace(
        reading,
        heard={key: at for key, at in reading.heard.items() if key not in gone},
        clocks={key: ahead for key, ahead in reading.clocks.items() if key not in gone},
        over=gone,
    )


def span_of(span: Span, settings: AnalyzerSettings) -> timedelta:
    """How long a span is; the newest line may be as old as the recent span is long."""
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
    """The time of the newest line of all."""
    times = [
        float(answer.values("at").max())
        for (_, span), answer in answers.items()
        if span is Span.NOW and len(answer)
    ]
    return EPOCH + timedelta(microseconds=max(times)) if times else None


def subjects(answers: Mapping[Key, Rows]) -> int:
    """How many subjects have a line."""
    return sum(len(answer) for (_, span), answer in answers.items() if span is Span.NOW)


class Ear:
    """When the hub last heard each node, in our own clock, and since when it has listened."""

    def __init__(self, patience: timedelta) -> None:
        self._patience = patience
        self._listened_at: datetime | None = None
        self._since: datetime | None = None

    def hear(self, status: Mapping[str, Any], now: datetime) -> Reading:
        """What the hub's status says about who reports.

        A hub or an analyzer that was away for longer than the patience starts to listen anew:
        what it did not hear meanwhile is nobody's silence.
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
            heard=heard,
            listening_since=self._since,
            clocks=wrong_clocks(status),
            ahead=offset,
        )


def offsets(status: Mapping[str, Any]) -> dict[str, timedelta]:
    """How far each node's clock is ahead of the hub's, by node."""
    return {
        _node(node).key: timedelta(seconds=node["offset_seconds"])
        for node in status["nodes"]
        if node.get("offset_seconds") is not None
    }


def wrong_clocks(status: Mapping[str, Any]) -> dict[str, float]:
    """How many seconds the clocks that the hub calls wrong are ahead of its own, by node."""
    return {
        _node(node).key: node["offset_seconds"]
        for node in status.get("wrong_clocks", ())  # a hub of an older version tells of none
    }


def _node(node: Mapping[str, Any]) -> Subject:
    return Subject(cluster=node["cluster"], node=node["node"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What the hub has at a start, and the sequence after which changes are news."""

    sequence: int
    records: tuple[Record, ...]
    book: Book
    lately: tuple[Incident, ...]  # all that began within the span of repeat offenders
    acknowledgements: tuple[Acknowledgement, ...]  # of incidents that nobody has taken yet
    unreadable: tuple[str, ...]  # ids of incidents and transitions that another version wrote


def beginning(hub: Hub, now: datetime, patience: Patience) -> Beginning:
    """Everything to go on with after a start, as if there had been none."""
    # The sequence comes first: what is committed meanwhile is read twice rather than never.
    sequence = hub.changes(-1, KINDS, wait_seconds=0.0).sequence
    standing = [state.value for state in STANDING]
    unreadable: list[str] = []
    kept = hub.records(RecordKind.INCIDENT, states=standing, limit=_MOST_RECORDS)
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
        # Those that ended last may have been hit.
        *hub.records(RecordKind.ALLOCATION, states=[AllocationState.ENDED]),
        *hub.records(RecordKind.ALLOCATION, states=[AllocationState.HELD], limit=_MOST_RECORDS),
        *hub.records(RecordKind.EVENT, since=since, limit=_MOST_RECORDS),
    ]
    # A fault that stands for longer than a day still rests on its events.
    for incident in incidents:
        if incident.since < since:
            node = incident.subject.of_node().key
            # The last word of a node may lie before its last body, from which its silence counts.
            before = incident.since - LAST_WORDS - BATCH
            records += hub.records(RecordKind.EVENT, subject=node, since=before)
    return Beginning(
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
    """Those that can be read; the ids of the others go to `unreadable`."""
    values = []
    for record in records:
        try:
            values.append(from_record(record))
        except UNREADABLE:
            unreadable.append(record.id)
    return values


def not_over(known: Sequence[Incident], now: datetime, patience: Patience) -> list[Incident]:
    """Those that stand, that may return by themselves, or that one of these covers, or covered."""
    kept = [
        incident
        for incident in known
        if State(incident.state) in STANDING
        or _may_return(incident, now, comes_back_within(incident, patience))
    ]
    # An older version did not write what covers an incident: its own node may.
    nodes = {i.subject.of_node() for i in kept if State(i.state) in STANDING}
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
