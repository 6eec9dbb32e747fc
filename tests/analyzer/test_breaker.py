"""Half a cluster with the same fault at once is one incident, and never swallows a known cause."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from analyzer.analysis import Analysis, Reading
from analyzer.correlation.all_detectors import DETECTORS
from analyzer.correlation.breaker import is_cluster_wide
from analyzer.evidence.raised import raised_at
from analyzer.incidents.book import Book
from analyzer.window.window import Window
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import EventKind, Finding, Incident, Record, RecordKind, Severity, Subject

from .scene import NOON, SETTINGS, Scene, allocation, event, gpu, healthy, node, with_port_down

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
EIGHT = healthy(nodes=8, seconds=60)
XID = "Xid 95: uncorrectable memory error that may touch several processes"
TITLE = "Half of the cluster or more has the same fault at once: GPU reported an Xid error"


def reading(scene: Scene) -> Reading:
    window = scene.window()
    return Reading(
        now=scene.now,
        rows=window.rows,
        last_seen=window.last_seen,
        listening_since=window.listening_since,
    )


class Watch:
    """An analyzer of eight nodes, and what it wrote last."""

    def __init__(self, scene: Scene = EIGHT, settings: AnalyzerSettings = SETTINGS) -> None:
        self.analysis = Analysis(settings)
        self.scene = scene
        self.analysis.start([i.to_record() for i in scene.inventories], Book())

    def look(self, after: timedelta, scene: Scene | None = None) -> list[str]:
        self.analysis.run_pass(reading((scene or self.scene).shifted(after)))
        return self.steps()

    def hear(self, kind: EventKind, subject: Subject, after: timedelta, xid: int = 95) -> list[str]:
        code = xid if kind is EventKind.XID else None
        self.analysis.ingest(event(kind, subject, NOON + after, code).to_record())
        self.analysis.check_node(subject.of_node(), NOON + after)
        return self.steps()

    def steps(self) -> list[str]:
        records = [record for unit in self.analysis.to_write() for record in unit]
        return [_words(record) for record in records if record.kind is RecordKind.TRANSITION]

    def active(self) -> list[Incident]:
        return sorted(
            self.analysis.book.active(), key=lambda i: (not is_cluster_wide(i), i.subject)
        )


def _words(record: Record) -> str:
    node_ = Subject.parse(record.subject).node
    whole = record.body["snapshot"]["body"]["label"].startswith("cluster ")
    return f"{'cluster' if whole else node_} {record.body['signal']}"


def ill(watch: Watch, nodes: Iterable[int], after: timedelta = timedelta()) -> None:
    for number in nodes:
        watch.hear(EventKind.XID, gpu(number), after + number * SECOND)


def test_half_of_the_nodes_at_once_become_one_that_names_both_suspects() -> None:
    watch = Watch()
    ill(watch, range(1, 5))
    assert [i.title for i in watch.active()] == [XID] * 4
    made = watch.look(10 * SECOND)
    assert sorted(made) == ["cluster confirmed", *(f"node-{n} cleared" for n in range(1, 5))]
    (one,) = watch.active()
    assert (one.title, one.label, one.severity) == (TITLE, "cluster c", Severity.CRITICAL)
    assert set(one.members) == {gpu(n).key for n in range(1, 5)}
    said = {item.name: item.value for item in one.evidence}
    assert said["nodes"] == "4 of 8: node-1, node-2, node-3, node-4"
    assert said["what"] == f"4 x {XID}"
    assert said["GPUs at work among them"] == "4 of 4"
    assert "power, cooling" in one.action
    assert "the rule is wrong" in one.action
    assert one.impact.gpus == 4


def test_what_comes_later_joins_it_without_a_message_of_its_own() -> None:
    watch = Watch()
    ill(watch, range(1, 5))
    watch.look(10 * SECOND)
    assert watch.hear(EventKind.XID, gpu(5), 12 * SECOND) == []
    assert watch.look(20 * SECOND) == ["cluster changed"]
    assert watch.look(30 * SECOND) == []


def test_jobs_that_begin_and_end_on_its_members_are_no_news_of_it() -> None:
    watch = Watch()
    ill(watch, range(1, 5))
    watch.look(10 * SECOND)
    for number, seconds in ((1, 20), (2, 80)):
        watch.analysis.ingest(allocation(gpu(number), f"job {number}").to_record())
        assert watch.look(seconds * SECOND) == []
    (one,) = watch.active()
    assert one.impact.holders == ("job 1", "job 2")


@pytest.mark.medium
def test_of_nodes_that_are_gone_it_hides_nothing_elsewhere_and_ends() -> None:
    gone = [node(number).key for number in range(1, 5)]
    twenty = healthy(nodes=20, seconds=60).without(lambda s: s.subject.of_node().key in gone)

    def look(after: timedelta) -> list[str]:
        scene = twenty.shifted(after)
        heard = {**scene.heard, **dict.fromkeys(gone, NOON)}
        left = replace(scene, heard=heard, listening_since=NOON - HOUR)
        watch.analysis.run_pass(reading(left))
        return watch.steps()

    watch = Watch()
    ill(watch, range(1, 5))
    watch.look(10 * SECOND)
    assert "cluster cleared" not in look(HOUR)
    watch.hear(EventKind.XID, gpu(15), HOUR + SECOND)
    assert "node-15 confirmed" in look(HOUR + 10 * SECOND)
    assert watch.hear(EventKind.XID, gpu(15, 1), HOUR + 11 * SECOND) == []
    assert look(HOUR + 20 * SECOND) == ["node-15 confirmed"]
    assert "cluster cleared" in look(30 * HOUR)
    assert watch.hear(EventKind.XID, gpu(16), 30 * HOUR + SECOND) == ["node-16 confirmed"]


def test_an_event_storm_that_wakes_every_node_holds_up_nothing() -> None:
    def stormy(_: Window) -> list[Finding]:
        """While a pass looks, an event comes of every node."""
        for number in range(1, 5):
            watch.hear(EventKind.XID, gpu(number), 10 * SECOND)
        return []

    watch = Watch()
    storm = replace(DETECTORS[0], name="storm", find=stormy, reads_events=False)
    watch.analysis = Analysis(SETTINGS, (*DETECTORS, storm))
    watch.analysis.start([i.to_record() for i in EIGHT.inventories], Book())
    for seconds in (10, 20):
        watch.look(seconds * SECOND)
    assert any(is_cluster_wide(i) for i in watch.active())


def test_when_few_are_left_each_is_told_for_itself() -> None:
    watch = Watch()
    ill(watch, range(1, 5))
    watch.look(10 * SECOND)
    for number in (1, 2):
        watch.hear(EventKind.GPU_RESET, gpu(number), 20 * SECOND)
    assert watch.look(30 * SECOND) == []  # two of eight: still one
    watch.hear(EventKind.GPU_RESET, gpu(3), 40 * SECOND)
    made = watch.look(50 * SECOND)
    assert sorted(made) == ["cluster cleared", "node-4 returned"]
    assert [i.subject for i in watch.active()] == [gpu(4)]


def test_it_is_over_when_nobody_has_it_any_more() -> None:
    watch = Watch()
    ill(watch, range(1, 5))
    watch.look(10 * SECOND)
    for number in range(1, 5):
        watch.hear(EventKind.GPU_RESET, gpu(number), 20 * SECOND)
    assert watch.look(30 * SECOND) == []
    assert watch.look(61 * SECOND) == ["cluster cleared"]
    assert watch.active() == []


@pytest.mark.medium
def test_three_nodes_are_three_faults_and_so_is_what_came_over_hours() -> None:
    small = Watch(healthy(nodes=3, seconds=60))
    ill(small, range(1, 4))
    assert small.look(10 * SECOND) == []
    slow = Watch()
    for number in range(1, 9):
        slow.hear(EventKind.XID, gpu(number), number * 10 * MINUTE)
        slow.look(number * 10 * MINUTE + SECOND)
    assert len(slow.active()) == 8


def test_what_stood_long_before_goes_on_for_itself() -> None:
    watch = Watch()
    watch.hear(EventKind.XID, gpu(8), -20 * MINUTE)
    watch.look(-19 * MINUTE)
    ill(watch, range(1, 6))
    watch.look(10 * SECOND)
    assert [i.subject for i in watch.active()] == [gpu(1), gpu(8)]
    (first, _) = watch.active()
    assert gpu(8).key not in first.members
    assert raised_at(first) == NOON + 10 * SECOND


def test_a_leaf_that_takes_half_of_the_cluster_stays_a_leaf() -> None:
    scene = EIGHT
    for number in range(1, 6):
        scene = with_port_down(scene, number)
    watch = Watch(scene)
    for down in scene.events:
        watch.analysis.ingest(down.to_record())
        watch.analysis.check_node(down.subject.of_node(), NOON)
    watch.look(timedelta())
    watch.look(10 * SECOND)
    assert [i.fault for i in watch.active()] == ["switch_down"]


def test_a_room_that_falls_silent_is_told_as_one_and_covers_what_was_told_before() -> None:
    watch = Watch()
    ill(watch, range(1, 5))
    watch.look(10 * SECOND)
    dark = replace(EIGHT, samples=(), heard=dict.fromkeys(EIGHT.heard, NOON))
    lit = {node(n).key: NOON + 120 * SECOND for n in (6, 7, 8)}

    def at(now: datetime, heard: dict[str, datetime]) -> Reading:
        window = replace(dark, now=now, heard={**dark.heard, **heard}).window()
        return Reading(
            now=now,
            rows=window.rows,
            last_seen=window.last_seen,
            listening_since=NOON - 60 * MINUTE,
        )

    for seconds in (120, 130):
        watch.analysis.run_pass(at(NOON + seconds * SECOND, lit))
    (one,) = watch.active()
    assert (one.fault, is_cluster_wide(one)) == ("node_silent", True)
    assert one.title == "gpuvigil receives no data from much of the cluster"
    assert one.action.startswith("Check the hub")
    assert watch.look(180 * SECOND)[-4:] != []
    assert sorted(i.fault for i in watch.active() if is_cluster_wide(i)) == ["gpu_xid"]


def cut_off(watch: Watch, numbers: Iterable[int], seconds: float) -> list[str]:
    """A look so long after the way of these nodes to the hub was cut at NOON.

    They send every ten seconds, each a second after the next; the others go on.
    """
    now = NOON + seconds * SECOND
    heard = dict.fromkeys(EIGHT.heard, now)
    heard |= {node(n).key: NOON - n * SECOND for n in numbers}
    window = replace(EIGHT, samples=(), heard=heard, now=now).window()
    since = NOON - 60 * MINUTE
    watch.analysis.run_pass(
        Reading(now=now, rows=window.rows, last_seen=window.last_seen, listening_since=since)
    )
    return watch.steps()


@pytest.mark.medium
def test_a_hub_that_is_only_busy_wakes_nobody() -> None:
    watch = Watch(settings=replace(SETTINGS, silent_verdict_seconds=540.0))
    severities = {}
    # Bodies take a second from one node to the next, so that the first has been silent for longer.
    for seconds in range(0, 1085, 5):
        cut_off(watch, range(1, 9), seconds)
        severities[seconds] = [one.severity for one in watch.active()]
    assert severities[20] == severities[660] == []
    assert severities[670] == severities[1070] == [Severity.WARNING]
    assert severities[1080] == [Severity.CRITICAL]


@pytest.mark.medium
def test_when_the_way_to_the_hub_is_cut_one_incident_says_so_and_no_node_is_told() -> None:
    watch, made = Watch(), []
    for seconds in range(0, 200, 5):
        made += cut_off(watch, range(1, 9), seconds)
        if seconds == 20:
            assert made == []  # all are late, and none has stopped reporting
    assert made == ["cluster confirmed"]
    (one,) = watch.active()
    assert one.severity is Severity.CRITICAL
    assert {node(n).key for n in range(1, 9)} < set(one.members)
    for seconds in range(200, 240, 5):
        made += cut_off(watch, (), seconds)
    assert made == ["cluster confirmed", "cluster cleared"]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("numbers", "wholes"), [(range(1, 4), 0), (range(1, 5), 1)], ids=["below", "half"]
)
def test_fewer_than_half_that_fall_silent_are_told_for_themselves(
    numbers: Sequence[int], wholes: int
) -> None:
    watch = Watch()
    for seconds in range(0, 60, 5):
        cut_off(watch, numbers, seconds)
    active = watch.active()
    assert sum(map(is_cluster_wide, active)) == wholes
    assert len(active) == (1 if wholes else len(numbers))


def test_a_pause_of_all_while_one_node_is_dead_is_no_silence_of_all() -> None:
    watch = Watch()
    dead = {node(1).key: NOON - 5 * MINUTE}
    for seconds in (20, 25, 28):
        now = NOON + seconds * SECOND
        heard = {**dict.fromkeys(EIGHT.heard, NOON), **dead}
        window = replace(EIGHT, samples=(), heard=heard, now=now).window()
        since = NOON - 60 * MINUTE
        watch.analysis.run_pass(
            Reading(now=now, rows=window.rows, last_seen=window.last_seen, listening_since=since)
        )
    assert [i.label for i in watch.active()] == ["node-1"]


def test_a_rule_that_goes_wrong_is_one_message_though_nothing_is_certain() -> None:
    lost = EIGHT
    for number in range(1, 9):
        lost = lost.changed(gpu(number), {"up": None, "utilization_percent": None}, 45)
        lost = lost.changed(gpu(number), {"unmeasured_reason": 4}, 45)
    watch = Watch(lost)
    assert watch.look(timedelta()) == []
    made: Sequence[str] = [*watch.look(10 * SECOND), *watch.look(20 * SECOND)]
    assert list(made) == ["cluster confirmed"]
    assert [is_cluster_wide(i) for i in watch.active()] == [True]
