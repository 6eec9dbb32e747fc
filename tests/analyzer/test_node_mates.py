"""A GPU beside others of its node that did the same work: what pauses leave uncertain they leave alike."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from analyzer.detectors.gpu_hot import DETECTOR, hot_gpus
from analyzer.evidence.node_mates import beyond_mates, middle_of_mates
from analyzer.evidence.usual_heat import BESIDE_MATES, learned_beside_mates
from analyzer.window.usual import nothing_usual
from analyzer.window.window import Window

from .scene import NOON, gpu
from .test_own_past import machine, one, told

ONE_NODE, ONE_MODEL = np.ones(4, np.int64), np.ones(4, np.int64)
WATTS = np.full(4, 500.0)


def pausing(_: int, ago: float) -> float:
    """Checkpoints of a minute every eight minutes, of all ranks."""
    return 130.0 if ago % 480.0 < 60.0 else 620.0


@pytest.mark.parametrize(("gpus", "is_told"), [(3, False), (4, True)])
def test_a_heatsink_shows_through_checkpoints_beside_three_that_pause_alike(
    gpus: int, is_told: bool
) -> None:
    scene = machine(one(14.0, 600.0), pausing, gpus=gpus, tick=60.0)
    assert told(scene) == ([(gpu(), "heatsink")] if is_told else [])
    assert told(machine(watts=pausing, gpus=gpus, tick=60.0)) == []


@pytest.mark.parametrize(("kelvin", "is_told"), [(6.5, False), (8.0, True)])
def test_seven_kelvins_beyond_its_mates_are_told(kelvin: float, is_told: bool) -> None:
    # 16 % of the 40 K that its power may have made are less.
    assert bool(told(machine(one(kelvin, 600.0)))) is is_told


def test_what_all_of_them_became_warmer_is_no_heat_of_one() -> None:
    scene = machine(lambda i, ago: (8.0 if i == 0 else 6.0) if ago < 600.0 else 0.0, pausing)
    assert [it.condition for it in hot_gpus(scene.window((DETECTOR,)))] != ["heatsink"]


def test_the_evidence_says_what_its_mates_do() -> None:
    (hot,) = hot_gpus(machine(one(10.0, 600.0)).window((DETECTOR,)))
    assert "at most 55 °C at that power" in hot.evidence[1].value


def of_first(kelvin: list[float], then: list[float], now: list[float]) -> float:
    warmer = np.array(kelvin)
    found = beyond_mates(ONE_NODE, ONE_MODEL, np.array(then), np.array(now), warmer, warmer)
    return float(found[0, 0])


def test_how_far_mates_are_apart_is_taken_from_it() -> None:
    assert of_first([12.0, 1.0, 0.0, -1.0], [500.0] * 4, [500.0] * 4) == 9.0


@pytest.mark.parametrize(("watts", "tells"), [(519.0, True), (521.0, False)])
def test_mates_drew_alike_within_four_percent(watts: float, tells: bool) -> None:
    even, other = [500.0] * 4, [500.0, 500.0, 500.0, watts]
    assert np.isfinite(of_first([12.0, 0.0, 0.0, 0.0], even, other)) == tells
    assert np.isfinite(of_first([12.0, 0.0, 0.0, 0.0], other, even)) == tells


@pytest.mark.parametrize(("watts", "tells"), [(109.0, True), (111.0, False)])
def test_at_a_light_load_within_ten_watts(watts: float, tells: bool) -> None:
    light = [100.0, 100.0, 100.0, watts]
    assert np.isfinite(of_first([12.0, 0.0, 0.0, 0.0], light, light)) == tells


@pytest.mark.parametrize(("others", "tells"), [(3, True), (4, False)])
def test_half_of_the_other_gpus_must_be_its_mates(others: int, tells: bool) -> None:
    """Independent work is alike by chance, too."""
    watts = np.array([500.0] * 4 + [300.0] * others)
    node, kelvin = np.ones(len(watts), np.int64), np.array([12.0] + [0.0] * (3 + others))
    found = beyond_mates(node, node, watts, watts, kelvin, kelvin)
    assert bool(np.isfinite(found[0, 0])) is tells


def test_another_model_and_another_node_are_no_mates() -> None:
    kelvin = np.array([12.0, 0.0, 0.0, 0.0])
    other = np.array([1, 1, 1, 2])
    assert np.isnan(beyond_mates(ONE_NODE, other, WATTS, WATTS, kelvin, kelvin)[0, 0])
    assert np.isnan(beyond_mates(other, ONE_MODEL, WATTS, WATTS, kelvin, kelvin)[0, 0])


def test_one_that_was_not_measured_is_no_mate() -> None:
    kelvin = np.array([12.0, 0.0, 0.0, np.nan])
    assert np.isnan(beyond_mates(ONE_NODE, ONE_MODEL, WATTS, WATTS, kelvin, kelvin)[0, 0])


KEPT = nothing_usual(BESIDE_MATES.levels)


def crept(kelvin: float, gpus: int = 4, looks: int = 6) -> Window:
    """An hour of looks, then one at which the first GPU is so much warmer for longer than its past goes."""
    usual, scene = KEPT, machine(watts=pausing, gpus=gpus, tick=30.0)
    for number in range(looks):
        seen = replace(scene.window((DETECTOR,)), usual={BESIDE_MATES.name: usual})
        usual = learned_beside_mates(replace(seen, now=NOON + number * timedelta(minutes=10)))
    hot = machine(lambda i, _: kelvin if i == 0 else 0.0, pausing, gpus=gpus, tick=30.0)
    return replace(hot.window((DETECTOR,)), usual={BESIDE_MATES.name: usual})


@pytest.mark.medium
@pytest.mark.parametrize(("kelvin", "is_told"), [(8.0, False), (11.0, True)])
def test_what_creeps_for_hours_shows_beside_the_others_of_its_node(
    kelvin: float, is_told: bool
) -> None:
    window = crept(kelvin)
    assert [it.subject for it in hot_gpus(window)] == [gpu()] * is_told
    if is_told:
        (hot,) = hot_gpus(window)
        assert [it.name for it in hot.evidence] == ["core", "usually"]


@pytest.mark.medium
@pytest.mark.parametrize(("gpus", "looks"), [(3, 6), (4, 2)], ids=["two mates", "twenty minutes"])
def test_beside_few_mates_or_before_it_is_known_nothing_is_said(gpus: int, looks: int) -> None:
    assert hot_gpus(crept(20.0, gpus, looks)) == []


def test_the_middle_of_its_mates_is_theirs_alone() -> None:
    celsius = np.array([80.0, 60.0, 62.0, 65.0])
    found = middle_of_mates(ONE_NODE, ONE_MODEL, WATTS, celsius)
    assert found.tolist() == [62.0, 65.0, 65.0, 62.0]
    assert np.isnan(
        middle_of_mates(ONE_NODE, ONE_MODEL, WATTS, celsius * [1, 1, 1, np.nan])[:3]
    ).all()
