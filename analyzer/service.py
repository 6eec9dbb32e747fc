"""`gpuvigil analyze`: a pass every tick, and an immediate look at a node when an event comes.

Four threads, each with its own client of the hub: passes, changes, usage and the efficiency of
hours that are over; with a Prometheus store a fifth writes inventories and holders. Whatever
happens to the hub, they go on trying, and conclusions are written again until the hub has them:
every record has an id, so that writing it twice changes nothing.
"""

import threading
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil import __version__
from gpuvigil.clock import Clock, SystemClock, micros, to_text
from gpuvigil.config import AnalyzerSettings, Config
from gpuvigil.config.startup import parser, run_service
from gpuvigil.errors import HubError, HubRefused
from gpuvigil.hub_client import Hub, addresses
from gpuvigil.log import Log
from gpuvigil.loop import Persistence, run_steps
from gpuvigil.model import UNREADABLE, Acknowledgement, Record, RecordKind, Subject
from gpuvigil.schedulers.out_of_service import Checks
from gpuvigil.store.configured import hubs
from gpuvigil.store.external import store_of
from gpuvigil.store.prometheus import PrometheusStore
from gpuvigil.store.without_pandas import go_without_pandas
from gpuvigil.topology import Files, read
from gpuvigil.web.metrics_page import Exporter

from .analysis import Analysis, Unit, patience
from .correlation.all_detectors import DETECTORS, questions
from .exporter import Passes, exposition
from .hub_queries import (
    KINDS,
    Earlier,
    NodeContacts,
    newest_at,
    offsets,
    read_start_state,
    rows,
    subjects,
    without_old_selftests,
)
from .incidents.acknowledgement import line
from .incidents.history import Histories
from .incidents.late_events import Arrival, absence, is_late
from .jobs import kept_usual
from .jobs.efficiency_job import EfficiencyJob
from .jobs.job_accounts import Jobs
from .jobs.prometheus_inventory import PrometheusInventory
from .jobs.replacement_job import Replacements
from .jobs.setup_job import Setups
from .jobs.usage_job import UsageCounter

# How long a request waits for changes, and so how long it can delay a stop.
_POLL_SECONDS = 2.0
_DRAIN_SECONDS = 4.0
# Units or records in one write: far below the hub's largest body.
_UNITS_AT_ONCE = 500
# Replacement records read at a start: far more than anybody has under way, old ones included.
_MOST_RMAS = 20_000
# Setup records of nodes, and records of what their GPUs usually are, read at a start. Beyond this
# limit a setup is written once again, and what is usual is learned again.
_MOST_OF_NODES = 100_000
# How much of what is usual a restart may forget: six looks.
_USUAL_KEPT_EVERY = timedelta(hours=1)
# While the token rotates, the same request may be accepted a little later.
_TOKEN_REFUSED = frozenset({401, 403})


def main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil analyze` until SIGTERM or SIGINT; return the exit code."""
    go_without_pandas()
    return run_service(parser("analyze", "Turn telemetry into incidents."), arguments, run)


def run(config: Config, _: Namespace, stop: threading.Event) -> None:
    """Run the threads until `stop`."""
    connect, clock = hubs(config), SystemClock()
    service = Service(config, connect, clock, stop)
    retention = timedelta(days=config.hub.telemetry_days)
    usage = UsageCounter(
        connect(),
        clock,
        stop,
        retention,
        Checks.of(config.analyzer),
        timedelta(seconds=config.analyzer.idle_after_seconds),
    )
    steps = [("pass", service.make_pass), ("changes", service.follow), ("usage", usage.step)]
    steps.append(("efficiency", EfficiencyJob(connect(), clock, stop).step))
    if config.store.kind == "prometheus":
        store = PrometheusStore(config.store, clock)
        steps.append(("inventory", PrometheusInventory(connect(), store, clock, stop).step))
    threads = [
        threading.Thread(target=service.loop, args=(name, step), name=name, daemon=True)
        for name, step in steps
    ]
    with _metrics(config.analyzer, service):
        for thread in threads:
            thread.start()
        service.log.info("started", detectors=len(DETECTORS), version=__version__)
        stop.wait()
        deadline = service.clock.monotonic() + _DRAIN_SECONDS
        for thread in threads:
            thread.join(max(deadline - service.clock.monotonic(), 0.0))
    service.log.info("stopped")


def _metrics(settings: AnalyzerSettings, service: "Service") -> AbstractContextManager[object]:
    """Serve `/metrics` if a port is set."""
    if settings.metrics_port < 0:
        return nullcontext()
    return Exporter(settings.metrics_listen, settings.metrics_port, service.numbers, "analyzer")


class Service:
    """The analyzer's loops; `Analysis` decides, from what these read."""

    def __init__(
        self, config: Config, connect: Callable[[], Hub], clock: Clock, stop: threading.Event
    ) -> None:
        settings = config.analyzer
        self.settings = settings
        self.clock = clock
        self.stop = stop
        self.log = Log("analyzer")
        files = Files(map(read, config.topology.files))
        self.analysis = Analysis(settings, declared=config.alerts.idle, files=files)
        self._pass_hub, self._changes_hub = connect(), connect()
        self._stores = [store_of(self._pass_hub), store_of(connect())]
        self._needs = questions(DETECTORS)
        self._earlier = Earlier(clock.monotonic)
        self._jobs = Jobs()
        self._histories = Histories(self.analysis.gpu)
        self._replacements, self._setups = Replacements(), Setups()
        gap_seconds = max(3 * settings.tick_seconds, settings.silent_after_seconds / 2)
        self._ear = NodeContacts(timedelta(seconds=gap_seconds))
        self._offsets: dict[str, timedelta] = {}
        self._usual_kept_at: datetime | None = None  # time of the last look that the hub has
        self._sequence: int | None = None
        self._followed_at: datetime | None = None
        self._late_after = timedelta(seconds=settings.late_after_seconds)
        self._lost_at: datetime | None = None  # since when the hub does not answer
        # With two hubs, the other may have been there all the time.
        self._is_alone = len(addresses(config.hub.url)) == 1
        self._begun = threading.Event()
        self._passes = Passes()

    def loop(self, name: str, step: Callable[[], None]) -> None:
        """Call `step` until asked to stop; no error in it ends the loop."""
        persistence = Persistence(name=name, clock=self.clock, stop=self.stop, log=self.log)
        run_steps(persistence, step)

    def numbers(self) -> str:
        """Return the current text of `/metrics`."""
        analysis = self.analysis
        held = analysis.held() if self.settings.metrics_holders else None
        return exposition(analysis.book.active(), held, self._passes)

    def make_pass(self) -> None:
        """Make one pass over the whole fleet, then wait for the next tick."""
        if not self._begun.wait(_POLL_SECONDS):
            return
        began = self.clock.monotonic()
        now = self.clock.now()
        status = self._pass_hub.status()
        self._offsets = offsets(status)
        heard = without_old_selftests(self._ear.read_status(status, now))
        answers = rows(
            self._stores, self._needs, now, self.settings, self._earlier, without=heard.over
        )
        self.analysis.run_pass(replace(heard, rows=answers))
        self._write(self._pass_hub)
        self._keep_usual()
        retired = self.analysis.to_retire()
        if retired:
            self._pass_hub.write_records(retired)
            self.log.info("nodes retired", count=len(retired), first=retired[0].subject)
        seconds = self.clock.monotonic() - began
        self._passes = Passes(
            count=self._passes.count + 1,
            seconds=self._passes.seconds + seconds,
            last_at=self.clock.now().timestamp(),
            failing=len(self.analysis.failing),
        )
        newest = newest_at(answers)
        body = {
            "state": "running",
            "version": __version__,
            "tick_seconds": self.settings.tick_seconds,
            "pass_seconds": seconds,
            "subjects": subjects(answers),
            "newest_at": None if newest is None else to_text(newest),
            "active": len(self.analysis.book.active()),
            "failing": dict(self.analysis.failing),
            "waited_for": dict(self.analysis.extended_limits),
        }
        self._pass_hub.write_records([_pulse(now, body)])
        self.clock.wait(self.stop, self.settings.tick_seconds - seconds)

    def _keep_usual(self) -> None:
        """Write what was learned about GPUs; a refusal is only logged, as nothing depends on it."""
        usual, kept_at = self.analysis.usual, self._usual_kept_at
        at = kept_usual.learned_at(usual)
        if at is None or (kept_at is not None and at - kept_at < _USUAL_KEPT_EVERY):
            return
        records = kept_usual.records(usual)
        for begin in range(0, len(records), _UNITS_AT_ONCE):
            try:
                self._pass_hub.write_records(records[begin : begin + _UNITS_AT_ONCE])
            except HubRefused as error:
                if error.status in _TOKEN_REFUSED:
                    raise
                self.log.warning("the hub refuses what was learned of GPUs", why=str(error))
                break
        self._usual_kept_at = at

    def follow(self) -> None:
        """Take in the hub's changes, and look at each node that has a new event."""
        if self._sequence is None:
            self._begin()
            return
        try:
            answer = self._changes_hub.changes(self._sequence, KINDS, wait_seconds=_POLL_SECONDS)
            arrival = self._arrived(self.clock.now())
        except HubError:
            self._lost_at = self._lost_at or self.clock.now()
            raise
        now = arrival.at
        if answer.sequence < self._sequence:
            self.log.warning("the hub's records are older than ours, reading them again")
            self._sequence = None
            return
        taken = [r for r in answer.records if r.kind is RecordKind.ACKNOWLEDGEMENT]
        others = [r for r in answer.records if r.kind is not RecordKind.ACKNOWLEDGEMENT]
        for record in taken:
            self._acknowledge(record, now)
        nodes = {node for record in others if (node := self._ingest(record, arrival)) is not None}
        for node in sorted(nodes):
            self.analysis.check_node(node, now)
        scheduled = any(record.kind is RecordKind.SCHEDULER for record in others)
        if scheduled:
            self.analysis.mark_out_of_service(now)
        self._sequence, self._followed_at, self._lost_at = answer.sequence, now, None
        if nodes or taken or scheduled:
            self._write(self._changes_hub)
        self._write_replacements()
        self._write_setups()

    def _write_replacements(self) -> None:
        """Write which parts were seen to be replaced; a failed write is tried again later."""
        seen = self._replacements.waiting
        if seen:
            self._changes_hub.write_records(seen)
            self._replacements.written(seen)
            for record in seen:
                self.log.info("part replaced", incident=record.parent, seen=record.body["note"])

    def _known(self, kind: RecordKind) -> Sequence[Record]:
        """Return the hub's records of a kind; none if the hub is an older one that lacks the kind."""
        try:
            return self._changes_hub.records(kind, limit=_MOST_OF_NODES)
        except HubRefused as error:
            if error.status in _TOKEN_REFUSED:
                raise
            return ()

    def _write_setups(self) -> None:
        """Write what nodes run on now; while the hub is away the records wait.

        The loop itself reports a hub that is away. An older hub refuses the kind: then these
        changes are lost, and nothing else is.
        """
        seen = self._setups.waiting
        for begin in range(0, len(seen), _UNITS_AT_ONCE):
            part = seen[begin : begin + _UNITS_AT_ONCE]
            try:
                self._changes_hub.write_records(part)
            except HubRefused as error:
                if error.status in _TOKEN_REFUSED:
                    return
                first, why = part[0].subject, str(error)
                self.log.warning("the hub refuses what nodes run on", first=first, why=why)
            except HubError:
                return
            self._setups.written(part)

    def _begin(self) -> None:
        """Read everything the hub has; no pass is made until this has succeeded once."""
        now = self.clock.now()
        start = read_start_state(self._changes_hub, now, patience(self.settings))
        for record in start.records:
            self._jobs.ingest(record)
        self._histories.begin(start.lately, now)
        self._replacements.begin(
            self._changes_hub.records(RecordKind.RMA, limit=_MOST_RMAS), start.records
        )
        self._write_replacements()
        self._setups.begin(self._known(RecordKind.SETUP), start.records)
        self._write_setups()
        usual = kept_usual.restored(self._known(RecordKind.USUAL))
        self._usual_kept_at = kept_usual.learned_at(usual)
        unreadable = [
            *start.unreadable,
            *self.analysis.start(start.records, start.book, start.lately, usual),
        ]
        if unreadable:
            self.log.warning("records cannot be read", count=len(unreadable), first=unreadable[0])
        for taken in start.acknowledgements:
            self.analysis.acknowledge(taken, now)
        self._sequence, self._followed_at = start.sequence, now
        self._begun.set()

    def _acknowledge(self, record: Record, now: datetime) -> None:
        try:
            taken = Acknowledgement.from_record(record)
        except UNREADABLE as error:
            self.log.warning("record cannot be read", id=record.id, error=repr(error))
            return
        if self.analysis.acknowledge(taken, now):
            return
        # An incident that ended long ago is no longer in the book.
        if self._changes_hub.record(RecordKind.INCIDENT, taken.incident) is None:
            self.log.warning("acknowledges an unknown incident", id=line(taken.incident, 120))

    def _arrived(self, now: datetime) -> Arrival:
        """Return when an answer came and, after a gap, when the hub was away meanwhile."""
        before, away = self._followed_at or now, None
        if now - before > self._late_after and self._is_alone:
            away = absence(self._changes_hub.status(), now, self._lost_at)
        return Arrival(at=now, before=before, away=away)

    def _ingest(self, record: Record, arrival: Arrival) -> Subject | None:
        self._jobs.ingest(record)
        self._replacements.ingest(record)
        self._setups.ingest(record)
        try:
            late = self._is_late(record, arrival)
            return self.analysis.ingest(record, late=late, came_at=arrival.at)
        except UNREADABLE as error:
            self.log.warning("record cannot be read", id=record.id, error=repr(error))
            return None

    def _is_late(self, record: Record, arrival: Arrival) -> bool:
        """Tell whether an event came late from a spool, corrected for its node's clock."""
        if record.kind is not RecordKind.EVENT:
            return False
        node = Subject.parse(record.subject).of_node().key
        happened_at = record.at - self._offsets.get(node, timedelta())
        return is_late(happened_at, arrival, self._late_after)

    def _write(self, hub: Hub) -> None:
        """Write the pending conclusions; those that cannot be written now wait for the next time.

        A unit that the hub refuses for good is dropped alone.
        """
        units, most = self.analysis.to_write(), _UNITS_AT_ONCE
        while units:
            batch = units[:most]
            try:
                hub.write_records([self._enriched(record) for unit in batch for record in unit])
            except HubRefused as error:
                if error.status in _TOKEN_REFUSED:
                    self.analysis.give_back(units)
                    raise
                if len(batch) > 1:
                    most = len(batch) // 2
                    continue
                refused = batch[0][0].id
                self.log.warning("the hub refuses an incident", id=refused, error=str(error))
            except HubError:
                self.analysis.give_back(units)
                raise
            else:
                self._log_transitions(batch)
            units = units[len(batch) :]

    def _enriched(self, record: Record) -> Record:
        """Return a record with what no detector adds: the jobs it hits, and the part's history."""
        return self._histories.named(self._jobs.named(record))

    def _log_transitions(self, units: Sequence[Unit]) -> None:
        for record in (record for unit in units for record in unit):
            if record.kind is RecordKind.TRANSITION:
                self.log.info(
                    "transition",
                    id=record.id,
                    subject=record.subject,
                    to=str(record.body["to_state"]),
                    reason=str(record.body["reason"]),
                )


def _pulse(now: datetime, body: dict[str, object]) -> Record:
    return Record(
        kind=RecordKind.PULSE,
        id="analyzer",
        at=now,
        subject="analyzer",
        version=micros(now),
        body=body,
    )
