"""A GPU against what it was itself: on a workstation, and on nodes unlike all others."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.correlation.causes import multi_node
from analyzer.detectors.gpu_hot import DETECTOR, hot_gpus
from analyzer.evidence.active_heat import lapsed, would_show_heat
from analyzer.evidence.own_past import own_past_of
from gpuvigil.config import AnalyzerSettings
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Evidence, Finding, Subject

from .scene import GPU_FIELDS, NOON, TICK, Sample, Scene, gpu, incident, inventory, node

SETTINGS = AnalyzerSettings()
MINUTES = 30
PER_WATT, AIR = 0.06, 25.0
# By GPU and seconds before now.
Course = Callable[[int, float], float]


def usual(_: int, __: float) -> float:
    return 0.0


def machine(
    warmer: Course = usual,
    watts: Course = lambda _gpu, _ago: 500.0,
    gpus: int = 4,
    tick: float = TICK,
    nodes: Sequence[int] = (1,),
    rack: str | None = None,
) -> Scene:
    """Half an hour of nodes, each GPU as warm as its power makes it and `warmer` adds."""
    samples = tuple(
        Sample(
            subject=gpu(number, index),
            at=NOON - timedelta(seconds=ago),
            fields={
                **GPU_FIELDS,
                "index": index,
                "power_watts": watts(index, ago),
                "temperature_celsius": round(
                    AIR + PER_WATT * watts(index, ago) + warmer(index, ago)
                ),
            },
        )
        for number in nodes
        for index in range(gpus)
        for ago in np.arange(MINUTES * 60.0 - tick, -1.0, -tick).tolist()
    )
    return Scene(
        samples=samples,
        inventories=tuple(replace(inventory(node(n), gpus), rack=rack) for n in nodes),
        heard=dict.fromkeys((node(n).key for n in nodes), NOON),
        settings=SETTINGS,
    )


def one(kelvin: float, seconds: float) -> Course:
    """The first GPU is so much warmer since so long ago."""
    return lambda index, ago: kelvin if index == 0 and ago < seconds else 0.0


def ramp(kelvin: float, seconds: float) -> Course:
    return lambda index, ago: kelvin * max(0.0, 1.0 - ago / seconds) if index == 0 else 0.0


def told(scene: Scene) -> list[tuple[Subject, str]]:
    keys = {row.title: key for key, row in CONDITIONS.items()}
    return [(f.subject, keys[f.title]) for f in found(scene)]


def found(scene: Scene) -> list[Finding]:
    return hot_gpus(scene.window((DETECTOR,)))


@pytest.mark.parametrize("gpus", [1, 4, 8])
def test_a_gpu_that_became_hot_is_told_where_no_other_node_is(gpus: int) -> None:
    assert found(machine(gpus=gpus)) == []
    (hot,) = found(machine(one(15.0, 400.0), gpus=gpus))
    assert (hot.subject, hot.condition) == (gpu(), "heatsink")
    assert [item.name for item in hot.evidence] == ["core", "half an hour ago"]
    assert "at most 55 °C at that power" in hot.evidence[1].value


def test_fifteen_kelvins_in_ten_minutes_are_told_when_they_are_there() -> None:
    assert told(machine(ramp(15.0, 600.0))) == [(gpu(), "heatsink")]
    assert found(machine(ramp(15.0, 7200.0))) == []  # two hours are no drift of half an hour


@pytest.mark.parametrize(("kelvin", "is_told"), [(11.0, False), (13.0, True)])
def test_three_tenths_of_what_its_power_makes_are_too_much(kelvin: float, is_told: bool) -> None:
    # 55 °C, 40 above the coldest air that it may have; three that did the same would say more.
    assert bool(found(machine(one(kelvin, 600.0), gpus=1))) is is_told


@pytest.mark.parametrize(("celsius", "is_told"), [(44.0, False), (45.0, True)])
def test_under_45_degrees_nothing_is_hot(celsius: float, is_told: bool) -> None:
    at_rest = AIR + PER_WATT * 220.0

    def course(_: int, ago: float) -> float:
        return (celsius if ago < 700.0 else 32.0) - at_rest

    assert bool(found(machine(course, watts=lambda *_: 220.0, gpus=1))) is is_told


def test_what_more_power_explains_is_no_fault() -> None:
    def harder(_: int, ago: float) -> float:
        return 650.0 if ago < 600.0 else 400.0

    assert found(machine(watts=harder)) == []
    # And that it is as warm at less power is one.
    scene = machine(one(25.0, 600.0), watts=lambda _, ago: 400.0 if ago < 600.0 else 500.0)
    assert told(scene) == [(gpu(), "heatsink")]


def test_neighbours_that_begin_to_work_may_warm_it() -> None:
    def others(index: int, ago: float) -> float:
        return 500.0 if index == 0 or ago < 600.0 else 60.0

    at_rest = machine(one(13.0, 600.0), gpus=8)
    assert told(at_rest) == [(gpu(), "heatsink")]
    assert found(machine(one(13.0, 600.0), watts=others, gpus=8)) == []


def test_half_of_a_nodes_gpus_are_its_fan() -> None:
    scene = machine(lambda index, ago: 14.0 if index < 4 and ago < 600.0 else 0.0, gpus=8)
    (hot,) = found(scene)
    assert (hot.subject, hot.condition) == (node(), "node_hot")
    assert set(hot.members) == {gpu(1, index) for index in range(4)}


def test_while_several_are_on_the_way_none_of_them_is_blamed() -> None:
    """The first is over the limit, two others are beyond half of it: the node."""

    def course(index: int, ago: float) -> float:
        return (13.0, 9.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0)[index] if ago < 600.0 else 0.0

    assert told(machine(course, gpus=8)) == [(node(), "node_hot")]


@pytest.mark.medium
@pytest.mark.parametrize(("kelvin", "is_told"), [(4.0, False), (6.0, True)])
def test_a_rack_whose_air_became_warmer_is_one_matter_also_at_rest(
    kelvin: float, is_told: bool
) -> None:
    def course(_: int, ago: float) -> float:
        return kelvin if ago < 600.0 else 0.0

    scene = machine(course, watts=lambda *_: 70.0, nodes=(1, 2, 3), rack="r1")
    assert {key for _, key in told(scene)} == ({"rack_hot"} if is_told else set())


@given(
    st.lists(st.floats(60.0, 690.0), min_size=4, max_size=4),
    st.lists(st.floats(60.0, 690.0), min_size=4, max_size=4),
    st.floats(15.0, 40.0),
    st.floats(0.02, 0.09),
)
def test_sound_gpus_are_never_hotter_than_their_power_explains(
    before: list[float], now: list[float], air: float, per_watt: float
) -> None:
    """Whatever they drew before and draw now, in air of any temperature and on any heatsink."""

    def watts(index: int, ago: float) -> float:
        return now[index] if ago < 600.0 else before[index]

    scene = machine(
        lambda index, ago: (per_watt - PER_WATT) * watts(index, ago) + air - AIR,
        watts=watts,
        tick=60.0,
    )
    kelvin = own_past_of(scene.window((DETECTOR,))).kelvin
    # Whole degrees are off by half of one at either end.
    assert np.nanmax(kelvin) < 3.0


@pytest.mark.parametrize("missing", ["power_watts", "temperature_celsius"])
def test_what_nobody_measured_says_nothing(missing: str) -> None:
    scene = machine(one(15.0, 600.0)).changed(gpu(), {missing: None})
    assert found(scene) == []


def test_a_past_of_less_than_ten_minutes_says_nothing() -> None:
    scene = machine(one(15.0, 600.0))
    young = replace(
        scene, samples=tuple(s for s in scene.samples if NOON - s.at < timedelta(minutes=15))
    )
    assert found(young) == []
    old = replace(
        scene, samples=tuple(s for s in scene.samples if NOON - s.at < timedelta(minutes=21))
    )
    assert told(old) == [(gpu(), "heatsink")]


BY_PAST = incident(
    "gpu_hot",
    gpu(),
    condition="heatsink",
    evidence=(
        Evidence(name="core", value="70 °C at 500 W over 10 min"),
        Evidence(name="half an hour ago", value="at most 55 °C at that power"),
    ),
)


def test_it_stands_until_it_became_cooler() -> None:
    hot_for_long = machine(lambda index, _: 15.0 if index == 0 else 0.0)
    assert found(hot_for_long) == []
    assert would_show_heat(hot_for_long.window((DETECTOR,)), BY_PAST) is False
    for kelvin, is_over in ((3.0, False), (5.0, True)):
        cooled = machine(one(-kelvin, 600.0))
        assert would_show_heat(cooled.window((DETECTOR,)), BY_PAST) is is_over


@pytest.mark.parametrize(
    ("kelvin", "is_over"), [(0.0, True), (3.0, True), (5.0, False), (7.0, False)]
)
def test_a_node_that_is_still_hotter_than_it_was_is_not_over_because_its_peers_are_as_hot(
    kelvin: float, is_over: bool
) -> None:
    """All nodes of the room are alike, so that the lines of power explain the node's heat by now."""

    def all_of_it(_: int, ago: float) -> float:
        return kelvin if ago < 400.0 else 0.0

    hot, others = machine(all_of_it), machine(nodes=range(2, 9))
    scene = replace(
        hot,
        samples=(*hot.samples, *others.samples),
        inventories=(*hot.inventories, *others.inventories),
        heard={**hot.heard, **others.heard},
    )
    members = tuple(gpu(1, index).key for index in range(4))
    by_past = replace(BY_PAST, subject=node(), condition="node_hot", members=members)
    assert would_show_heat(scene.window((DETECTOR,)), by_past) is is_over


@pytest.mark.parametrize(("hours", "is_over"), [(23.9, False), (24.0, True)])
def test_what_nothing_can_show_any_more_lapses_after_a_day(hours: float, is_over: bool) -> None:
    window = machine().window((DETECTOR,))
    seen = replace(BY_PAST, updated_at=NOON - timedelta(hours=hours))
    assert (lapsed(window, seen) is not None) is is_over
    by_peers = replace(seen, evidence=(Evidence(name="core", value="70 °C", peers="55 °C"),))
    assert lapsed(window, by_peers) is None


@pytest.mark.parametrize(
    "lately", [{"power_watts": None}, {"temperature_celsius": None}], ids=["power", "temperature"]
)
def test_of_a_gpu_that_was_not_measured_in_the_last_minute_nothing_is_said(
    lately: dict[str, None],
) -> None:
    """The others of a hot node are told all the same."""
    scene = machine(one(15.0, 600.0)).changed(gpu(), lately, 60.0 + TICK)
    assert found(scene) == []
    whole = machine(lambda _, ago: 15.0 if ago < 600.0 else 0.0)
    (hot,) = found(whole.changed(gpu(), lately, 60.0 + TICK))
    assert (hot.subject, set(hot.members)) == (node(), {gpu(1, index) for index in (1, 2, 3)})


def test_a_gpu_whose_lines_stopped_a_minute_ago_does_not_stop_the_others() -> None:
    whole = machine(lambda _, ago: 15.0 if ago < 600.0 else 0.0)
    quiet = NOON - timedelta(seconds=60.0 + TICK)
    scene = replace(
        whole, samples=tuple(s for s in whole.samples if s.subject != gpu() or s.at < quiet)
    )
    (hot,) = found(scene)
    assert gpu() not in hot.members
    assert would_show_heat(scene.window((DETECTOR,)), BY_PAST) is False


@pytest.mark.medium
@given(
    st.integers(300, 1500),
    st.integers(0, 1500),
    st.integers(30, 180),
    st.sampled_from([TICK, 60.0]),
)
def test_a_core_that_follows_its_power_minutes_later_is_no_hotter_than_it_explains(
    period: int, phase: int, late: int, tick: float
) -> None:
    def watts(_: int, ago: float) -> float:
        return 650.0 if (ago + phase) // period % 2 else 250.0

    def behind(index: int, ago: float) -> float:
        return PER_WATT * (watts(index, ago + late) - watts(index, ago))

    assert told(machine(behind, watts, tick=tick)) == []


def pausing(_: int, ago: float) -> float:
    """A job that saves twice in the half hour."""
    return 110.0 if 700.0 <= ago < 760.0 or 1600.0 <= ago < 1660.0 else 620.0


@pytest.mark.parametrize(("kelvin", "is_told"), [(10.0, False), (11.0, True)])
def test_a_lone_node_whose_job_pauses_became_hotter_by_what_is_known_of_each_gpu_from_below(
    kelvin: float, is_told: bool
) -> None:
    scene = machine(lambda _, ago: kelvin if ago < 600.0 else 0.0, watts=pausing, gpus=8)
    assert told(scene) == ([(node(), "node_hot")] if is_told else [])


def test_of_a_node_of_which_hardly_any_gpu_is_known_nothing_is_told() -> None:
    def fewer(index: int, ago: float) -> float:
        return 16.0 if index < 4 and ago < 600.0 else 0.0

    assert (node(), "node_hot") not in told(machine(fewer, watts=pausing, gpus=9))


def test_what_a_core_s_samples_leave_uncertain_is_that_of_each_span_s_own_swing() -> None:
    found = own_past_of(machine(watts=pausing, gpus=1).window((DETECTOR,)))
    late = own_past_of(
        machine(watts=lambda g, ago: pausing(g, ago + 700.0), gpus=1).window((DETECTOR,))
    )
    # Those of 150 samples, and of 30.
    assert found.kelvin[0] > late.kelvin[0] + 2.0


def test_what_others_of_its_node_rise_as_it_does_itself_its_own_power_explains() -> None:
    def risen(beginning: int) -> Course:
        return lambda index, ago: 600.0 if ago < 600.0 and index >= beginning else 400.0

    alike = own_past_of(machine(watts=risen(0)).window((DETECTOR,)))
    assert alike.doubt.tolist() == pytest.approx([0.0] * 4, abs=0.01)
    # Three rose by 197 W in the mean.
    unlike = own_past_of(machine(watts=risen(1)).window((DETECTOR,)))
    assert unlike.doubt.tolist() == pytest.approx([5.9, 0.0, 0.0, 0.0], abs=0.01)


@pytest.mark.parametrize(("others", "names"), [(14.0, []), (0.0, [node(1)])])
def test_what_the_rack_s_other_nodes_became_is_no_fan_s(
    others: float, names: list[Subject]
) -> None:
    """Of the first node 16 K, of two others in its rack so much."""
    scene = machine(watts=pausing, nodes=(1, 2, 3), rack="r")

    def warmed(sample: Sample) -> Sample:
        kelvin = 16.0 if sample.subject.of_node() == node() else others
        if NOON - sample.at >= timedelta(seconds=600):
            return sample
        celsius = sample.fields["temperature_celsius"] + kelvin
        return replace(sample, fields={**sample.fields, "temperature_celsius": celsius})

    scene = replace(scene, samples=tuple(map(warmed, scene.samples)))
    hot = [it.subject for it in found(scene) if it.condition == "node_hot" and not multi_node(it)]
    assert [it for it in hot if it == node()] == names
