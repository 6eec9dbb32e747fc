"""The hub at a moment of the past: it answers as it would have then, as far as that is known."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import from_text, to_text
from gpuvigil.errors import HubRefused
from gpuvigil.hub_client import Changes, Hub
from gpuvigil.hub_client.seen import SeenHub
from gpuvigil.lifecycle import STANDING, State
from gpuvigil.metrics import NODE
from gpuvigil.model import ENDED_STATES, AllocationState, Record, RecordKind, Subject
from gpuvigil.store.external import TellsStore, store_of
from gpuvigil.store.past import PastStore

from . import as_of

UNCHANGEABLE = "this page shows the past, where nothing can be changed: go back to now first"
# What ended since is read from the newest back to the moment: so many at first, and at most.
FIRST, MOST = 2_000, 100_000
# Steps of incidents that are read at once; of the others each incident's are asked for.
_STEPS = 2_000
# A node that was silent for longer then was not heard.
_HEARD = timedelta(hours=6)
_JUST_AFTER = timedelta(microseconds=1)
_STANDING = tuple(sorted(state.value for state in STANDING))
_OVER = (State.RESOLVED.value, State.DISMISSED.value)
_GOING_ON = ("RUNNING", "COMPLETING", "SUSPENDED", "PENDING")
_PER_SPAN = frozenset({RecordKind.USAGE, RecordKind.USAGE_SPAN, RecordKind.WASTE})


@dataclass(slots=True)
class Moment:
    """The time, and what is known of it already: shared by the clients of all who look at it."""

    at: datetime
    lock: threading.Lock = field(default_factory=threading.Lock)
    steps: dict[str, Record | None] | None = None  # the last step of each incident by then
    setups: dict[str, list[Record]] | None = None  # by node, oldest first
    cut: set[str] = field(default_factory=set)  # in words, of what more ended since than is read


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A question for records."""

    kind: RecordKind
    states: Collection[str]
    limit: int
    filters: Mapping[str, Any]

    def takes(self, state: object) -> bool:
        """Whether one in this state is asked for."""
        return not self.states or state in self.states


class PastHub(SeenHub, TellsStore):
    """Asks `behind`, and gives no answer that was not true at the moment."""

    def __init__(self, behind: Hub, moment: Moment) -> None:
        super().__init__(behind, tuple, _refused)
        self.store = PastStore(store_of(behind), moment.at)
        self._moment = moment
        self._then = moment.at

    @property
    def cut(self) -> list[str]:
        """In words, what more ended since than is read, so that it is not all known."""
        return [
            f"More than {MOST:,} {what} ended since: not all of that time are known."
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
        """Only a collector asks."""
        raise _refusal()

    def changes(
        self, after: int, kinds: Collection[RecordKind], wait_seconds: float = 0.0
    ) -> Changes:
        """In the past nothing changes."""
        return Changes(records=(), sequence=max(after, 0))

    def status(self) -> Mapping[str, Any]:
        """See `Hub.status`: the time is the moment's, and nodes are heard as their rows say."""
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
        standing = self.behind.records(asked.kind, states=_STANDING, limit=MOST, **asked.filters)
        known = {one.id: one for one in (*ended, *standing)}
        then = (self._incident(one) for one in known.values())
        return [one for one in then if one is not None and asked.takes(one.body.get("state"))]

    def _incident(self, record: Record) -> Record | None:
        """As its last step by then left it; of what was over by then nothing has changed."""
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
        # The last one of a node is from after the moment.
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
        """What is over now: all that ended after the moment, and as much from before as is asked for.

        They come in the order in which their ends were told, which may be some time after them:
        therefore a whole half of them has to be older.
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
# What is kept in its newest version and can be told of the moment all the same.
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
