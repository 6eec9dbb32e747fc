"""How long after its span is full a held GPU is called idle, also where many samples are missing."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.gpu_idle_held import DETECTOR, idle_held_gpus
from gpuvigil.config import AnalyzerSettings

from .scene import GPU_FIELDS, NOON, Sample, Scene, allocation, gpu, inventory, node

SETTINGS = AnalyzerSettings()
SPAN = timedelta(seconds=SETTINGS.idle_after_seconds)
PASS = timedelta(seconds=SETTINGS.tick_seconds)
IDLE = {
    **GPU_FIELDS,
    "utilization_percent": 0,
    "memory_utilization_percent": 0,
    "power_watts": 75.0,
}
_PATIENCE = timedelta(minutes=30)


def left_idle(tick: int, presence: float, seed: int) -> Scene:
    """A GPU that was busy until noon, when another job took it and did nothing."""
    chance = random.Random(seed)
    times = [NOON + timedelta(seconds=second) for second in range(-3600, 3600, tick)]
    samples = [
        Sample(subject=gpu(), at=at, fields=IDLE if at >= NOON else GPU_FIELDS)
        for at in times
        if chance.random() < presence
    ]
    return Scene(
        samples=tuple(samples),
        inventories=(replace(inventory(node()), tick_seconds=float(tick)),),
        allocations=(allocation(gpu(), "job 7", started_at=NOON),),
        settings=SETTINGS,
    )


def delay(scene: Scene) -> timedelta | None:
    """From the full span to the first pass that says it; None when none did within the patience."""
    now = NOON + SPAN / 2
    while now <= NOON + SPAN + _PATIENCE:
        if idle_held_gpus(replace(scene, now=now).window((DETECTOR,))):
            return now - NOON - SPAN
        now += PASS
    return None


@pytest.mark.medium
@pytest.mark.parametrize("tick", [10, 30, 60])
def test_with_all_samples_it_is_said_in_the_pass_after_the_span_is_full(tick: int) -> None:
    found = delay(left_idle(tick, 1.0, 1))
    assert found is not None
    assert -timedelta(seconds=tick) < found <= PASS


@pytest.mark.medium
@pytest.mark.parametrize(("presence", "most"), [(0.3, 10), (0.45, 6), (0.6, 3), (0.8, 2)])
@pytest.mark.parametrize("tick", [10, 30, 60])
def test_with_missing_samples_it_is_said_minutes_later_and_not_never(
    tick: int, presence: float, most: int
) -> None:
    for seed in range(4):
        found = delay(left_idle(tick, presence, seed))
        assert found is not None, seed
        # Of a span whose first fifth is missing nothing is said of that fifth.
        assert -SPAN / 5 <= found <= timedelta(minutes=most), seed
