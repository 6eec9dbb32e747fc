"""Passes and events share one book and never spoil each other's conclusions."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.analysis import Analysis, Reading
from analyzer.correlation.all_detectors import DETECTORS, Detector
from analyzer.incidents.book import Book
from analyzer.window.window import Window
from collector.agent.agent import _INVENTORY_SECONDS
from gpuvigil.model import (
    EventKind,
    Finding,
    Record,
    RecordKind,
    Retirement,
    ScheduledNode,
    Scheduler,
    Subject,
)

from .scene import NOON, SETTINGS, Scene, allocation, event, gpu, healthy, node

SECOND = timedelta(seconds=1)
IDLE = {"utilization_percent": 0, "memory_utilization_percent": 0}


def reading(scene: Scene) -> Reading:
    window = scene.window()
    return Reading(
        now=scene.now,
        rows=window.rows,
        last_seen=window.last_seen,
        listening_since=window.listening_since,
    )


def begun(*detectors: Detector) -> Analysis:
    analysis = Analysis(SETTINGS, detectors or DETECTORS)
    records = [inventory.to_record() for inventory in healthy().inventories]
    assert analysis.start([*records, allocation(gpu()).to_record()], Book()) == []
    return analysis


def steps(analysis: Analysis) -> list[str]:
    """What was concluded since the last time, and forget it."""
    records = [record for unit in analysis.to_write() for record in unit]
    return [
        f"{record.body['from_state']} {record.body['to_state']}"
        for record in records
        if record.kind is RecordKind.TRANSITION
    ]


def xid(code: int, at: timedelta = -SECOND) -> Record:
    return event(EventKind.XID, gpu(), NOON + at, code).to_record()


def test_an_incident_and_its_transition_are_written_together() -> None:
    analysis = begun()
    analysis.run_pass(reading(healthy()))
    assert analysis.to_write() == []
    assert analysis.ingest(xid(95)) == node()
    analysis.check_node(node(), NOON)
    ((incident, transition),) = analysis.to_write()
    assert (incident.kind, transition.kind) == (RecordKind.INCIDENT, RecordKind.TRANSITION)
    assert transition.parent == incident.id
    assert analysis.to_write() == []


def test_what_could_not_be_written_goes_first_next_time() -> None:
    analysis = begun()
    analysis.ingest(xid(95))
    analysis.check_node(node(), NOON)
    first = analysis.to_write()
    analysis.ingest(
        event(EventKind.PORT_DOWN, replace(node(2), device="d", port="1"), NOON).to_record()
    )
    analysis.check_node(node(2), NOON)
    analysis.give_back(first)
    assert analysis.to_write()[: len(first)] == first


def test_an_event_does_not_end_what_only_a_pass_can_see() -> None:
    analysis = begun()
    idle = healthy().changed(gpu(), IDLE)
    analysis.run_pass(reading(idle))
    analysis.run_pass(reading(idle.shifted(SECOND)))
    assert steps(analysis) == ["suspect open"]
    for seconds in (1, 60, 600):
        analysis.ingest(event(EventKind.XID, gpu(1, 1), NOON + seconds * SECOND, 13).to_record())
        analysis.check_node(node(), NOON + seconds * SECOND)
    assert [incident.fault for incident in analysis.book.active()].count("gpu_idle_held") == 1


def test_an_event_at_one_node_leaves_the_others_as_they_are() -> None:
    analysis = begun()
    lost = healthy().changed(gpu(), {"up": 0, "unmeasured_reason": 3})
    analysis.run_pass(reading(lost))
    assert steps(analysis) == ["suspect open"]
    analysis.ingest(event(EventKind.XID, gpu(2), NOON, 95).to_record())
    for _ in range(3):
        analysis.check_node(node(2), NOON + timedelta(hours=1))
    assert {incident.subject for incident in analysis.book.active()} == {gpu(), gpu(2)}


def test_an_event_during_a_pass_has_the_last_word_on_its_node() -> None:
    calls: list[Analysis] = []

    def interrupted(window: Window) -> list[Finding]:
        """While the pass looks at what it read, the cure comes and is looked at."""
        for analysis in calls:
            calls.clear()
            analysis.ingest(event(EventKind.GPU_RESET, gpu(), NOON).to_record())
            analysis.check_node(node(), NOON)
        return []

    slow = replace(DETECTORS[0], name="slow", find=interrupted, reads_events=False)
    analysis = begun(*DETECTORS, slow)
    analysis.ingest(xid(95))
    analysis.run_pass(reading(healthy()))
    assert steps(analysis) == ["suspect open"]
    calls.append(analysis)
    analysis.run_pass(reading(healthy()))
    assert steps(analysis) == ["open resolved"]
    analysis.run_pass(reading(healthy().shifted(SECOND)))
    assert steps(analysis) == []


class Faulty:
    """A detector of the table that fails while it is told to."""

    def __init__(self, name: str) -> None:
        (self.real,) = (d for d in DETECTORS if d.name == name)
        self.fails = False

    def find(self, window: Window) -> list[Finding]:
        if self.fails:
            raise ValueError("odd row")
        return self.real.find(window)

    def among(self) -> list[Detector]:
        mine = replace(self.real, find=self.find)
        return [mine if d.name == mine.name else d for d in DETECTORS]


@pytest.mark.medium
def test_a_detector_that_fails_holds_up_no_other_and_ends_nothing_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faulty = Faulty("gpu_idle_held")
    analysis = begun(*faulty.among())
    idle = healthy().changed(gpu(), IDLE)
    for seconds in range(2):
        analysis.run_pass(reading(idle.shifted(seconds * SECOND)))
    assert steps(analysis) == ["suspect open"]
    faulty.fails = True
    later = healthy().changed(gpu(2), {"up": 0, "unmeasured_reason": 3})
    for minutes in (0, 10, 20):
        analysis.run_pass(reading(later.shifted(minutes * 60 * SECOND)))
    assert {i.fault for i in analysis.book.active()} == {"gpu_idle_held", "gpu_lost"}
    assert list(analysis.failing) == ["gpu_idle_held"]
    assert "odd row" in analysis.failing["gpu_idle_held"]
    analysis.check_node(node(), later.now + timedelta(minutes=40))
    assert "gpu_idle_held" in {i.fault for i in analysis.book.active()}
    assert len([r for r in caplog.records if "detector fails" in r.getMessage()]) == 1
    faulty.fails = False
    for minutes in (50, 60, 70):
        analysis.run_pass(reading(later.shifted(minutes * 60 * SECOND)))
    assert not analysis.failing
    assert {i.fault for i in analysis.book.active()} == {"gpu_lost"}


def test_one_that_fails_at_an_event_is_passed_over_there_too() -> None:
    faulty = Faulty("gpu_xid")
    analysis = begun(*faulty.among())
    faulty.fails = True
    analysis.ingest(xid(95))
    analysis.ingest(event(EventKind.DRIVER_SILENT, node(), NOON - SECOND).to_record())
    analysis.check_node(node(), NOON)
    assert {i.fault for i in analysis.book.active()} == {"driver_silent"}
    assert list(analysis.failing) == ["gpu_xid"]


def test_records_of_another_version_are_named_and_left_out() -> None:
    strange = replace(xid(95), id="strange", body={"event": "of a newer version"})
    assert Analysis(SETTINGS).start([strange], Book()) == ["strange"]


def silent(seconds: float, scene: Scene | None = None) -> Reading:
    """A pass over the healthy fleet of which `node()` was last heard long ago."""
    whole = scene or healthy()
    window = whole.window()
    after = timedelta(seconds=seconds)
    heard = {key: at + after for key, at in window.last_seen.items()}
    heard[node().key] = NOON - timedelta(hours=1)
    return Reading(
        now=whole.now + after, last_seen=heard, listening_since=NOON - timedelta(hours=2)
    )


def test_what_stands_on_a_node_ends_when_somebody_retires_it() -> None:
    analysis = begun()
    for seconds in (0, 10):
        analysis.run_pass(silent(seconds))
    assert [i.fault for i in analysis.book.active()] == ["node_silent"]
    at = NOON + 11 * SECOND
    analysis.ingest(Retirement(node=node(), by="ann", note="sold", at=at).to_record())
    analysis.run_pass(silent(20))
    assert analysis.book.active() == ()
    (*_, last) = [record for unit in analysis.to_write() for record in unit]
    assert last.body["reason"] == "retired by ann at 12:00:11 UTC on 31 Jan"
    # It is back, and goes again.
    for seconds, stands in ((30, []), (100, ["node_silent"])):
        back = silent(seconds)
        analysis.run_pass(replace(back, last_seen={**back.last_seen, node().key: at + SECOND}))
        assert [i.fault for i in analysis.book.active()] == stands


@pytest.mark.parametrize(("hours", "retired"), [(23.9, 0), (24.0, 1)])
def test_a_node_that_its_scheduler_deleted_a_day_ago_is_retired(hours: float, retired: int) -> None:
    analysis = begun()
    watcher = Subject(cluster=node().cluster, node="kubernetes")
    deleted_at = NOON - timedelta(hours=hours)
    gone = ScheduledNode(name=node().node, states=("DELETED",), reason="")
    said = Scheduler(told_by=watcher, at=deleted_at, answered_at=NOON, why="", nodes=(gone,))
    analysis.ingest(said.to_record())
    last = {node().key: deleted_at + timedelta(minutes=1)}
    analysis.run_pass(replace(silent(0), last_seen=last))
    told = analysis.to_retire()
    assert [record.subject for record in told] == [node().key] * retired
    for record in told:
        analysis.ingest(record)
    assert analysis.to_retire() == []
    # One that is heard long after it was deleted is there.
    analysis.run_pass(replace(silent(0), last_seen={node().key: NOON}))
    assert analysis.to_retire() == []


@pytest.mark.parametrize(("minutes", "count"), [(14.9, 0), (15.1, 1)])
def test_an_odd_driver_is_told_on_nodes_that_send_an_inventory_every_ten_minutes(
    minutes: float, count: int
) -> None:
    every = timedelta(seconds=_INVENTORY_SECONDS)
    analysis, scene = Analysis(SETTINGS), healthy(nodes=4)
    began = NOON - timedelta(hours=1)
    for at in (began, NOON, NOON + every):
        for one, driver in zip(scene.inventories, "2111" if at >= NOON else "1111", strict=True):
            analysis.ingest(replace(one, at=at, rack="r1", driver=driver).to_record())
    # Without a driver for a moment it is no other one.
    upgraded, later = scene.inventories[3], timedelta(minutes=minutes)
    between = replace(upgraded, at=NOON + every + SECOND, rack="r1", driver=None)
    for told in (between, replace(between, driver="1")):
        analysis.ingest(told.to_record())
    for looks in range(2):
        analysis.run_pass(reading(scene.shifted(later + looks * SECOND)))
    odd = [one for one in analysis.book.active() if one.fault == "driver_drift"]
    assert [(one.subject, one.since) for one in odd] == [(node(), NOON)] * count


@pytest.mark.medium
def test_while_a_rack_is_upgraded_no_node_of_it_is_odd() -> None:
    analysis, scene = Analysis(SETTINGS), healthy(nodes=8)
    steps = [timedelta(minutes=10 * number) for number in range(7)]
    for one in scene.inventories:
        analysis.ingest(replace(one, rack="r1", driver="1").to_record())
    for number, at in enumerate(steps):
        upgraded = replace(scene.inventories[number], at=NOON + at, rack="r1", driver="2")
        analysis.ingest(upgraded.to_record())
        for minutes in (1, 9):
            analysis.run_pass(reading(scene.shifted(at + timedelta(minutes=minutes))))
            assert not analysis.book.active()
