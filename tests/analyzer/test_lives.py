"""Whole stories, from records and rows to the book: no order, gap, restart or delay loses anything.

A story is what really happens to four nodes, minute by minute; how it reaches the analyzer is drawn
apart from that: events out of turn, twice or late, rows that are missing, a process that starts anew
from what it wrote. The incidents must be the story's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.analysis import Analysis, Reading
from analyzer.correlation.all_detectors import DETECTORS
from analyzer.correlation.breaker import is_cluster_wide
from analyzer.hub_queries import not_over
from analyzer.incidents.book import Book, rebuild
from gpuvigil.lifecycle import ACTIVE, Patience
from gpuvigil.model import (
    Event,
    EventKind,
    Incident,
    Record,
    RecordKind,
    Subject,
    Transition,
    fingerprint,
)

from .scene import NOON, SETTINGS, TICK, event, gpu, healthy, node
from .test_book import Keeper, assert_every_life_is_whole

STEP = timedelta(seconds=TICK)
NODES = (1, 2, 3, 4, 5, 6)
WATCHED = [d for d in DETECTORS if d.name in {"gpu_lost", "gpu_xid", "node_silent"}]
PATIENCE = Patience()
_FAULTS: Mapping[EventKind, str] = {EventKind.GPU_LOST: "gpu_lost", EventKind.XID: "gpu_xid"}
_LONG = 190  # more than the flap window
_WELL = healthy(nodes=len(NODES), seconds=60)


@dataclass
class World:
    """What is really so: Xids and losses that no reset has ended, and nodes that are away."""

    ill: dict[tuple[int, str], Event] = field(default_factory=dict)
    away: set[int] = field(default_factory=set)


@dataclass
class Process:
    """The analyzer, its hub, and what is on the way to it."""

    step: int = 0
    told: int = 0
    world: World = field(default_factory=World)
    sent: list[Record] = field(default_factory=list)  # all events that the hub has
    waiting: list[tuple[int, Event]] = field(default_factory=list)  # until which step
    heard: dict[str, int] = field(default_factory=lambda: {node(n).key: 0 for n in NODES})
    keeper: Keeper = field(default_factory=Keeper)
    analysis: Analysis = field(default_factory=lambda: Analysis(SETTINGS, WATCHED))

    def __post_init__(self) -> None:
        self.analysis.start(_inventories(), Book())

    @property
    def now(self) -> timedelta:
        return self.step * STEP

    def lives(self, events: Iterable[tuple[str, int, int, bool]], restart: bool) -> None:
        """What happens between two passes."""
        for kind, number, delay, again in events:
            self.happens(kind, number, delay, again)
        if restart:
            self.restarts()

    def happens(self, kind: str, number: int, delay: int, again: bool) -> None:
        world, subject = self.world, gpu(number)
        self.told += 1
        at = NOON + self.now + self.told * timedelta(milliseconds=1)  # no two at once
        if kind == "away":
            world.away.add(number)
        elif kind == "back":
            world.away.discard(number)
        elif kind == "reset":
            for fault in _FAULTS.values():
                world.ill.pop((number, fault), None)
            self._send(event(EventKind.GPU_RESET, subject, at), delay, again)
        elif kind == "xid":
            told = event(EventKind.XID, subject, at, 95)
            world.ill[number, "gpu_xid"] = told
            self._send(told, delay, again)
        elif kind == "lost":
            told = event(EventKind.XID, subject, at, 79)
            world.ill[number, "gpu_lost"] = told
            self._send(told, delay, again)

    def _send(self, told: Event, delay: int, again: bool) -> None:
        self.waiting.append((self.step + delay, told))
        if again:
            self.waiting.append((self.step + 2 * delay + 1, told))

    def passes(self, seen: bool, ticks: int = 1) -> None:
        """After some ticks what came is taken, and the fleet looked at; `seen`: rows came, too."""
        self.step += ticks
        due = [one for one in self.waiting if one[0] < self.step and self._is_up(one[1])]
        self.waiting = [one for one in self.waiting if one not in due]
        for _, told in reversed(due):  # the last one first
            record = told.to_record()
            self.sent.append(record)
            node_ = self.analysis.ingest(record)
            if node_ is not None:
                self.analysis.check_node(node_, NOON + self.now)
                self.write()
        for number in NODES:
            if number not in self.world.away:
                self.heard[node(number).key] = self.step
        self.analysis.run_pass(self._reading(seen))
        self.write()

    def _is_up(self, told: Event) -> bool:
        return not any(told.subject.of_node() == node(n) for n in self.world.away)

    def _reading(self, seen: bool) -> Reading:
        shown = _WELL.shifted(self.now)
        gone = {node(n) for n in NODES} if not seen else {node(n) for n in self.world.away}
        lost = {gpu(n) for n, fault in self.world.ill if fault == "gpu_lost"}
        window = replace(
            shown.without(lambda sample: sample.subject.of_node() in gone),
            heard={key: NOON + at * STEP for key, at in self.heard.items()},
        )
        for subject in lost:
            window = window.changed(subject, {"up": 0, "unmeasured_reason": 3}, 5.0)
        made = window.window()
        return Reading(
            now=NOON + self.now,
            rows=made.rows,
            last_seen=made.last_seen,
            listening_since=NOON - timedelta(hours=1),
        )

    def write(self) -> None:
        for unit in self.analysis.to_write():
            for record in unit:
                kept = self.keeper.incidents
                if record.kind is RecordKind.TRANSITION:
                    assert record.id not in self.keeper.transitions
                    self.keeper.transitions[record.id] = record
                else:
                    assert record.id not in kept or kept[record.id].version < record.version
                    kept[record.id] = record

    def restarts(self) -> None:
        """A new process with what a start reads of the hub."""
        known = [Incident.from_record(r) for r in self.keeper.incidents.values()]
        kept = not_over(known, NOON + self.now, PATIENCE)
        ids = {incident.id for incident in kept}
        steps = [Transition.from_record(r) for r in self.keeper.transitions.values()]
        mine = [step for step in steps if step.incident in ids]
        self.analysis = Analysis(SETTINGS, WATCHED)
        book = rebuild(kept, mine, NOON + self.now, PATIENCE)
        assert self.analysis.start([*_inventories(), *self.sent], book) == []

    def explained(self, fault: str, subject: Subject) -> bool:
        """Whether the fault is told by its own incident, or by the one that covers it."""
        whole = (i for i in self.analysis.book.active() if is_cluster_wide(i))
        return self._stands(fingerprint(fault, subject), set()) or any(
            fault == one.fault for one in whole
        )

    def _stands(self, print_: str, seen: set[str]) -> bool:
        entry = self.analysis.book.entries.get(print_)
        if entry is None or print_ in seen:
            return False
        by = entry.incident.covered_by
        return entry.state in ACTIVE or (bool(by) and self._stands(by, {*seen, print_}))


def _inventories() -> list[Record]:
    return [inventory.to_record() for inventory in _WELL.inventories]


happenings = st.tuples(
    st.sampled_from(["xid", "lost", "reset", "away", "back", "nothing", "nothing"]),
    st.sampled_from(NODES),
    st.integers(0, 3),  # steps until it comes
    st.booleans(),  # it comes once more
)
minutes = st.tuples(
    st.lists(happenings, max_size=6),
    st.booleans(),  # rows came
    st.sampled_from([False, False, False, True]),  # the analyzer starts again
    st.sampled_from([1, 1, 1, _LONG]),  # ticks until it looks
)


@pytest.mark.medium
@settings(max_examples=5, deadline=None)
@given(st.lists(minutes, max_size=10))
def test_however_a_story_is_told_its_incidents_are_the_storys(
    story: list[tuple[list[tuple[str, int, int, bool]], bool, bool, int]],
) -> None:
    process = Process()
    for events, seen, restart, ticks in story:
        process.lives(events, restart)
        process.passes(seen, ticks)
    for _ in range(12):  # all that was late has come
        process.passes(seen=True)
    assert_nothing_is_lost(process)
    assert_every_life_is_whole(process.keeper)
    for number in NODES:
        process.happens("back", number, 0, False)
    process.passes(seen=True)
    for number in NODES:
        process.happens("reset", number, 0, False)
    for ticks in (1, 1, 1, 1, _LONG, 1, 1, 1, 1):  # what flaps is over after half an hour
        process.passes(seen=True, ticks=ticks)
    assert process.analysis.book.active() == ()
    assert_every_life_is_whole(process.keeper)


def assert_nothing_is_lost(process: Process) -> None:
    """Each fault that is there is told, and nothing is told that is not there."""
    world = process.world
    for number in world.away:
        # Somebody reboots it because of one of those.
        mended = any(process.explained(fault, gpu(number)) for fault in _FAULTS.values())
        assert mended or process.explained("node_silent", node(number)), (number, "away")
    for number, fault in world.ill:
        if number not in world.away and (
            fault == "gpu_lost" or (number, "gpu_lost") not in world.ill
        ):
            assert process.explained(fault, gpu(number)), (number, fault)
