"""Whether an incident of heat would show now if it were there."""

from collections.abc import Mapping
from typing import Any

import pytest

from analyzer.detectors.gpu_hot import DETECTOR, says_whether_hot
from gpuvigil.model import Evidence, Incident

from .scene import Scene, gpu, healthy, incident, node

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
    return says_whether_hot(scene.window((DETECTOR,)), one)


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
