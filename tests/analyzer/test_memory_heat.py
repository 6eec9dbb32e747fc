"""A memory that is hot beside a core that is not."""

import pytest

from analyzer.detectors.gpu_hot import hot_gpus
from gpuvigil.model import Subject

from .scene import Scene, gpu, healthy, told


def with_memory(kelvin: float, core: int = 74, nodes: int = 1) -> Scene:
    """All at work, with 10 K between core and memory, but for one GPU."""
    scene = healthy(nodes=nodes, gpus=4)
    for number in range(1, nodes + 1):
        for index in range(4):
            scene = _set(scene, gpu(number, index), core, core + 10)
    return _set(scene, gpu(), core, core + 10 + kelvin)


def _set(scene: Scene, one: Subject, core: float, memory: float) -> Scene:
    fields = {"temperature_celsius": core, "memory_temperature_celsius": memory}
    return scene.changed(one, fields)


def conditions(scene: Scene) -> list[tuple[Subject, str]]:
    return [(one.subject, one.condition) for one in hot_gpus(scene.window())]


@pytest.mark.parametrize(
    ("kelvin", "core", "is_hot"),
    [(12, 74, True), (11, 74, False), (20, 55, True), (20, 54, False)],
)
def test_beyond_its_peers_and_hot_enough_to_harm(kelvin: int, core: int, is_hot: bool) -> None:
    found = conditions(with_memory(kelvin, core))
    assert found == ([(gpu(), "memory_hot")] if is_hot else [])


def test_evidence_says_what_peers_have_beside_such_a_core() -> None:
    (found,) = hot_gpus(with_memory(20).window())
    assert told(found) == (
        "warning; memory: 104 °C over 5 min (limit 85 °C, peers 84 °C beside a core of 74 °C)"
    )


def test_only_gpus_at_work_tell_and_of_too_few_nobody_can_say() -> None:
    scene = with_memory(20)
    assert conditions(scene.changed(gpu(), {"power_watts": 200.0})) == []
    # Three others tell, of which each is at work.
    fewer = scene.changed(gpu(1, 3), {"power_watts": 200.0})
    assert conditions(fewer) == []
    unread = scene.changed(gpu(), {"memory_temperature_celsius": None})
    assert conditions(unread) == []
