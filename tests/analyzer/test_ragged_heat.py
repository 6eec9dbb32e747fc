"""Heat of GPUs whose load is light or goes up and down: inference, evaluations, phases of a training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import pytest

from analyzer.detectors.gpu_hot import DETECTOR, hot_gpus
from analyzer.evidence.active_heat import would_show_heat
from analyzer.evidence.own_past import own_past_of
from analyzer.evidence.usual_heat import HEAT, learned
from analyzer.window.columns import Floats
from analyzer.window.usual import Usual, nothing_usual
from analyzer.window.window import Window
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Evidence, Subject

from .scene import GPU_FIELDS, NOON, Sample, Scene, gpu, incident, inventory, node

SETTINGS = AnalyzerSettings()
LOOK = timedelta(seconds=SETTINGS.steady_seconds)
PER_WATT, AIR, TICK, GPUS = 0.06, 27.0, 20.0, 4
# What follows power at once, by its share, and what does so late: of an H100 24 s; and a heatsink's mass.
CORES: Mapping[str, tuple[tuple[float, float], ...]] = {
    "quick": ((1.0, 24.0),),
    "slow": ((1.0, 120.0),),
    "massive": ((0.4, 8.0), (0.6, 150.0)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """Between two powers, for times of about so many seconds."""

    low: float
    high: float
    seconds: float

    def watts(self, chance: np.random.Generator, length: int) -> Floats:
        spells = chance.uniform(0.5, 1.5, size=2 + int(3 * length / self.seconds)) * self.seconds
        turns = np.searchsorted(np.cumsum(spells), np.arange(length), side="right")
        found: Floats = np.where(turns % 2 == 0, self.low, self.high)
        return found


LIGHT, BUSY = (
    Bursts(low=120.0, high=230.0, seconds=25.0),
    Bursts(low=120.0, high=440.0, seconds=40.0),
)
QUICK = Bursts(low=120.0, high=440.0, seconds=4.0)
EVEN = Bursts(low=150.0, high=150.0, seconds=60.0)
RAGGED = (LIGHT, BUSY, QUICK, EVEN)


def followed(watts: Floats, core: str) -> Floats:
    """The degrees over its air that a core of such masses has."""
    over = np.zeros(len(watts))
    for share, seconds in CORES[core]:
        at, part = watts[:300].mean(), share * PER_WATT
        for second, drawn in enumerate(watts.tolist()):
            at += (drawn - at) / (seconds + 1.0)
            over[second] += part * at
    return over


def fleet(
    load: Bursts,
    seed: int = 0,
    *,
    core: str = "quick",
    nodes: int = 8,
    warmer: Mapping[Subject, float] | None = None,
    since: float = 1e9,
    minutes: float = 10.0,
) -> Scene:
    """GPUs with such a load, each at its own times; some are warmer for `since` seconds."""
    chance, length = np.random.default_rng(seed), int(60.0 * minutes) + 600
    samples = []
    for one in (gpu(n, index) for n in range(1, nodes + 1) for index in range(GPUS)):
        watts = load.watts(chance, length)
        celsius = AIR + followed(watts, core)
        for ago in np.arange(60.0 * minutes - TICK, -1.0, -TICK).tolist():
            at = length - 1 - int(ago)
            more = (warmer or {}).get(one, 0.0) if ago < since else 0.0
            fields = {
                **GPU_FIELDS,
                "index": int((one.gpu or "0")[-1]),
                "power_watts": float(watts[at]),
                "temperature_celsius": float(round(celsius[at] + more)),
            }
            samples.append(Sample(subject=one, at=NOON - timedelta(seconds=ago), fields=fields))
    return Scene(
        samples=tuple(samples),
        inventories=tuple(inventory(node(n), GPUS) for n in range(1, nodes + 1)),
        heard={node(n).key: NOON for n in range(1, nodes + 1)},
        settings=SETTINGS,
    )


def window_of(scene: Scene, usual: Usual) -> Window:
    return replace(scene.window((DETECTOR,)), usual={HEAT.name: usual})


def known(scenes: Sequence[Scene]) -> Usual:
    """What is learned of one look at each."""
    usual = nothing_usual(HEAT.levels)
    for number, scene in enumerate(scenes):
        usual = learned(replace(window_of(scene, usual), now=NOON + number * LOOK))
    return usual


def told(scene: Scene, usual: Usual) -> list[tuple[Subject, str]]:
    return [(it.subject, it.condition) for it in hot_gpus(window_of(scene, usual))]


@pytest.mark.medium
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("load", RAGGED)
def test_a_lost_fan_shows_at_any_load_once_it_is_known_what_is_usual(
    load: Bursts, core: str
) -> None:
    usual = known([fleet(load, seed, core=core) for seed in range(6)])
    for seed in (10, 11):
        assert told(fleet(load, seed, core=core), usual) == []
    hot = fleet(load, 20, core=core, warmer={gpu(): 12.0})
    assert told(hot, usual) == [(gpu(), "heatsink")]


@pytest.mark.medium
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize(("load", "kelvin"), [(LIGHT, 12.0), (EVEN, 12.0), (BUSY, 15.0)])
def test_where_no_other_node_is_it_shows_against_its_own_past(
    load: Bursts, kelvin: float, core: str
) -> None:
    nothing = nothing_usual(HEAT.levels)
    for seed in (10, 11):
        assert told(fleet(load, seed, core=core, nodes=1, minutes=30.0), nothing) == []
    warmer = {gpu(): kelvin}
    hot = fleet(load, 20, core=core, nodes=1, minutes=30.0, warmer=warmer, since=600.0)
    assert told(hot, nothing) == [(gpu(), "heatsink")]


@pytest.mark.medium
@pytest.mark.parametrize(("kelvin", "is_told"), [(8.5, False), (10.0, True)])
def test_at_a_light_load_nine_kelvins_are_told(kelvin: float, is_told: bool) -> None:
    usual = known([fleet(EVEN)] * 3)
    assert bool(told(fleet(EVEN, warmer={gpu(): kelvin}), usual)) is is_told


@pytest.mark.medium
@pytest.mark.parametrize(("kelvin", "is_told"), [(9.0, False), (11.5, True)])
def test_against_its_own_past_nine_are_told_beyond_what_is_uncertain(
    kelvin: float, is_told: bool
) -> None:
    """Degrees are whole ones, and those of half an hour are in the mean of ten minutes."""
    hot = fleet(EVEN, nodes=1, minutes=30.0, warmer={gpu(): kelvin}, since=600.0)
    assert bool(told(hot, nothing_usual(HEAT.levels))) is is_told


@pytest.mark.medium
@pytest.mark.parametrize(("watts", "is_told"), [(100.0, False), (110.0, True)])
def test_a_gpu_that_nobody_uses_is_not_hot(watts: float, is_told: bool) -> None:
    # 15 % of 700 W.
    load = Bursts(low=watts, high=watts, seconds=60.0)
    usual = known([fleet(load)] * 3)
    assert bool(told(fleet(load, warmer={gpu(): 13.0}), usual)) is is_told


@pytest.mark.medium
@pytest.mark.parametrize(("kelvin", "is_over"), [(6.0, True), (7.0, False)])
def test_it_is_over_at_such_a_load_too(kelvin: float, is_over: bool) -> None:
    evidence = (
        Evidence(name="core", value="48 °C at 150 W over 10 min"),
        Evidence(name="usually", value="36 °C at that power"),
    )
    stands = incident("gpu_hot", gpu(), condition="heatsink", evidence=evidence)
    scene = fleet(EVEN, warmer={gpu(): kelvin})
    assert would_show_heat(window_of(scene, known([fleet(EVEN)] * 3)), stands) is is_over


@pytest.mark.medium
@pytest.mark.parametrize(("left", "is_told"), [(2.0, False), (9.0, True)])
def test_heat_that_is_over_while_power_rises_is_told_no_more(left: float, is_told: bool) -> None:
    """Slowed down at 200 W until five minutes ago, by 25 K; the mean of the span goes on to tell of it."""
    usual = known([fleet(BUSY, seed) for seed in range(6)])
    hot = {"power_watts": 200.0, "temperature_celsius": AIR + 200.0 * PER_WATT + 25.0}
    over = {"power_watts": 440.0, "temperature_celsius": AIR + 440.0 * PER_WATT + left}
    scene = fleet(BUSY, 10).changed(gpu(), hot).changed(gpu(), over, seconds=290.0)
    assert told(scene, usual) == ([(gpu(), "heatsink")] if is_told else [])


@pytest.mark.medium
@pytest.mark.parametrize(("kelvin", "is_told"), [(5.5, True), (8.5, False)])
def test_what_the_others_of_its_node_learned_in_warm_air_is_no_heat_of_its_own(
    kelvin: float, is_told: bool
) -> None:
    """A power that became known while the rack's air was warm is usual then; its neighbour's is not."""
    others = {gpu(1, index): kelvin for index in range(1, GPUS)}
    usual = known([fleet(EVEN, warmer=others)] * 3)
    now = fleet(EVEN, warmer={gpu(): 12.0, **others})
    assert told(now, usual) == ([(gpu(), "heatsink")] if is_told else [])


@pytest.mark.medium
@pytest.mark.parametrize(("watts", "is_sure"), [(45.0, True), (95.0, False)])
def test_what_air_a_node_gets_is_known_by_even_loads_alone(watts: float, is_sure: bool) -> None:
    load = Bursts(low=150.0, high=150.0 + watts, seconds=4.0)
    scene = fleet(load, nodes=1, minutes=30.0)
    past = own_past_of(window_of(scene, nothing_usual(HEAT.levels)))
    assert np.isfinite(past.kelvin).all()
    assert bool(np.isfinite(past.sure).all()) is is_sure
    assert bool(np.isfinite(past.sure).any()) is is_sure


@pytest.mark.medium
@pytest.mark.parametrize(("watts", "is_told"), [(300.0, True), (100.0, False)])
def test_a_node_whose_job_has_just_ended_is_not_hot_by_what_it_drew_before(
    watts: float, is_told: bool
) -> None:
    """Of how far a core follows its power later, less than 7 K must be left open."""
    load = Bursts(low=600.0, high=600.0, seconds=60.0)
    scene, usual = fleet(load), known([fleet(load)] * 3)
    ours = [gpu(1, index) for index in range(GPUS)]
    for drawn, seconds in ((600.0, 1e9), (watts, 60.0)):
        hot = {"power_watts": drawn, "temperature_celsius": AIR + drawn * PER_WATT + 10.0}
        for one in ours:
            scene = scene.changed(one, hot, seconds=seconds)
    assert told(scene, usual) == ([(node(), "node_hot")] if is_told else [])
