"""Heat beyond what power explains, on nodes whose GPUs draw whatever their jobs ask for."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.detectors.gpu_hot import hot_gpus
from analyzer.evidence.heat import heat_of
from analyzer.window.window import Span
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Finding, Severity, Subject

from .scene import NOON, TICK, Scene, gpu, healthy, inventory, node

GPUS, HALF = 4, 2
# Nodes wholly at work, wholly at rest, and those where half works.
LOADS: tuple[tuple[float, ...], ...] = (
    *((600.0 + 10.0 * n,) * GPUS for n in range(4)),
    *((90.0 + 5.0 * n,) * GPUS for n in range(4)),
    (125.0, 360.0, 340.0, 350.0),
    (690.0, 690.0, 100.0, 100.0),
    (100.0, 100.0, 690.0, 690.0),
)


def celsius(loads: Sequence[float], index: int, air: float = 22.0) -> float:
    """0.06 K per watt, and 0.008 for each of the GPU in front."""
    ahead = loads[index - HALF] if index >= HALF else 0.0
    return air + 0.06 * loads[index] + 0.008 * ahead


def fleet(all_loads: Sequence[Sequence[float]] = LOADS, air: float = 22.0) -> Scene:
    fields = {
        gpu(number, index): {
            "power_watts": watts,
            "temperature_celsius": celsius(loads, index, air),
        }
        for number, loads in enumerate(all_loads, start=1)
        for index, watts in enumerate(loads)
    }
    scene = healthy(nodes=len(all_loads), gpus=GPUS)
    samples = (
        type(s)(subject=s.subject, at=s.at, fields={**s.fields, **fields.get(s.subject, {})})
        for s in scene.samples
    )
    return Scene(
        now=NOON,
        samples=tuple(samples),
        inventories=tuple(inventory(node(n), GPUS) for n in range(1, len(all_loads) + 1)),
        heard=scene.heard,
    )


def warmer(scene: Scene, subject: Subject, kelvin: float, seconds: float = 1e9) -> Scene:
    (now,) = {s.fields["temperature_celsius"] for s in scene.samples if s.subject == subject}
    return scene.changed(subject, {"temperature_celsius": now + kelvin}, seconds)


def told(found: Sequence[Finding]) -> list[tuple[Subject, str, Severity]]:
    keys = {row.title: key for key, row in CONDITIONS.items()}
    return [(one.subject, keys[one.title], one.severity) for one in found]


def test_air_that_other_gpus_have_warmed_is_no_fault_of_those_behind() -> None:
    window = fleet().window()
    assert hot_gpus(window) == []
    assert np.nanmax(np.abs(heat_of(window).kelvin)) < 3.0


@pytest.mark.medium
@settings(max_examples=8, deadline=None)
@given(st.permutations(range(len(LOADS))), st.sampled_from([0, 1, 2, 3]), st.integers(0, 3))
def test_one_hot_gpu_is_told_of_whatever_its_node_does_and_in_whatever_order_nodes_come(
    order: list[int], place: int, index: int
) -> None:
    loads = [LOADS[n] for n in order]
    number = order.index(place) + 1
    scene = warmer(fleet(loads), gpu(number, index), 16.0)
    ((subject, condition, _),) = told(hot_gpus(scene.window()))
    assert (subject, condition) == (gpu(number, index), "heatsink")


def test_heat_that_is_over_is_told_no_longer_than_the_last_minute() -> None:
    scene = warmer(fleet(), gpu(1), 16.0)
    assert told(hot_gpus(scene.window())) == [(gpu(1), "heatsink", Severity.WARNING)]
    usual = celsius(LOADS[0], 0)
    cooled = scene.changed(gpu(1), {"temperature_celsius": usual}, 60.0 + TICK)
    assert hot_gpus(cooled.window()) == []


@pytest.mark.medium
@pytest.mark.parametrize("place", [8, 0], ids=["waits", "works"])
def test_a_heatsink_that_hardly_touches_shows_itself_at_any_load(place: int) -> None:
    by_power = 0.06 * LOADS[place][0]
    scene = warmer(fleet(), gpu(place + 1), max(2.5 * by_power, 14.0))
    assert told(hot_gpus(scene.window())) == [(gpu(place + 1), "cooling", Severity.WARNING)]
    # A GPU that nobody uses harms nobody's work.
    assert hot_gpus(warmer(fleet(), gpu(5), 14.0).window()) == []
    # What a worn heatsink makes is no such thing.
    scene = warmer(fleet(), gpu(place + 1), max(0.3 * by_power, 3.0))
    assert "cooling" not in {key for _, key, _ in told(hot_gpus(scene.window()))}


@pytest.mark.medium
@pytest.mark.parametrize(("air", "count"), [(20.5, 0), (22.0, 1)])
def test_a_gpu_that_stays_under_80_degrees_at_full_power_is_no_fault_for_being_unlike_its_peers(
    air: float, count: int
) -> None:
    # At 600 W they have 71.5 and 73 °C, at the limit of 700 they would have 79 and 81.
    scene = warmer(fleet(air=air), gpu(1), 15.0)
    assert told(hot_gpus(scene.window())) == [(gpu(1), "heatsink", Severity.WARNING)] * count
    # A site may set the limit: one degree below, and one above.
    for celsius, others in ((78.0, 1), (82.0, 0)):
        set_ = replace(scene, settings=replace(scene.settings, hot_celsius=celsius))
        assert len(hot_gpus(set_.window())) == others


@pytest.mark.medium
@pytest.mark.parametrize(
    ("nodes", "kelvin", "count"), [(15, 12.4, 0), (15, 13.8, 1), (16, 10.5, 0), (16, 11.5, 1)]
)
def test_where_fewer_than_64_gpus_tell_how_far_they_differ_a_heatsink_must_be_further_off(
    nodes: int, kelvin: float, count: int
) -> None:
    scene = fleet([(500.0 + 10.0 * n,) * GPUS for n in range(nodes)], air=26.0)
    hot = warmer(scene, gpu(5, 1), kelvin)
    assert told(hot_gpus(hot.window())) == [(gpu(5, 1), "heatsink", Severity.WARNING)] * count


@pytest.mark.medium
@pytest.mark.parametrize(("watts", "count"), [(466.0, 0), (468.0, 1)])
def test_under_two_thirds_of_its_power_limit_nobody_can_say_how_warm_a_core_would_be(
    watts: float, count: int
) -> None:
    # At 467 W it has 64 °C, at the limit of 700 it would have 85.
    scene = warmer(fleet([(watts,) * GPUS] * 10), gpu(1), 14.0)
    assert told(hot_gpus(scene.window())) == [(gpu(1), "heatsink", Severity.WARNING)] * count


@pytest.mark.medium
@pytest.mark.parametrize(
    ("racks", "apart", "kelvin", "count"),
    [
        (4, 0.0, 16.9, 0),
        (4, 0.0, 17.1, 1),
        (5, 0.0, 16.9, 0),
        (6, 0.0, 8.9, 0),
        (6, 0.0, 9.1, 1),
        (8, 4.0, 9.1, 0),
    ],
)
def test_a_racks_air_is_told_at_a_small_load_where_it_is_warmer_than_racks_differ(
    racks: int, apart: float, kelvin: float, count: int
) -> None:
    scene = fleet([(300.0,) * GPUS] * (3 * racks), air=26.0)
    named = tuple(replace(it, rack=f"r{n // 3}") for n, it in enumerate(scene.inventories))
    scene = replace(scene, inventories=named)
    for number, index in ((n, i) for n in range(1, 3 * racks + 1) for i in range(GPUS)):
        # The first is the warm one; of the others one in two is warmer, and one in two colder.
        sign = 1 if (number - 1) // 3 % 2 else -1
        scene = warmer(scene, gpu(number, index), kelvin if number <= 3 else apart * sign)
    assert [key for _, key, _ in told(hot_gpus(scene.window()))] == ["rack_hot"] * count


@pytest.mark.medium
@pytest.mark.parametrize(("watts", "count"), [(140.0, 0), (150.0, 1)])
def test_a_rack_of_which_no_core_has_45_degrees_is_not_hot(watts: float, count: int) -> None:
    # With 18 K more the warmest of its cores have 44.5 °C at 140 W, and 45.2 at 150.
    scene = fleet([(watts,) * GPUS] * 12, air=17.0)
    racks = tuple(replace(it, rack=f"r{n // 3}") for n, it in enumerate(scene.inventories))
    scene = replace(scene, inventories=racks)
    for number, index in ((n, i) for n in (1, 2, 3) for i in range(GPUS)):
        scene = warmer(scene, gpu(number, index), 18.0)
    assert [key for _, key, _ in told(hot_gpus(scene.window()))] == ["rack_hot"] * count


@pytest.mark.medium
@pytest.mark.parametrize(("warmest", "count"), [(44.9, 0), (45, 1)])
def test_a_rack_is_hot_from_45_degrees_of_its_warmest_core_on(warmest: float, count: int) -> None:
    scene = fleet([(140.0,) * GPUS] * 12, air=17.0)
    racks = tuple(replace(it, rack=f"r{n // 3}") for n, it in enumerate(scene.inventories))
    scene = replace(scene, inventories=racks)
    for number, index in ((n, i) for n in (1, 2, 3) for i in range(GPUS)):
        scene = scene.changed(gpu(number, index), {"temperature_celsius": warmest - (index < HALF)})
    assert [key for _, key, _ in told(hot_gpus(scene.window()))] == ["rack_hot"] * count


@pytest.mark.medium
@pytest.mark.parametrize(
    ("mates", "air", "keys"), [(1, 26.0, []), (1, 29.5, ["node_hot"]), (3, 26.0, ["node_hot"])]
)
def test_where_no_mates_tell_of_its_air_a_node_would_be_hot_at_its_limit_in_that_air(
    mates: int, air: float, keys: list[str]
) -> None:
    # At 500 W and 12 K more its cores have 68 °C or more. A fan that makes the 12 K makes 17 at 700 W,
    # for 85 °C; where it is the air, they would have 80 to 86, or 4 less.
    scene = fleet([(500.0,) * GPUS] * 12, air=air - 4.0)
    racks = tuple(replace(it, rack=f"r{n // mates}") for n, it in enumerate(scene.inventories))
    scene = replace(scene, inventories=racks)
    for index in range(GPUS):
        scene = warmer(scene, gpu(1, index), 12.0)
    assert [key for _, key, _ in told(hot_gpus(scene.window()))] == keys


def test_of_a_warm_node_a_gpu_with_a_heat_of_its_own_is_held_back_by_that() -> None:
    scene = fleet()
    for index in range(GPUS):
        scene = warmer(scene, gpu(1, index), 16.0 + 40.0 * (index == 3))
    for index in (2, 3):
        scene = scene.rising(gpu(1, index), "software_thermal_slowdown_seconds", 1.0)
    whole, own = hot_gpus(scene.window())
    assert (whole.subject, whole.members) == (node(), (gpu(1, 0), gpu(1, 1), gpu(1, 2)))
    assert told([own]) == [(gpu(1, 3), "software_thermal", Severity.WARNING)]


def test_several_hot_gpus_of_a_node_are_one_matter_of_the_node() -> None:
    scene = fleet()
    for index in range(3):
        scene = warmer(scene, gpu(1, index), 18.0)
    assert told(hot_gpus(scene.window())) == [(node(), "node_hot", Severity.WARNING)]


@pytest.mark.medium
@pytest.mark.parametrize(("kelvin", "count"), [(10.2, 0), (10.7, 1)])
def test_a_node_must_be_a_quarter_of_its_rise_beyond_its_peers(kelvin: float, count: int) -> None:
    scene = fleet(air=26.0)
    for index in range(GPUS):
        scene = warmer(scene, gpu(1, index), kelvin)
    assert told(hot_gpus(scene.window())) == [(node(), "node_hot", Severity.WARNING)] * count


@pytest.mark.medium
@pytest.mark.parametrize(
    ("beside", "kelvin", "count"),
    [
        ((540.0, 540.0), 12.8, 0),
        ((540.0, 540.0), 13.6, 1),
        ((690.0, 390.0), 13.6, 0),
        ((690.0, 390.0), 14.7, 1),
    ],
)
def test_a_heatsink_is_doubted_where_its_node_works_unevenly(
    beside: tuple[float, float], kelvin: float, count: int
) -> None:
    loads = [(500.0 + 10.0 * n,) * GPUS for n in range(10)]
    loads[4] = (540.0, 540.0, *beside)
    scene = warmer(fleet(loads, air=26.0), gpu(5, 1), kelvin)
    assert told(hot_gpus(scene.window())) == [(gpu(5, 1), "heatsink", Severity.WARNING)] * count


@pytest.mark.medium
def test_of_a_warm_node_what_the_driver_holds_back_is_no_second_matter() -> None:
    scene = fleet()
    for index in range(GPUS):
        scene = warmer(scene, gpu(1, index), 18.0)
    # It has just begun to work: nobody can hold it against peers.
    scene = scene.changed(gpu(1, 3), {"power_watts": 200.0}, 60.0 + TICK)
    slowed = scene.rising(gpu(1, 3), "software_thermal_slowdown_seconds", 1.0)
    assert np.isnan(_kelvin(slowed, gpu(1, 3)))
    (found,) = hot_gpus(slowed.window())
    assert (found.subject, found.title) == (node(), CONDITIONS["node_hot"].title)
    assert "fan" not in found.title  # temperatures do not tell it from a pump or dust
    assert gpu(1, 3) in found.members
    # What the hardware slows down is graver.
    graver = slowed.rising(gpu(1, 3), "hardware_thermal_slowdown_seconds", 1.0)
    assert (gpu(1, 3), "hardware_thermal", Severity.CRITICAL) in told(hot_gpus(graver.window()))


def test_nothing_is_said_of_a_gpu_that_draws_far_more_than_any_other() -> None:
    lone = [(90.0,) * GPUS] * 7 + [(90.0, 650.0, 90.0, 90.0)]
    scene = warmer(fleet(lone), gpu(8, 1), 14.0)
    assert np.isnan(_kelvin(scene, gpu(8, 1)))
    assert hot_gpus(scene.window()) == []


@pytest.mark.parametrize(("more", "is_known"), [(1, False), (2, True)])
def test_six_gpus_of_other_nodes_at_that_power_give_the_usual_heat(
    more: int, is_known: bool
) -> None:
    """Those of its own node share its air: a job on two nodes would be compared with itself."""
    at_work, at_rest = (650.0,) * GPUS, (90.0,) * GPUS
    some = (650.0,) * more + (90.0,) * (GPUS - more)
    scene = fleet([*[at_rest] * 5, some, at_work, at_work])
    assert np.isfinite(_kelvin(scene, gpu(8, 1))) == is_known


def _kelvin(scene: Scene, subject: Subject) -> float:
    window = scene.window()
    number = window.get("gpu", Span.STEADY).index.number(subject)
    assert number is not None
    return float(heat_of(window).kelvin[number])


BUSES = ("1b", "43", "52", "61")


def seated(scene: Scene, order: Sequence[int], domain: str = "00000000") -> Scene:
    """NVML's order of each node's GPUs, as places on the bus."""
    inventories = tuple(
        replace(
            one,
            gpus=tuple(
                replace(g, pci_address=f"{domain}:{BUSES[place].upper()}:00.0")
                for g, place in zip(one.gpus, order, strict=True)
            ),
        )
        for one in scene.inventories
    )
    return replace(scene, inventories=inventories)


@pytest.mark.medium
@pytest.mark.parametrize("domain", ["00000000", "0000"])
def test_gpus_are_held_against_the_same_slot_whatever_order_nvml_tells(domain: str) -> None:
    """On every second host NVML begins with the GPUs behind the others, whose air is warmer."""
    turned = (2, 3, 0, 1)
    loads = [(600.0, 600.0, 600.0, 600.0)] * 16
    scene = fleet(loads)
    for number in range(2, 17, 2):
        for index, place in enumerate(turned):
            warm = round(celsius(loads[0], place) + 4.0 * (place >= HALF))
            scene = scene.changed(gpu(number, index), {"temperature_celsius": warm})
    for number in range(1, 17, 2):
        for index in range(HALF, GPUS):
            warm = round(celsius(loads[0], index) + 4.0)
            scene = scene.changed(gpu(number, index), {"temperature_celsius": warm})
    odd, even = seated(scene, range(GPUS), domain), seated(scene, turned, domain)
    mixed = replace(
        scene,
        inventories=tuple(
            pair[number % 2]
            for number, pair in enumerate(zip(odd.inventories, even.inventories, strict=True))
        ),
    )
    by_slot = np.abs(heat_of(mixed.window()).kelvin)
    by_index = np.abs(heat_of(scene.window()).kelvin)
    assert np.nanmax(by_slot) <= 1.0 < np.nanmax(by_index)
    assert np.isfinite(by_slot).all()


def test_a_board_with_other_slots_is_no_peer() -> None:
    scene = seated(fleet([(600.0,) * GPUS] * 9), range(GPUS))
    other = replace(scene.inventories[-1])
    other = replace(
        other, gpus=tuple(replace(g, pci_address=f"0:a{g.index}:00.0") for g in other.gpus)
    )
    mixed = replace(scene, inventories=(*scene.inventories[:-1], other))
    kelvin = heat_of(mixed.window()).kelvin
    assert np.isnan(kelvin).sum() == GPUS


@pytest.mark.parametrize(
    ("gpus", "changing", "count"), [(4, 1, 1), (4, 2, 0), (8, 4, 1), (8, 5, 0), (2, 1, 1)]
)
def test_a_heatsink_is_told_beside_half_of_its_nodes_gpus_at_a_steady_load(
    gpus: int, changing: int, count: int
) -> None:
    """While a job changes its pace, who knows how warm the node's air is? One of two is alone anyway."""
    scene = healthy(nodes=8, gpus=gpus)
    hot = gpu(1, gpus - 1)
    scene = scene.changed(hot, {"temperature_celsius": 86.0})
    for index in range(changing):
        scene = scene.changed(gpu(1, index), {"power_watts": 100.0}, 65)
    assert told(hot_gpus(scene.window())) == [(hot, "heatsink", Severity.WARNING)] * count
