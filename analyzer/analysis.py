"""The analyzer's state and conclusions; the service feeds it and writes its results to the hub."""

import threading
import traceback
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType

from gpuvigil.config import AnalyzerSettings, IdleSettings
from gpuvigil.lifecycle import Patience
from gpuvigil.log import Log
from gpuvigil.model import (
    UNREADABLE,
    Acknowledgement,
    Allocation,
    Finding,
    GpuIdentity,
    Incident,
    Record,
    Subject,
    Transition,
)
from gpuvigil.schedulers.out_of_service import Checks
from gpuvigil.topology import Files

from .correlation.all_detectors import DETECTORS, Detector
from .correlation.breaker import is_cluster_wide
from .correlation.correlate import observe
from .correlation.observation import Observation
from .correlation.several_nodes import is_of_several_with
from .detectors.node_silent import extended_limits
from .fleet_state import NO_FILES, Fleet
from .incidents.acknowledgement import acknowledge, entry_of
from .incidents.book import Book, advance, mark_out_of_service
from .incidents.recent_incidents import RecentIncidents
from .window.absences import Absences
from .window.rows import Rows
from .window.usual import Usual
from .window.waits import Waits
from .window.window import Key, Window

# An incident and its new transitions: the hub stores all of these records or none.
Unit = tuple[Record, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The data that one pass read from the hub."""

    now: datetime
    rows: Mapping[Key, Rows] = field(default_factory=dict)
    last_seen: Mapping[str, datetime] = field(default_factory=dict)
    listening_since: datetime | None = None
    clocks: Mapping[str, float] = field(default_factory=dict)
    ahead: timedelta = timedelta()  # how far the analyzer's clock is ahead of the hub's
    over: frozenset[str] = frozenset()  # nodes of finished selftests, whose data is ignored


class Analysis:
    """The fleet and the book of incidents behind one lock, with the records still to be written.

    A pass runs its detectors without the lock, on values that nobody changes. If an event wakes a
    node meanwhile, the pass concludes nothing about that node: the event's look was the later one.
    A failing detector does not stop the others, and its incidents stay as they are.
    """

    def __init__(
        self,
        settings: AnalyzerSettings,
        detectors: Sequence[Detector] = DETECTORS,
        declared: Sequence[IdleSettings] = (),
        files: Files = NO_FILES,
    ) -> None:
        self._settings = settings
        self._detectors = detectors
        self._patience = patience(settings)
        self._lock = threading.Lock()
        self._checks = Checks.of(settings)
        self._files = files
        self._fleet = Fleet(self._checks, files)
        self._book = Book()
        self._declared = tuple(declared)
        self._stood = RecentIncidents(remembered(settings))
        self._absences = Absences()
        self._waiting: list[Unit] = []
        self._reading: Reading | None = None
        self._slow: Mapping[Subject, Sequence[Finding]] = {}
        self._woken: set[Subject] = set()
        self._waits = Waits()
        self._usual_gap_seconds: Mapping[str, float] = {}
        self._usual: Mapping[str, Usual] = {}
        self._log = Log("analyzer")
        self._failing: Mapping[str, str] = {}
        # The faults of the detectors that do not read events and that failed in the last pass.
        self._unseen: frozenset[str] = frozenset()
        # By node: how many seconds it may be silent, if longer than others; see `node_silent`.
        self.extended_limits: Mapping[str, float] = {}

    @property
    def failing(self) -> Mapping[str, str]:
        """The error of each failing detector, by name; the state of its faults is unknown."""
        return self._failing

    @property
    def usual(self) -> Mapping[str, Usual]:
        """What was learned about each GPU, by the name of what is learned; never modified."""
        return self._usual

    @property
    def book(self) -> Book:
        """The current book of incidents."""
        return self._book

    def start(
        self,
        records: Iterable[Record],
        book: Book,
        lately: Iterable[Incident] = (),
        usual: Mapping[str, Usual] = MappingProxyType({}),
    ) -> list[str]:
        """Replace everything known by what the hub has, except what was learned meanwhile.

        Returns the ids of records that this version cannot read.
        """
        fleet, unreadable = Fleet(self._checks, self._files), []
        for record in records:
            try:
                fleet.ingest(record)
            except UNREADABLE:
                unreadable.append(record.id)
        fleet.remember_deleted(book.active())
        with self._lock:
            self._fleet, self._book, self._waiting = fleet, book, []
            self._stood.add(lately)
            self._absences.add(lately)
            learned = {name: of for name, of in self._usual.items() if of.at is not None}
            self._usual = {**usual, **learned}
        return unreadable

    def ingest(
        self, record: Record, late: bool = False, came_at: datetime | None = None
    ) -> Subject | None:
        """Remember a record; return the node to look at if it is an event not known yet."""
        with self._lock:
            return self._fleet.ingest(record, late, came_at)

    def gpu(self, subject: Subject) -> GpuIdentity | None:
        """Return a GPU's identity and slot from its node's last inventory, None if it has none."""
        with self._lock:
            inventory = self._fleet.inventory(subject.of_node())
        gpus = () if inventory is None else inventory.gpus
        return next((known for known in gpus if known.uuid == subject.gpu), None)

    def run_pass(self, reading: Reading) -> None:
        """Make a pass over the whole fleet."""
        with self._lock:
            self._fleet.drop(reading.over)
            told_of = {i.subject.of_node().key for i in self._book.active()}
            self._fleet.forget(reading.now, told_of | reading.last_seen.keys(), reading.last_seen)
            self._usual_gap_seconds = self._waits.after(
                reading.last_seen, reading.listening_since, reading.now, self._fleet.inventories()
            )
            window = self._window(reading)
            self._woken = set()
            book = self._book
        found, failed = _find(self._detectors, window)
        findings = [finding for them in found.values() for finding in them]
        believed, unseen = book.believed(new_rows=True), _faults(self._detectors, failed)
        seen = observe(window, findings, book.active(), believed, unseen)
        waits, usual = extended_limits(window), _learned(self._detectors, window, failed)
        reads_not = [d for d in self._detectors if not d.reads_events]
        slow = [finding for d in reads_not for finding in found[d.name]]
        with self._lock:
            self._log_failures(failed, whole=True)
            self._reading, self._unseen = reading, _faults(reads_not, failed)
            self.extended_limits, self._usual = waits, usual
            self._slow = _by_node(slow)
            # A scheduler record may have arrived since the pass began.
            away = self._fleet.away(reading.now, reading.last_seen)
            seen = replace(seen, without=frozenset(self._woken), away=away)
            self._conclude(seen, reading.now)

    def check_node(self, node: Subject, now: datetime) -> None:
        """Look at one node right after an event, with the rows of the last pass."""
        with self._lock:
            last = self._reading or Reading(now=now)
            window = self._window(replace(last, now=now)).of_node(node)
            reads = [d for d in self._detectors if d.reads_events]
            found, failed = _find(reads, window)
            self._log_failures(failed, whole=False)
            findings = [finding for them in found.values() for finding in them]
            findings += self._slow.get(node, ())
            active = [
                i
                for i in self._book.active()
                if i.subject.of_node() == node or is_cluster_wide(i) or is_of_several_with(i, node)
            ]
            believed, unseen = self._book.believed(new_rows=False), _faults(reads, failed)
            seen = observe(window, findings, active, believed, unseen | self._unseen, only=node)
            self._woken.add(node)
            self._conclude(replace(seen, new_rows=False), now)

    def mark_out_of_service(self, now: datetime) -> None:
        """Mark incidents, or no longer, once a scheduler has said which nodes are out of service."""
        with self._lock:
            heard = self._reading.last_seen if self._reading is not None else {}
            self._keep(*mark_out_of_service(self._book, self._fleet.away(now, heard), now))

    def acknowledge(self, acknowledgement: Acknowledgement, now: datetime) -> bool:
        """Take in a person's acknowledgement; return False if the book lacks the incident."""
        with self._lock:
            if entry_of(self._book, acknowledgement.incident) is None:
                return False
            self._keep(*acknowledge(self._book, acknowledgement, now))
            return True

    def held(self) -> list[Allocation]:
        """Return the allocations that have not ended."""
        with self._lock:
            known = self._fleet.allocations()
        return [one for them in known.values() for one in them if one.ended_at is None]

    def to_write(self) -> list[Unit]:
        """Take what the hub does not have yet, oldest first; `give_back` it if a write fails."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            return waiting

    def give_back(self, units: Sequence[Unit]) -> None:
        """Put units that could not be written back at the head of the queue."""
        with self._lock:
            self._waiting = [*units, *self._waiting]

    def to_retire(self) -> list[Record]:
        """Return a retirement for each node that its scheduler deleted a day ago."""
        with self._lock:
            if self._reading is None:
                return []
            now = self._reading.now - self._reading.ahead
            return [one.to_record() for one in self._fleet.to_retire(now, _by_hub(self._reading))]

    def _window(self, reading: Reading) -> Window:
        retired = self._fleet.retired(_by_hub(reading))
        inventories = self._fleet.inventories()
        if retired:
            inventories = {key: it for key, it in inventories.items() if key not in retired}
        return Window(
            now=reading.now,
            settings=self._settings,
            rows=reading.rows,
            events=self._fleet.events(),
            late=self._fleet.late(),
            came=self._fleet.came(),
            inventories=inventories,
            drivers=self._fleet.drivers(),
            switches={
                key: it
                for key, it in self._fleet.switches().items()
                # Leave out a lost switch that was retired, and one whose key is a node's.
                if not (it.lost_at and key in retired) and key not in inventories
            },
            equipment=self._fleet.equipment(),
            allocations=self._fleet.allocations(),
            holdings=self._fleet.holdings(),
            recent_incidents=self._stood.beside(self._book, reading.now),
            declared=self._declared,
            last_seen=reading.last_seen,
            usual_gap_seconds=self._usual_gap_seconds,
            absences=self._absences.by_node(reading.now),
            usual=self._usual,
            listening_since=reading.listening_since,
            clocks=reading.clocks,
            away=self._fleet.away(reading.now, reading.last_seen),
            retired=retired,
        )

    def _log_failures(self, failed: Mapping[str, str], whole: bool) -> None:
        """Log once when a detector begins to fail, and once when it works again in a whole pass."""
        for name in sorted(failed.keys() - self._failing.keys()):
            self._log.error("detector fails", detector=name, error=failed[name])
        if not whole:
            self._failing = {**self._failing, **failed}
            return
        for name in sorted(self._failing.keys() - failed.keys()):
            self._log.info("detector works again", detector=name)
        self._failing = failed

    def _conclude(self, seen: Observation, now: datetime) -> None:
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
                self._stood.add((incident,))
                self._absences.add((incident,))


def remembered(settings: AnalyzerSettings) -> timedelta:
    """Return how long a resolved incident still excuses a holder.

    That is the longest span over which a holder is judged, plus its start (`idle_after_seconds`).
    """
    return timedelta(seconds=settings.underused_after_seconds + settings.idle_after_seconds)


def patience(settings: AnalyzerSettings) -> Patience:
    """Return the patience that the settings ask for."""
    return Patience(clear=timedelta(seconds=settings.clear_seconds))


def _by_hub(reading: Reading) -> Mapping[str, datetime]:
    """Return when each node was heard on the hub's clock, which also dates retirements."""
    return {key: at - reading.ahead for key, at in reading.last_seen.items()}


def _find(
    detectors: Iterable[Detector], window: Window
) -> tuple[dict[str, list[Finding]], dict[str, str]]:
    """Return each detector's findings, and each failed detector's error with its file and line."""
    found: dict[str, list[Finding]] = {}
    failed = {}
    for detector in detectors:
        try:
            found[detector.name] = detector.find(window)
        except Exception as error:  # noqa: BLE001 - the other detectors must still run
            found[detector.name] = []
            last = traceback.extract_tb(error.__traceback__)[-1]
            failed[detector.name] = f"{error!r} at {Path(last.filename).name}:{last.lineno}"
    return found, failed


def _learned(
    detectors: Iterable[Detector], window: Window, failed: Collection[str]
) -> Mapping[str, Usual]:
    """Return what was learned, for the next pass; a failed detector's part stays as it was."""
    learn = [d.learns for d in detectors if d.learns is not None and d.name not in failed]
    return {**window.usual, **{name: of(window) for it in learn for name, of in it.items()}}


def _faults(detectors: Iterable[Detector], names: Collection[str]) -> frozenset[str]:
    return frozenset(fault for d in detectors if d.name in names for fault in d.faults)


def _by_node(findings: Iterable[Finding]) -> Mapping[Subject, Sequence[Finding]]:
    nodes: dict[Subject, list[Finding]] = defaultdict(list)
    for finding in findings:
        # A finding about several nodes may cover what an event brings up on any of them.
        for node in {finding.subject.of_node(), *(m.of_node() for m in finding.members)}:
            nodes[node].append(finding)
    return nodes
