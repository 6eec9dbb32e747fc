"""A hub client for a moment of the past: it answers as the hub would have then, as far as that is known."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import from_text, to_text
from gpuvigil.errors import HubRefused
from gpuvigil.hub_client import Changes, Hub
from gpuvigil.hub_client.seen import FilteredHub
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.metrics import NODE
from gpuvigil.model import ENDED_STATES, AllocationState, Record, RecordKind, Subject
from gpuvigil.store.external import HasStore, store_of
from gpuvigil.store.past import PastStore

from . import as_of

UNCHANGEABLE = "this page shows the past, where nothing can be changed: go back to now first"
# Records that ended since are read from the newest back to the moment: so many at first, and at most.
FIRST, MOST = 2_000, 100_000
# The newest transitions that are read at once; other incidents' transitions are asked for one by one.
_STEPS = 2_000
# Nodes without a row in this time before the moment do not count as heard.
_HEARD = timedelta(hours=6)
_JUST_AFTER = timedelta(microseconds=1)
_ACTIVE = tuple(sorted(state.value for state in ACTIVE))
_OVER = (State.RESOLVED.value, State.DISMISSED.value)
_GOING_ON = ("RUNNING", "COMPLETING", "SUSPENDED", "PENDING")
_PER_SPAN = frozenset({RecordKind.USAGE, RecordKind.USAGE_SPAN, RecordKind.WASTE})


@dataclass(slots=True)
class Moment:
    """A moment and what was read about it, shared by all clients that look at it."""

    at: datetime
    lock: threading.Lock = field(default_factory=threading.Lock)
    steps: dict[str, Record | None] | None = None  # by incident: its last transition by then
    setups: dict[str, list[Record]] | None = None  # by node: its setups, oldest first
    # In words: kinds of records of which too many ended since to read all.
    cut: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A query for records."""

    kind: RecordKind
    states: Collection[str]
    limit: int
    filters: Mapping[str, Any]

    def takes(self, state: object) -> bool:
        """Return whether records in this state are asked for."""
        return not self.states or state in self.states


class PastHub(FilteredHub, HasStore):
    """Asks `behind` and returns only what was true at the moment."""

    def __init__(self, behind: Hub, moment: Moment) -> None:
        super().__init__(behind, tuple, _refused)
        self.store = PastStore(store_of(behind), moment.at)
        self._moment = moment
        self._then = moment.at

    @property
    def cut(self) -> list[str]:
        """Warnings about records of which too many ended since to know all of that time."""
        return [
            f"More than {MOST:,} {what} ended since: some of that time are missing here."
            for what in sorted(self._moment.cut)
        ]

    def records(  # noqa: PLR0913 - as `Hub.records`
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
        """See `Hub.records`."""
        end = self._then + _JUST_AFTER
        filters: Mapping[str, Any] = {
            "parent": parent,
            "subject": subject,
            "holder": holder,
            "since": since,
            "until": end if until is None else min(until, end),
        }
        if kind in _REBUILT:
            asked = _Asked(kind=kind, states=states, limit=limit, filters=filters)
            return tuple(_REBUILT[kind](self, asked))[-limit:]
        found = self.behind.records(kind, states=states, limit=limit, **filters)
        if kind in _PER_SPAN:
            return tuple(one for one in found if as_of.counted(one, self._then))
        return found

    def record(self, kind: RecordKind, id_: str) -> Record | None:
        """See `Hub.record`."""
        found = self.behind.record(kind, id_)
        if found is None or (found.at > self._then and kind is not RecordKind.INVENTORY):
            return None
        rebuild = _ONE.get(kind)
        return found if rebuild is None else rebuild(self, found)

    def inventory(self, node: Subject) -> Record | None:
        """See `Hub.inventory`."""
        found = self.behind.inventory(node)
        return None if found is None else self._inventory(found)

    def had(self, node: Subject) -> tuple[Record, ...]:
        """Refuse: only a collector asks this."""
        raise _refusal()

    def changes(
        self, after: int, kinds: Collection[RecordKind], wait_seconds: float = 0.0
    ) -> Changes:
        """Return no changes, as nothing changes in the past."""
        return Changes(records=(), sequence=max(after, 0))

    def status(self) -> Mapping[str, Any]:
        """See `Hub.status`: `now` is the moment, and nodes were heard at their last row before it."""
        now = self.behind.status()
        rows = self.store.window(NODE.name, (), self._then - _HEARD, self._then)
        columns = (rows[name].to_pylist() for name in ("cluster", "node", "last_at"))
        nodes = [
            {"cluster": cluster, "node": node, "lane": "live", "received_at": to_text(heard)}
            for cluster, node, heard in zip(*columns, strict=True)
        ]
        started = min(from_text(now["started_at"]), self._then)
        return {**now, "now": to_text(self._then), "started_at": to_text(started), "nodes": nodes}

    def _incidents(self, asked: _Asked) -> Iterable[Record]:
        ended = self._ended(asked, "resolved_at", _OVER)
        active = self.behind.records(asked.kind, states=_ACTIVE, limit=MOST, **asked.filters)
        known = {one.id: one for one in (*ended, *active)}
        then = (self._incident(one) for one in known.values())
        return [one for one in then if one is not None and asked.takes(one.body.get("state"))]

    def _incident(self, record: Record) -> Record | None:
        """Return an incident as its last transition by then left it; one that was over then is unchanged."""
        if as_of.over(record, "resolved_at", self._then) and record.body.get("state") in _OVER:
            return record
        step = self._step(record.id)
        return None if step is None else as_of.incident(step)

    def _step(self, incident: str) -> Record | None:
        kind, end, moment = RecordKind.TRANSITION, self._then + _JUST_AFTER, self._moment
        with moment.lock:
            if moment.steps is None:
                newest = self.behind.records(kind, until=end, limit=_STEPS)
                moment.steps = {str(one.parent): one for one in sorted(newest, key=_number)}
            if incident not in moment.steps:
                own = self.behind.records(kind, parent=incident, until=end)
                moment.steps[incident] = max(own, key=_number, default=None)
            return moment.steps[incident]

    def _allocations(self, asked: _Asked) -> Iterable[Record]:
        held, ended = AllocationState.HELD.value, AllocationState.ENDED.value
        now = self.behind.records(asked.kind, states=[held], limit=MOST, **asked.filters)
        past = self._ended(asked, "ended_at", [ended])
        then = [as_of.allocation(one, self._then) for one in (*past, *now)]
        return [one for one in then if asked.takes(ended if one.body.get("ended_at") else held)]

    def _jobs(self, asked: _Asked) -> Iterable[Record]:
        going = self.behind.records(asked.kind, states=_GOING_ON, limit=MOST, **asked.filters)
        past = self._ended(asked, "ended_at", sorted(ENDED_STATES))
        then = [as_of.job(one, self._then) for one in (*past, *going)]
        return [one for one in then if asked.takes(one.body.get("state"))]

    def _notices(self, asked: _Asked) -> Iterable[Record]:
        found = self.behind.records(asked.kind, states=asked.states, limit=MOST, **asked.filters)
        return [one for one in found if as_of.notice(one, self._then)]

    def _inventories(self, asked: _Asked) -> Iterable[Record]:
        # The hub keeps only a node's last inventory, which may be younger than the moment.
        filters = {**asked.filters, "until": None}
        found = self.behind.records(asked.kind, limit=MOST, **filters)
        return [one for one in map(self._inventory, found) if one is not None]

    def _inventory(self, record: Record) -> Record | None:
        with self._moment.lock:
            if self._moment.setups is None:
                self._moment.setups = {}
                told = self.behind.records(RecordKind.SETUP, limit=MOST)
                for one in sorted(told, key=lambda it: it.at):
                    self._moment.setups.setdefault(one.subject, []).append(one)
            setups = self._moment.setups.get(record.subject, [])
        return as_of.inventory(record, setups, self._then)

    def _ended(self, asked: _Asked, key: str, over: Sequence[str]) -> tuple[Record, ...]:
        """Return records that are over now: all that ended after the moment, and as many older ones as asked.

        They are sorted by when their ends were reported, which may be later than the ends. So reading
        stops only if the whole older half of them had ended by the moment.
        """
        older = asked.limit if any(map(asked.takes, over)) else 0
        limit = min(max(FIRST, 2 * older), MOST)
        while True:
            found = self.behind.records(asked.kind, states=over, limit=limit, **asked.filters)
            first = (as_of.over(one, key, self._then) for one in found[: limit // 2])
            if len(found) < limit or all(first):
                return found
            if limit >= MOST:
                self._moment.cut.add(_CUT[asked.kind])
                return found
            limit = min(8 * limit, MOST)


def _number(step: Record) -> int:
    return int(step.body.get("number") or 0)


def _refusal() -> HubRefused:
    return HubRefused(UNCHANGEABLE, 403)


def _refused(_records: Iterable[Record]) -> tuple[Record, ...]:
    raise _refusal()


_Rebuild = Callable[[PastHub, _Asked], Iterable[Record]]
# Kinds that are kept only in their newest version, with how to rebuild them for the moment.
_REBUILT: Mapping[RecordKind, _Rebuild] = {
    RecordKind.INCIDENT: PastHub._incidents,
    RecordKind.ALLOCATION: PastHub._allocations,
    RecordKind.JOB: PastHub._jobs,
    RecordKind.NOTICE: PastHub._notices,
    RecordKind.INVENTORY: PastHub._inventories,
}
_ONE: Mapping[RecordKind, Callable[[PastHub, Record], Record | None]] = {
    RecordKind.INCIDENT: PastHub._incident,
    RecordKind.ALLOCATION: lambda hub, one: as_of.allocation(one, hub._then),
    RecordKind.JOB: lambda hub, one: as_of.job(one, hub._then),
    RecordKind.INVENTORY: PastHub._inventory,
}
_CUT = {
    RecordKind.INCIDENT: "incidents",
    RecordKind.ALLOCATION: "jobs and processes",
    RecordKind.JOB: "jobs",
}
