"""Ports that go down: one is told within seconds, and what a switch takes along is one matter."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analyzer.analysis import Analysis, Reading
from analyzer.correlation.all_detectors import DETECTORS, questions
from analyzer.correlation.correlate import observe
from analyzer.detectors.node_silent import silent_nodes
from analyzer.detectors.port_down import NO_FABRIC, broken_ports
from analyzer.detectors.switch_down import AT_ONCE, switches_down
from analyzer.evidence.port_drops import (
    Drop,
    group_drops,
    is_complete,
    is_switch,
    may_share_switch,
)
from analyzer.incidents.book import Book
from analyzer.window.rows import Rows
from gpuvigil.config import AnalyzerSettings
from gpuvigil.faults import FAULTS
from gpuvigil.model import (
    EventKind,
    Incident,
    PortIdentity,
    Record,
    RecordKind,
    Severity,
    Subject,
    Transition,
)

from .scene import NOON, Sample, Scene, allocation, event, gpu, healthy, incident, node, port
from .test_correlate import seen

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
HALF, JUST = timedelta(milliseconds=500), timedelta(milliseconds=1)
SHIPPED = AnalyzerSettings()
PATIENCE = timedelta(seconds=SHIPPED.port_down_seconds)


def drop(number: int = 1, at: timedelta = 0 * SECOND, came: timedelta | None = None) -> Drop:
    return Drop(port=port(number), at=NOON + at, came_at=NOON + (at if came is None else came))


# --- which have one cause ------------------------------------------------------------------------


def test_a_switch_is_told_once_it_is_quiet_and_long_before_a_minute_is_over() -> None:
    group = [drop(1), drop(2, SECOND), drop(3, 3 * SECOND)]
    assert not is_complete(group, NOON + 5 * SECOND - JUST)
    assert is_complete(group, NOON + 5 * SECOND)
    trickles = [*group, drop(4, 9 * SECOND)]
    assert not is_complete(trickles, NOON + 10 * SECOND - JUST)
    assert is_complete(trickles, NOON + 10 * SECOND)


def test_three_nodes_are_a_switch_and_two_only_where_they_are_their_whole_rack() -> None:
    two = [drop(1), drop(2, 2 * SECOND)]
    assert not is_switch(two, None)
    assert is_switch([*two, drop(3)], None)
    assert is_switch(two, 2)
    assert not is_switch(two, 3)
    assert not is_switch([drop(1), drop(2, 2 * SECOND + JUST)], 2)
    many = [drop(1), replace(drop(1), port=replace(port(1), device="mlx5_1"))]
    assert not is_switch([*many, drop(2)], None)  # ports of two nodes


def test_what_one_switch_can_take() -> None:
    other = replace(port(2), device="mlx5_1")
    racks = {node(1).key: "r1", node(2).key: "r2"}
    assert may_share_switch(port(1), port(2), racks)  # a rail's leaf
    assert not may_share_switch(port(1), other, racks)
    assert may_share_switch(port(1), other, {**racks, node(2).key: "r1"})
    assert may_share_switch(port(1), other, {node(1).key: "r1"})
    assert not may_share_switch(port(1), port(1, "d"), {})


def test_ports_of_one_name_belong_together_for_a_minute_and_others_for_seconds() -> None:
    def groups(*drops: Drop) -> list[int]:
        return [len(group) for group in group_drops(drops, {})]

    assert groups(drop(1), drop(2, MINUTE)) == [2]
    assert groups(drop(1), drop(2, MINUTE + JUST)) == [1, 1]
    other = Drop(port=replace(port(2), device="b"), at=NOON + 5 * SECOND, came_at=NOON)
    assert groups(drop(1), other) == [2]
    assert groups(drop(1), replace(other, at=other.at + JUST)) == [1, 1]


# --- a whole life: events, looks that are due, and passes -----------------------------------------

WATCHED = [d for d in DETECTORS if d.name in {"port_down", "switch_down", "node_silent"}]
NEEDS = questions(WATCHED)
TICK, LONG = 10.0, 75.0


@dataclass
class Life:
    """An analyzer with shipped settings; seconds count from the first port's loss."""

    scene: Scene
    offset: float = 3.0  # of passes, and of the nodes' ticks
    analysis: Analysis = field(default_factory=lambda: Analysis(SHIPPED, WATCHED))
    told: list[tuple[float, Transition]] = field(default_factory=list)
    incidents: dict[str, Incident] = field(default_factory=dict)

    def __post_init__(self) -> None:
        allocations = [one.to_record() for one in self.scene.allocations]
        inventories = [one.to_record() for one in self.scene.inventories]
        self.analysis.start([*inventories, *allocations], Book())

    def live(self, events: Iterable[tuple[float, Record]], until: float = LONG) -> None:
        """Events come, each at its second, and passes are made."""
        waiting = sorted(events, key=lambda one: one[0])
        happened = [one for _, one in waiting]
        now, passes = 0.0, self.offset
        while True:
            coming = waiting[0][0] if waiting else LONG
            now = max(now, min(coming, passes))
            if now >= until:
                return
            if now == passes:
                self.analysis.run_pass(self._reading(now, happened))
                passes += TICK
            while waiting and waiting[0][0] <= now:
                _, record = waiting.pop(0)
                found = self.analysis.ingest(record, came_at=NOON + now * SECOND)
                if found is not None:
                    self.analysis.check_node(found, NOON + now * SECOND)
            self._write(now)

    def _reading(self, now: float, happened: Sequence[Record]) -> Reading:
        """Each node's newest lines: of its last tick, and as its port was then."""
        tick = NOON + (now - (now - self.offset + 4.0) % TICK) * SECOND
        down: dict[str, int] = {}
        for record in sorted(happened, key=lambda one: one.at):
            if record.at <= tick:
                down[record.subject] = int(record.body["event"] == "port_up")
        newest = [s for s in self.scene.samples if s.at == NOON - TICK * SECOND]
        samples = [
            Sample(
                subject=one.subject,
                at=tick,
                fields={**one.fields, "up": down.get(one.subject.key, 1)},
            )
            for one in newest
            if one.subject.kind == "port"
        ]
        scene = replace(self.scene, now=NOON + now * SECOND, samples=tuple(samples))
        rows: Mapping[tuple[str, object], Rows] = {
            key: scene.rows(need) for key, need in NEEDS.items()
        }
        heard = {one.subject.key: tick for one in self.scene.inventories}
        return Reading(
            now=scene.now,
            rows=rows,  # type: ignore[arg-type]
            last_seen=heard,
            listening_since=NOON - MINUTE,
        )

    def _write(self, now: float) -> None:
        for record in (record for unit in self.analysis.to_write() for record in unit):
            if record.kind is RecordKind.TRANSITION:
                self.told.append((now, Transition.from_record(record)))
            else:
                self.incidents[record.id] = Incident.from_record(record)

    def opened(self, fault: str) -> list[float]:
        return [
            at
            for at, one in self.told
            if one.signal == "confirmed" and one.snapshot["body"]["fault"] == fault
        ]

    def active(self) -> list[Incident]:
        return list(self.analysis.book.active())


def went_down(number: int, at: float, device: str = "mlx5_0") -> Record:
    subject = replace(port(number), device=device)
    return event(EventKind.PORT_DOWN, subject, NOON + at * SECOND).to_record()


def came_up(number: int, at: float) -> Record:
    return event(EventKind.PORT_UP, port(number), NOON + at * SECOND).to_record()


EIGHT = healthy(nodes=8, seconds=20, gpus=2)


def test_a_port_is_an_incident_once_it_was_down_for_half_a_minute() -> None:
    life = Life(EIGHT)
    life.live([(0.2, went_down(1, 0.0))])
    assert life.opened("port_down") == [33.0]
    assert [one.fault for one in life.active()] == ["port_down"]
    assert len(life.told) == 1


@pytest.mark.parametrize(("seconds", "told"), [(29.9, 0), (30.1, 0), (33.1, 1)])
def test_a_port_that_is_back_by_then_is_nobody_s_message(seconds: float, told: int) -> None:
    life = Life(EIGHT)
    life.live([(0.2, went_down(1, 0.0)), (seconds, came_up(1, seconds - 0.05))])
    assert len(life.opened("port_down")) == told


def test_a_leaf_is_one_critical_and_one_message() -> None:
    life = Life(EIGHT)
    life.live([(0.1 * n, went_down(n, 0.1 * n - 0.05)) for n in range(1, 9)])
    (one,) = life.active()
    assert (one.fault, one.severity) == ("switch_down", Severity.CRITICAL)
    assert set(one.members) == {port(n).key for n in range(1, 9)}
    assert len(life.told) == 1
    assert life.told[0][0] < 60.0


def test_two_ports_at_once_are_told_one_by_one_once_no_switch_explains_them() -> None:
    life = Life(EIGHT)
    life.live([(0.1, went_down(1, 0.0)), (0.5, went_down(2, 0.4))])
    assert [one.fault for one in life.active()] == ["port_down", "port_down"]
    assert all(30.0 <= at < 60.0 for at in life.opened("port_down"))


def test_a_port_that_comes_and_goes_flaps_the_third_time() -> None:
    life = Life(EIGHT)
    flaps = [(t + 0.1, went_down(1, t)) for t in (0.0, 20.0)]
    flaps += [(t + 4.1, came_up(1, t + 4.0)) for t in (0.0, 20.0)]
    life.live(flaps)
    assert life.told == []
    again = Life(EIGHT)
    again.live([*flaps, (40.1, went_down(1, 40.0))])
    assert [one.fault for one in again.active()] == ["port_flapping"]


def test_a_reload_of_the_network_driver_is_given_its_time() -> None:
    gone = replace(event(EventKind.PORT_DOWN, port(), NOON), gone=True)
    back = (20.0, came_up(1, 19.9))
    brief, long = Life(EIGHT), Life(EIGHT)
    brief.live([(0.1, gone.to_record()), back])
    long.live([(0.1, gone.to_record())])
    assert brief.told == []
    assert long.opened("port_down") == [33.0]


drops = st.lists(st.floats(0.0, 8.0), min_size=3, max_size=8)


@pytest.mark.medium
@settings(max_examples=40, deadline=None)
@given(
    drops,
    st.lists(st.floats(0.02, 3.0), min_size=8, max_size=8),
    st.permutations(range(1, 9)),
    st.floats(0.1, 9.9),
)
@example([0.0] * 8, [0.02] * 8, list(range(1, 9)), 3.0)
@example([0.0, 3.0, 6.0, 7.9], [0.02] * 8, [4, 3, 2, 1, 5, 6, 7, 8], 0.1)
def test_whatever_the_order_a_leaf_ends_as_one_critical(
    times: Sequence[float], delays: Sequence[float], order: Sequence[int], offset: float
) -> None:
    """Nothing is lost, and nobody hears of a port of it."""
    life = Life(EIGHT, offset)
    first = min(times)
    events = [
        (at - first + delay, went_down(number, at - first))
        for at, delay, number in zip(times, delays, order, strict=False)
    ]
    life.live(events)
    (one,) = life.active()
    assert (one.fault, one.severity) == ("switch_down", Severity.CRITICAL)
    assert {record.subject for _, record in events} <= set(one.members)
    assert len(life.opened("switch_down")) == 1
    assert life.opened("switch_down")[0] < 60.0
    assert len(life.told) == 1


# --- what is said ---------------------------------------------------------------------------------


def lost(scene: Scene, *numbers: int, devices: Sequence[str] = ("mlx5_0",)) -> Scene:
    """These ports have been down for 40 s."""
    for number in numbers:
        for device in devices:
            subject = replace(port(number), device=device)
            scene = scene.changed(subject, {"up": 0, "physical_state": 2}, 40)
            scene = scene.with_events(event(EventKind.PORT_DOWN, subject, NOON - 40 * SECOND))
    return scene


def with_two_ports(scene: Scene) -> Scene:
    more = PortIdentity(device="mlx5_1", port="1", kind="infiniband", role="fabric", was_up=True)
    inventories = tuple(replace(i, ports=(*i.ports, more)) for i in scene.inventories)
    others = tuple(
        replace(s, subject=replace(s.subject, device="mlx5_1"))
        for s in scene.samples
        if s.subject.kind == "port"
    )
    return replace(scene, inventories=inventories, samples=(*scene.samples, *others))


def in_job(scene: Scene, *numbers: int) -> Scene:
    held = tuple(allocation(gpu(n, i), "job 7") for n in numbers for i in (0, 1))
    return replace(scene, allocations=held)


FOUR = healthy(nodes=4, seconds=100)


@pytest.mark.parametrize("seconds", [0.9, 1.0, 3.0])
def test_ports_that_go_a_second_apart_are_told_from_the_first_to_the_last(seconds: float) -> None:
    scene = lost(FOUR, 1, 2, 3)
    first, *others = scene.events
    before = replace(first, at=first.at - seconds * SECOND)
    (found,) = switches_down(replace(scene, events=(before, *others)).window())
    said = {one.name: one.value for one in found.evidence}
    assert said["down since"] == f"11:59:{20 - math.ceil(seconds)} UTC on 31 Jan"
    assert said.get("last port down") == ("11:59:20 UTC on 31 Jan" if seconds >= 1.0 else None)


def test_nodes_with_one_port_that_lose_it_at_once_are_named_and_no_switch_is() -> None:
    (found,) = switches_down(lost(FOUR, 1, 2, 3).window())
    said = {one.name: one.value for one in found.evidence}
    assert found.title == AT_ONCE
    assert said["ports down"] == "mlx5_0 of 3 nodes: node-1, node-2, node-3"
    assert said["nodes without any fabric port"] == "3 of 3"
    racked = replace(FOUR, inventories=tuple(replace(i, rack="r1") for i in FOUR.inventories))
    (found,) = switches_down(lost(racked, 1, 2, 3).window())
    assert found.title == ""


def test_another_port_of_the_rack_that_fails_in_the_same_second_is_no_part_of_the_switch() -> None:
    racked = with_two_ports(
        replace(FOUR, inventories=tuple(replace(i, rack="r1") for i in FOUR.inventories))
    )
    cable = lost(lost(racked, 1, 2, 3, 4), 2, devices=("mlx5_1",))
    (found,) = switches_down(cable.window())
    assert {found.subject, *found.members} == {port(n) for n in (1, 2, 3, 4)}
    # A leaf that takes both ports of most nodes has taken them all.
    both = lost(racked, 1, 2, 3, devices=("mlx5_0", "mlx5_1"))
    (found,) = switches_down(both.window())
    assert len({found.subject, *found.members}) == 6


def test_a_rack_of_two_is_a_switch_and_single_cables_of_racks_are_none() -> None:
    def hit(per_rack: int, *numbers: int) -> list[Subject]:
        racked = tuple(
            replace(i, rack=f"r{(n - 1) // per_rack}")
            for n, i in enumerate(EIGHT.inventories, start=1)
        )
        scene = replace(healthy(nodes=8, seconds=100), inventories=racked)
        return [found.subject for found in switches_down(lost(scene, *numbers).window())]

    assert hit(2, 1, 2) == [port(1)]
    assert hit(3, 1, 2) == []  # two of three
    assert hit(4, 1) == []
    assert hit(4, 1, 5) == []


def test_a_job_whose_nodes_have_no_fabric_left_is_one_critical_with_all_its_gpus() -> None:
    scene = in_job(with_two_ports(FOUR), 1, 2, 3, 4)
    (one,) = seen(lost(scene, 1, 2, 3, devices=("mlx5_0", "mlx5_1"))).candidates.values()
    assert (one.finding.fault, one.severity) == ("switch_down", Severity.CRITICAL)
    assert (one.impact.gpus, one.impact.holders) == (8, ("job 7",))
    assert one.covers == ()
    assert one.label == "node-1, node-2, node-3"


def test_a_node_that_lost_all_its_ports_is_one_fault_of_the_node() -> None:
    scene = lost(with_two_ports(FOUR), 1, devices=("mlx5_0", "mlx5_1"))
    (one,) = seen(scene).candidates.values()
    assert (one.finding.fault, one.finding.subject) == ("port_down", node())
    assert (one.title, one.severity) == (NO_FABRIC, Severity.WARNING)
    assert set(one.members) == {node().key, port().key, replace(port(), device="mlx5_1").key}
    (left,) = seen(lost(with_two_ports(FOUR), 1)).candidates.values()
    assert left.finding.subject == port()


@pytest.mark.parametrize("devices", [("mlx5_0",), ("mlx5_0", "mlx5_1")])
def test_a_node_without_fabric_is_critical_while_a_job_needs_others(
    devices: Sequence[str],
) -> None:
    def severity(scene: Scene, seconds: float) -> Severity:
        there = scene if len(devices) == 1 else with_two_ports(scene)
        settings = replace(there.settings, port_down_seconds=seconds)
        (found,) = broken_ports(
            replace(lost(there, 1, devices=devices), settings=settings).window()
        )
        return found.severity

    assert severity(in_job(FOUR, 1, 2), 40.0) is Severity.CRITICAL
    assert severity(in_job(FOUR, 1), 40.0) is Severity.WARNING
    assert severity(in_job(FOUR, 2, 3), 40.0) is Severity.WARNING
    # One that has another port goes on.
    (found,) = broken_ports(lost(in_job(with_two_ports(FOUR), 1, 2), 1).window())
    assert found.severity is Severity.WARNING


def test_a_port_that_was_switched_off_or_goes_with_its_node_is_no_switch() -> None:
    off = lost(FOUR, 1, 2, 3)
    for number in (1, 2, 3):
        off = off.changed(port(number), {"enabled": 0}, 40)
    assert switches_down(off.window()) == []
    assert broken_ports(off.window()) == []
    going = lost(FOUR, 1, 2, 3)
    for number in (1, 2, 3):
        going = going.with_events(event(EventKind.SHUTDOWN, node(number), NOON - 39 * SECOND))
    assert switches_down(going.window()) == []
    reloaded = lost(FOUR, 1, 2, 3)
    gone = tuple(replace(one, gone=True) for one in reloaded.events)
    assert switches_down(replace(reloaded, events=gone).window()) == []


@pytest.mark.medium
def test_a_node_that_fell_silent_with_its_switch_is_told_with_it() -> None:
    def silent(seconds: float, rack: str | None = None) -> Scene:
        scene = lost(FOUR, 1, 2, 3)
        named = tuple(
            replace(i, rack=rack if i.subject == node(4) else rack and "r1")
            for i in scene.inventories
        )
        heard = {**scene.heard, node(4).key: NOON - seconds * SECOND}
        return replace(scene, heard=heard, inventories=named)

    for seconds, rack in ((54.999, None), (40.0, "r1"), (35.0, None)):
        assert len(silent_nodes(silent(seconds, rack).window())) == 1
        (one,) = seen(silent(seconds, rack)).candidates.values()
        assert one.finding.fault == "switch_down"
        assert node(4).key in one.members
    # It went before, after, or stands elsewhere.
    for seconds, rack in ((55.001, None), (34.999, None), (40.0, "r2")):
        both = {c.finding.fault for c in seen(silent(seconds, rack)).candidates.values()}
        assert both == {"switch_down", "node_silent"}


def test_a_switch_keeps_its_name_when_its_first_port_is_back() -> None:
    (first,) = seen(lost(FOUR, 1, 2, 3)).candidates.values()
    old = replace(incident("switch_down", first.finding.subject), members=first.members)
    window = lost(FOUR, 2, 3, 4).window()
    found = [one for detector in DETECTORS for one in detector.find(window)]
    (later,) = observe(window, found, [old], {old.fingerprint}).candidates.values()
    assert later.finding.fingerprint == old.fingerprint
    assert {port(n).key for n in (2, 3, 4)} <= set(later.members)
    assert FAULTS["switch_down"].severity is Severity.CRITICAL


def at(seconds: float) -> datetime:
    return NOON + seconds * SECOND
