"""The switch at the other end, where nodes heard it: in the words of an incident, and in its name."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.correlation.correlate import observe
from analyzer.correlation.observation import Candidate
from analyzer.detectors.port_errors import bad_ports
from analyzer.detectors.switch_down import AT_ONCE, switches_down
from gpuvigil.model import EventKind, Finding

from .scene import NOON, Scene, event, healthy, port

SECOND = timedelta(seconds=1)
FOUR = healthy(nodes=4, seconds=100)


def heard(scene: Scene, *switches: str | None, switch_port: str | None = None) -> Scene:
    """Each node's port is at that switch."""
    return replace(
        scene,
        inventories=tuple(
            replace(
                one,
                ports=tuple(
                    replace(it, switch=switch, switch_port=switch_port) for it in one.ports
                ),
            )
            for one, switch in zip(scene.inventories, switches, strict=True)
        ),
    )


def told(scene: Scene, found: list[Finding]) -> Candidate:
    (one,) = observe(
        scene.window(), found, (), {it.fingerprint for it in found}
    ).candidates.values()
    return one


def lost(scene: Scene) -> Scene:
    for number in (1, 2, 3, 4):
        scene = scene.changed(port(number), {"up": 0, "physical_state": 2}, 45)
        scene = scene.with_events(event(EventKind.PORT_DOWN, port(number), NOON - 40 * SECOND))
    return scene


def of(candidate: Candidate) -> dict[str, str]:
    return {it.name: it.value for it in candidate.finding.evidence}


@pytest.mark.medium
def test_a_port_says_where_its_cable_ends() -> None:
    bad = FOUR.rising(port(), "symbol_errors", 1.0)
    for switch_port, words in (("Ethernet12", "leaf-7 port Ethernet12"), (None, "leaf-7")):
        scene = heard(bad, "leaf-7", None, None, None, switch_port=switch_port)
        assert of(told(scene, bad_ports(scene.window())))["other end"] == words
    assert "other end" not in of(told(bad, bad_ports(bad.window())))


def test_what_many_ports_share_is_called_by_its_name() -> None:
    scene = heard(lost(FOUR), *["leaf-7"] * 4)
    candidate = told(scene, switches_down(scene.window()))
    assert candidate.label == "switch leaf-7 (mlx5_0 of node-1, node-2, node-3 and 1 more node)"
    assert candidate.title == "Ports of one switch are down on several nodes"
    assert of(candidate)["which switch"] == "leaf-7 (4 of the ports)"


@pytest.mark.parametrize(
    ("switches", "said"),
    [
        ([None] * 4, "not known here: look it up by these ports"),
        (["a", "a", "b", "b"], "a (2 of the ports), b (2 of the ports)"),
    ],
)
def test_where_nobody_told_or_there_are_two_nothing_is_called_by_one(
    switches: list[str | None], said: str
) -> None:
    scene = heard(lost(FOUR), *switches)
    candidate = told(scene, switches_down(scene.window()))
    assert candidate.label == "mlx5_0 of node-1, node-2, node-3 and 1 more node"
    assert candidate.title == AT_ONCE
    assert of(candidate)["which switch"] == said


@pytest.mark.parametrize(
    ("switches", "is_called"),
    [(["a", None, None, None], True), (["a", "a", "a", "b"], False)],
)
def test_of_those_that_told_nearly_all_must_agree(
    switches: list[str | None], is_called: bool
) -> None:
    scene = heard(lost(FOUR), *switches)
    label = told(scene, switches_down(scene.window())).label
    assert label.startswith("switch a (") is is_called
