"""Nobody is paged about a node that somebody took out of service, and at once when it is back."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.analysis import Analysis, Reading
from analyzer.correlation.all_detectors import DETECTORS, Detector
from analyzer.hub_queries import KINDS
from analyzer.incidents.book import Book, rebuild
from analyzer.window.out_of_service import Away, SchedulerReports
from analyzer.window.window import Window
from gpuvigil.config import AnalyzerSettings
from gpuvigil.lifecycle import Patience
from gpuvigil.model import (
    EventKind,
    Finding,
    Incident,
    OutOfService,
    Record,
    RecordKind,
    ScheduledNode,
    Scheduler,
    Subject,
    Transition,
)
from gpuvigil.schedulers.out_of_service import Checks, taken_out

from .scene import NOON, SETTINGS, Scene, allocation, event, gpu, healthy, node

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
BY_ROOT = "gpu 3 xid 79 [root@2026-01-31T11:00:00]"
BY_ALICE = "fan [alice@2026-01-31T11:00:00]"
DRAINED = ScheduledNode(name="node-1", states=("IDLE", "DRAIN"), reason=BY_ALICE)
WATCHER = Subject(cluster="c", node="slurmctl")


def said(
    *nodes: ScheduledNode, after: timedelta = timedelta(), why: str = "", answered: bool = True
) -> Scheduler:
    at = NOON + after
    known = None if why else nodes
    answered_at = at if not why else NOON if answered else None
    return Scheduler(told_by=WATCHER, at=at, why=why, answered_at=answered_at, nodes=known)


# --- whose wish it is -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "reason", "why"),
    [
        ("IDLE DRAIN", BY_ROOT, f"drained: {BY_ROOT}"),
        ("MIXED DRAIN", "fan [alice@2026-01-31T11:00:00]", "drained: fan"),
        ("DOWN", "disk swap [alice@2026-01-31T11:00:00]", "set down: disk swap"),
        ("DOWN DRAIN NOT_RESPONDING", BY_ROOT, "drained: gpu 3"),
        ("IDLE POWERED_DOWN", None, "powered down"),
        ("IDLE MAINTENANCE", None, "in a maintenance reservation"),
        ("DOWN REBOOT_ISSUED", "kernel [root@2026-01-31T11:00:00]", "being rebooted"),
        ("CORDONED", None, "cordoned"),
        ("UNKNOWN CORDONED", "Kubelet stopped posting", "cordoned: Kubelet"),
        ("LEAVING", "ToBeDeletedByClusterAutoscaler", "leaving the cluster"),
        ("DELETED", None, "deleted from the cluster"),
        # What a machine does about a fault is nobody's wish.
        ("DOWN NOT_RESPONDING", "Not responding [slurm@2026-01-31T11:00:00]", ""),
        ("IDLE DRAIN", "Prolog error [root@2026-01-31T11:00:00]", ""),
        ("IDLE DRAIN", "NHC: check_nvidia failed [root@2026-01-31T11:00:00]", ""),
        ("IDLE DRAIN", "gpuvigil: GPU 3 fell off the bus [root@2026-01-31T11:00:00]", ""),
        ("DOWN", None, ""),
        ("NOT_READY", "kubelet is down", ""),
        ("MIXED", "1 of its 8 GPUs are not offered", ""),
        ("IDLE", BY_ROOT, ""),
    ],
)
def test_only_what_somebody_wants_holds_a_page(states: str, reason: str | None, why: str) -> None:
    found = taken_out(ScheduledNode(name="n", states=tuple(states.split()), reason=reason))
    assert (found is not None) is bool(why)
    assert (found.reason if found else "").startswith(why)


# --- what is known of it --------------------------------------------------------------------------


BEFORE = OutOfService("DRAIN", "drained: x")


def away(*words: Scheduler, at: timedelta = timedelta(), heard: Sequence[Subject] = ()) -> Away:
    told = SchedulerReports()
    for one in words:
        told = told.with_record(one)
    return told.away(NOON + at, {one.key: NOON + at for one in heard})


def test_a_scheduler_that_does_not_answer_is_believed_for_an_hour_and_no_longer() -> None:
    silent = said(why="no answer", after=30 * MINUTE)
    assert away(said(DRAINED), silent, at=30 * MINUTE).reason([node()])
    assert not away(said(DRAINED), silent, at=61 * MINUTE).reason([node()], BEFORE)
    # After a restart only the last word is left: what was out of service is, and nothing new.
    assert away(silent, at=30 * MINUTE).reason([node()], BEFORE) == BEFORE
    assert not away(silent, at=30 * MINUTE).reason([node()])
    assert not away(said(why="never", answered=False, after=-2 * HOUR)).reason([node()], BEFORE)


def test_a_word_that_is_older_than_the_last_changes_nothing() -> None:
    assert not away(said(after=MINUTE), said(DRAINED), at=MINUTE).reason([node()])


def test_all_nodes_of_an_incident_must_be_away() -> None:
    now = away(said(DRAINED))
    assert now.reason([node()])
    assert not now.reason([node(), node(2)])
    assert not now.reason([node(cluster="other")])


def test_full_and_short_names_are_one_node_and_addresses_are_whole() -> None:
    full = Subject(cluster="c", node="node-1.example.org")
    assert away(said(DRAINED)).reason([full])
    ten = replace(DRAINED, name="10.0.0.1")
    assert not away(said(ten)).reason([Subject(cluster="c", node="10.0.0.2")])


def test_a_node_that_was_deleted_stays_away_until_it_is_heard_again() -> None:
    gone = said(ScheduledNode(name="node-1", states=("DELETED",)))
    later = said(after=2 * HOUR)
    assert away(gone, later, at=2 * HOUR).reason([node()])
    assert not away(gone, later, at=2 * HOUR, heard=[node()]).reason([node()])


def test_a_node_that_is_deleted_again_is_away_from_then_on() -> None:
    gone = ScheduledNode(name="node-1", states=("DELETED",))
    told = SchedulerReports()
    for hours, nodes in enumerate([[gone], [], [], [], [gone], []]):
        told = told.with_record(said(*nodes, after=hours * HOUR))
    heard = {node().key: NOON + 3.5 * HOUR}
    assert told.away(NOON + 5 * HOUR, heard).reason([node()])
    there = ScheduledNode(name="node-1", states=("NOT_READY",))
    back = told.with_record(said(there, after=6 * HOUR))
    assert not back.away(NOON + 6 * HOUR, heard).reason([node()])


# --- from the scheduler's word to the incident ----------------------------------------------------


class Hub:
    """What the analyzer has written, and the analyzer anew from it."""

    def __init__(self, detectors: Sequence[Detector] = DETECTORS) -> None:
        self.detectors = detectors
        self.records: dict[str, Record] = {}
        self.analysis = self._begun(Book())

    def _begun(self, book: Book, *records: Record) -> Analysis:
        analysis = Analysis(SETTINGS, self.detectors)
        inventories = [inventory.to_record() for inventory in healthy().inventories]
        assert analysis.start([*inventories, *records], book) == []
        return analysis

    def restart(self, at: timedelta, *records: Record) -> None:
        kept = list(self.records.values())
        incidents = [Incident.from_record(r) for r in kept if r.kind is RecordKind.INCIDENT]
        steps = [Transition.from_record(r) for r in kept if r.kind is RecordKind.TRANSITION]
        book = rebuild(incidents, steps, NOON + at, Patience())
        self.analysis = self._begun(book, *records)

    def told(self) -> list[tuple[str, str]]:
        """What was written since the last time: each step's signal, and why nobody is notified."""
        made = []
        for record in (record for unit in self.analysis.to_write() for record in unit):
            self.records[f"{record.kind.value} {record.id}"] = record
            if record.kind is RecordKind.TRANSITION:
                snapshot = Transition.from_record(record).snapshot
                out = Incident.from_record(Record.from_json(snapshot)).out_of_service
                why = "" if out is None else out.reason.partition(":")[0]
                made.append((str(record.body["signal"]), why))
        return made

    def hears(self, scheduler: Scheduler) -> list[tuple[str, str]]:
        assert scheduler.to_record().kind in KINDS
        self.analysis.ingest(scheduler.to_record())
        self.analysis.mark_out_of_service(scheduler.at)
        return self.told()

    def hears_xid(self, code: int, after: timedelta) -> list[tuple[str, str]]:
        self.analysis.ingest(event(EventKind.XID, gpu(), NOON + after, code).to_record())
        self.analysis.check_node(node(), NOON + after)
        return self.told()

    def looks(self, scene: Scene) -> list[tuple[str, str]]:
        window = scene.window()
        self.analysis.run_pass(
            Reading(
                now=scene.now,
                rows=window.rows,
                last_seen=window.last_seen,
                listening_since=window.listening_since,
            )
        )
        return self.told()


def test_the_incident_stands_as_out_of_service_and_is_told_when_the_node_is_back() -> None:
    hub = Hub()
    assert hub.hears_xid(95, timedelta()) == [("confirmed", "")]
    assert hub.hears(said(DRAINED, after=MINUTE)) == [("changed", "drained")]
    assert hub.hears(said(DRAINED, after=2 * MINUTE)) == []
    (out,) = hub.analysis.book.active()
    assert out.out_of_service == OutOfService("DRAIN", f"drained: {BY_ALICE}")
    assert hub.looks(healthy().shifted(3 * MINUTE)) == []
    assert hub.hears(said(after=4 * MINUTE)) == [("changed", "")]
    (step,) = [r for r in hub.records.values() if r.id.endswith(":3")]
    assert step.body["reason"] == "in service again"


def test_what_happens_on_a_drained_node_wakes_nobody_from_its_first_moment() -> None:
    hub = Hub()
    hub.hears(said(DRAINED))
    assert hub.hears_xid(95, SECOND) == [("confirmed", "drained")]
    assert hub.hears_xid(79, MINUTE) == [("cleared", "drained"), ("confirmed", "drained")]


@pytest.mark.parametrize(
    ("state", "reason", "quiet"),
    [
        ("DRAIN", BY_ROOT, "drained"),
        ("DRAIN", "Action:Replace [root@2026-01-31T11:00:00]", "drained"),
        ("DRAIN", "DCGM: level 1 failed [monitor@2026-01-31T11:00:00]", "drained"),
        ("DOWN", "broken [slurmhealth@2026-01-31T11:00:00]", "set down"),
        ("CORDONED", None, "cordoned"),
    ],
)
def test_what_may_be_why_a_node_was_taken_out_is_told_and_what_comes_later_is_not(
    state: str, reason: str | None, quiet: str
) -> None:
    taken = ScheduledNode(name="node-1", states=("IDLE", state), reason=reason)
    before = Hub()
    before.hears_xid(95, timedelta())
    assert before.hears(said(taken, after=MINUTE)) == []
    after = Hub()
    after.hears(said(taken))
    assert after.hears_xid(95, MINUTE) == [("confirmed", "")]
    after.hears(said(taken, after=9 * MINUTE))
    assert after.hears_xid(79, 10 * MINUTE) == [("cleared", ""), ("confirmed", quiet)]
    after.restart(11 * MINUTE, said(taken, after=10 * MINUTE).to_record())
    assert after.hears(said(taken, after=11 * MINUTE)) == []


def test_what_comes_back_on_a_node_that_was_taken_out_meanwhile_wakes_nobody() -> None:
    reason = "Action:Replace [root@2026-01-31T11:00:00]"
    taken = ScheduledNode(name="node-1", states=("IDLE", "DRAIN"), reason=reason)
    hub = Hub()
    assert hub.hears_xid(95, timedelta()) == [("confirmed", "")]
    hub.analysis.ingest(event(EventKind.GPU_RESET, gpu(), NOON + MINUTE).to_record())
    hub.analysis.check_node(node(), NOON + MINUTE)
    assert hub.told() == [("cleared", "")]
    assert hub.hears(said(taken, after=2 * MINUTE)) == []
    assert hub.hears(said(taken, after=11 * MINUTE)) == []
    assert hub.hears_xid(95, 12 * MINUTE) == [("returned", "drained")]


def test_a_drain_that_is_told_during_a_pass_is_not_undone_by_it() -> None:
    def drained(_: Window) -> list[Finding]:
        """While a pass looks, somebody drains the node."""
        assert hub.hears(said(DRAINED, after=MINUTE)) == [("changed", "drained")]
        return []

    slow = replace(DETECTORS[0], name="slow", find=drained, reads_events=False)
    hub = Hub((*DETECTORS, slow))
    hub.hears_xid(95, timedelta())
    assert hub.looks(healthy().shifted(MINUTE)) == []


def test_a_restart_between_drain_and_resume_changes_nothing() -> None:
    hub = Hub()
    hub.hears_xid(95, timedelta())
    hub.hears(said(DRAINED, after=MINUTE))
    silent = said(why="no answer", after=2 * MINUTE)
    xid = event(EventKind.XID, gpu(), NOON, 95).to_record()
    hub.restart(3 * MINUTE, xid, silent.to_record())
    assert hub.looks(healthy().shifted(3 * MINUTE)) == []
    (stands,) = hub.analysis.book.active()
    assert stands.out_of_service == OutOfService("DRAIN", f"drained: {BY_ALICE}")
    assert hub.hears(said(after=4 * MINUTE)) == [("changed", "")]


@pytest.mark.medium
def test_an_incident_is_in_service_again_also_where_nothing_can_be_seen() -> None:
    hub = Hub()
    hub.looks(healthy().changed(gpu(), {"up": 0, "unmeasured_reason": 3}))
    hub.looks(healthy().changed(gpu(), {"up": 0, "unmeasured_reason": 3}).shifted(SECOND))
    hub.hears(said(DRAINED, after=MINUTE))
    rowless = healthy().without(lambda sample: sample.subject == gpu())
    # Nobody has heard of the scheduler for more than an hour.
    assert hub.looks(rowless.shifted(62 * MINUTE)) == [("changed", "")]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("states", "reason", "first"),
    [
        ("MIXED DRAIN", "firmware on Monday [alice@2026-01-31T11:00:00]", ""),
        ("ALLOCATED REBOOT_REQUESTED", None, ""),
        ("CORDONED", None, ""),
        ("MIXED MAINTENANCE", None, "in a maintenance reservation"),
        ("POWERED_DOWN", None, "powered down by the scheduler"),
    ],
)
def test_what_stops_a_job_that_was_to_run_to_its_end_is_told_at_once(
    states: str, reason: str | None, first: str
) -> None:
    out = ScheduledNode(name="node-1", states=tuple(states.split()), reason=reason)
    hub = Hub()
    hub.analysis.ingest(allocation(gpu()).to_record())
    hub.hears(said(out, after=-HOUR))
    hub.hears(said(out))
    assert hub.hears_xid(95, SECOND) == [("confirmed", first)]
    # Once the job is over nobody needs to hear of it any more.
    hub.analysis.ingest(allocation(gpu(), ended_at=NOON + 2 * SECOND).to_record())
    hub.looks(healthy().shifted(MINUTE))
    (stands,) = hub.analysis.book.active()
    assert stands.out_of_service is not None


# --- what a site says of its health checks ---------------------------------------------------------

SITE = Checks.of(
    AnalyzerSettings(
        health_check_users=("slurmhealth",),
        health_check_reasons=("[hc]", "Action:"),
        doubted_hold_hours=6.0,
    )
)


@pytest.mark.parametrize(
    ("states", "reason", "quiet"),
    [
        ("IDLE DRAIN", "fan [slurmhealth@2026-01-31T11:00:00]", False),
        ("IDLE DRAIN", "[HC] fan [alice@2026-01-31T11:00:00]", False),
        ("IDLE DRAIN", "action:replace [alice@2026-01-31T11:00:00]", False),
        ("CORDONED", "Action:Replace", False),
        ("IDLE DRAIN", BY_ALICE, True),
        # Whoever says so, such a node is away.
        ("IDLE POWERED_DOWN", "[HC] fan [slurmhealth@2026-01-31T11:00:00]", True),
    ],
)
def test_what_a_sites_health_checks_take_out_is_told(states: str, reason: str, quiet: bool) -> None:
    named = ScheduledNode(name="node-1", states=tuple(states.split()), reason=reason)
    found = SchedulerReports(checks=SITE).with_record(said(named)).away(NOON, {})
    assert bool(found.reason([node()])) is quiet
    assert taken_out(named) is not None  # it would be out of service where nobody says so


@pytest.mark.parametrize(
    ("reason", "hours", "critical", "quiet"),
    [
        (BY_ROOT, 5.0, True, True),
        (BY_ROOT, 7.0, True, False),
        (BY_ROOT, 7.0, False, True),
        (BY_ALICE, 700.0, True, True),  # that person has the node
    ],
)
def test_a_critical_is_not_quiet_for_good_where_nobody_is_known_to_have_the_node(
    reason: str, hours: float, critical: bool, quiet: bool
) -> None:
    now = NOON + timedelta(hours=hours)
    words = said(replace(DRAINED, reason=reason), after=now - NOON)
    away_now = SchedulerReports(checks=SITE).with_record(words).away(now, {})
    before = OutOfService("DRAIN", f"drained: {reason}")
    why = away_now.reason([node()], before, NOON, critical=critical)
    assert bool(why) is quiet


def test_names_of_deleted_nodes_are_forgotten_once_nobody_speaks_of_them() -> None:
    told = SchedulerReports().with_record(said(ScheduledNode(name="node-1", states=("DELETED",))))
    week = NOON + timedelta(days=7, hours=1)
    assert told.without(NOON + timedelta(days=6), ()).gone
    assert told.without(week, {node().key}).gone
    assert not told.without(week, ()).gone
