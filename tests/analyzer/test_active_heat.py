"""Whether an incident of heat would show now if it were there."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from analyzer.analysis import Analysis, Reading
from analyzer.detectors.gpu_hot import DETECTOR, hot_gpus
from analyzer.evidence.active_heat import would_show_heat
from analyzer.incidents.book import Book
from gpuvigil.model import Evidence, Incident, RecordKind, Transition

from .scene import SETTINGS, Scene, gpu, healthy, incident, node

# A line of each slot's six peers, of which a heatsink's at rest is one.
FLEET = healthy(nodes=8, gpus=4)
SLOWED = Evidence(name="slowed down by heat", value="60 s of the last 60 s")
BESIDE = Evidence(name="core", value="80 °C", peers="60 °C")
ABOVE = Evidence(name="core", value="80 °C at most")


def of_gpu(*evidence: Evidence, condition: str = "heatsink") -> Incident:
    return incident("gpu_hot", gpu(), evidence=evidence, condition=condition)


def of_node(*indices: int) -> Incident:
    members = tuple(gpu(1, index).key for index in indices)
    return incident("gpu_hot", node(), evidence=(BESIDE,), condition="node_hot", members=members)


def shows(one: Incident, scene: Scene = FLEET) -> bool | None:
    return would_show_heat(scene.window((DETECTOR,)), one)


@pytest.mark.parametrize(
    ("fields", "tells"),
    [
        ({"power_watts": 209.9}, False),
        ({"power_watts": 210.0}, True),
        ({"power_watts": None}, None),
        ({"power_watts": 199.9, "power_limit_watts": None}, False),
        ({"power_watts": 200.0, "power_limit_watts": None}, True),
    ],
)
def test_a_gpu_that_was_slowed_down_shows_it_while_it_works(
    fields: Mapping[str, Any], tells: bool | None
) -> None:
    scene = FLEET.changed(gpu(), fields)
    assert shows(of_gpu(SLOWED), scene) is tells
    assert shows(of_gpu(SLOWED, ABOVE), scene) is tells
    # Of several GPUs the lines of their node are enough.
    several = incident("gpu_hot", node(), evidence=(SLOWED,))
    assert shows(several, scene) is None


@pytest.mark.medium
@pytest.mark.parametrize(
    ("condition", "watts", "limit", "tells"),
    [
        ("heatsink", 550.0, 700.0, True),
        ("heatsink", 209.9, 700.0, False),
        ("heatsink", 210.0, 700.0, True),
        ("cooling", 209.9, 700.0, True),
        ("cooling", 105.0, 700.0, True),
        ("cooling", 104.9, 700.0, False),
        ("cooling", 100.0, None, True),
        ("cooling", 99.9, None, False),
    ],
)
def test_a_heatsink_shows_itself_at_work_and_a_lost_cooling_while_awake(
    condition: str, watts: float, limit: float | None, tells: bool
) -> None:
    """All GPUs draw as much: it can be held against its peers."""
    scene = FLEET
    for number in range(1, 9):
        for index in range(4):
            fields = {"power_watts": watts, "power_limit_watts": limit}
            scene = scene.changed(gpu(number, index), fields)
    assert shows(of_gpu(BESIDE, condition=condition), scene) is tells
    assert shows(of_gpu(SLOWED, BESIDE, condition=condition), scene) is tells


def test_what_is_held_against_peers_shows_only_where_it_can_be() -> None:
    assert shows(of_gpu(BESIDE)) is True
    assert shows(of_gpu(BESIDE), FLEET.without(lambda s: s.subject == gpu())) is False
    assert shows(of_gpu(BESIDE), Scene()) is False
    assert shows(of_gpu(BESIDE), FLEET.changed(gpu(), {"power_watts": None})) is None
    assert shows(of_gpu(BESIDE), FLEET.changed(gpu(), {"power_watts": 100.0}, 65)) is False


@pytest.mark.parametrize(("changing", "by_its_node"), [(1, True), (2, False)])
def test_a_heatsink_shows_beside_half_of_its_nodes_gpus(changing: int, by_its_node: bool) -> None:
    scene = FLEET
    for index in range(4 - changing, 4):
        scene = scene.changed(gpu(1, index), {"power_watts": 100.0}, 65)
    assert shows(of_gpu(BESIDE), scene) is by_its_node
    # A lost cooling is more than the air of any node.
    assert shows(of_gpu(BESIDE, condition="cooling"), scene) is True


@pytest.mark.parametrize(("changing", "tells"), [(0, True), (1, True), (2, False), (4, False)])
def test_of_a_nodes_gpus_three_and_half_must_tell(changing: int, tells: bool) -> None:
    scene = FLEET
    for index in range(changing):
        scene = scene.changed(gpu(1, index), {"power_watts": 100.0}, 65)
    assert shows(of_node(), scene) is tells
    assert shows(of_node(0, 1, 2, 3), scene) is tells
    # Of fewer all of them; of those that are gone nobody asks.
    assert shows(of_node(3), scene) is (changing < 4)
    assert shows(of_node(2, 3, 7), scene) is (changing < 3)
    gone = incident("gpu_hot", node(9), evidence=(BESIDE,), condition="node_hot")
    assert shows(gone, scene) is False


@pytest.mark.parametrize(("changing", "tells"), [(0, True), (4, True), (5, False)])
def test_of_eight_gpus_of_a_node_four_must_tell(changing: int, tells: bool) -> None:
    scene = healthy(nodes=8, gpus=8)
    for index in range(changing):
        scene = scene.changed(gpu(1, index), {"power_watts": 100.0}, 65)
    assert shows(of_node(), scene) is tells
    assert shows(of_node(*range(8)), scene) is tells


def warmer(kelvin: float, *indices: int, watts: float = 550.0) -> Scene:
    """All of the fleet at such a power, and some GPUs of the first node so much warmer than all others."""
    scene = FLEET
    for number in range(1, 9):
        for index in range(4):
            more = kelvin if (number, index) in {(1, of) for of in indices} else 0.0
            fields = {"power_watts": watts, "temperature_celsius": 60.0 + more}
            scene = scene.changed(gpu(number, index), fields)
    return scene


@pytest.mark.parametrize("watts", [550.0, 300.0])
@pytest.mark.parametrize(("kelvin", "is_over"), [(0.0, True), (7.7, True), (9.0, False)])
def test_a_hot_gpu_is_over_when_it_has_less_than_seven_tenths_of_what_was_too_much(
    kelvin: float, is_over: bool, watts: float
) -> None:
    """Its power explains 33 K or so, of which 35 % are told; at less power nothing is hot."""
    scene = warmer(kelvin, 0, watts=watts)
    assert hot_gpus(scene.window((DETECTOR,))) == []
    assert shows(of_gpu(BESIDE), scene) is is_over


@pytest.mark.medium
@pytest.mark.parametrize(("kelvin", "is_over"), [(30.0, True), (37.0, False)])
def test_a_lost_cooling_is_over_when_it_has_less_than_seven_tenths_of_one(
    kelvin: float, is_over: bool
) -> None:
    # Half as much again as what its power explains.
    assert shows(of_gpu(BESIDE, condition="cooling"), warmer(kelvin, 0)) is is_over


@pytest.mark.medium
@pytest.mark.parametrize(("kelvin", "is_over"), [(5.0, True), (7.0, False)])
def test_a_hot_node_is_over_when_its_middle_gpu_has_less_than_seven_tenths_of_what_was_too_much(
    kelvin: float, is_over: bool
) -> None:
    # A quarter of what its power explains.
    assert shows(of_node(), warmer(kelvin, 0, 1, 2, 3)) is is_over


@pytest.mark.medium
def test_heat_near_its_limit_is_told_once() -> None:
    """With every job it is a little more than the limit, or a little less."""
    analysis = Analysis(SETTINGS, (DETECTOR,))
    analysis.start([one.to_record() for one in FLEET.inventories], Book())
    courses = {kelvin: warmer(kelvin, 0).window((DETECTOR,)).rows for kelvin in (15.0, 11.0, 2.0)}
    for step, kelvin in enumerate([*([15.0] * 4 + [11.0] * 30) * 6, *[2.0] * 5]):
        now = FLEET.now + timedelta(seconds=10.0 * step)
        heard = dict.fromkeys(FLEET.heard, now)
        analysis.run_pass(
            Reading(now=now, rows=courses[kelvin], last_seen=heard, listening_since=FLEET.now)
        )
    records = [record for unit in analysis.to_write() for record in unit]
    steps = [Transition.from_record(r) for r in records if r.kind is RecordKind.TRANSITION]
    assert [one.to_state for one in steps if one.to_state != one.from_state] == ["open", "resolved"]
