"""A GPU against what it usually is beside its peers: what creeps for hours has no half hour that shows it."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from analyzer.analysis import Analysis, Reading
from analyzer.detectors.gpu_hot import DETECTOR, hot_gpus
from analyzer.evidence.active_heat import would_show_heat
from analyzer.evidence.usual_heat import HEAT, learned
from analyzer.incidents.book import Book
from analyzer.window.usual import Usual, nothing_usual
from analyzer.window.window import Window
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Evidence, Finding, Incident, RecordKind, Subject

from .scene import GPU_FIELDS, NOON, Sample, Scene, gpu, incident, inventory, node

SETTINGS = AnalyzerSettings()
NOTHING = nothing_usual(HEAT.levels)
LOOK = timedelta(seconds=SETTINGS.steady_seconds)
PER_WATT, AIR, WATTS = 0.06, 20.0, 500.0
NODES, GPUS, TICK = range(1, 9), 4, 30.0
HALF = [gpu(1, 0), gpu(1, 1), gpu(1, 2)]


def fleet(
    warmer: Mapping[Subject, float],
    watts: float = WATTS,
    hours: float = 0.0,
    air: float = AIR,
    idle: Collection[Subject] = (),
) -> Scene:
    """The last half hour, in which some GPUs are so many kelvins warmer than their power makes them."""
    now = NOON + timedelta(hours=hours)
    samples = [
        Sample(
            subject=gpu(number, index),
            at=now - timedelta(seconds=ago),
            fields={
                **GPU_FIELDS,
                "index": index,
                "power_watts": drawn,
                "temperature_celsius": air + PER_WATT * drawn + warmer.get(gpu(number, index), 0.0),
            },
        )
        for number in NODES
        for index in range(GPUS)
        for drawn in [70.0 if gpu(number, index) in idle else watts]
        for ago in np.arange(1800.0 - TICK, -1.0, -TICK).tolist()
    ]
    return Scene(
        now=now,
        samples=tuple(samples),
        inventories=tuple(inventory(node(number), GPUS) for number in NODES),
        heard={node(number).key: now for number in NODES},
        settings=SETTINGS,
    )


def after(*scenes: Scene, usual: Usual = NOTHING) -> Usual:
    """What is known after a look at each."""
    for number, scene in enumerate(scenes):
        window = replace(window_of(scene, usual), now=scene.now + number * LOOK)
        usual = learned(window)
    return usual


def window_of(scene: Scene, usual: Usual) -> Window:
    return replace(scene.window((DETECTOR,)), usual={HEAT.name: usual})


def known(
    warmer: Mapping[Subject, float], watts: float = WATTS, idle: Collection[Subject] = ()
) -> Usual:
    return after(*[fleet(warmer, watts, idle=idle)] * 3)


def found(
    warmer: Mapping[Subject, float],
    usual: Usual,
    watts: float = WATTS,
    idle: Collection[Subject] = (),
) -> list[Finding]:
    return hot_gpus(window_of(fleet(warmer, watts, hours=8.0, idle=idle), usual))


def test_a_gpu_that_became_warmer_over_hours_is_told_although_its_peers_may_be_as_warm() -> None:
    assert found({gpu(): 9.0}, NOTHING) == []  # hosts are unlike each other for ever
    (hot,) = found({gpu(): 9.0}, known({}))
    assert (hot.subject, hot.condition) == (gpu(), "heatsink")
    assert [(it.name, it.value) for it in hot.evidence] == [
        ("core", "59 °C at 500 W over 10 min"),
        ("usually", "50 °C at that power"),
    ]


@pytest.mark.parametrize(("kelvin", "is_told"), [(7.0, False), (8.0, True)])
def test_three_tenths_of_its_rise_more_than_usual_are_too_much(
    kelvin: float, is_told: bool
) -> None:
    """Of the 25 K that it has above the room; whatever it usually has beyond its peers."""
    assert bool(found({gpu(): 3.0 + kelvin}, known({gpu(): 3.0}))) is is_told


def test_a_fan_that_fades_is_its_nodes_matter() -> None:
    (hot,) = found(dict.fromkeys(HALF, 9.0), known({}))
    assert (hot.subject, hot.condition, hot.members) == (node(), "node_hot", tuple(HALF))


@pytest.mark.parametrize(("air", "is_told"), [(16.8, False), (17.5, True)])
def test_what_would_stay_under_70_degrees_at_its_power_limit_is_not_hot(
    air: float, is_told: bool
) -> None:
    # 57.1 °C at 500 of 700 W, over a room of 25.
    usual = after(*[fleet({}, air=air)] * 3)
    hot = fleet({gpu(): 10.0}, hours=8.0, air=air)
    assert bool(hot_gpus(window_of(hot, usual))) is is_told


@pytest.mark.parametrize(("kelvin", "is_told"), [(0.0, False), (3.9, False), (4.1, True)])
def test_a_gpu_that_is_as_it_always_was_is_not_hot_beside_others_that_cooled_down(
    kelvin: float, is_told: bool
) -> None:
    """The others became known in warm air, which is over."""
    usual = after(*[fleet(dict.fromkeys(HALF, 12.0), air=30.0)] * 3)
    elsewhere = {gpu(2): 5.0}  # too little by itself, but enough to look closer
    now = fleet({gpu(1, 3): kelvin, **elsewhere}, hours=8.0, air=30.0)
    assert [it.subject for it in hot_gpus(window_of(now, usual))] == [gpu(1, 3)] * is_told


def test_a_power_at_which_it_was_not_seen_for_half_an_hour_tells_nothing() -> None:
    hot = {gpu(): 9.0}
    assert found(hot, after(*[fleet({})] * 2)) == []
    assert found(hot, known({}, watts=450.0)) == []  # 450 of 700 W are a level below
    assert found(hot, known({}, watts=600.0)) != []


def test_neighbours_at_rest_tell_whether_it_is_the_air() -> None:
    """Only one GPU of the node works: alone it would be its heatsink."""
    usual = known({}, idle=HALF)
    warm = dict.fromkeys([gpu(1, index) for index in range(GPUS)], 9.5)
    assert [f.subject for f in found({gpu(1, 3): 9.5}, usual, idle=HALF)] == [gpu(1, 3)]
    assert found(warm, usual, idle=HALF) == []


def test_a_look_counts_once_in_a_steady_span() -> None:
    once = after(fleet({}))
    assert once.at == NOON
    soon = replace(window_of(fleet({}), once), now=NOON + LOOK - timedelta(seconds=1))
    assert learned(soon) is once
    later = learned(replace(soon, now=NOON + LOOK))
    assert (later.at, later.looks.max(), once.looks.max()) == (NOON + LOOK, 2.0, 1.0)


@pytest.mark.parametrize(("kelvin", "taught"), [(1.9, 1.9), (2.1, 2.0), (30.0, 2.0)])
def test_a_fault_does_not_soon_become_usual(kelvin: float, taught: float) -> None:
    now = after(fleet({gpu(): kelvin}, hours=8.0), usual=known({}))
    place = now.index.number(gpu())
    assert place is not None
    assert now.beyond[place].max() == pytest.approx(taught / 4.0, abs=0.05)


def test_what_the_fleet_has_no_more_is_forgotten_when_others_come() -> None:
    before, whole = known({}), fleet({}, hours=1.0)
    fewer = replace(
        whole,
        inventories=whole.inventories[1:],
        samples=tuple(s for s in whole.samples if s.subject.node != "node-1"),
    )
    # Nobody new: all are kept.
    assert after(fewer, usual=before).index is before.index
    mate = [s for s in whole.samples if s.subject == gpu(2, 0)]
    stranger = tuple(replace(s, subject=gpu(9, 0)) for s in mate)
    joined = after(replace(fewer, samples=(*fewer.samples, *stranger)), usual=before)
    assert set(joined.index.subjects) == {*before.index.subjects[GPUS:], gpu(9, 0)}
    assert joined.looks[joined.index.number(gpu(2, 0)) or 0].max() == 4.0


BY_USUAL = incident(
    "gpu_hot",
    gpu(),
    condition="heatsink",
    evidence=(
        Evidence(name="core", value="59 °C at 500 W over 10 min"),
        Evidence(name="usually", value="50 °C at that power"),
    ),
)


def test_it_is_over_only_where_it_could_be_told() -> None:
    assert would_show_heat(window_of(fleet({}), known({})), BY_USUAL) is True
    assert would_show_heat(window_of(fleet({}), known({}, watts=600.0)), BY_USUAL) is True
    for unknown in (NOTHING, known({}, watts=450.0)):
        assert would_show_heat(window_of(fleet({}), unknown), BY_USUAL) is False


@pytest.mark.parametrize("condition", ["node_hot", "rack_hot"])
def test_a_power_first_drawn_in_warm_air_does_not_become_known(condition: str) -> None:
    def looks(state: Incident, watts: float, subject: Subject) -> float:
        before = known({})
        window = replace(window_of(fleet({}, watts, hours=8.0), before), recent_incidents=(state,))
        now = learned(window)
        place = now.index.number(subject)
        assert place is not None
        return float(now.looks[place].sum() - before.looks[place].sum())

    warm = incident("gpu_hot", node(), condition=condition, members=(node(2).key,))
    assert [looks(warm, 450.0, gpu(n)) for n in (1, 2, 3)] == [0.0, 0.0, 1.0]
    assert looks(warm, WATTS, gpu()) == 1.0  # slowly, a lasting change becomes usual
    assert looks(replace(warm, resolved_at=NOON), 450.0, gpu()) == 1.0
    assert looks(replace(warm, condition="heatsink"), 450.0, gpu()) == 1.0


def test_of_a_node_whose_power_is_new_its_peers_tell_that_it_is_over() -> None:
    of_node = replace(BY_USUAL, subject=node(), condition="node_hot")
    assert would_show_heat(window_of(fleet({}), NOTHING), of_node) is True
    warm = fleet({gpu(1, index): 12.0 for index in range(GPUS)})
    assert would_show_heat(window_of(warm, NOTHING), of_node) is False
    assert (
        would_show_heat(window_of(fleet({}), NOTHING), BY_USUAL) is False
    )  # for one GPU they do not


def test_the_analyzer_remembers_from_pass_to_pass() -> None:
    analysis = Analysis(SETTINGS, (DETECTOR,))
    analysis.start([one.to_record() for one in fleet({}).inventories], Book())
    courses = [(0.0, {}), (0.2, {}), (0.4, {}), (8.0, {gpu(): 12.0}), (8.01, {gpu(): 12.0})]
    for hours, warmer in courses:
        scene = fleet(warmer, hours=hours)
        rows = scene.window((DETECTOR,)).rows
        analysis.run_pass(
            Reading(now=scene.now, rows=rows, last_seen=scene.heard, listening_since=NOON)
        )
    told = [r for unit in analysis.to_write() for r in unit if r.kind is RecordKind.INCIDENT]
    assert [r.subject for r in told] == [gpu().key]
