"""What the analyzer knows and concludes; the service feeds it and writes down what it says."""

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuvigil.config import AnalyzerSettings
from gpuvigil.lifecycle import Patience
from gpuvigil.model import UNREADABLE, Acknowledgement, Finding, Record, Subject, Transition

from .acknowledge import acknowledge, entry_of
from .correlate import Sight, sight
from .detector import DETECTORS, Detector
from .fleet import Fleet
from .incidents import Book, advance
from .rows import Rows
from .window import Key, Window

# An incident and its transitions, or more of them: kept together or not at all.
Unit = tuple[Record, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one pass read from the hub."""

    now: datetime
    rows: Mapping[Key, Rows] = field(default_factory=dict)
    heard: Mapping[str, datetime] = field(default_factory=dict)
    listening_since: datetime | None = None
    clocks: Mapping[str, float] = field(default_factory=dict)


class Analysis:
    """Fleet and book, behind one lock; what has to be written waits here until it is.

    A pass runs its detectors without the lock, on values that nobody changes. A node that an event
    woke meanwhile is left out of what the pass concludes: the event's look was the later one.
    """

    def __init__(
        self, settings: AnalyzerSettings, detectors: Sequence[Detector] = DETECTORS
    ) -> None:
        self._settings = settings
        self._detectors = detectors
        self._patience = patience(settings)
        self._lock = threading.Lock()
        self._fleet = Fleet()
        self._book = Book()
        self._waiting: list[Unit] = []
        self._reading: Reading | None = None
        self._slow: Mapping[Subject, Sequence[Finding]] = {}
        self._woken: set[Subject] = set()

    @property
    def book(self) -> Book:
        """The incidents as they stand."""
        return self._book

    def start(self, records: Iterable[Record], book: Book) -> list[str]:
        """Begin with what the hub has; anything known before is forgotten.

        Returns the ids of records that this version cannot read.
        """
        fleet, unreadable = Fleet(), []
        for record in records:
            try:
                fleet.take(record)
            except UNREADABLE:
                unreadable.append(record.id)
        with self._lock:
            self._fleet, self._book, self._waiting = fleet, book, []
        return unreadable

    def take(self, record: Record, late: bool = False) -> Subject | None:
        """Remember a record; the node to look at when it is an event that was not known yet."""
        with self._lock:
            return self._fleet.take(record, late)

    def look(self, reading: Reading) -> None:
        """A pass over the whole fleet."""
        with self._lock:
            self._fleet.forget(reading.now)
            window = self._window(reading)
            self._woken = set()
            book = self._book
        found = {d.name: d.find(window) for d in self._detectors}
        findings = [finding for them in found.values() for finding in them]
        seen = sight(window, findings, book.standing(), book.believed(fresh=True))
        slow = [f for d in self._detectors if not d.reads_events for f in found[d.name]]
        with self._lock:
            self._reading = reading
            self._slow = _by_node(slow)
            self._conclude(replace(seen, without=frozenset(self._woken)), reading.now)

    def look_at(self, node: Subject, now: datetime) -> None:
        """A look at one node right after an event, with the rows of the last pass."""
        with self._lock:
            last = self._reading or Reading(now=now)
            window = self._window(replace(last, now=now)).of_node(node)
            found = [f for d in self._detectors if d.reads_events for f in d.find(window)]
            found += self._slow.get(node, ())
            standing = [i for i in self._book.standing() if i.subject.of_node() == node]
            seen = sight(window, found, standing, self._book.believed(fresh=False))
            seen = replace(seen, only=node, fresh=False)
            self._woken.add(node)
            self._conclude(seen, now)

    def acknowledge(self, taken: Acknowledgement, now: datetime) -> bool:
        """A person took an incident; false when the book has no such incident."""
        with self._lock:
            if entry_of(self._book, taken.incident) is None:
                return False
            self._keep(*acknowledge(self._book, taken, now))
            return True

    def to_write(self) -> list[Unit]:
        """Everything that the hub does not have yet, oldest first; give it back when it failed."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            return waiting

    def give_back(self, units: Sequence[Unit]) -> None:
        """These could not be written; they go first next time."""
        with self._lock:
            self._waiting = [*units, *self._waiting]

    def _window(self, reading: Reading) -> Window:
        return Window(
            now=reading.now,
            settings=self._settings,
            rows=reading.rows,
            events=self._fleet.events(),
            late=self._fleet.late(),
            inventories=self._fleet.inventories(),
            allocations=self._fleet.allocations(),
            holdings=self._fleet.holdings(),
            heard=reading.heard,
            listening_since=reading.listening_since,
            clocks=reading.clocks,
        )

    def _conclude(self, seen: Sight, now: datetime) -> None:
        self._keep(*advance(self._book, seen, now, self._patience))

    def _keep(self, book: Book, transitions: Iterable[Transition]) -> None:
        before, self._book = self._book.written(), book
        steps: dict[str, list[Record]] = defaultdict(list)
        for transition in transitions:
            steps[transition.incident].append(transition.to_record())
        for identifier, incident in self._book.written().items():
            old = before.get(identifier)
            if old is None or old.version != incident.version:
                self._waiting.append((incident.to_record(), *steps[identifier]))


def patience(settings: AnalyzerSettings) -> Patience:
    """The patience that the settings ask for."""
    return Patience(clear=timedelta(seconds=settings.clear_seconds))


def _by_node(findings: Iterable[Finding]) -> Mapping[Subject, Sequence[Finding]]:
    nodes: dict[Subject, list[Finding]] = defaultdict(list)
    for finding in findings:
        # One about several nodes hides what an event wakes on any of them.
        for node in {finding.subject.of_node(), *(m.of_node() for m in finding.members)}:
            nodes[node].append(finding)
    return nodes
