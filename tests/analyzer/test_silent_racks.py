"""Silence that has a reason: a rack's, the node's own last word, or its scheduler's."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.analysis import Analysis, Reading
from analyzer.detectors.node_silent import silent_nodes
from analyzer.incidents.book import Book
from analyzer.window.out_of_service import SchedulerReports
from gpuvigil.model import (
    CoveredBy,
    EventKind,
    Finding,
    Incident,
    ScheduledNode,
    Scheduler,
    Severity,
    Subject,
)
from gpuvigil.silence_conditions import NodeSilence

from .scene import NOON, SETTINGS, Scene, allocation, event, gpu, healthy, node
from .test_hardware import SPINS

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
EITHER = NodeSilence.RACK_EITHER.heading
INFO, WARNING = Severity.INFO, Severity.WARNING
# Two racks of six; of the first some fall silent.
RACKED = replace(
    healthy(nodes=12, seconds=60),
    inventories=tuple(
        replace(one, rack="a" if int(one.subject.node.rpartition("-")[2]) <= 6 else "b")
        for one in healthy(nodes=12, seconds=10).inventories
    ),
)


def quiet(*numbers: int, scene: Scene = RACKED, seconds: float = 60.0) -> Scene:
    """These nodes were last heard so long ago, each a second before the next."""
    heard = {node(n).key: NOON - timedelta(seconds=seconds + n) for n in numbers}
    return replace(scene, heard={**scene.heard, **heard})


def of_racks(scene: Scene) -> list[Finding]:
    return [finding for finding in silent_nodes(scene.window()) if finding.group]


def test_half_of_a_rack_at_once_is_one_matter_of_the_rack() -> None:
    (found,) = of_racks(quiet(2, 4, 5))
    assert (found.subject, found.condition, found.severity) == (
        node(1),
        NodeSilence.RACK_EITHER,
        WARNING,
    )
    assert found.members == (node(2), node(4), node(5))
    assert found.since == NOON - 65 * SECOND
    assert found.evidence[0].value == "3 of 6: node-2, node-4, node-5"
    assert "management switch" in found.action
    # It stays the same one as more of them fall silent.
    (more,) = of_racks(quiet(1, 2, 4, 5))
    assert more.fingerprint == found.fingerprint


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ((2, 4), "two may be chance"),
        ((2, 4, 8), "of two racks"),
        ((1, 2, 3, 7, 8, 9), "half of the cluster is another matter"),
    ],
)
def test_fewer_or_elsewhere_or_half_of_the_cluster_is_no_rack(
    numbers: tuple[int, ...], why: str
) -> None:
    assert of_racks(quiet(*numbers)) == [], why


@pytest.mark.medium
def test_a_rack_that_dies_while_another_is_heard_stays_one_though_it_is_half_of_the_cluster() -> (
    None
):
    whole_rack = (1, 2, 3, 4, 5, 6)
    assert [found.members for found in of_racks(quiet(*whole_rack))] == [
        tuple(node(n) for n in whole_rack)
    ]
    watch = Watch()
    for seconds in (0, 10):
        active = watch.look(quiet(*whole_rack), seconds * SECOND)
    assert [one.label for one in active] == ["rack a"]
    assert of_racks(quiet(*whole_rack, 7)) == []


def test_what_fell_silent_over_hours_is_no_matter_of_the_rack() -> None:
    old = {node(2).key: NOON - timedelta(hours=2)}
    scene = quiet(4, 5)
    assert of_racks(replace(scene, heard={**scene.heard, **old})) == []
    nameless = tuple(replace(one, rack=None) for one in RACKED.inventories)
    assert of_racks(replace(quiet(2, 4, 5), inventories=nameless)) == []


def test_the_other_nodes_of_its_jobs_tell_power_from_network() -> None:
    jobs = (allocation(gpu(2), "job 7"), allocation(gpu(8), "job 7"))
    long = replace(quiet(2, 4, 5, seconds=660.0), allocations=jobs)
    (found,) = of_racks(long)
    assert (found.condition, found.evidence[-1].value) == (NodeSilence.RACK_NETWORK, "1 alive")
    spins = RACKED.changed(gpu(8), SPINS)
    waits = replace(quiet(2, 4, 5, scene=spins, seconds=180.0), allocations=jobs)
    (found,) = of_racks(waits)
    assert (found.condition, found.evidence[-1].value) == (NodeSilence.RACK_POWER, "1 dead")


class Watch:
    """An analyzer, and what is open."""

    def __init__(self) -> None:
        self.analysis = Analysis(SETTINGS)
        self.analysis.start([i.to_record() for i in RACKED.inventories], Book())

    def look(self, scene: Scene, after: timedelta) -> list[Incident]:
        window = scene.window()
        shift = {key: at + after for key, at in scene.heard.items() if at > NOON - 30 * SECOND}
        self.analysis.run_pass(
            Reading(
                now=NOON + after,
                rows=window.rows,
                last_seen={**scene.heard, **shift},
                listening_since=window.listening_since,
            )
        )
        return sorted(self.analysis.book.active(), key=lambda i: i.label)


def drain(watch: Watch, *numbers: int) -> None:
    """Alice drains these nodes 15 s after the first of them fell silent."""
    reason = "dark [alice@2026-01-31T12:00:15]"
    named = tuple(
        ScheduledNode(name=node(n).node, states=("IDLE", "DRAIN"), reason=reason) for n in numbers
    )
    watcher, at = Subject(cluster="c", node="slurmctl"), NOON + 20 * SECOND
    drained = Scheduler(told_by=watcher, at=at, answered_at=at, why="", nodes=named)
    watch.analysis.ingest(drained.to_record())


@pytest.mark.medium
def test_a_rack_that_falls_silent_is_one_incident_until_its_nodes_are_heard_again() -> None:
    watch = Watch()
    watch.look(quiet(2, 4, 5), timedelta())
    (one,) = watch.look(quiet(2, 4, 5), 10 * SECOND)
    assert (one.label, one.title) == ("rack a", EITHER)
    assert one.impact.gpus == 6
    # A fourth joins it, and two that come back leave it to the others.
    watch.look(quiet(2, 3, 4, 5), 20 * SECOND)
    (one,) = watch.look(quiet(2, 3, 4, 5), 30 * SECOND)
    assert node(3).key in one.members
    for seconds in (40, 50, 60, 70, 80):
        left = watch.look(quiet(2, 3), seconds * SECOND)
    assert [i.label for i in left] == ["node-2", "node-3"]
    # What a boot would tell comes with the first bodies.
    active = [watch.look(RACKED, seconds * SECOND) for seconds in (90, 100, 110, 120)]
    assert [len(them) for them in active] == [2, 2, 2, 0]


@pytest.mark.medium
def test_one_that_is_heard_again_as_a_whole_is_over_as_soon_as_it_is_known_what_it_was() -> None:
    watch = Watch()
    for seconds in (0, 10):
        watch.look(quiet(2, 4, 5), seconds * SECOND)
    (still,) = watch.look(RACKED, 20 * SECOND)
    assert still.title == EITHER
    for number in (2, 4, 5):
        boot = event(EventKind.BOOT, node(number), NOON + 5 * SECOND)
        watch.analysis.ingest(boot.to_record())
    assert watch.look(RACKED, 30 * SECOND) == []


@pytest.mark.medium
@pytest.mark.parametrize("drained", [False, True])
def test_a_critical_that_stood_before_goes_on_and_makes_no_rack_critical(drained: bool) -> None:
    watch = Watch()
    failed = event(EventKind.XID, gpu(2), NOON - 10 * MINUTE, 64)
    watch.analysis.ingest(failed.to_record(), late=False)
    before = watch.look(RACKED, timedelta())
    assert [(i.label, i.severity) for i in before] == [("node-2 GPU 0", Severity.CRITICAL)]
    # Its rack is upgraded, say: who was woken is not woken again.
    for seconds in (10, 20):
        watch.look(quiet(2, 4, 5), seconds * SECOND)
    if drained:
        drain(watch, 2, 4, 5)
    for seconds in (30, 60, 90):
        active = watch.look(quiet(2, 4, 5), seconds * SECOND)
    assert [(i.label, i.severity) for i in active] == [
        ("node-2 GPU 0", Severity.CRITICAL),
        ("rack a", WARNING),
    ]


@pytest.mark.medium
@pytest.mark.parametrize("first", [1, 5])
def test_draining_a_dark_rack_ends_nothing_and_opens_nothing(first: int) -> None:
    watch = Watch()
    for seconds in (0, 10):
        watch.look(quiet(first, 2, 4), seconds * SECOND)
    drain(watch, first, 2, 4)
    for seconds in (30, 40, 50, 90, 200):
        (one,) = watch.look(quiet(first, 2, 4), seconds * SECOND)
        assert (one.label, one.severity, one.title) == ("rack a", WARNING, EITHER)
    # It is out of service where the node that names it is drained, too.
    reason = "" if one.out_of_service is None else one.out_of_service.reason
    assert ("alice" in reason) is (first == 1)
    # One of them is back: of the others she knows.
    for seconds in (210, 220):
        left = watch.look(quiet(2, 4), seconds * SECOND)
    assert left == []


def test_an_event_on_a_racks_first_node_changes_nothing_of_the_rack() -> None:
    watch = Watch()
    for seconds in (0, 10):
        active = watch.look(quiet(2, 4, 5), seconds * SECOND)
    watch.analysis.ingest(event(EventKind.XID, gpu(1), NOON + 11 * SECOND, 13).to_record())
    watch.analysis.check_node(node(1), NOON + 12 * SECOND)
    (rack,) = [i for i in watch.analysis.book.active() if i.fault == "node_silent"]
    assert [rack] == active


@pytest.mark.medium
def test_a_room_takes_over_from_a_rack() -> None:
    watch = Watch()
    for seconds in (0, 10):
        watch.look(quiet(2, 4, 5), seconds * SECOND)
    room = quiet(2, 4, 5, 7, 8, 9, 10)
    for seconds in (20, 30, 40, 50):
        active = watch.look(room, seconds * SECOND)
    assert [i.label for i in active] == ["cluster c"]


@pytest.mark.medium
def test_a_room_takes_over_racks_and_nothing_that_its_other_nodes_have_had() -> None:
    watch = Watch()
    lost = RACKED.changed(gpu(12), {"up": 0, "unmeasured_reason": 3, "utilization_percent": None})
    for seconds in (0, 10, 20):
        before = watch.look(quiet(2, 4, 5, scene=lost), seconds * SECOND)
    assert [i.label for i in before] == ["node-12 GPU 0", "rack a"]
    after = watch.look(quiet(2, 4, 5, 7, 8, 9, 10), 30 * SECOND)
    assert [i.label for i in after] == ["cluster c", "node-12 GPU 0"]
    entries = watch.analysis.book.entries
    gpu_, rack = (entries[i.fingerprint].cause for i in before)
    assert isinstance(rack, CoveredBy)
    assert rack.fingerprint == after[0].fingerprint
    assert not isinstance(gpu_, CoveredBy)


# --- who went in order ----------------------------------------------------------------------------


def last_word(kind: EventKind, message: str = "", seconds: float = 65.0) -> Scene:
    """Node 1 said so before it fell silent, a minute ago; others' work goes on."""
    said = replace(event(kind, node(), NOON - timedelta(seconds=seconds)), message=message)
    scene = healthy().without(lambda s: s.subject.of_node() == node())
    busy = replace(scene, allocations=(allocation(gpu(2), "job 8"),))
    return quiet(1, scene=busy.with_events(said))


def later(scene: Scene, by: timedelta) -> Scene:
    """The same silence, looked at later; the other node was heard until then."""
    return replace(scene, now=NOON + by, heard={**scene.heard, node(2).key: NOON + by})


def at(scene: Scene, hours: float) -> tuple[Severity, str] | None:
    """What is told of node 1 by then, if anything is."""
    found = silent_nodes(later(scene, timedelta(hours=hours)).window())
    return next(((one.severity, one.title) for one in found), None)


def test_a_node_that_shuts_down_in_order_is_no_incident_however_long_it_stays_away() -> None:
    down = last_word(EventKind.SHUTDOWN, "poweroff")
    for hours in (0.0, 0.5, 0.9):
        assert at(down, hours) is None
    held = replace(down, allocations=(*down.allocations, allocation(gpu(), "job 7")))
    assert at(held, 0.0) == (WARNING, "Node was shut down in order")


def test_a_reboot_is_awaited_for_an_hour() -> None:
    down = last_word(EventKind.SHUTDOWN, "reboot")
    # Whoever has it booted anew under a job knows that.
    held = replace(down, allocations=(*down.allocations, allocation(gpu(), "job 7")))
    for told in (down, held):
        assert at(told, 0.5) is None
        assert at(told, 1.1) == (WARNING, "Node was to reboot, and is not back")


def test_a_collector_that_somebody_stopped_is_named_and_warned_of_after_an_hour() -> None:
    stopped = last_word(EventKind.STOPPED)
    assert at(stopped, 0.5) is None
    assert at(stopped, 1.1) == (WARNING, NodeSilence.STOPPED.heading)


def test_an_old_word_or_one_before_a_boot_says_nothing() -> None:
    assert at(last_word(EventKind.STOPPED, seconds=600.0), 0.5) == (WARNING, "")
    boot = event(EventKind.BOOT, node(), NOON - 62 * SECOND)
    assert at(last_word(EventKind.SHUTDOWN, "reboot").with_events(boot), 0.5) == (WARNING, "")
    # Its numbers went on after it: another collector was started.
    stopped = last_word(EventKind.STOPPED)
    lines = [s for s in healthy().samples if s.subject == node()]
    held = (*stopped.allocations, allocation(gpu(), "job 7"))
    goes_on = replace(stopped, samples=(*stopped.samples, *lines), allocations=held)
    assert [finding.title for finding in silent_nodes(goes_on.window())] == [""]


@pytest.mark.parametrize(
    ("kind", "seconds", "told"),
    [
        (EventKind.STOPPED, 120.0, None),
        (EventKind.STOPPED, 120.1, (WARNING, "")),
        (EventKind.SHUTDOWN, 420.0, None),
        (EventKind.SHUTDOWN, 420.1, (WARNING, "")),
    ],
)
def test_a_word_is_the_last_one_where_numbers_came_soon_after_it(
    kind: EventKind, seconds: float, told: tuple[Severity, str] | None
) -> None:
    """What a machine had kept to send at once may come minutes after it says that it goes down."""
    assert at(last_word(kind, seconds=61.0 + seconds), 0.5) == told


@pytest.mark.parametrize(("ended", "told"), [(65.0, False), (54.9, True)])
def test_a_word_that_came_long_after_its_last_numbers_says_until_when_a_node_lived(
    ended: float, told: bool
) -> None:
    """What ended before the next body was due was over by then."""
    held = replace(allocation(gpu(), "job 7"), ended_at=NOON - timedelta(seconds=ended))
    down = last_word(EventKind.SHUTDOWN, "poweroff")
    scene = quiet(1, scene=replace(down, allocations=(*down.allocations, held)), seconds=600.0)
    assert at(scene, 0.0) == ((WARNING, "Node was shut down in order") if told else None)


@pytest.mark.parametrize("held", [True, False])
def test_a_node_that_says_that_it_booted_is_late_from_then_on(held: bool) -> None:
    """Its first numbers may take a while, with nobody's work as with somebody's."""
    patience = timedelta(minutes=9)
    jobs = (allocation(gpu(1 if held else 2), "job 7"),)
    patient = replace(SETTINGS, silent_verdict_seconds=540.0)
    scene = replace(quiet(1, scene=healthy(), seconds=1500.0), allocations=jobs, settings=patient)
    for after, count in ((patience - 0.1 * SECOND, 0), (patience, 1)):
        boot = event(EventKind.BOOT, node(), NOON - after)
        assert len(silent_nodes(scene.with_events(boot).window())) == count
    assert len(silent_nodes(scene.window())) == 1


def test_a_node_that_dies_soon_after_its_collector_was_restarted_is_missed() -> None:
    stopped = quiet(1, scene=last_word(EventKind.STOPPED, seconds=200.0), seconds=100.0)
    assert at(stopped, 0.0) is None
    # Of its last numbers the newest is older than a minute by now.
    lines = [s for s in healthy().shifted(-100 * SECOND).samples if s.subject == node()]
    held = (*stopped.allocations, allocation(gpu(), "job 7"))
    restarted = replace(stopped, samples=(*stopped.samples, *lines), allocations=held)
    assert at(restarted, 0.0) == (WARNING, "")


@pytest.mark.parametrize(
    ("states", "reason", "told"),
    [
        ("IDLE POWERED_DOWN", None, []),
        ("LEAVING", "ToBeDeletedByClusterAutoscaler", []),
        ("DELETED", None, []),
        ("IDLE DRAIN", "fan [alice@2026-01-31T11:00:00]", []),
        ("DOWN NOT_RESPONDING", "Not responding [slurm@2026-01-31T11:00:00]", [WARNING]),
        ("IDLE", None, [WARNING]),
    ],
)
def test_what_its_scheduler_took_away_is_no_incident(
    states: str, reason: str | None, told: list[Severity]
) -> None:
    named = ScheduledNode(name="node-1", states=tuple(states.split()), reason=reason)
    watcher = Subject(cluster="c", node="slurmctl")
    said = Scheduler(told_by=watcher, at=NOON, answered_at=NOON, why="", nodes=(named,))
    away = SchedulerReports().with_record(said).away(NOON + timedelta(minutes=20), {})
    scene = quiet(1, scene=replace(healthy(), allocations=(allocation(gpu(2), "job 8"),)))
    late = later(scene, timedelta(minutes=20)).window()
    assert [one.severity for one in silent_nodes(replace(late, away=away))] == told


@pytest.mark.parametrize(
    ("minutes", "said_at", "job", "states", "title"),
    [
        (21, -1, False, "DOWN NOT_RESPONDING", "Node is dead or cut off"),
        (2, -1, True, "DOWN NOT_RESPONDING", "Node is dead or cut off"),
        (2, -1, False, "DOWN NOT_RESPONDING", None),  # as little while it boots
        (21, -22, True, "DOWN NOT_RESPONDING", ""),  # said before: another silence
        (7, -1, True, "UNKNOWN NOT_RESPONDING", "Node is dead or cut off"),  # as Kubernetes says it
        (4, -1, True, "UNKNOWN NOT_RESPONDING", ""),  # may be a pause
        (4, -1, True, "ALLOCATED NOT_RESPONDING", ""),  # Slurm did not set it down yet
        (21, -1, True, "UNKNOWN", ""),  # Slurm's controller has just started
        (21, -1, True, "NOT_READY", ""),  # its kubelet says so itself
    ],
)
def test_a_node_that_its_scheduler_does_not_hear_either_is_dead_or_cut_off(
    minutes: int, said_at: int, job: bool, states: str, title: str | None
) -> None:
    named = ScheduledNode(name="node-1", states=tuple(states.split()))
    watcher, at = Subject(cluster="c", node="slurmctl"), NOON + said_at * MINUTE
    said = Scheduler(told_by=watcher, at=at, answered_at=at, why="", nodes=(named,))
    held = [allocation(gpu(2), "job 8"), *([allocation(gpu(), "job 7")] if job else [])]
    scene = replace(healthy(), allocations=tuple(held))
    heard = {**scene.heard, node().key: NOON - minutes * MINUTE}
    window = replace(scene, heard=heard).window()
    away = SchedulerReports().with_record(said).away(NOON, {})
    found = silent_nodes(replace(window, away=away))
    assert next((one.title.partition(":")[0] for one in found), None) == title


HELD = (allocation(gpu(12), "job 12"),)  # somebody tells who holds GPUs


def idle(*minutes: float, jobs: int = 0, scene: Scene = RACKED) -> list[tuple[str, Severity]]:
    """What is said of nodes that fell silent so many minutes ago; `jobs`: so many of them had one."""
    heard = {node(n): NOON - timedelta(minutes=at) for n, at in enumerate(minutes, 1)}
    told = {**scene.heard, **{subject.key: at for subject, at in heard.items()}}
    busy = tuple(allocation(gpu(n), f"job {n}") for n in range(1, jobs + 1))
    here = replace(scene, heard=told, allocations=(*HELD, *busy))
    found = silent_nodes(here.window())
    return [
        (f.title.partition(":")[0] or (f.group.key if f.group else ""), f.severity) for f in found
    ]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("minutes", "count"),
    [
        ((70, 60, 45), 0),
        ((300, 290, 280, 270), 0),  # and so it stays
        ((41, 30, 29.8), 3),  # two of three at once
        ((40, 39.9, 39.8, 39.7), 4),  # a feed
        ((200, 120, 40), 3),  # hours apart
        ((45, 30), 0),  # the first of several?
        ((65, 61), 2),  # of two for an hour
        ((45,), 1),
        ((15,), 1),
        ((8.9,), 0),
    ],
)
def test_idle_nodes_that_leave_one_by_one_are_scaled_down(
    minutes: tuple[float, ...], count: int
) -> None:
    scene = replace(RACKED, inventories=tuple(replace(i, rack=None) for i in RACKED.inventories))
    assert idle(*minutes, scene=scene) == [("", WARNING)] * count


def test_nodes_that_go_with_their_work_are_missed_and_so_are_the_idle_ones_beside_them() -> None:
    assert {severity for _, severity in idle(70, 60, 45, 40, jobs=2)} == {WARNING}


def test_a_rack_whose_idle_nodes_leave_one_by_one_has_not_stopped() -> None:
    assert idle(44, 43, 42, 41.2, 40.5) == []
    assert (EITHER.partition(":")[0], WARNING) in idle(40.1, 40, 39.9, 39.8)


@pytest.mark.medium
def test_what_left_stays_left_while_others_come_and_go() -> None:
    """However many leave after it, and in whatever order the first ones are looked at."""
    minutes = [80.0, 77.0, 60.0, 59.0, 48.5, 47.2, 44.0]
    for count in range(3, len(minutes) + 1):
        for one in (minutes[:count], minutes[:count][::-1]):
            assert idle(*one) == []
