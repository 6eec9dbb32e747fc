"""Keep what happened in the last hours up to date by following the hub's changes."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import Clock
from gpuvigil.hub_client import Hub
from gpuvigil.model import (
    UNREADABLE,
    Allocation,
    AllocationState,
    Event,
    Record,
    RecordKind,
    Subject,
    Transition,
)

from .allocation_changes import AllocationChanges
from .changes import BACK, Happened, summarize_transition

# The most records of one kind that are asked for when the feed starts.
MOST = 20_000
# How often records that are too old to be shown are dropped.
FORGET_EVERY = timedelta(minutes=1)
KINDS = frozenset({RecordKind.TRANSITION, RecordKind.EVENT, RecordKind.ALLOCATION})

_READERS: Mapping[RecordKind, Callable[[Record], Any]] = {
    RecordKind.TRANSITION: lambda record: summarize_transition(Transition.from_record(record)),
    RecordKind.EVENT: Event.from_record,
    RecordKind.ALLOCATION: Allocation.from_record,
}


class ChangeFeed:
    """What happened in the last hours. For one thread at a time; pass `advance` to `questions.Questions.ask`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sequence: int | None = None
        self._kept: dict[RecordKind, dict[str, tuple[int, Any]]] = {}
        self._allocation_changes = AllocationChanges()
        self._forgot_at: datetime | None = None
        self._happened: Mapping[str, Happened] | None = None

    def advance(self, hub: Hub) -> Mapping[str, Happened]:
        """Return what happened up to now, by cluster; HubError leaves the feed as it was."""
        now = self._clock.now()
        if self._sequence is None:
            self._load(hub, now)
        else:
            changes = hub.changes(self._sequence, KINDS, 0.0)
            if changes.sequence < self._sequence:
                # The hub has other records than those that were read, such as after a restore.
                self._sequence = None
                return self.advance(hub)
            self._apply(changes.records)
            self._sequence = changes.sequence
        self._forget(now)
        if self._happened is None:
            self._happened = self._by_cluster()
        return self._happened

    def _load(self, hub: Hub, now: datetime) -> None:
        sequence = hub.changes(-1, KINDS, 0.0).sequence
        since = now - BACK
        held, ended = [[state.value] for state in AllocationState]
        records = [
            *hub.records(RecordKind.TRANSITION, since=since, limit=MOST),
            *hub.records(RecordKind.EVENT, since=since, limit=MOST),
            *hub.records(RecordKind.ALLOCATION, states=held, limit=MOST),
            # Ended ones are sorted by their end: a long job that ended just now began long ago.
            *hub.records(RecordKind.ALLOCATION, states=ended, limit=MOST),
        ]
        self._kept, self._allocation_changes = {kind: {} for kind in KINDS}, AllocationChanges()
        self._apply(records)
        self._sequence = sequence

    def _apply(self, records: Iterable[Record]) -> None:
        for record in records:
            kept = self._kept[record.kind]
            if record.id in kept and kept[record.id][0] > record.version:
                continue
            try:
                value = _READERS[record.kind](record)
            except UNREADABLE:  # one unreadable record must not stop the others
                continue
            self._put(record.kind, record.id, (record.version, value))

    def _put(self, kind: RecordKind, id_: str, entry: tuple[int, Any] | None) -> None:
        kept = self._kept[kind]
        before = kept.get(id_)
        if entry is None:
            del kept[id_]
        else:
            kept[id_] = entry
        if kind is RecordKind.ALLOCATION:
            self._allocation_changes.put(id_, before and before[1], entry and entry[1])
        self._happened = None

    def _forget(self, now: datetime) -> None:
        if self._forgot_at is not None and now - self._forgot_at < FORGET_EVERY:
            return
        self._forgot_at = now
        since = now - BACK
        for kind, kept in self._kept.items():
            for id_ in [id_ for id_, (_, value) in kept.items() if _ended(value, now) < since]:
                self._put(kind, id_, None)

    def _by_cluster(self) -> Mapping[str, Happened]:
        transitions, events = map(self._listed, (RecordKind.TRANSITION, RecordKind.EVENT))
        allocation_changes = self._allocation_changes.by_cluster()
        return {
            cluster: Happened(
                transitions=transitions.get(cluster, ()),
                events=events.get(cluster, ()),
                allocation_changes=allocation_changes.get(cluster, ()),
            )
            for cluster in {*transitions, *events, *allocation_changes}
        }

    def _listed(self, kind: RecordKind) -> dict[str, tuple[Any, ...]]:
        """Return the kept values of a kind, by cluster."""
        found: dict[str, list[Any]] = {}
        for _, value in self._kept[kind].values():
            subject: Subject = value.subject
            found.setdefault(subject.cluster, []).append(value)
        return {cluster: tuple(values) for cluster, values in found.items()}


def _ended(value: Any, now: datetime) -> datetime:
    """Return when a value ended; `now` for an allocation that is still held."""
    at: datetime
    if isinstance(value, Allocation):
        return value.ended_at or now
    at = value.at
    return at
