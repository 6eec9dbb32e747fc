"""What the analyzer knows and concludes; the service feeds it and writes down what it says."""

import threading
import traceback
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

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
from .correlation.breaker import is_whole
from .correlation.correlate import observe
from .correlation.observation import Observation
from .correlation.several_nodes import is_of_several_with
from .detectors.node_silent import waited_for
from .fleet_state import NO_FILES, Fleet
from .incidents.acknowledgement import acknowledge, entry_of
from .incidents.book import Book, advance, hold
from .incidents.stood import Stood
from .window.rows import Rows
from .window.usual_heat import NO_USUAL_HEAT, UsualHeat
from .window.waits import Waits
from .window.window import Key, Window

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
    ahead: timedelta = timedelta()  # of our clock before the hub's
    over: frozenset[str] = frozenset()  # nodes of selftests that are over: nothing of them is read


class Analysis:
    """Fleet and book, behind one lock; what has to be written waits here until it is.

    A pass runs its detectors without the lock, on values that nobody changes. A node that an event
    woke meanwhile is left out of what the pass concludes: the event's look was the later one.
    A detector that fails holds up none of the others; its incidents stay as they are.
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
        self._stood = Stood(remembered(settings))
        self._waiting: list[Unit] = []
        self._reading: Reading | None = None
        self._slow: Mapping[Subject, Sequence[Finding]] = {}
        self._woken: set[Subject] = set()
        self._waits = Waits()
        self._waited: Mapping[str, float] = {}
        self._usual_heat = NO_USUAL_HEAT
        self._log = Log("analyzer")
        self._failing: Mapping[str, str] = {}
        # What the detectors that failed in the last pass and do not read events would tell of.
        self._unseen: frozenset[str] = frozenset()
        # Nodes that may be silent for longer than others, in seconds; see `node_silent.waited_for`.
        self.waited_for: Mapping[str, float] = {}

    @property
    def failing(self) -> Mapping[str, str]:
        """The detectors that fail, with their error; nothing is known of their faults."""
        return self._failing

    @property
    def usual_heat(self) -> UsualHeat:
        """What was learned of each GPU's heat; nobody changes it."""
        return self._usual_heat

    @property
    def book(self) -> Book:
        """The incidents as they stand."""
        return self._book

    def start(
        self,
        records: Iterable[Record],
        book: Book,
        lately: Iterable[Incident] = (),
        usual_heat: UsualHeat = NO_USUAL_HEAT,
    ) -> list[str]:
        """Begin with what the hub has; anything known before is forgotten, but what was learned since.

        Returns the ids of records that this version cannot read.
        """
        fleet, unreadable = Fleet(self._checks, self._files), []
        for record in records:
            try:
                fleet.take(record)
            except UNREADABLE:
                unreadable.append(record.id)
        fleet.take_held(book.standing())
        with self._lock:
            self._fleet, self._book, self._waiting = fleet, book, []
            self._stood.take(lately)
            if self._usual_heat.at is None:
                self._usual_heat = usual_heat
        return unreadable

    def take(
        self, record: Record, late: bool = False, came_at: datetime | None = None
    ) -> Subject | None:
        """Remember a record; the node to look at when it is an event that was not known yet."""
        with self._lock:
            return self._fleet.take(record, late, came_at)

    def gpu(self, subject: Subject) -> GpuIdentity | None:
        """Who a GPU is and where it sits, as its node said last."""
        with self._lock:
            inventory = self._fleet.inventory(subject.of_node())
        gpus = () if inventory is None else inventory.gpus
        return next((known for known in gpus if known.uuid == subject.gpu), None)

    def look(self, reading: Reading) -> None:
        """A pass over the whole fleet."""
        with self._lock:
            self._fleet.drop(reading.over)
            told_of = {i.subject.of_node().key for i in self._book.standing()}
            self._fleet.forget(reading.now, told_of | reading.heard.keys(), reading.heard)
            self._waited = self._waits.after(
                reading.heard, reading.listening_since, reading.now, self._fleet.inventories()
            )
            window = self._window(reading)
            self._woken = set()
            book = self._book
        found, failed = _find(self._detectors, window)
        findings = [finding for them in found.values() for finding in them]
        believed, unseen = book.believed(fresh=True), _faults(self._detectors, failed)
        seen = observe(window, findings, book.standing(), believed, unseen)
        waits, usual_heat = waited_for(window), _learned(self._detectors, window, failed)
        reads_not = [d for d in self._detectors if not d.reads_events]
        slow = [finding for d in reads_not for finding in found[d.name]]
        with self._lock:
            self._tell(failed, whole=True)
            self._reading, self._unseen = reading, _faults(reads_not, failed)
            self.waited_for, self._usual_heat = waits, usual_heat
            self._slow = _by_node(slow)
            # A scheduler may have spoken since the pass began.
            away = self._fleet.away(reading.now, reading.heard)
            seen = replace(seen, without=frozenset(self._woken), away=away)
            self._conclude(seen, reading.now)

    def look_at(self, node: Subject, now: datetime) -> None:
        """A look at one node right after an event, with the rows of the last pass."""
        with self._lock:
            last = self._reading or Reading(now=now)
            window = self._window(replace(last, now=now)).of_node(node)
            reads = [d for d in self._detectors if d.reads_events]
            found, failed = _find(reads, window)
            self._tell(failed, whole=False)
            findings = [finding for them in found.values() for finding in them]
            findings += self._slow.get(node, ())
            standing = [
                i
                for i in self._book.standing()
                if i.subject.of_node() == node or is_whole(i) or is_of_several_with(i, node)
            ]
            believed, unseen = self._book.believed(fresh=False), _faults(reads, failed)
            seen = observe(window, findings, standing, believed, unseen | self._unseen, only=node)
            self._woken.add(node)
            self._conclude(replace(seen, fresh=False), now)

    def hold(self, now: datetime) -> None:
        """A scheduler said which nodes are out of service: what stands there is held, or not."""
        with self._lock:
            heard = self._reading.heard if self._reading is not None else {}
            self._keep(*hold(self._book, self._fleet.away(now, heard), now))

    def acknowledge(self, taken: Acknowledgement, now: datetime) -> bool:
        """A person took an incident; false when the book has no such incident."""
        with self._lock:
            if entry_of(self._book, taken.incident) is None:
                return False
            self._keep(*acknowledge(self._book, taken, now))
            return True

    def held(self) -> list[Allocation]:
        """Who holds which GPU now."""
        with self._lock:
            known = self._fleet.allocations()
        return [one for them in known.values() for one in them if one.ended_at is None]

    def to_write(self) -> list[Unit]:
        """Everything that the hub does not have yet, oldest first; give it back when it failed."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            return waiting

    def give_back(self, units: Sequence[Unit]) -> None:
        """These could not be written; they go first next time."""
        with self._lock:
            self._waiting = [*units, *self._waiting]

    def to_retire(self) -> list[Record]:
        """The retirement of each node that its scheduler deleted a day ago."""
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
                # One that was taken away for good is nobody's; nor does a node become one.
                if not (it.lost_at and key in retired) and key not in inventories
            },
            allocations=self._fleet.allocations(),
            holdings=self._fleet.holdings(),
            stood=self._stood.beside(self._book, reading.now),
            declared=self._declared,
            heard=reading.heard,
            waited=self._waited,
            usual_heat=self._usual_heat,
            listening_since=reading.listening_since,
            clocks=reading.clocks,
            away=self._fleet.away(reading.now, reading.heard),
            retired=retired,
        )

    def _tell(self, failed: Mapping[str, str], whole: bool) -> None:
        """One line when a detector begins to fail, and one when a whole pass went well again."""
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
                self._stood.take((incident,))


def remembered(settings: AnalyzerSettings) -> timedelta:
    """For how long what is over still excuses: the longest span over which a holder is judged, and its start."""
    return timedelta(seconds=settings.underused_after_seconds + settings.idle_after_seconds)


def patience(settings: AnalyzerSettings) -> Patience:
    """The patience that the settings ask for."""
    return Patience(clear=timedelta(seconds=settings.clear_seconds))


def _by_hub(reading: Reading) -> Mapping[str, datetime]:
    """When each node was heard, by the hub's clock, which also says when one was retired."""
    return {key: at - reading.ahead for key, at in reading.heard.items()}


def _find(
    detectors: Iterable[Detector], window: Window
) -> tuple[dict[str, list[Finding]], dict[str, str]]:
    """By detector what it found, and for those that failed the error and where it came from."""
    found: dict[str, list[Finding]] = {}
    failed = {}
    for detector in detectors:
        try:
            found[detector.name] = detector.find(window)
        except Exception as error:  # noqa: BLE001 - the others go on looking
            found[detector.name] = []
            last = traceback.extract_tb(error.__traceback__)[-1]
            failed[detector.name] = f"{error!r} at {Path(last.filename).name}:{last.lineno}"
    return found, failed


def _learned(detectors: Iterable[Detector], window: Window, failed: Collection[str]) -> UsualHeat:
    """What the next pass knows; as much as before where a detector failed that learns."""
    learn = (d.learns for d in detectors if d.learns is not None and d.name not in failed)
    return next((learns(window) for learns in learn), window.usual_heat)


def _faults(detectors: Iterable[Detector], names: Collection[str]) -> frozenset[str]:
    return frozenset(fault for d in detectors if d.name in names for fault in d.faults)


def _by_node(findings: Iterable[Finding]) -> Mapping[Subject, Sequence[Finding]]:
    nodes: dict[Subject, list[Finding]] = defaultdict(list)
    for finding in findings:
        # One about several nodes hides what an event wakes on any of them.
        for node in {finding.subject.of_node(), *(m.of_node() for m in finding.members)}:
            nodes[node].append(finding)
    return nodes
