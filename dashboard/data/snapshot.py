"""One view of the fleet per process, shared by all open pages and kept fresh by two threads.

One thread follows the hub's changes, so that a new record shows at once. The other asks for the numbers
at every refresh, draws the view, and sleeps while nobody looks.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pyarrow as pa

from gpuvigil.clock import Clock
from gpuvigil.config import AnalyzerSettings
from gpuvigil.errors import HubError, StoreError, StoreUnavailable
from gpuvigil.hub_client import Hub
from gpuvigil.log import Log
from gpuvigil.model import Allocation, GpuIdentity, Inventory, Subject
from gpuvigil.model.reporting import TICKS

from ..fleet import Fleet
from ..model.facts import FOLLOWED, Facts, RecordCache, hurries, moves_port
from ..model.newest_rows import CELL_FIELDS, Row
from .freshness import CatchUp, RequestHealth, Trouble, trouble
from .hub_queries import ALL_FIELDS, load, numbers, row_of
from .views import FleetView, fleet_view

# If no page asked for this long, nobody is looking.
UNWATCHED_AFTER_SECONDS = 30.0
RETRY_SECONDS = 1.0
FIRST_VIEW_SECONDS = 5.0
STOP_SECONDS = 2.0
# The longest a poll lasts, so that a stop is noticed.
POLL_SECONDS = 1.0
DETAILS_SECONDS = 2.0
# How late an answer of the hub may be before pages say so: in refreshes, and at least so many seconds.
REFRESHES_BEFORE_LATE = 3
LEAST_PATIENCE_SECONDS = 3.0
# Ports change rarely, and their events come at once; their rows are asked for at least so often.
PORTS_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnView:
    """A view, the GPU rows behind it, and when it was drawn (monotonic seconds)."""

    view: FleetView
    gpus: pa.Table | None
    complete: bool  # whether the rows hold every metric
    at: float
    facts: Facts | None = None  # what the view was made from; None before the first


class Snapshot:
    """The view shared by all sessions of a process; `start` it once, `stop` ends its threads."""

    def __init__(
        self,
        hub: Callable[[], Hub],
        clock: Clock,
        settings: AnalyzerSettings,
        refresh_seconds: float,
    ) -> None:
        self._hub = hub
        self._clock = clock
        self._settings = settings
        self.refresh_seconds = refresh_seconds
        self._log = Log("dashboard")
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._wake = threading.Event()
        self._book = RecordCache()
        self._fleet = Fleet()
        # The inventories that the book last listed, and the same by node.
        self._listed: tuple[Inventory, ...] | None = None
        self._by_node: Mapping[Subject, Inventory] = {}
        self._facts: Facts | None = None
        self._gpus: pa.Table | None = None
        self._drawn: DrawnView | None = None
        self._fresh = threading.Condition()
        self._loaded = threading.Event()
        self._asked_at = now = clock.monotonic()
        self._details_at = -DETAILS_SECONDS * 10
        self._numbers_at = -refresh_seconds  # when the hub last sent numbers
        self._facts_at = 0.0  # when it sent those that are shown
        self._read_last: Facts | None = None
        self._ports_at = -PORTS_SECONDS  # when rows of ports and nodes were last asked for
        self._port_moved_at = -PORTS_SECONDS
        self._silent: frozenset[Subject] = frozenset()
        self._catch_up = CatchUp()
        self._patience = max(REFRESHES_BEFORE_LATE * refresh_seconds, LEAST_PATIENCE_SECONDS)
        self._numbers_line = RequestHealth(now, self._patience)
        self._records_line = RequestHealth(now, self._patience + POLL_SECONDS)

    def start(self) -> None:
        """Start following the hub, which need not be up yet."""
        for run in (self._follow, self._renew):
            thread = threading.Thread(target=run, name=run.__name__.strip("_"), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Stop both threads; one that still waits for the hub is left to end with the process."""
        self._stop.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(STOP_SECONDS)

    def view(self, *, complete: bool = False) -> FleetView:
        """Return the newest view; wait a moment for the first one, or if nobody looked for long.

        `complete`: `details` of one of its GPUs will be asked for, so read every metric of this moment, too.
        """
        drawn = self.drawn(complete=complete)
        return self.as_it_is(drawn, drawn.view)

    def drawn(self, *, complete: bool = False) -> DrawnView:
        """Return the newest view with what it was made from."""
        return self._ask(complete)

    def as_it_is(self, drawn: DrawnView, view: FleetView) -> FleetView:
        """Return the view, with a warning and its time if the hub is silent."""
        now = self._clock.monotonic()
        found = self._silence(drawn, now)
        if found is None:
            return view
        hub_now = self._hub_now(now)
        as_of = hub_now - timedelta(seconds=found.seconds) if found.answered_before else None
        return replace(view, warnings=(found.text(hub_now),), as_of=as_of)

    def view_of(self, facts: Facts, now: datetime, fleet: Fleet) -> FleetView:
        """Return the view of other facts, such as filtered ones."""
        return fleet_view(facts, self._settings, now, fleet)

    def silence(self) -> str | None:
        """Return a text that says that the hub is silent and since when; None while it answers."""
        now = self._clock.monotonic()
        silence = self._silence(self._drawn, now)
        return None if silence is None else silence.text(self._hub_now(now))

    def silent_seconds(self) -> float | None:
        """Return for how long the hub has been silent; None while it answers."""
        silence = self._silence(self._drawn, self._clock.monotonic())
        return None if silence is None else silence.seconds

    def _hub_now(self, now: float) -> datetime:
        """Return the hub's time, or this machine's while that is not known."""
        if self._facts is None:
            return self._clock.now()
        return self._facts.now + timedelta(seconds=now - self._facts_at)

    def details(self, subject: Subject) -> Row | None:
        """Return the newest row of a GPU with every metric; None if there is none."""
        drawn = self._ask(complete=True)
        if drawn.gpus is None or not drawn.complete:
            return None
        return row_of(drawn.gpus, subject)

    def identity(self, subject: Subject) -> GpuIdentity | None:
        """Return what its node's inventory says of a GPU; None if it is not listed."""
        inventory = self.inventories().get(subject.of_node())
        gpus = inventory.gpus if inventory else ()
        return next((gpu for gpu in gpus if gpu.uuid == subject.gpu), None)

    def inventories(self) -> Mapping[Subject, Inventory]:
        """Return the inventory of every node, also of nodes that are gone."""
        with self._lock:
            found = self._book.onto(Facts(now=self._clock.now())).inventories
            if found is not self._listed:
                self._listed, self._by_node = found, {one.subject: one for one in found}
            return self._by_node

    def allocations(self) -> tuple[Allocation, ...]:
        """Return the current allocations by the records; the same tuple while nothing changes."""
        with self._lock:
            return self._book.onto(Facts(now=self._clock.now())).allocations

    def _ask(self, complete: bool) -> DrawnView:
        now = self._clock.monotonic()
        was_unwatched = now - self._asked_at > UNWATCHED_AFTER_SECONDS
        self._asked_at = now
        if was_unwatched:
            self._numbers_line.asked_anew(now)
            self._wake.set()  # the thread sleeps, so wake it in any case
        if complete:
            self._details_at = now
        if not self._serves(self._drawn, now, complete):
            self._wake.set()
            with self._fresh:
                self._fresh.wait_for(
                    lambda: self._serves(self._drawn, now, complete), FIRST_VIEW_SECONDS
                )
        return self._drawn or self._nothing()

    def _serves(self, drawn: DrawnView | None, now: float, complete: bool) -> bool:
        """Return whether a view is good enough, so that waiting for another would not help."""
        if trouble(self._lines, now) is not None:
            return True
        if drawn is None:
            return False
        return now - drawn.at <= self._patience and (drawn.complete or not complete)

    @property
    def _lines(self) -> tuple[RequestHealth, RequestHealth]:
        return self._numbers_line, self._records_line

    def _silence(self, drawn: DrawnView | None, now: float) -> Trouble | None:
        """Return the outage because of which `drawn` is old; None if it is fresh."""
        found = trouble(self._lines, now)
        if found is None and (drawn is None or now - drawn.at > self._patience):
            line = self._numbers_line
            return Trouble(why="", seconds=now - line.since, answered_before=line.answers)
        return found

    def _nothing(self) -> DrawnView:
        now = self._clock.now()
        view = fleet_view(Facts(now=now), self._settings, now)
        return DrawnView(view=view, gpus=None, complete=False, at=self._clock.monotonic())

    def _follow(self) -> None:
        """Keep the book up to date by following the hub's changes."""
        sequence: int | None = None
        with contextlib.closing(self._hub()) as hub:
            while not self._stop.is_set():
                try:
                    sequence = self._advance(hub, sequence)
                    self._records_line.answered(self._clock.monotonic())
                except Exception as error:  # noqa: BLE001 - no error may end the loop
                    # The hub may have other records when it is back, so load them all again.
                    sequence = None
                    why = str(error) if isinstance(error, HubError) else repr(error)
                    self._lost(self._records_line, why)
                    self._clock.wait(self._stop, RETRY_SECONDS)

    def _advance(self, hub: Hub, sequence: int | None) -> int:
        if sequence is None:
            sequence = hub.changes(-1, FOLLOWED, 0.0).sequence
            book = load(hub)
            with self._lock:
                self._book = book
            self._loaded.set()
        else:
            changes = hub.changes(sequence, FOLLOWED, POLL_SECONDS)
            if changes.sequence < sequence:
                raise HubError("the hub's records are older than ours")
            sequence = changes.sequence
            if not changes.records:
                return sequence
            with self._lock:
                self._book.apply(changes.records)
            if moves_port(changes.records):
                self._port_moved_at = self._clock.monotonic()
            if not hurries(changes.records):
                return sequence
        self._wake.set()
        return sequence

    def _renew(self) -> None:
        """Ask for the numbers and draw the view, again and again."""
        with contextlib.closing(self._hub()) as hub:
            while not self._stop.is_set():
                try:
                    self._refresh(hub)
                except Exception as error:  # noqa: BLE001 - the loop goes on if a view cannot be drawn
                    self._log.error("view not drawn", error=repr(error))
                    self._keep_old(f"The page could not be drawn: {type(error).__name__}.")
                self._pause()

    def _refresh(self, hub: Hub) -> None:
        try:
            fresh = self._read(hub)
        except (HubError, StoreError) as error:
            fresh = False
            who = "the store" if isinstance(error, StoreUnavailable) else "the hub"
            self._lost(self._numbers_line, str(error), who)
        self._draw()
        if fresh:
            if self._numbers_line.error is not None:
                self._log.info("hub answers again")
            # Only now, since pages show the old view until the new one is drawn.
            self._numbers_line.answered(self._clock.monotonic())

    def _keep_old(self, why: str) -> None:
        """Publish the last view again with the reason why it is old."""
        old = self._drawn or self._nothing()
        view = replace(old.view, warnings=(why,))
        self._publish(replace(old, view=view, at=self._clock.monotonic()))

    def _pause(self) -> None:
        """Wait until something changed or the next refresh is due; sleep while nobody looks."""
        self._wake.wait(self.refresh_seconds)
        # Clear before checking who looks, so that a page that asks meanwhile wakes the thread.
        self._wake.clear()
        while self._clock.monotonic() - self._asked_at > UNWATCHED_AFTER_SECONDS:
            if self._stop.is_set():
                return
            self._wake.wait()
            self._wake.clear()

    def _read(self, hub: Hub) -> bool:
        """Read the numbers; return whether the hub sent newer ones."""
        started = self._clock.monotonic()
        complete = started - self._details_at < 5 * self.refresh_seconds
        has_all = self._gpus is not None and len(self._gpus.column_names) > len(ALL_FIELDS)
        young = started - self._numbers_at < self.refresh_seconds - 0.1
        if young and self._numbers_line.error is None and (has_all or not complete):
            return False
        if not self._loaded.wait(RETRY_SECONDS):
            return False
        with self._lock:
            facts = self._book.onto(self._first_facts())
        before = None if self._ports_due(facts, started) else self._read_last
        facts, gpus = numbers(hub, facts, ALL_FIELDS if complete else CELL_FIELDS, before)
        self._numbers_at = self._clock.monotonic()
        self._read_last, self._ports_at = facts, started if before is None else self._ports_at
        if not self._catches_up(facts, self._numbers_at):
            self._facts, self._gpus, self._facts_at = facts, gpus, self._numbers_at
        return True

    def _first_facts(self) -> Facts:
        allowed = self._settings.silent_after_seconds
        return Facts(now=self._clock.now(), silent_after_seconds=allowed)

    def _ports_due(self, facts: Facts, now: float) -> bool:
        """Return whether rows of ports and nodes must be read: they may have changed, or grow too old."""
        ticks = [one.tick_seconds for one in facts.inventories]
        if now - self._ports_at >= min([PORTS_SECONDS, *ticks]):
            return True
        # A port's event comes first, the row with its new state at the node's next tick.
        return now - self._port_moved_at <= TICKS * max(ticks, default=PORTS_SECONDS)

    def _notice_silence(self, view: FleetView) -> None:
        """Make port rows due when the set of silent nodes changes, as a node's return brings its ports back."""
        silent = frozenset(node.subject for one in view.clusters for node in one.silent_nodes)
        if silent != self._silent:
            self._silent, self._ports_at = silent, -PORTS_SECONDS

    def _catches_up(self, facts: Facts, now: float) -> bool:
        """Return whether nodes are silent only because the hub was away; then the old facts stay."""
        before, line = self._facts, self._numbers_line
        owed = line.owed_seconds(now) if line.is_late(now) else None
        missing = 0 if before is None else self._catch_up.missing(before, facts, now, owed)
        if before is None or not missing:
            return False
        self._facts = replace(before, not_back=missing)
        return True

    def _draw(self) -> None:
        if self._facts is None:
            return
        with self._lock:
            facts = self._book.onto(self._facts)
        # While the hub is away the page keeps the old time, so that nothing on it grows older.
        away = trouble([self._records_line], self._clock.monotonic()) is not None
        now = facts.now if away else self._hub_now(self._clock.monotonic())
        view = fleet_view(facts, self._settings, now, self._fleet)
        self._notice_silence(view)
        drawn = DrawnView(
            view=view,
            gpus=self._gpus,
            complete=self._gpus is not None and len(self._gpus.column_names) > len(ALL_FIELDS),
            at=self._clock.monotonic(),
            facts=facts,
        )
        self._publish(drawn)

    def _publish(self, drawn: DrawnView) -> None:
        with self._fresh:
            self._drawn = drawn
            self._fresh.notify_all()

    def _lost(self, line: RequestHealth, why: str, who: str = "the hub") -> None:
        if all(one.error is None for one in self._lines):
            if self._drawn is None:
                self._log.info("waiting for the hub", reason=why)
            else:
                self._log.warning("hub lost", reason=why)
            self._wake.set()
        line.failed(why, who)
        with self._fresh:
            self._fresh.notify_all()
