"""Runs the analyzer's own code over blocks of telemetry, as fast as possible.

It runs `analyzer.analysis.Analysis` with its detectors, correlation and book, fed as the service feeds it: a pass
every tick with the rows that reached the hub before it, and a look at a node whenever one of its events arrives. Only
the service's threads and the hub are left out.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

import numpy as np
import pyarrow as pa

from analyzer.analysis import Analysis, Reading
from analyzer.correlation.all_detectors import DETECTORS, Detector, questions
from analyzer.window.window import Window
from gpuvigil.clock import EPOCH, micros
from gpuvigil.config import AnalyzerSettings, HubSettings
from gpuvigil.model import (
    Allocation,
    Event,
    Finding,
    Inventory,
    Record,
    RecordKind,
    Scheduler,
    Subject,
    Switch,
    Transition,
)

from .rolling_store import RollingStore, Subjects
from .tables import Numbers

# At least one of this many bodies of a node was sent at once.
_BODIES = 60
# The hub judges clocks (`hub.telemetry.clocks`) by this many of the newest bodies, of which the quickest
# counts. Nothing arrives before it was sent, so a clock that is far ahead is wrong.
_OF_CLOCK = 5
_WRONG_US = round(HubSettings().clock_wrong_seconds * 1e6)
# A replay does not know which bodies waited in a spool. A clock is behind where this many bodies in a row came late
# by the same time, and by more than their interval: what is read once a minute may wait for a sender that sends
# once a minute.
_BEHIND, _ALIKE_US = 10, 2_000_000
# Called with each detector's findings: the moment, the detector's name, and what it found.
Observe = Callable[[datetime, str, Sequence[Finding]], None]


def read_every(seconds: float) -> AnalyzerSettings:
    """Return the default settings for nodes that are read so often: the shortest span has at least four rows."""
    usual = AnalyzerSettings()
    window_seconds = max(usual.window_seconds, 4.0 * seconds)
    return replace(usual, tick_seconds=seconds, window_seconds=window_seconds)


class Telemetry(Protocol):
    """A block of what collectors measured and reported, from the simulated fleet or a recording.

    `arrivals` holds when each row of a table reached the hub, `event_arrivals` the same for events.
    """

    @property
    def start(self) -> datetime: ...
    @property
    def end(self) -> datetime: ...
    @property
    def tables(self) -> Mapping[str, pa.Table]: ...
    @property
    def arrivals(self) -> Mapping[str, pa.Array]: ...
    @property
    def events(self) -> tuple[Event, ...]: ...
    @property
    def event_arrivals(self) -> tuple[datetime, ...]: ...
    @property
    def inventories(self) -> tuple[Inventory, ...]: ...
    @property
    def allocations(self) -> tuple[Allocation, ...]: ...
    @property
    def schedulers(self) -> tuple[Scheduler, ...]: ...
    @property
    def switches(self) -> tuple[Switch, ...]: ...


class Replay:
    """One analyzer in fast time: feed it block after block, then read its transitions.

    `ahead` is the length of the longest block. Without `switches`, records of switches are left out. While the hub was
    away there are no passes, and the silence of nodes counts from its return, as in the service.
    """

    def __init__(
        self,
        settings: AnalyzerSettings | None = None,
        detectors: Sequence[Detector] = DETECTORS,
        ahead: timedelta = timedelta(hours=1),
        observe: Observe | None = None,
        switches: bool = True,
    ) -> None:
        self._switches = switches
        self.settings = settings or AnalyzerSettings()
        self._step = timedelta(seconds=self.settings.tick_seconds)
        self._store = RollingStore(questions(detectors), self.settings, self._step, ahead)
        if observe is not None:
            detectors = [_observed(detector, observe) for detector in detectors]
        self._analysis = Analysis(self.settings, detectors)
        self._ear = _NodeContacts(self._step)
        self._due: list[tuple[datetime, int, Record]] = []
        self._given = 0
        self._known: dict[str, int] = {}
        self._away: list[tuple[datetime, datetime]] = []
        self.transitions: list[Transition] = []
        self.passes = 0

    def hub_away(self, start: datetime, end: datetime) -> None:
        """Add a span in which the hub answers nobody; call this before feeding the block that contains it."""
        self._away.append((start, end))

    def feed(self, block: Telemetry) -> None:
        """Take in a block, and make all passes up to its end."""
        for measurement, table in block.tables.items():
            arrived = block.arrivals[measurement]
            arrived_us = np.asarray(arrived.cast(pa.int64()))
            self._store.take(measurement, _put_right(table, arrived_us), arrived_us)
            if measurement == "node":
                self._ear.take(table, arrived_us)
        self._give_records(block)
        self._ear.listens_since(block.start)
        now = block.start + self._step
        while now <= block.end:
            self._go_to(now)
            now += self._step

    def _give_records(self, block: Telemetry) -> None:
        for inventory in block.inventories:
            self._give(inventory.at, inventory.to_record())
        for allocation in block.allocations:
            self._give(allocation.ended_at or allocation.started_at, allocation.to_record())
        for said in block.schedulers:
            self._give(said.at, said.to_record())
        for switch in block.switches if self._switches else ():
            self._give(switch.at, switch.to_record())
        for event, arrived_at in zip(block.events, block.event_arrivals, strict=True):
            self._give(arrived_at, event.to_record())

    def _give(self, due: datetime, record: Record) -> None:
        # The hub keeps one record per id and version, so a repeated record is taken once.
        known = self._known.get(record.id)
        if known is not None and known >= record.version:
            return
        self._known[record.id] = record.version
        self._given += 1
        heapq.heappush(self._due, (due, self._given, record))

    def _go_to(self, now: datetime) -> None:
        """Take in what arrived before `now`, in order, then make a pass."""
        self._store.forward(now)
        self._ear.hear(now)
        away = [end for start, end in self._away if start < now <= end]
        if away:
            self._ear.listens_since(max(away), anew=True)
            return
        while self._due and self._due[0][0] < now:
            at, _, record = heapq.heappop(self._due)
            self._take(record, at)
        self._analysis.run_pass(replace(self._ear.reading(now), rows=self._store.rows()))
        self._all_look()
        self.passes += 1
        self._keep()

    def _take(self, record: Record, at: datetime) -> None:
        late = record.kind is RecordKind.EVENT and self._is_late(record, at)
        node = self._analysis.ingest(record, late=late)
        if node is not None:
            self._analysis.check_node(node, at)
            self._all_look()
            self._keep()

    def _all_look(self) -> None:
        """Raise RuntimeError when a detector failed: the service goes on, but a score of the others would mislead."""
        if self._analysis.failing:
            raise RuntimeError(f"detectors fail: {dict(self._analysis.failing)}")

    def _is_late(self, record: Record, at: datetime) -> bool:
        """Return whether an event is late, as the service decides: by the node's corrected clock."""
        node = Subject.parse(record.subject).of_node().key
        happened_at = record.at - self._ear.offset(node)
        return at - happened_at > timedelta(seconds=self.settings.late_after_seconds)

    def _keep(self) -> None:
        for unit in self._analysis.to_write():
            self.transitions += [
                Transition.from_record(record)
                for record in unit
                if record.kind is RecordKind.TRANSITION
            ]


class _NodeContacts:
    """When each node was last heard, from the arrivals of its rows; see `analyzer.hub_queries.NodeContacts`."""

    def __init__(self, step: timedelta) -> None:
        self._step_us = step // timedelta(microseconds=1)
        self._heard: dict[str, datetime] = {}
        self._offsets: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=_BODIES))
        self._apart_us: dict[str, int] = {}  # between the last two arrivals of each node
        self._since: datetime | None = None
        self._step: int | None = None
        self._nodes = Subjects(("cluster", "node"))
        # By the first pass that knows them: nodes as numbers, when their rows arrived, and how far their clocks were ahead
        # of the hub's.
        self._coming: dict[int, list[tuple[Numbers, Numbers, Numbers]]] = {}

    def take(self, lines: pa.Table, arrived_us: Numbers) -> None:
        """Take in rows of nodes, each from a body that reached the hub."""
        if not len(lines):
            return
        ahead_us = lines.column("at").cast(pa.int64()).to_numpy() - arrived_us
        known = arrived_us // self._step_us + 1
        if self._step is not None:
            known = np.maximum(known, self._step + 1)
        order = np.argsort(known, kind="stable")
        columns = (self._nodes.numbers(lines)[order], arrived_us[order], ahead_us[order])
        ordered = known[order]
        begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])).tolist()
        for begin, end in zip(begins, [*begins[1:], len(ordered)], strict=True):
            nodes, arrived, ahead = (column[begin:end] for column in columns)
            self._coming.setdefault(int(ordered[begin]), []).append((nodes, arrived, ahead))

    def listens_since(self, at: datetime, anew: bool = False) -> None:
        """Set the time before which silence does not count."""
        if self._since is None or anew:
            self._since = at

    def hear(self, now: datetime) -> None:
        """Process everything that arrived before `now`."""
        step = micros(now) // self._step_us
        begin = min(self._coming, default=step) if self._step is None else self._step + 1
        self._step = step
        for known in range(begin, step + 1):
            bodies = self._coming.pop(known, None)
            if bodies is not None:
                nodes, arrived, ahead = map(np.concatenate, zip(*bodies, strict=True))
                order = np.argsort(arrived, kind="stable")
                self._hear_all(nodes[order].tolist(), arrived[order].tolist(), ahead[order])

    def _hear_all(self, nodes: Sequence[int], arrived_us: Sequence[int], ahead: Numbers) -> None:
        """Process bodies in the order in which they arrived."""
        heard, offsets = self._heard, self._offsets
        for node, at_us, offset in zip(nodes, arrived_us, ahead.tolist(), strict=True):
            key, at = self._nodes.keys[node], EPOCH + timedelta(microseconds=at_us)
            before = heard.get(key, EPOCH)
            if at > before:
                heard[key] = at
                self._apart_us[key] = (at - before) // timedelta(microseconds=1)
            offsets[key].append(offset)

    def offset(self, node: str) -> timedelta:
        """Return how far a node's clock is ahead of the hub's; bodies delayed in a spool show smaller values."""
        return timedelta(microseconds=max(self._offsets.get(node, (0,))))

    def reading(self, now: datetime) -> Reading:
        """Return what a pass knows beside its rows."""
        return Reading(
            now=now,
            last_seen=dict(self._heard),
            listening_since=self._since,
            clocks={
                node: ahead / 1e6
                for node, offsets in self._offsets.items()
                if (ahead := wrong_by(offsets, self._apart_us.get(node, 0))) is not None
            },
        )


def wrong_by(ahead_us: Sequence[int], apart_us: int) -> int | None:
    """Return how far ahead a wrong clock is, from its bodies in order of arrival and their interval; None if right."""
    newest = list(ahead_us)[-_BEHIND:]
    ahead = max(newest[-_OF_CLOCK:], default=0)
    if ahead > _WRONG_US:
        return ahead
    is_behind = len(newest) == _BEHIND and max(newest) < -max(_WRONG_US, apart_us)
    return ahead if is_behind and max(newest) - min(newest) <= _ALIKE_US else None


def _put_right(table: pa.Table, arrived_us: Numbers) -> pa.Table:
    """Give rows of a clock that is far ahead their time of arrival, as the hub does."""
    if not len(table):
        return table
    column = table.column("at")
    at_us = column.cast(pa.int64()).to_numpy()
    wrong = at_us - arrived_us > _WRONG_US
    if not wrong.any():
        return table
    put = pa.array(np.where(wrong, arrived_us, at_us)).cast(column.type)
    return table.set_column(table.schema.get_field_index("at"), "at", put)


def play(blocks: Iterable[Telemetry], replays: Sequence[Replay]) -> Iterator[Telemetry]:
    """Feed several analyzers with the same blocks, and yield each block once all have had it."""
    for block in blocks:
        for one in replays:
            one.feed(block)
        yield block


def _observed(detector: Detector, observe: Observe) -> Detector:
    def find(window: Window) -> list[Finding]:
        found = detector.find(window)
        observe(window.now, detector.name, found)
        return found

    return replace(detector, find=find)
