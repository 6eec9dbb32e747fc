"""What the detectors of failing hardware say about the cases that are easy to get wrong."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.correlation.correlate import observe
from analyzer.detectors.driver_drift import drifted_drivers
from analyzer.detectors.fabric_down import fabrics_down
from analyzer.detectors.gpu_clocks import stuck_clocks
from analyzer.detectors.gpu_hot import hot_gpus
from analyzer.detectors.gpu_hung import hung_jobs
from analyzer.detectors.gpu_memory import failing_memory, would_show_corrections
from analyzer.detectors.gpu_memory_held import held_memory
from analyzer.detectors.gpu_nvlink import broken_links
from analyzer.detectors.gpu_pcie import degraded_links, would_show_degraded_link
from analyzer.detectors.gpu_power import held_back
from analyzer.detectors.gpu_settings import odd_settings
from analyzer.detectors.gpus_missing import nodes_with_too_few
from analyzer.detectors.host_disk import full_disks
from analyzer.detectors.host_memory import failing_hosts
from analyzer.detectors.host_sensors import failing_parts
from analyzer.detectors.node_silent import silent_nodes
from analyzer.detectors.port_errors import bad_ports
from analyzer.detectors.switch_down import switches_down
from analyzer.window.window import Window
from gpuvigil.config import AnalyzerSettings
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Allocation, Event, EventKind, Finding, Holder, Severity, Subject

from .scene import (
    NOON,
    SETTINGS,
    TICK,
    Scene,
    allocation,
    event,
    gpu,
    healthy,
    incident,
    inventory,
    node,
    port,
    with_port_down,
)

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
CRITICAL, WARNING, INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO
Find = Callable[[Window], list[Finding]]
PEERS = healthy(nodes=8, gpus=4)


def conditions(found: list[Finding]) -> list[tuple[str, Severity]]:
    keys = {row.title: key for key, row in CONDITIONS.items()}
    return [(keys[finding.title], finding.severity) for finding in found]


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ({"sram_threshold_exceeded": 1}, ("sram_threshold", CRITICAL)),
        ({"remap_failure": 1, "remap_pending": 1}, ("remap_failure", CRITICAL)),
        (
            {"retired_pages_corrected": 62, "retired_pages_uncorrected": 1},
            ("retired_pages", CRITICAL),
        ),
        ({"retired_pages_uncorrected": 16}, ("retired_pages", CRITICAL)),
        ({"remap_banks_none": 1}, ("no_spare_rows", WARNING)),
        ({"remap_pending": 1}, ("repair_pending", INFO)),
        ({"retired_pages_pending": 1}, ("repair_pending", INFO)),
    ],
)
def test_the_gravest_state_of_memory_speaks(
    fields: dict[str, Any], condition: tuple[str, Severity]
) -> None:
    found = failing_memory(healthy().changed(gpu(), fields, 15).window())
    assert conditions(found) == [condition]


def test_few_corrected_errors_are_none_more_are_a_note_and_many_a_warning() -> None:
    def rate(per_second: float) -> list[tuple[str, Severity]]:
        scene = healthy().rising(gpu(), "ecc_corrected_errors", per_second)
        short = replace(scene, settings=replace(SETTINGS, steady_seconds=100.0))
        return conditions(failing_memory(short.window()))

    assert rate(1 / 300) == []
    assert rate(1 / 60) == [("corrected_growth", INFO)]
    assert rate(20.0) == [("corrected_storm", WARNING)]


@pytest.mark.parametrize(
    ("before", "lately", "grows"),
    [(2, 1, True), (1, 2, True), (1, 1, False), (40, 0, False), (0, 40, False)],
)
def test_corrected_errors_grow_where_they_go_on_and_a_burst_is_nothing(
    before: int, lately: int, grows: bool
) -> None:
    scene = healthy().changed(gpu(), {"ecc_corrected_errors": 7 + before}, 200)
    scene = scene.changed(gpu(), {"ecc_corrected_errors": 7 + before + lately}, 50)
    scene = replace(scene, settings=replace(SETTINGS, steady_seconds=100.0))
    window = scene.window()
    assert conditions(failing_memory(window)) == [("corrected_growth", INFO)] * grows
    # What stands is not over while it only rests.
    stands = incident("gpu_memory", gpu(), since=-HOUR)
    growth = replace(stands, condition="corrected_growth")
    rests = before + lately >= 3
    assert would_show_corrections(window, growth) is (False if rests else None)
    assert would_show_corrections(window, stands) is None


UNCORRECTED = [("uncorrected_growth", WARNING)]
LATE = AnalyzerSettings().late_after_seconds


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([0, 0], []),
        ([2, 2], []),  # what was counted before the first look is no growth
        ([2, 3], UNCORRECTED),
        ([5, 0], []),  # the driver was loaded again
        ([5, 0, 1], UNCORRECTED),
        ([None, 7], []),  # not measured before
        ([7, None], []),
    ],
)
def test_an_uncorrectable_error_is_told_also_without_an_xid(
    counts: list[int | None], told: list[tuple[str, Severity]]
) -> None:
    scene = healthy()
    for number, count in enumerate(counts):
        seconds = 1e9 if number == 0 else 100.0 / number
        scene = scene.changed(gpu(), {"ecc_uncorrected_errors": count}, seconds)
    found = failing_memory(scene.window())
    assert conditions(found) == told
    if found:
        assert found[0].action.startswith("Drain the node, then reset the GPU")
        assert [item.value for item in found[0].evidence] == ["1 in 5 min"]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([2, 2], []),  # replaced before the first look
        ([2, 3], UNCORRECTED),
        ([3, 2], []),
        ([None, 2], []),
    ],
)
def test_where_errors_are_not_counted_a_replaced_row_tells_of_one(
    rows: list[int | None], told: list[tuple[str, Severity]]
) -> None:
    """dcgm-exporter as it comes reads rows, and neither errors nor what waits for a reset."""
    scene = healthy().changed(gpu(), {"ecc_uncorrected_errors": None})
    for number, count in enumerate(rows):
        seconds = 1e9 if number == 0 else 100.0
        scene = scene.changed(gpu(), {"remapped_rows_uncorrected": count}, seconds)
    found = failing_memory(scene.window())
    assert conditions(found) == told
    if found:
        assert found[0].evidence[0].name == "memory rows replaced for uncorrectable errors"
    reset = event(EventKind.GPU_RESET, gpu(), NOON - timedelta(seconds=90.0))
    assert failing_memory(scene.with_events(reset).window()) == []
    # Where they are counted, they alone say so.
    counted = scene.changed(gpu(), {"ecc_uncorrected_errors": 0})
    assert failing_memory(counted.window()) == []


@pytest.mark.parametrize(("waits", "late"), [(None, False), (LATE, False), (LATE + 0.1, True)])
def test_what_was_counted_is_late_while_the_reset_after_it_may_still_wait_at_its_node(
    waits: float | None, late: bool
) -> None:
    scene = healthy().changed(gpu(), {"ecc_uncorrected_errors": 3}, 100.0)
    scene = scene.changed(node(), {"spool_oldest_seconds": waits}, 10.0)
    (found,) = failing_memory(scene.window())
    assert found.late is late
    (found,) = failing_memory(scene.changed(gpu(), {"remap_failure": 1}, 10.0).window())
    assert not found.late, "what its newest line says is not late"


@pytest.mark.medium
@pytest.mark.parametrize("cure", [EventKind.GPU_RESET, EventKind.BOOT])
@pytest.mark.parametrize(
    ("counted", "reset", "told"),
    [
        (100.0, 101.0, []),  # no numbers of the minute since a reset: what grew may be older
        (100.0, 50.0, []),
        (25.0, 65.0, UNCORRECTED),
        (25.0, 55.0, []),
    ],
)
def test_what_was_counted_before_a_reset_is_over(
    cure: EventKind, counted: float, reset: float, told: list[tuple[str, Severity]]
) -> None:
    subject = node() if cure is EventKind.BOOT else gpu()
    scene = healthy().changed(gpu(), {"ecc_uncorrected_errors": 3}, counted)
    scene = scene.with_events(event(cure, subject, NOON - timedelta(seconds=reset)))
    assert conditions(failing_memory(scene.window())) == told
    other = event(EventKind.GPU_RESET, gpu(1, 1), NOON - timedelta(seconds=reset))
    elsewhere = healthy().changed(gpu(), {"ecc_uncorrected_errors": 3}, counted).with_events(other)
    assert conditions(failing_memory(elsewhere.window())) == UNCORRECTED


def test_retired_pages_below_dcgms_limits_are_no_fault() -> None:
    few = {"retired_pages_corrected": 40, "retired_pages_uncorrected": 15}
    assert failing_memory(healthy().changed(gpu(), few).window()) == []


def test_an_idle_link_saves_power_and_a_working_one_does_not() -> None:
    slow = healthy().changed(gpu(), {"pcie_generation": 1})
    assert conditions(degraded_links(slow.window())) == [("pcie_slow", WARNING)]
    assert degraded_links(slow.changed(gpu(), {"utilization_percent": 0}).window()) == []
    # One sample at full speed is enough.
    assert degraded_links(slow.changed(gpu(), {"pcie_generation": 5}, 25).window()) == []


def test_links_of_several_gpus_of_a_node_are_one_finding_about_the_node() -> None:
    """What is above both of them, such as a PCIe switch or a riser, is the nearest cause."""
    scene = healthy(nodes=2, gpus=4).changed(gpu(), {"pcie_generation": 1})
    scene = scene.changed(gpu(1, 2), {"pcie_width": 8}).changed(gpu(2), {"pcie_width": 8})
    both, alone = degraded_links(scene.window())
    assert (both.subject, both.members) == (node(), (gpu(), gpu(1, 2)))
    assert (alone.subject, alone.members) == (gpu(2), ())
    assert both.title != alone.title
    assert both.action != alone.action
    # It is over when one of them would show it and does not: another may rest.
    stands = incident("gpu_pcie", gpu(), condition="pcie_slow", members=(gpu(1, 2).key,))
    rests = scene.changed(gpu(), {"utilization_percent": 0})
    assert would_show_degraded_link(rests.window(), stands)
    rest = rests.changed(gpu(1, 2), {"utilization_percent": 0})
    assert not would_show_degraded_link(rest.window(), stands)


def test_replays_count_per_lane_and_generation() -> None:
    """DCGM: 0.96 and 1.92 per lane and minute for generations 4 and 5; 16 lanes."""

    def replays(per_minute: float, generation: int) -> bool:
        speeds = {"pcie_generation": generation, "pcie_generation_max": generation}
        scene = healthy().changed(gpu(), speeds)
        return bool(degraded_links(scene.rising(gpu(), "pcie_replays", per_minute / 60).window()))

    assert replays(42.0, 5)
    assert not replays(25.0, 5)
    assert replays(25.0, 4)


def test_what_waited_for_a_reset_is_over_with_it_whatever_was_read_before() -> None:
    waits = healthy().changed(gpu(), {"remap_pending": 1})
    row_at = NOON - TICK * SECOND
    for kind, subject in ((EventKind.GPU_RESET, gpu()), (EventKind.BOOT, node())):
        after = waits.with_events(event(kind, subject, row_at + SECOND))
        assert failing_memory(after.window()) == []
        before = waits.with_events(event(kind, subject, row_at - SECOND))
        assert conditions(failing_memory(before.window())) == [("repair_pending", INFO)]
    other = waits.with_events(event(EventKind.GPU_RESET, gpu(1, 1), row_at + SECOND))
    assert conditions(failing_memory(other.window())) == [("repair_pending", INFO)]
    # A repair that failed is none of those that a reset ends.
    failed = healthy().changed(gpu(), {"remap_failure": 1})
    reset = failed.with_events(event(EventKind.GPU_RESET, gpu(), row_at + SECOND))
    assert conditions(failing_memory(reset.window())) == [("remap_failure", CRITICAL)]


def test_links_are_held_against_the_nodes_other_gpus() -> None:
    few = healthy(gpus=4).changed(gpu(), {"nvlink_links_up": 16})
    assert conditions(broken_links(few.window())) == [("nvlink_down", WARNING)]
    for index in range(4):
        few = few.changed(gpu(1, index), {"nvlink_links_up": 16})
    assert broken_links(few.window()) == []


def test_one_replay_drains_no_node() -> None:
    once = healthy().changed(gpu(), {"nvlink_replay_errors": 2}, 100)
    assert broken_links(once.window()) == []
    more = healthy().rising(gpu(), "nvlink_crc_errors", 0.5)
    assert conditions(broken_links(more.window())) == [("nvlink_crc", WARNING)]


def test_the_fabric_may_take_its_time_after_a_boot() -> None:
    down = healthy(gpus=4)
    for index in range(4):
        down = down.changed(gpu(1, index), {"fabric_state": 2})
    (finding,) = fabrics_down(down.window())
    assert (finding.subject, len(finding.members)) == (node(), 4)
    booted = down.with_events(event(EventKind.BOOT, node(), NOON - 5 * MINUTE))
    assert fabrics_down(booted.window()) == []
    unsupported = healthy().changed(gpu(), {"fabric_state": 0})
    assert fabrics_down(unsupported.window()) == []


@pytest.mark.parametrize(
    "begins",
    [event(EventKind.GPU_RESET, gpu(), NOON - MINUTE), event(EventKind.DRIVER_BACK, node(), NOON)],
)
def test_a_reset_or_a_reload_begins_the_fabric_anew(begins: Event) -> None:
    down = healthy().changed(gpu(), {"fabric_state": 2})
    assert len(fabrics_down(down.window())) == 1
    assert fabrics_down(down.with_events(begins).window()) == []


def test_one_reading_of_the_fabric_is_no_fault() -> None:
    """It is read once a minute: all lines of a minute say the same."""
    down = healthy().changed(gpu(), {"fabric_state": 2})
    young = down.without(lambda s: s.subject == gpu() and s.at < NOON - timedelta(seconds=100))
    assert fabrics_down(young.window()) == []
    assert fabrics_down(healthy().changed(gpu(), {"fabric_state": 2}, 100).window()) == []
    long = down.without(lambda s: s.subject == gpu() and s.at < NOON - timedelta(seconds=200))
    assert len(fabrics_down(long.window())) == 1


def test_a_fabric_that_no_gpu_of_the_model_has_joined_may_not_be_wanted() -> None:
    down = healthy(nodes=1)
    for index in range(2):
        down = down.changed(gpu(1, index), {"fabric_state": 1})
    assert [f.severity for f in fabrics_down(down.window())] == [INFO]
    assert [
        f.severity for f in fabrics_down(down.changed(gpu(), {"fabric_state": 3}).window())
    ] == [CRITICAL]


def test_a_moment_of_power_brake_is_none_and_a_lasting_one_is_critical() -> None:
    def brake(share: float) -> list[tuple[str, Severity]]:
        scene = healthy().rising(gpu(), "power_brake_seconds", share)
        return conditions(held_back(scene.window()))

    assert brake(0.05) == []
    assert brake(0.3) == [("power_brake", WARNING)]
    assert brake(1.0) == [("power_brake", CRITICAL)]


def in_rack(scene: Scene, nodes: int) -> Scene:
    names = {node(n).key for n in range(1, nodes + 1)}
    return replace(
        scene,
        inventories=tuple(
            replace(i, rack="r1" if i.subject.key in names else "r2") for i in scene.inventories
        ),
    )


def test_braked_gpus_are_their_nodes_and_braked_nodes_their_racks() -> None:
    scene = in_rack(PEERS, 4)
    for index in range(4):
        scene = scene.rising(gpu(1, index), "power_brake_seconds", 1.0)
    (of_node,) = held_back(scene.window())
    assert (of_node.subject, len(of_node.members)) == (node(), 4)
    for number in (2, 3):
        for index in range(4):
            scene = scene.rising(gpu(number, index), "power_brake_seconds", 1.0)
    (of_rack,) = held_back(scene.window())
    assert conditions([of_rack]) == [("power_feed", CRITICAL)]
    assert {node(2), node(3), gpu(3, 0)} <= set(of_rack.members)


def test_what_a_rack_shares_is_named_after_the_rack_and_what_a_node_has_after_the_node() -> None:
    held = tuple(allocation(gpu(number), "job 1042") for number in (1, 2))
    one = braked(replace(in_rack(PEERS, 4), allocations=held), 1, 1.0)
    for scene, label, place in (
        (one, "node-1", "this node"),
        (braked(braked(one, 2, 1.0), 3, 1.0), "rack r1", "this rack"),
    ):
        seen = scene.window()
        (found,) = held_back(seen)
        (candidate,) = observe(seen, [found], (), {found.fingerprint}).candidates.values()
        assert candidate.label == label
        assert candidate.impact.text.endswith(place)


def braked(scene: Scene, number: int, share: float, gpus: int = 4) -> Scene:
    for index in range(gpus):
        scene = scene.rising(gpu(number, index), "power_brake_seconds", share)
    return scene


def test_a_rack_is_as_grave_as_the_gravest_of_its_nodes() -> None:
    short = braked(braked(in_rack(PEERS, 3), 2, 0.3), 3, 0.3)
    assert conditions(held_back(short.window())) == [("power_feed", WARNING)]
    long = braked(braked(in_rack(PEERS, 3), 2, 0.3), 3, 1.0)
    (found,) = held_back(long.window())
    assert conditions([found]) == [("power_feed", CRITICAL)]
    hot = in_rack(PEERS, 2)
    for number in (1, 2):
        for index in range(4):
            hot = hot.rising(gpu(number, index), "hardware_thermal_slowdown_seconds", 1.0)
    (found,) = hot_gpus(hot.window())
    assert (found.title, found.severity) == (CONDITIONS["rack_hot"].title, CRITICAL)


def test_of_a_rack_only_nodes_whose_brake_is_read_count() -> None:
    scene = braked(braked(in_rack(PEERS, 6), 1, 1.0), 2, 1.0)
    assert len(held_back(scene.window())) == 2
    for number in range(3, 7):
        for index in range(4):
            scene = scene.changed(gpu(number, index), {"power_brake_seconds": None})
    (found,) = held_back(scene.window())
    assert conditions([found]) == [("power_feed", CRITICAL)]


@pytest.mark.medium
def test_a_rack_keeps_its_name_whichever_of_its_nodes_are_hit() -> None:
    rack = in_rack(PEERS, 4)
    for numbers in ((1, 2), (2, 3), (3, 4), (1, 2, 3, 4)):
        scene = rack
        for number in numbers:
            scene = braked(scene, number, 1.0)
        (found,) = held_back(scene.window())
        assert found.subject == node(1)
        hit = {node(number) for number in numbers}
        assert {m for m in found.members if m.kind == "node"} == hit - {node(1)}


def test_a_node_that_is_hot_in_two_ways_is_no_rack() -> None:
    scene = in_rack(PEERS, 2)
    for index in range(4):
        scene = scene.rising(gpu(1, index), "hardware_thermal_slowdown_seconds", 1.0)
        scene = scene.changed(gpu(1, index), {"temperature_celsius": 75})
    (found,) = hot_gpus(scene.window())
    assert (found.title, found.severity) == (CONDITIONS["node_hot"].title, CRITICAL)


def test_a_power_limit_that_everybody_has_is_policy() -> None:
    lowered = PEERS.changed(gpu(), {"power_limit_watts": 400.0})
    assert conditions(held_back(lowered.window())) == [("power_limit", INFO)]
    for number in range(1, 9):
        for index in range(4):
            lowered = lowered.changed(gpu(number, index), {"power_limit_watts": 400.0})
    assert held_back(lowered.window()) == []


@pytest.mark.parametrize(("watts", "told"), [(678.0, [("power_limit", INFO)]), (680.0, [])])
def test_a_default_that_nobody_reads_is_that_of_the_model(
    watts: float, told: list[tuple[str, Severity]]
) -> None:
    scene = healthy(nodes=1, gpus=4)
    for index in range(4):
        scene = scene.changed(gpu(1, index), {"power_limit_default_watts": None})
    lowered = scene.changed(gpu(), {"power_limit_watts": watts})
    assert conditions(held_back(lowered.window())) == told
    unknown = replace(lowered, inventories=())
    assert held_back(unknown.window()) == []


@pytest.mark.medium
@pytest.mark.parametrize(
    ("gpus", "told"),
    [
        ([gpu()], [("power_limit", 0)]),
        ([gpu(1, index) for index in range(2)], [("node_power_limit", 2)]),
        ([gpu(n, index) for n in (1, 2) for index in range(4)], [("rack_power_limit", 8)]),
        ([gpu(1, 0), gpu(2, 0)], [("power_limit", 0)] * 2),
    ],
)
def test_a_power_budget_of_a_node_or_a_rack_is_one_note(
    gpus: list[Subject], told: list[tuple[str, int]]
) -> None:
    scene = replace(
        PEERS,
        inventories=tuple(
            replace(it, rack=f"r{place // 4}") for place, it in enumerate(PEERS.inventories)
        ),
    )
    for one in gpus:
        scene = scene.changed(one, {"power_limit_watts": 400.0})
    found = held_back(scene.window())
    hit = [(it.condition, sum(one.kind == "gpu" for one in it.members)) for it in found]
    assert hit == told
    assert {it.severity for it in found} == {INFO}


def test_heat_that_power_explains_is_none() -> None:
    """Against the same slot of other nodes, which is warmer behind another one."""
    warm_slot = PEERS
    for number in range(1, 9):
        warm_slot = warm_slot.changed(gpu(number, 3), {"temperature_celsius": 68})
    assert hot_gpus(warm_slot.window()) == []
    hotter = PEERS.changed(gpu(), {"temperature_celsius": 76})
    assert conditions(hot_gpus(hotter.window())) == [("heatsink", WARNING)]


def test_a_warm_node_and_a_warm_rack_are_told_as_such() -> None:
    def warm(scene: Scene, number: int) -> Scene:
        for index in range(4):
            scene = scene.changed(gpu(number, index), {"temperature_celsius": 78})
        return scene

    one = warm(in_rack(PEERS, 3), 1)
    assert conditions(hot_gpus(one.window())) == [("node_hot", WARNING)]
    # One of its GPUs is told of nothing.
    unread = one.changed(gpu(1, 2), {"temperature_celsius": None, "power_watts": None})
    (found,) = hot_gpus(unread.window())
    assert conditions([found]) == [("node_hot", WARNING)]
    assert gpu(1, 2) not in found.members
    (of_rack,) = hot_gpus(warm(warm(one, 2), 3).window())
    assert conditions([of_rack]) == [("rack_hot", WARNING)]


def test_a_warm_racks_air_explains_what_heat_slows_on_its_other_nodes() -> None:
    rack = in_rack(PEERS, 4)
    for one in (gpu(n, index) for n in (1, 2, 3) for index in range(4)):
        rack = rack.changed(one, {"temperature_celsius": 78})
    # What that node draws cannot be compared, of another rack's GPU nothing is known, and hardware is graver.
    for index in range(4):
        rack = rack.changed(gpu(4, index), {"power_watts": None})
    rack = rack.rising(gpu(4, 2), "software_thermal_slowdown_seconds", 1.0)
    rack = rack.rising(gpu(5), "software_thermal_slowdown_seconds", 1.0)
    rack = rack.rising(gpu(3, 3), "hardware_thermal_slowdown_seconds", 1.0)
    of_rack, grave, other = sorted(hot_gpus(rack.window()), key=lambda it: it.subject)
    assert conditions([of_rack, grave, other]) == [
        ("rack_hot", WARNING),
        ("hardware_thermal", CRITICAL),
        ("software_thermal", WARNING),
    ]
    assert {node(2), node(4), gpu(4, 2)} <= set(of_rack.members)
    assert not {node(5), gpu(5), gpu(4, 1)} & set(of_rack.members)


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({}, "rack_hot"),
        ({"since": NOON - timedelta(minutes=20)}, "rack_hot"),
        ({"since": NOON - timedelta(minutes=21)}, "node_hot"),
        ({"resolved_at": NOON}, "node_hot"),
        ({"condition": "heatsink"}, "node_hot"),
        ({"subject": node(4)}, "node_hot"),  # of another rack
    ],
    ids=str,
)
def test_nodes_of_a_rack_that_are_hot_one_after_the_other_are_its_air(
    changes: dict[str, Any], condition: str
) -> None:
    rack = in_rack(PEERS, 3)
    for index in range(4):
        rack = rack.changed(gpu(1, index), {"temperature_celsius": 78})
        rack = rack.changed(gpu(2, index), {"power_watts": None})
    members = (node(2).key, gpu(2).key)
    before = replace(incident("gpu_hot", node(2), condition="node_hot", members=members), **changes)
    (found,) = hot_gpus(replace(rack.window(), recent_incidents=(before,)))
    assert found.condition == condition
    assert ({node(2), gpu(2)} <= set(found.members)) is (condition == "rack_hot")
    # What is over everywhere is no rack's.
    assert hot_gpus(replace(in_rack(PEERS, 3).window(), recent_incidents=(before,))) == []


def test_a_worn_heatsink_in_a_warm_rack_is_told_for_itself() -> None:
    rack = in_rack(PEERS, 4)
    for one in (gpu(n, index) for n in (1, 2, 3) for index in range(4)):
        rack = rack.changed(one, {"temperature_celsius": 78})
    rack = rack.changed(gpu(4), {"temperature_celsius": 85})
    rack = rack.rising(gpu(4), "software_thermal_slowdown_seconds", 1.0)
    found = hot_gpus(rack.window())
    assert sorted(conditions(found)) == [("rack_hot", WARNING), ("software_thermal", WARNING)]
    assert gpu(4) in {it.subject for it in found}


def test_fewer_kelvins_are_a_warm_rack_than_a_broken_fan() -> None:
    """What half of a rack's nodes have is no fan's, and what one of them has more of is no rack's."""
    rack = in_rack(PEERS, 3)
    for number in (1, 2):
        for index in range(4):
            rack = rack.changed(gpu(number, index), {"temperature_celsius": 75.0})
    (found,) = hot_gpus(rack.window())
    assert conditions([found]) == [("rack_hot", WARNING)]
    alone = in_rack(PEERS, 3)
    for index in range(4):
        alone = alone.changed(gpu(1, index), {"temperature_celsius": 63.5})
    assert hot_gpus(alone.window()) == []


@pytest.mark.medium
def test_a_fan_is_told_where_racks_have_too_few_nodes_to_tell_of_their_air() -> None:
    hot = healthy(nodes=8, gpus=8)
    for index in range(8):
        hot = hot.changed(gpu(1, index), {"temperature_celsius": 75.0})
    # One node per rack, and pairs.
    for nodes in (1, 2):
        named = tuple(
            replace(i, rack=f"r{n // nodes}") for n, i in enumerate(PEERS.inventories, start=nodes)
        )
        (found,) = hot_gpus(replace(hot, inventories=named).window())
        assert conditions([found]) == [("node_hot", WARNING)]
        assert found.subject == node()


def test_nodes_whose_gpus_nobody_reads_are_no_cool_part_of_a_rack() -> None:
    rack = in_rack(PEERS, 3)
    others = tuple(replace(inventory(node(n), gpus=0), rack="r1") for n in range(20, 25))
    rack = replace(rack, inventories=(*rack.inventories, *others))
    for number in (1, 2):
        for index in range(4):
            rack = rack.changed(gpu(number, index), {"temperature_celsius": 75.0})
    (found,) = hot_gpus(rack.window())
    assert conditions([found]) == [("rack_hot", WARNING)]


def test_seconds_of_hardware_slowdown_decide() -> None:
    def slowed(share: float) -> list[tuple[str, Severity]]:
        scene = healthy().rising(gpu(), "hardware_thermal_slowdown_seconds", share)
        return conditions(hot_gpus(scene.window()))

    assert slowed(0.1) == []
    assert slowed(0.3) == [("hardware_thermal", WARNING)]
    assert slowed(1.0) == [("hardware_thermal", CRITICAL)]


def test_low_clocks_that_something_explains_are_none() -> None:
    low = healthy(nodes=2, gpus=4).changed(gpu(), {"sm_clock_hertz": 1_200_000_000})
    assert len(stuck_clocks(low.window())) == 1
    capped = low.rising(gpu(), "power_cap_seconds", 0.8)
    assert stuck_clocks(capped.window()) == []
    idle = low.changed(gpu(), {"utilization_percent": 0})
    assert stuck_clocks(idle.window()) == []
    for number in (1, 2):
        for index in range(4):
            low = low.changed(gpu(number, index), {"sm_clock_hertz": 1_200_000_000})
    assert stuck_clocks(low.window()) == []


@pytest.mark.parametrize("limit", [700.0, None])
@pytest.mark.parametrize(("watts", "count"), [(664.0, 1), (666.0, 0)])
def test_a_gpu_at_its_power_limit_is_not_stuck_where_nobody_reads_the_cap(
    limit: float | None, watts: float, count: int
) -> None:
    """95 % of 700 W, as read or as an H100 is sold with."""
    low = healthy(nodes=2, gpus=4)
    for number in (1, 2):
        for index in range(4):
            unread = {"power_cap_seconds": None, "power_limit_watts": limit}
            low = low.changed(gpu(number, index), unread)
    low = low.changed(gpu(), {"sm_clock_hertz": 1_200_000_000, "power_watts": watts})
    assert len(stuck_clocks(low.window())) == count
    # Where it is read that nothing held the clock down, that counts.
    told = low.changed(gpu(), {"power_cap_seconds": 0.0})
    assert len(stuck_clocks(told.window())) == 1


def memory_at(share: float) -> Scene:
    scene = healthy(nodes=2, gpus=4)
    for number in (1, 2):
        for index in range(4):
            scene = scene.changed(
                gpu(number, index),
                {"memory_clock_hertz": 2_619_000_000, "memory_clock_max_hertz": 2_619_000_000},
            )
    return scene.changed(gpu(), {"memory_clock_hertz": round(2_619_000_000 * share)})


@pytest.mark.parametrize(("share", "count"), [(0.901, 0), (0.899, 1), (0.2, 1)])
def test_a_memory_clock_that_stays_low_is_told_as_the_sm_clock_is(share: float, count: int) -> None:
    found = stuck_clocks(memory_at(share).window())
    assert [it.subject for it in found] == [gpu()] * count
    assert all([e.name for e in it.evidence] == ["memory clock", "utilisation"] for it in found)


def test_a_power_limit_does_not_explain_a_low_memory_clock_and_heat_does() -> None:
    low = memory_at(0.5)
    assert len(stuck_clocks(low.rising(gpu(), "power_cap_seconds", 0.9).window())) == 1
    hot = low.rising(gpu(), "hardware_thermal_slowdown_seconds", 0.2)
    assert stuck_clocks(hot.window()) == []
    idle = low.changed(gpu(), {"utilization_percent": 0})
    assert stuck_clocks(idle.window()) == []


def test_both_clocks_of_a_gpu_that_are_low_are_one_finding() -> None:
    (found,) = stuck_clocks(memory_at(0.5).changed(gpu(), {"sm_clock_hertz": 990_000_000}).window())
    assert [it.name for it in found.evidence] == ["SM clock", "memory clock", "utilisation"]


def as_model(scene: Scene, model: str) -> Scene:
    return replace(
        scene,
        inventories=tuple(
            replace(it, gpus=tuple(replace(one, model=model) for one in it.gpus))
            for it in scene.inventories
        ),
    )


@pytest.mark.medium
@pytest.mark.parametrize(
    ("model", "count"),
    [
        *((name, 1) for name in ("NVIDIA A100-SXM4-80GB", "NVIDIA H200", "NVIDIA GB200")),
        *((name, 0) for name in ("NVIDIA A10", "NVIDIA L4", "NVIDIA GB10", "NVIDIA L40S")),
    ],
)
def test_a_power_limit_explains_a_low_memory_clock_of_all_but_hbm(model: str, count: int) -> None:
    capped = as_model(memory_at(0.5), model).rising(gpu(), "power_cap_seconds", 0.9)
    assert len(stuck_clocks(capped.window())) == count


def test_clocks_that_the_driver_says_somebody_set_are_not_stuck() -> None:
    low = {"sm_clock_hertz": 1_386_000_000}
    scene = healthy(nodes=5, gpus=1)
    for reasons, told in ((0x0, [WARNING]), (0x4, [WARNING]), (0x2, []), (0x3, []), (None, [INFO])):
        changed = scene.changed(gpu(), {**low, "clock_event_reasons": reasons})
        found = stuck_clocks(changed.window())
        assert [it.severity for it in found] == told, reasons
    # It rests for a moment at the end.
    rests = scene.changed(gpu(), {**low, "clock_event_reasons": 0x2})
    rests = rests.changed(gpu(), {"clock_event_reasons": 0x1}, 15)
    assert stuck_clocks(rests.window()) == []


@pytest.mark.parametrize(("gpus", "severity"), [(1, INFO), (2, WARNING)])
def test_without_reasons_one_gpu_at_work_is_a_note(gpus: int, severity: Severity) -> None:
    scene = healthy(nodes=5, gpus=gpus)
    low = {"sm_clock_hertz": 1_386_000_000, "clock_event_reasons": None}
    (found,) = stuck_clocks(scene.changed(gpu(), low).window())
    assert found.severity is severity


def test_a_node_cut_in_slices_on_purpose_is_no_odd_one() -> None:
    scene = healthy(gpus=4).changed(gpu(), {"mig_mode": 1})
    assert conditions(odd_settings(scene.window())) == [("mig_on", INFO)]
    assert odd_settings(scene.changed(gpu(1, 1), {"mig_mode": 1}).window()) == []


def test_an_odd_vbios_needs_kin_that_agree() -> None:
    def with_vbios(odd: int) -> Scene:
        return replace(
            PEERS,
            inventories=tuple(
                replace(
                    i,
                    gpus=tuple(
                        replace(g, vbios="96.1" if number < odd and g.index == 0 else "96.2")
                        for g in i.gpus
                    ),
                )
                for number, i in enumerate(PEERS.inventories)
            ),
        )

    assert conditions(odd_settings(with_vbios(1).window())) == [("vbios_odd", INFO)]
    assert odd_settings(with_vbios(8).window()) == []


SPINS = {
    "utilization_percent": 100,
    "memory_utilization_percent": 0,
    "power_watts": 130.0,
    "pcie_receive_bytes_per_second": 0.0,
}


def test_a_job_that_spins_is_suspected_first_and_one_finding() -> None:
    held = tuple(allocation(gpu(1, i), "job 7") for i in (0, 1))
    scene = replace(healthy(), allocations=held)
    young = scene.changed(gpu(1, 0), SPINS, 65).changed(gpu(1, 1), SPINS, 65)
    (finding,) = hung_jobs(young.window())
    assert (finding.subject, finding.severity, len(finding.members)) == (node(), INFO, 2)
    lasting = scene.changed(gpu(1, 0), SPINS).changed(gpu(1, 1), SPINS)
    assert [f.severity for f in hung_jobs(lasting.window())] == [WARNING]


def test_memory_errors_are_counted_where_the_kernel_counts_them() -> None:
    def found(field: str, per_second: float) -> list[Finding]:
        return failing_hosts(healthy().rising(node(), field, per_second).window())

    assert found("memory_errors_corrected", 0.01) == []
    (many,) = found("memory_errors_corrected", 0.05)
    assert (many.fault, many.subject) == ("host_memory", node())
    (one,) = found("memory_errors_uncorrected", 0.005)
    assert one.evidence[-1].value == "1"


def test_a_full_disk_is_told_by_refused_writes_and_by_dropped_bodies() -> None:
    full = healthy().changed(node(), {"spool_writable": 0})
    (found,) = full_disks(full.window())
    assert (found.fault, found.subject, found.severity) == ("host_disk", node(), WARNING)
    assert found.evidence[0].value == "refused"
    # For a moment only, or by a collector that does not say.
    assert full_disks(healthy().changed(node(), {"spool_writable": 0}, 25).window()) == []
    assert full_disks(healthy().changed(node(), {"spool_writable": None}).window()) == []
    (dropping,) = full_disks(full.rising(node(), "dropped_bodies", 0.05).window())
    assert [it.name for it in dropping.evidence] == ["writes to the spool", "dropped bodies"]
    (alone,) = full_disks(healthy().rising(node(), "dropped_bodies", 0.05).window())
    assert [it.name for it in alone.evidence] == ["dropped bodies"]


def test_parts_of_the_machine_are_told_when_they_fail_all_the_time_and_are_named() -> None:
    said = replace(event(EventKind.HOST, node(), NOON - MINUTE), message="power supply 2: no input")
    failed = healthy().changed(node(), {"power_supplies_failed": 1}).with_events(said)
    (found,) = failing_parts(failed.window())
    assert (found.fault, found.severity) == ("host_power", WARNING)
    assert "power supply 2: no input" in found.evidence[-1].value
    assert failing_parts(healthy().changed(node(), {"fans_failed": 1}, 25).window()) == []
    full = healthy().changed(node(), {"space_used_share": 0.995})
    assert [f.severity for f in failing_parts(full.window())] == [WARNING]


def test_two_jobs_that_hang_on_one_node_are_two_matters() -> None:
    held = tuple(allocation(gpu(1, i), f"job {i // 2}") for i in range(4))
    scene = replace(healthy(gpus=4), allocations=held)
    for one in held:
        scene = scene.changed(one.subject, SPINS)
    for fields in ({}, {"step_age_seconds": 700.0, "step_p99_seconds": 2.0}):
        for one in held:
            scene = scene.changed(one.subject, fields)
        found = hung_jobs(scene.window())
        assert [finding.subject for finding in found] == [node(), node()]
        assert len({finding.fingerprint for finding in found}) == 2


def test_a_job_of_which_one_rank_writes_while_the_others_wait_is_not_suspected_at_once() -> None:
    held = tuple(allocation(gpu(n, i), "job 7") for n in (1, 2) for i in (0, 1))
    scene = replace(healthy(), allocations=held)
    waits = [gpu(1, 1), gpu(2, 0), gpu(2, 1)]
    for seconds, severities in ((65, []), (1e9, [WARNING])):
        waiting = scene
        for subject in waits:
            waiting = waiting.changed(subject, SPINS, seconds)
        assert [f.severity for f in hung_jobs(waiting.window())] == severities
    other = replace(waiting, allocations=tuple(a for a in held if a.subject in waits))
    assert [f.severity for f in hung_jobs(other.window())] == [WARNING]


def test_a_job_without_steps_is_warned_of_after_three_times_its_longest_silence() -> None:
    held = tuple(allocation(gpu(1, i), "job 7") for i in (0, 1))
    scene = replace(healthy(seconds=120), allocations=held)

    def severity(*spins: tuple[float, float]) -> Severity:
        told = scene
        for (spin, longest), one in zip(spins, held, strict=True):
            fields = {**SPINS, "spin_seconds": spin, "longest_spin_seconds": longest}
            told = told.changed(one.subject, fields)
        (finding,) = hung_jobs(told.window())
        return finding.severity

    assert severity((290.0, 0.0), (290.0, 0.0)) is INFO
    assert severity((299.9, 0.0), (299.9, 0.0)) is INFO
    assert severity((300.0, 0.0), (300.0, 0.0)) is WARNING
    assert severity((359.9, 120.0), (359.9, 120.0)) is INFO
    assert severity((360.0, 120.0), (360.0, 120.0)) is WARNING
    assert severity((310.0, 90.0), (310.0, 90.0)) is WARNING
    # The longest of any of its GPUs is the job's.
    assert severity((310.0, 0.0), (310.0, 120.0)) is INFO
    assert severity((310.0, 0.0), (370.0, 120.0)) is WARNING
    # However long the span: what it did before and came back from is no hang.
    long = replace(healthy(), allocations=held)
    for one in held:
        fields = {**SPINS, "spin_seconds": 390.0, "longest_spin_seconds": 140.0}
        long = long.changed(one.subject, fields)
    assert [finding.severity for finding in hung_jobs(long.window())] == [INFO]


def test_a_job_that_tells_of_its_steps_is_judged_by_them_alone() -> None:
    held = tuple(allocation(gpu(n, i), "job 7") for n in (1, 2) for i in (0, 1))
    scene = replace(healthy(), allocations=held)

    def found(*steps: tuple[float, float | None], busy: bool = True) -> list[Finding]:
        told = scene
        for (age, p99), one in zip(steps, held, strict=False):
            fields = {"step_age_seconds": age, "step_p99_seconds": p99, "step_phase": 2}
            fields |= {} if busy else SPINS
            told = told.changed(one.subject, fields)
        return hung_jobs(told.window())

    (finding,) = found((70.0, 2.0), (75.0, 2.0))
    assert (finding.subject, finding.severity, len(finding.members)) == (node(), WARNING, 2)
    assert finding.since == NOON - 80 * SECOND
    assert finding.evidence[0].value == "none for 70 s"
    assert found((55.0, 2.0)) == []
    assert found((70.0, 20.0)) == []
    assert len(found((110.0, 20.0))) == 1
    # As long as one rank goes on, or where nobody says how long a step takes, none has stopped.
    assert found((700.0, 2.0), (1.0, 2.0)) == []
    assert found((700.0, None)) == []
    # Who makes steps may spin as it likes.
    assert found((1.0, 2.0), busy=False) == []


@pytest.mark.parametrize(
    "works",
    [
        {"power_watts": 400.0},
        {"memory_utilization_percent": 20},
        {"pcie_receive_bytes_per_second": 9e9},
        {"utilization_percent": 90},
        {"power_watts": None},
    ],
)
def test_what_works_is_not_hung(works: dict[str, Any]) -> None:
    assert hung_jobs(healthy().changed(gpu(), {**SPINS, **works}).window()) == []


def test_memory_is_a_schedulers_business_and_takes_its_time() -> None:
    ended = allocation(gpu(), "job 7", ended_at=NOON - 6 * MINUTE)
    scene = replace(healthy(), allocations=(ended,))
    assert len(held_memory(scene.window())) == 1
    for other in (
        allocation(gpu(), "job 7", ended_at=NOON - 2 * MINUTE),
        allocation(gpu(), "pid 7", ended_at=NOON - 6 * MINUTE),
    ):
        assert held_memory(replace(scene, allocations=(other,)).window()) == []
    held = (ended, allocation(gpu(), "job 8", started_at=NOON - MINUTE))
    assert held_memory(replace(scene, allocations=held).window()) == []


def test_who_is_right_needs_a_majority() -> None:
    def drivers(*versions: str) -> list[Finding]:
        scene = healthy(nodes=4)
        return drifted_drivers(
            replace(
                scene,
                inventories=tuple(
                    replace(i, rack="r1", driver=version)
                    for i, version in zip(scene.inventories, versions, strict=True)
                ),
            ).window()
        )

    assert [f.subject for f in drivers("1", "2", "2", "2")] == [node()]
    assert drivers("1", "1", "2", "2") == []


def test_fewer_gpus_than_kin_and_not_a_smaller_model_of_node() -> None:
    def counts(*gpus: int) -> list[Finding]:
        scene = healthy(nodes=4, gpus=4)
        return nodes_with_too_few(
            replace(
                scene,
                inventories=tuple(
                    replace(i, gpus=i.gpus[:count])
                    for i, count in zip(scene.inventories, gpus, strict=True)
                ),
            ).window()
        )

    assert [f.subject for f in counts(3, 4, 4, 4)] == [node()]
    assert counts(2, 2, 4, 4) == []


def test_one_corrected_host_error_is_nobodys_business() -> None:
    one = healthy().with_events(event(EventKind.MACHINE_CHECK, node(), NOON - MINUTE))
    assert failing_hosts(one.window()) == []


def test_symbol_errors_that_all_links_have_are_none() -> None:
    scene = healthy(nodes=4).rising(port(), "symbol_errors", 1.0)
    assert [f.fault for f in bad_ports(scene.window())] == ["port_errors"]
    for number in (2, 3, 4):
        scene = scene.rising(port(number), "symbol_errors", 1.0)
    assert bad_ports(scene.window()) == []


def test_ports_that_go_down_one_after_the_other_are_no_switch() -> None:
    scene = healthy(nodes=4)
    for number in (1, 2, 3):
        at = NOON - number * 5 * MINUTE
        scene = scene.changed(port(number), {"up": 0})
        scene = scene.with_events(event(EventKind.PORT_DOWN, port(number), at))
    assert switches_down(scene.window()) == []


def test_a_switch_is_named_by_the_first_of_its_ports() -> None:
    rack = in_rack(healthy(nodes=5), 5)
    for numbers in ((1, 2, 3), (3, 4, 5), (1, 2, 3, 4, 5)):
        scene = rack
        for number in numbers:
            scene = with_port_down(scene, number)
        (found,) = switches_down(scene.window())
        assert found.subject == port(numbers[0])
        assert set(found.members) == {port(number) for number in numbers[1:]}


def test_a_cable_that_goes_down_with_a_switch_of_other_racks_is_not_its() -> None:
    scene = healthy(nodes=8)
    racks = {node(n): "r1" if n <= 4 else "r2" for n in range(1, 9)}
    named = tuple(replace(i, rack=racks[i.subject]) for i in scene.inventories)
    scene = replace(scene, inventories=named)
    for number in (1, 5, 6, 7, 8):
        scene = with_port_down(scene, number)
    (found,) = switches_down(scene.window())
    assert (found.subject, set(found.members)) == (port(5), {port(n) for n in (6, 7, 8)})
    # Nodes that have no such port say nothing about the switch.
    without = tuple(replace(inventory(node(n)), rack="r2", ports=()) for n in range(20, 30))
    beside = replace(scene, inventories=(*scene.inventories, *without))
    (same,) = switches_down(beside.window())
    assert (same.subject, set(same.members)) == (found.subject, set(found.members))


SILENT_FOR = 2 * MINUTE


def silent(
    *jobs: Allocation, scene: Scene | None = None, seconds: timedelta = SILENT_FOR
) -> list[Finding]:
    """Node 1 has been silent for so long; these are its jobs."""
    scene = healthy() if scene is None else scene
    heard = {**scene.heard, node().key: NOON - seconds}
    return silent_nodes(replace(scene, heard=heard, allocations=jobs).window())


def told(*jobs: Allocation, scene: Scene | None = None, seconds: timedelta = SILENT_FOR) -> str:
    """What is said of node 1; "" when nobody can say whether it is dead."""
    (finding,) = silent(*jobs, scene=scene, seconds=seconds)
    return finding.title.partition(":")[0]


DEAD, COLLECTOR, UNTOLD = "Node is dead", "Collector does not report", ""
HERE, THERE = allocation(gpu(), "job 7"), allocation(gpu(2), "job 7")
WAITING = healthy().changed(gpu(2), SPINS)


@pytest.mark.medium
@pytest.mark.parametrize("seconds", [SILENT_FOR, 11 * MINUTE, HOUR])
def test_what_a_silent_node_says_of_its_own_jobs_is_no_verdict(seconds: timedelta) -> None:
    """When it dies no end ever comes, and with its collector gone a late one proves nothing."""
    assert told(HERE, seconds=seconds) == UNTOLD
    assert told(replace(HERE, ended_at=NOON - MINUTE), seconds=seconds) == UNTOLD
    begun = allocation(gpu(), "job 8", started_at=NOON - seconds / 2)
    assert told(HERE, begun, seconds=seconds) == UNTOLD
    # Nor what another silent node says, nor what another job does.
    quiet = replace(WAITING, heard={**WAITING.heard, node(2).key: NOON - 2 * HOUR})
    heard = {**quiet.heard, node().key: NOON - seconds}
    scene = replace(quiet, heard=heard, allocations=(HERE, THERE))
    assert [finding.title for finding in silent_nodes(scene.window())] == ["", ""]
    assert (
        told(HERE, replace(THERE, holder=Holder.parse("job 8")), scene=WAITING, seconds=seconds)
        == UNTOLD
    )


def test_a_silent_node_whose_job_was_cut_off_on_its_other_nodes_is_dead() -> None:
    ended = replace(THERE, ended_at=NOON - MINUTE, exit_code="1:0")
    (finding,) = silent(HERE, ended)
    assert finding.title.startswith(DEAD)
    assert "console" in finding.action
    # And so it stays, however long it takes until somebody looks.
    assert told(HERE, replace(ended, ended_at=NOON - 55 * MINUTE), seconds=HOUR) == DEAD
    # A job that ended as it should, or nobody tells how, says nothing.
    assert told(HERE, replace(ended, exit_code="0:0")) == UNTOLD
    assert told(HERE, replace(ended, exit_code=None)) == UNTOLD
    # One of its jobs goes on.
    two = (allocation(gpu(1, 1), "job 8"), allocation(gpu(2, 1), "job 8"))
    assert told(HERE, ended, *two) == UNTOLD


def test_a_silent_node_whose_job_outlives_it_elsewhere_has_a_collector_to_look_at() -> None:
    # Ranks that do not wait for each other work on until the scheduler misses the node.
    assert told(HERE, THERE) == UNTOLD
    (finding,) = silent(HERE, THERE, seconds=11 * MINUTE)
    assert finding.title.startswith(COLLECTOR)
    assert "collector's log" in finding.action
    # And so it stays when the job ends one day.
    assert told(HERE, replace(THERE, ended_at=NOON - MINUTE), seconds=HOUR) == COLLECTOR


@pytest.mark.parametrize("seconds", [3 * MINUTE, 11 * MINUTE, HOUR])
def test_a_silent_node_for_which_its_jobs_wait_is_dead(seconds: timedelta) -> None:
    assert told(HERE, THERE, scene=WAITING, seconds=seconds) == DEAD


def test_what_was_read_before_the_silence_says_nothing_about_it() -> None:
    patient = replace(WAITING, settings=replace(SETTINGS, silent_verdict_seconds=90.0))
    assert silent(HERE, THERE, scene=patient, seconds=40 * SECOND) == []


def test_a_job_that_was_started_anew_elsewhere_does_not_speak_for_its_old_node() -> None:
    anew = replace(THERE, started_at=NOON - 30 * MINUTE)
    assert told(HERE, anew, seconds=HOUR) == UNTOLD


def test_a_silent_node_that_nobody_held_may_be_rebooting_for_a_while() -> None:
    elsewhere = allocation(gpu(2), "job 8")
    over = allocation(gpu(), "job 7", ended_at=NOON - HOUR)

    def is_told(*jobs: Allocation, seconds: timedelta = 2 * MINUTE) -> bool:
        return bool(silent(*jobs, seconds=seconds))

    assert not is_told(over, elsewhere)
    # It ended while the node was up: the next body was due only after it.
    ended = replace(over, ended_at=NOON - 2 * MINUTE + 9 * SECOND)
    assert not is_told(replace(ended, exit_code="0:0"), elsewhere)
    # Where nobody knows how, it may have ended with the node.
    assert is_told(ended, elsewhere)
    assert is_told(over, elsewhere, seconds=21 * MINUTE)
    # Somebody's work is on it, or nobody tells of work at all.
    for held in (allocation(gpu(), "pid 7"), replace(over, ended_at=NOON - MINUTE)):
        assert is_told(held, elsewhere)
    assert is_told()


def test_a_node_is_late_until_something_tells_or_its_time_is_up() -> None:
    heard = NOON - 60 * SECOND
    scene = replace(
        healthy(),
        heard={**healthy().heard, node().key: heard},
        allocations=(allocation(gpu(), "job 7"),),
    )
    patient = replace(scene, settings=replace(scene.settings, silent_verdict_seconds=90.0))
    assert silent_nodes(patient.window()) == []
    # Without a job nothing else can tell, and it is as late.
    assert silent_nodes(replace(patient, allocations=()).window()) == []
    assert [finding.title for finding in silent_nodes(scene.window())] == [""]
