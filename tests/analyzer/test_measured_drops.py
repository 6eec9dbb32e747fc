"""Ports of one leaf on nodes that only an exporter reads: no event, no rack, no switch says what they share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.analysis import Analysis, Reading
from analyzer.correlation.all_detectors import DETECTORS
from analyzer.detectors.switch_down import AT_ONCE, DETECTOR, switches_down
from analyzer.evidence.measured_drops import measured_drops
from analyzer.incidents.book import Book
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import EventKind, Incident, RecordKind, Severity, Subject, Transition

from .scene import NOON, PORT_FIELDS, Sample, Scene, event, healthy, incident, node
from .test_port_drops import drop

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
SHIPPED = AnalyzerSettings()
NUMBERS = (1, 2, 3, 4)
WATCHED = [d for d in DETECTORS if d.name in {"port_down", "switch_down", "node_silent"}]


def uplink(number: int) -> Subject:
    """Its name differs from node to node, so that no rail is known."""
    return Subject(cluster="c", node=f"node-{number}", device=f"mlx5_{number}", port="1")


def fleet(
    fell: Mapping[int, timedelta],
    tick: float = 10.0,
    until: timedelta = 0 * SECOND,
    settings: AnalyzerSettings = SHIPPED,
) -> Scene:
    """Ports of four nodes, which are read at different moments and without a word, and down since `fell`."""
    samples = []
    for number in NUMBERS:
        at = NOON - 20 * MINUTE + 0.23 * number * tick * SECOND
        while at < NOON + until:
            up = int(number not in fell or at < NOON + fell[number])
            fields = {**PORT_FIELDS, "up": up, "physical_state": 5 if up else 2}
            samples.append(Sample(subject=uplink(number), at=at, fields=fields))
            at += tick * SECOND
    scene = healthy(nodes=len(NUMBERS), seconds=0.0, gpus=0)
    inventories = tuple(
        replace(
            one,
            tick_seconds=tick,
            ports=tuple(replace(it, device=uplink(number).device or "") for it in one.ports),
        )
        for number, one in zip(NUMBERS, scene.inventories, strict=True)
    )
    return replace(scene, samples=tuple(samples), inventories=inventories, settings=settings)


def together(seconds: float, *numbers: int) -> dict[int, timedelta]:
    """These went down so many seconds before noon, half a second apart."""
    return {n: -(seconds - 0.5 * n) * SECOND for n in numbers or NUMBERS}


def found(scene: Scene) -> list[set[Subject]]:
    return [{one.subject, *one.members} for one in switches_down(scene.window((DETECTOR,)))]


@pytest.mark.parametrize("tick", [10.0, 15.0, 30.0, 60.0])
def test_ports_that_go_down_together_are_one_matter_and_nobody_names_a_leaf(tick: float) -> None:
    (one,) = switches_down(fleet(together(130.0), tick).window((DETECTOR,)))
    assert {one.subject, *one.members} == {uplink(number) for number in NUMBERS}
    assert (one.title, one.condition, one.severity) == (
        AT_ONCE,
        "ports_at_once",
        Severity.CRITICAL,
    )
    assert timedelta(0) <= one.since - (NOON - 130 * SECOND) <= (tick + 2.0) * SECOND


@pytest.mark.parametrize(
    ("fell", "groups"),
    [
        (together(130.0, 1, 2, 3), [3]),
        (together(130.0, 1, 2), []),  # may be cables
        (together(20.0), []),  # may be back at once
        (together(580.0), [4]),
        (together(620.0), []),  # nobody knows any more when
        # Somebody moves cables, one after the other.
        ({n: -(100 + 40 * n) * SECOND for n in NUMBERS}, []),
        ({**together(130.0, 1, 2, 3), 4: -300 * SECOND}, [3]),
    ],
)
def test_they_are_one_matter_within_seconds(
    fell: Mapping[int, timedelta], groups: list[int]
) -> None:
    assert [len(them) for them in found(fleet(fell))] == groups


@pytest.mark.parametrize("fields", [{"enabled": 0}, {"link_downed": 9}])
def test_ports_that_are_switched_off_or_come_and_go_are_not_a_switch(
    fields: Mapping[str, Any],
) -> None:
    scene = fleet(together(130.0))
    for number in NUMBERS:
        scene = scene.changed(uplink(number), fields, 125.0)
    assert found(scene) == []


@pytest.mark.parametrize(("minutes", "told"), [(0.7, True), (1.3, False), (4.0, False)])
def test_the_links_of_nodes_that_were_away_come_up_one_after_the_other(
    minutes: float, told: bool
) -> None:
    """Four nodes are rebooted, and say nothing of it."""
    begin = NOON - 130 * SECOND - minutes * MINUTE
    scene = fleet(together(130.0)).without(lambda s: begin <= s.at < NOON - 128 * SECOND)
    assert bool(found(scene)) is told


def test_a_word_of_the_node_counts_for_more_than_its_lines() -> None:
    scene = fleet(together(130.0))
    booted = [event(EventKind.BOOT, node(n), NOON - 3 * MINUTE) for n in NUMBERS]
    assert found(scene.with_events(*booted)) == []
    went = [event(EventKind.SHUTDOWN, node(n), NOON - 2 * MINUTE) for n in NUMBERS]
    assert found(scene.with_events(*went)) == []
    back = [event(EventKind.PORT_UP, uplink(n), NOON - SECOND) for n in NUMBERS]
    assert found(scene.with_events(*back)) == []
    ports = tuple(
        replace(one, ports=tuple(replace(it, role="storage") for it in one.ports))
        for one in scene.inventories
    )
    assert found(replace(scene, inventories=ports)) == []


def test_it_stands_when_nobody_knows_any_more_since_when() -> None:
    scene = fleet(together(700.0))
    keys = tuple(uplink(number).key for number in NUMBERS)
    active = incident("switch_down", uplink(1), since=-12 * MINUTE, members=keys)
    stands = replace(scene, recent_incidents=(active,))
    assert found(stands) == [{uplink(number) for number in NUMBERS}]
    over = replace(active, resolved_at=NOON - MINUTE)
    assert found(replace(scene, recent_incidents=(over,))) == []
    # Two of them are back.
    for number in (1, 2):
        stands = stands.changed(uplink(number), {"up": 1}, 15.0)
    assert {it.port for it in measured_drops(stands.window((DETECTOR,)))} == {uplink(3), uplink(4)}
    assert found(stands) == []


def test_a_clock_that_is_ahead_is_no_time_between_them() -> None:
    fell = {n: -(130 if n < 4 else 100) * SECOND for n in NUMBERS}
    scene = fleet(fell)
    assert [len(them) for them in found(scene)] == [3]
    (all_of,) = found(replace(scene, clocks={node(4).key: 30.0}))
    assert len(all_of) == len(NUMBERS)


def test_two_ports_of_a_rack_of_two_are_a_switch_only_where_the_moment_is_known() -> None:
    scene = fleet(together(130.0, 1, 2))
    racked = tuple(
        replace(one, rack="r1" if number <= 2 else "r2")
        for number, one in zip(NUMBERS, scene.inventories, strict=True)
    )
    assert found(replace(scene, inventories=racked)) == []


def test_a_drop_counts_from_the_earliest_moment_that_it_may_have_had() -> None:
    exact = drop(1, 0 * SECOND)
    assert exact.earliest == NOON
    assert replace(exact, within=9 * SECOND).earliest == NOON - 9 * SECOND


# --- from the first pass to the last --------------------------------------------------------------


@dataclass
class Life:
    """An analyzer with shipped settings that looks every ten seconds."""

    scene: Scene
    analysis: Analysis = field(default_factory=lambda: Analysis(SHIPPED, WATCHED))
    told: list[tuple[float, Transition]] = field(default_factory=list)
    incidents: dict[str, Incident] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.analysis.start([one.to_record() for one in self.scene.inventories], Book())

    def live(self, start: float, end: float) -> None:
        seconds = start
        while seconds < end:
            now = NOON + seconds * SECOND
            heard = {one.subject.key: now - SECOND for one in self.scene.inventories}
            window = replace(self.scene, now=now, heard=heard).window(WATCHED)
            self.analysis.run_pass(
                Reading(
                    now=now,
                    rows=window.rows,
                    last_seen=heard,
                    listening_since=NOON - 30 * MINUTE,
                )
            )
            for record in (one for unit in self.analysis.to_write() for one in unit):
                if record.kind is RecordKind.TRANSITION:
                    self.told.append((seconds, Transition.from_record(record)))
                else:
                    self.incidents[record.id] = Incident.from_record(record)
            seconds += 10.0


@pytest.mark.medium
@pytest.mark.parametrize("tick", [10.0, 30.0, 60.0])
def test_four_hosts_of_a_leaf_are_one_critical_from_beginning_to_end(tick: float) -> None:
    """It outlasts the span in which their lines say when they went down."""
    fell = {n: 0.5 * n * SECOND for n in NUMBERS}
    life = Life(fleet(fell, tick, until=15 * MINUTE))
    life.live(-20.0, 120.0)
    (one,) = life.incidents.values()
    assert (one.fault, one.severity, one.title) == ("switch_down", Severity.CRITICAL, AT_ONCE)
    assert set(one.members) == {uplink(number).key for number in NUMBERS}
    assert len(life.told) == 1
    assert life.told[0][0] < 100.0
    life.live(560.0, 900.0)
    assert [it.id for it in life.analysis.book.active()] == [one.id]
    assert len(life.told) == 1


def test_a_site_says_how_long_they_must_be_down() -> None:
    def told(seconds: float) -> bool:
        settings = replace(SHIPPED, port_down_seconds=seconds)
        return bool(found(fleet(together(40.0), settings=settings)))

    assert told(20.0)
    assert not told(60.0)
