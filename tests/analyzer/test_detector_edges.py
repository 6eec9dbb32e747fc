"""What is not measured, is as old as a cure, or covers just enough of a span."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.driver_silent import silent_drivers
from analyzer.detectors.fabric_down import fabrics_down
from analyzer.detectors.gpu_clocks import stuck_clocks, would_show_stuck_clocks
from analyzer.detectors.gpu_memory import failing_memory
from analyzer.detectors.gpu_memory_held import held_memory
from analyzer.detectors.gpu_nvlink import broken_links
from analyzer.detectors.gpu_pcie import degraded_links, would_show_degraded_link
from analyzer.detectors.gpu_power import held_back
from analyzer.detectors.gpu_silent import DETECTOR as SILENT_GPU
from analyzer.detectors.gpu_silent import silent_gpus
from analyzer.detectors.host_disk import full_disks
from analyzer.detectors.host_memory import failing_hosts
from analyzer.detectors.host_sensors import failing_parts
from analyzer.detectors.nvswitch_error import sxid_faults
from analyzer.detectors.port_errors import bad_ports
from gpuvigil.faults.sxids import sxid
from gpuvigil.model import Event, EventKind, Severity, Unmeasured

from .scene import (
    GPU_FIELDS,
    NOON,
    SETTINGS,
    Scene,
    allocation,
    event,
    gpu,
    healthy,
    incident,
    node,
    port,
    told,
)

SECOND, MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
TICK = NOON - 10 * SECOND  # when the newest line was read
FOUR = healthy(nodes=1, gpus=4)
TWO = healthy(nodes=2, gpus=2)


def since(scene: Scene, seconds: float) -> Scene:
    """Lines came only in the last `seconds`."""
    return scene.without(lambda sample: sample.at < NOON - timedelta(seconds=seconds))


# --- how much of a span must have been read -------------------------------------------------------


@pytest.mark.parametrize(("seconds", "count"), [(150, 0), (160, 1)])
def test_a_fabric_must_be_down_over_half_of_the_span(seconds: float, count: int) -> None:
    down = healthy(nodes=1).changed(gpu(), {"fabric_state": 1})
    assert len(fabrics_down(since(down, seconds).window())) == count


@pytest.mark.parametrize(("seconds", "count"), [(240, 0), (250, 1)])
def test_clocks_must_be_low_over_four_fifths_of_the_span(seconds: float, count: int) -> None:
    low = FOUR.changed(gpu(), {"sm_clock_hertz": 990_000_000})
    assert len(stuck_clocks(since(low, seconds).window())) == count


@pytest.mark.parametrize(("seconds", "count"), [(20, 0), (30, 1)])
def test_a_machines_parts_must_fail_for_half_a_minute_but_a_tick(
    seconds: float, count: int
) -> None:
    failed = {"fans_failed": 1, "spool_writable": 0}
    young = since(healthy(nodes=1).changed(node(), failed), seconds)
    assert len(failing_parts(young.window())) == count
    assert len(full_disks(young.window())) == count
    longer = tuple(replace(it, tick_seconds=20.0) for it in young.inventories)
    assert len(failing_parts(replace(young, inventories=longer).window())) == 1


# --- clocks ---------------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize(
    ("fields", "tells"),
    [
        ({"utilization_percent": 9}, False),
        ({"utilization_percent": 10}, True),
        ({"utilization_percent": None}, None),
    ],
)
def test_low_clocks_show_only_under_load(fields: Mapping[str, Any], tells: bool | None) -> None:
    one = incident("gpu_clocks", gpu())
    assert would_show_stuck_clocks(FOUR.changed(gpu(), fields).window(), one) is tells
    assert would_show_stuck_clocks(replace(FOUR, samples=()).window(), one) is False
    # Of several one tells.
    several = incident("gpu_clocks", node(), members=(gpu().key, gpu(1, 1).key))
    rests = FOUR.changed(gpu(), {"utilization_percent": 0})
    assert would_show_stuck_clocks(rests.window(), several) is True
    rest = rests.changed(gpu(1, 1), {"utilization_percent": 0})
    assert would_show_stuck_clocks(rest.window(), several) is False


@pytest.mark.parametrize(("hertz", "count"), [(1_924_559_998, 0), (1_924_570_000, 1)])
def test_a_clock_that_the_neighbours_have_as_well_was_set(hertz: int, count: int) -> None:
    """The slow one's, of 1782 MHz, is held against 1.08 times that, of three at least."""
    scene = FOUR.changed(gpu(), {"sm_clock_hertz": 1_781_999_999})
    for index in (1, 2, 3):
        scene = scene.changed(gpu(1, index), {"sm_clock_hertz": hertz})
    assert len(stuck_clocks(scene.window())) == count
    fewer = healthy(nodes=1, gpus=2).changed(gpu(), {"sm_clock_hertz": 990_000_000})
    assert stuck_clocks(fewer.window()) == []


@pytest.mark.medium
@pytest.mark.parametrize(("set_on", "count"), [(1, 1), (2, 1), (3, 0), (4, 0)])
def test_clocks_that_most_of_a_node_has_are_set_by_somebody(set_on: int, count: int) -> None:
    scene = healthy(nodes=4, gpus=5)
    for index in range(set_on):
        scene = scene.changed(gpu(1, index), {"sm_clock_hertz": 1_300_000_000})
    found = stuck_clocks(scene.window())
    assert len(found) == count
    # One of them is the GPU's, several are the node's.
    named = {1: [(gpu(), ())], 2: [(node(), (gpu(), gpu(1, 1)))]}
    assert [(one.subject, one.members) for one in found] == named.get(set_on, [])


def test_a_node_with_one_gpu_at_work_is_held_against_the_cluster_alone() -> None:
    scene = healthy(nodes=4, gpus=2).changed(gpu(), {"sm_clock_hertz": 1_300_000_000})
    rests = scene.changed(gpu(1, 1), {"utilization_percent": 0, "sm_clock_hertz": 345_000_000})
    assert len(stuck_clocks(rests.window())) == 1


# --- memory ---------------------------------------------------------------------------------------


def test_pages_that_nobody_counted_are_none() -> None:
    fields = {"retired_pages_corrected": 62, "retired_pages_uncorrected": None}
    (it,) = failing_memory(FOUR.changed(gpu(), {**fields, "remap_pending": 1}).window())
    assert told(it) == "info; waits for a reset: remap"
    fields = {"retired_pages_corrected": None, "retired_pages_uncorrected": 15}
    assert failing_memory(FOUR.changed(gpu(), fields).window()) == []
    (it,) = failing_memory(FOUR.changed(gpu(), {"remap_failure": 1, "remap_pending": 1}).window())
    assert told(it) == (
        "critical; row remapping: failed (limit no failure); waits for a reset: remap"
    )
    (it,) = failing_memory(FOUR.changed(gpu(), {"sram_threshold_exceeded": 1}).window())
    assert told(it) == "critical; SRAM threshold: exceeded (limit not)"


@pytest.mark.parametrize(("after", "count"), [(-MICROSECOND, 1), (0 * SECOND, 0)])
def test_a_reset_at_its_line_is_what_it_waited_for(after: timedelta, count: int) -> None:
    reset = event(EventKind.GPU_RESET, gpu(), TICK + after)
    waits = FOUR.changed(gpu(), {"remap_pending": 1}).with_events(reset)
    assert len(failing_memory(waits.window())) == count


def test_memory_is_of_the_last_job_that_held_it() -> None:
    jobs = (
        allocation(gpu(), "job 7", ended_at=NOON - 400 * SECOND),
        allocation(gpu(), "job 8", ended_at=NOON - 360 * SECOND),
        allocation(gpu(), "job 9", ended_at=NOON - 900 * SECOND),
        allocation(gpu(), "pid 7", ended_at=NOON - 20 * SECOND),
    )
    (it,) = held_memory(replace(FOUR, allocations=jobs).window())
    assert told(it) == (
        "warning; memory: 8.0 GiB in use; last allocated to: job 8, ended 11:54:00 UTC on 31 Jan"
    )
    assert it.since == NOON - 360 * SECOND


# --- links ----------------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize(
    ("unknown", "least"),
    [
        ({"pcie_generation_max": None, "pcie_width_max": None}, 63),
        ({"pcie_generation_max": None}, 63),
        ({"pcie_width_max": None}, 32),
        ({"pcie_generation_max": 0}, 4),
    ],
)
def test_of_a_link_that_nobody_knows_the_fastest_is_allowed(
    unknown: Mapping[str, Any], least: int
) -> None:
    for more, count in ((least - 1, 0), (least, 1)):
        counted = FOUR.changed(gpu(), {"pcie_replays": GPU_FIELDS["pcie_replays"] + more}, 15)
        found = degraded_links(counted.changed(gpu(), unknown).window())
        assert len(found) == count
        if found and None in unknown.values():
            assert told(found[0]).endswith(f"{least} in 1 min (limit {least - 1} at most)")


@pytest.mark.parametrize(("link", "more"), [(None, ""), (4, "; worst link: 4")])
def test_errors_of_both_kinds_are_told_with_the_worst_link(link: int | None, more: str) -> None:
    recoveries = "NVLink replays: 0 and 3 recoveries in 5 min (limit fewer than 3)"
    fields = {"nvlink_crc_errors": 13, "nvlink_replay_errors": None, "nvlink_recovery_errors": 3}
    scene = FOUR.changed(gpu(), {**fields, "nvlink_worst_link": link}, 15)
    (it,) = broken_links(scene.window())
    assert told(it) == (
        f"warning; {recoveries}{more}; NVLink CRC errors: 10 in 5 min (limit fewer than 10){more}"
    )
    recovered = FOUR.changed(gpu(), {"nvlink_recovery_errors": 3, "nvlink_worst_link": link}, 15)
    (it,) = broken_links(recovered.window())
    assert told(it) == (
        f"warning; NVLink replays: 0 and 3 recoveries in 5 min (limit fewer than 3){more}"
    )


@pytest.mark.parametrize(
    ("others", "own", "count"), [(0.0, 0.9, 0), (0.0, 1.1, 1), (0.5, 4.0, 0), (9.0, 11.0, 1)]
)
def test_packets_that_a_port_alone_receives_broken_are_told_early(
    others: float, own: float, count: int
) -> None:
    """From 1 a second on where its peers have a tenth of it, from 10 a second on in any case."""
    scene = healthy(nodes=5, gpus=1).rising(port(), "receive_errors", own)
    for number in range(2, 6):
        scene = scene.rising(port(number), "receive_errors", others)
    assert [it.subject for it in bad_ports(scene.window())] == [port()] * count


# --- power ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gpus", "count"), [(2, 0), (3, 1)])
def test_a_lowered_limit_needs_three_of_the_model(gpus: int, count: int) -> None:
    scene = healthy(nodes=1, gpus=gpus).changed(gpu(), {"power_limit_watts": 600.0})
    assert len(held_back(scene.window())) == count


def test_a_limit_is_lowered_where_the_models_usual_one_is_higher() -> None:
    """The usual one is 630 W, and three percent less than that are 611."""
    scene = FOUR
    for index in range(4):
        scene = scene.changed(gpu(1, index), {"power_limit_watts": 630.0})
    for watts, count in ((611.2, 0), (611.0, 1)):
        found = held_back(scene.changed(gpu(), {"power_limit_watts": watts}).window())
        assert [told(it) for it in found] == [
            "info; power limit: 611 W (limit 700 W, peers 630 W)"
        ] * count


# --- a GPU that is silent -------------------------------------------------------------------------

MUTE = {"up": None, "unmeasured_reason": Unmeasured.DRIVER_NOT_ANSWERING.value}


def mute(ticks: int, seconds: float | None = None) -> Scene:
    fields = {**MUTE, "unmeasured_seconds": seconds}
    return healthy(nodes=1, seconds=60.0).changed(gpu(), fields, 10.0 * ticks)


@pytest.mark.parametrize(
    ("ticks", "seconds", "tick", "count"),
    [
        (1, None, 10.0, 0),
        (2, None, 10.0, 1),
        (2, 29.9, 10.0, 0),
        (2, 30.0, 10.0, 1),
        (1, 30.0, 10.0, 0),
        (2, 39.9, 20.0, 0),
        (2, 40.0, 20.0, 1),
    ],
)
def test_without_an_event_a_gpu_is_silent_after_half_a_minute_and_two_ticks(
    ticks: int, seconds: float | None, tick: float, count: int
) -> None:
    scene = mute(ticks, seconds)
    slow = tuple(replace(it, tick_seconds=tick) for it in scene.inventories)
    found = silent_gpus(replace(scene, inventories=slow).window((SILENT_GPU,)))
    assert [(it.certain, it.since) for it in found] == [(False, TICK)] * count


@pytest.mark.parametrize(
    ("kind", "at", "count"),
    [
        (EventKind.DRIVER_SILENT, TICK - MICROSECOND, 1),
        (EventKind.DRIVER_SILENT, TICK, 0),
        (EventKind.DRIVER_BACK, TICK - MICROSECOND, 1),
        (EventKind.DRIVER_BACK, TICK, 0),
    ],
)
def test_a_gpus_own_words_count_from_the_line_on(kind: EventKind, at: Any, count: int) -> None:
    alone = mute(1 if kind is EventKind.DRIVER_SILENT else 2).with_events(event(kind, gpu(), at))
    found = silent_gpus(alone.window((SILENT_GPU,)))
    assert [it.certain for it in found] == [kind is EventKind.DRIVER_SILENT] * count
    assert [it.since for it in found if it.certain] == [at] * count * (
        not found or found[0].certain
    )


def test_a_word_from_before_it_was_back_is_none() -> None:
    back = event(EventKind.DRIVER_BACK, gpu(), TICK - 5 * SECOND)
    for after, count in ((-MICROSECOND, 0), (0 * SECOND, 1)):
        word = event(EventKind.DRIVER_SILENT, gpu(), back.at + after)
        found = silent_gpus(mute(1).with_events(word, back).window((SILENT_GPU,)))
        assert len(found) == count
    other = event(EventKind.DRIVER_SILENT, gpu(1, 1), TICK - SECOND)
    assert silent_gpus(mute(1).with_events(other).window((SILENT_GPU,))) == []


# --- what is said ---------------------------------------------------------------------------------


def switch(code: int, seconds: int, count: int = 1) -> Event:
    made = event(EventKind.SXID, node(), NOON - seconds * SECOND)
    return replace(made, id=f"{code} {seconds}", sxid=code, count=count, message=f"said {seconds}")


def test_a_switch_is_told_with_its_newest_words_and_its_other_codes() -> None:
    row = sxid(10003)
    events = [switch(10003, 40, 2), switch(11004, 30), switch(10003, 20), switch(22013, 10)]
    (it,) = sxid_faults(Scene().with_events(*events).window())
    assert [(item.text, item.detail) for item in it.evidence] == [
        ("SXid 10003: 3 times, last at 11:59:40 UTC on 31 Jan", False),
        (f"meaning: {row.summary.rstrip('.')}", True),
        (f"called by the driver: {row.mnemonic}", True),
        ("message: said 20", True),
        ("other SXids: 11004, 22013", False),
    ]
    (it,) = sxid_faults(Scene().with_events(switch(10003, 20)).window())
    assert it.evidence[0].text == "SXid 10003: reported at 11:59:40 UTC on 31 Jan"
    (twice,) = sxid_faults(Scene().with_events(switch(10003, 20, 2)).window())
    assert twice.evidence[0].text == "SXid 10003: 2 times, last at 11:59:40 UTC on 31 Jan"
    assert len(it.evidence) == 4


def test_machine_checks_are_told_with_the_last_words_and_only_what_came_late_is_late() -> None:
    checks = [
        replace(event(EventKind.MACHINE_CHECK, node(), NOON - n * SECOND), message=f"said {n}")
        for n in (30, 20, 10)
    ]
    scene = replace(Scene().with_events(*checks), late=frozenset(it.id for it in checks))
    (it,) = failing_hosts(scene.window())
    assert told(it) == (
        "warning; machine checks: 3 in a day, last at 11:59:50 UTC on 31 Jan"
        " (limit fewer than 3 in an hour, 10 in a day); message: said 10"
    )
    assert (it.since, it.certain, it.late) == (NOON - 30 * SECOND, True, True)
    (it,) = failing_hosts(replace(scene, late=frozenset()).window())
    assert not it.late


def test_of_counted_errors_what_nobody_read_is_none() -> None:
    fields = {"memory_errors_corrected": None, "memory_errors_uncorrected": 1}
    (it,) = failing_hosts(healthy(nodes=1).changed(node(), fields, 15).window())
    assert "corrected errors: 0 in" in told(it)
    fields = {"memory_errors_corrected": 14, "memory_errors_uncorrected": None}
    scene = healthy(nodes=1).changed(node(), {"memory_errors_uncorrected": None})
    (it,) = failing_hosts(scene.changed(node(), fields, 15).window())
    assert told(it).endswith("uncorrected errors: 0 (limit 0)")


def test_a_port_may_have_ten_times_the_symbol_errors_of_its_peers() -> None:
    scene = healthy(nodes=4)
    for number in (2, 3, 4):
        scene = scene.changed(port(number), {"symbol_errors": 7}, 15)
    for more, count in ((20, 0), (21, 1)):
        found = bad_ports(scene.changed(port(), {"symbol_errors": 5 + more}, 15).window())
        assert len(found) == count


def test_a_silent_driver_stands_until_a_line_after_it_says_that_it_answers() -> None:
    for after, count in ((-MICROSECOND, 0), (0 * SECOND, 1)):
        word = event(EventKind.DRIVER_SILENT, node(), TICK + after)
        assert len(silent_drivers(healthy(nodes=1).with_events(word).window())) == count
        unread = healthy(nodes=1).changed(node(), {"driver_answering": None}, 15)
        assert len(silent_drivers(unread.with_events(word).window())) == 1


def test_a_file_system_is_told_with_the_collectors_last_words() -> None:
    words = [
        replace(event(EventKind.HOST, node(), NOON - n * SECOND), message=f"said {n}")
        for n in (30, 10, 20)
    ]
    full = healthy(nodes=1).changed(node(), {"space_used_share": 0.97}).with_events(*words)
    (it,) = failing_parts(full.window())
    assert told(it).endswith("the collector says: said 10, 11:59:50 UTC on 31 Jan")
    assert (it.severity, it.since) == (Severity.INFO, NOON - SETTINGS.window_seconds * SECOND)


@pytest.mark.parametrize(
    ("apart", "per_minute", "count"),
    [(60, 38.0, 0), (60, 40.0, 1), (30, 454.0, 1), (60, 454.0, 1), (10, 30.0, 0), (10, 40.0, 1)],
)
def test_replays_of_a_node_that_is_read_seldom_are_counted_over_the_steady_span(
    apart: int, per_minute: float, count: int
) -> None:
    """Four minutes lie between the first and the last of five lines, and 154 in five are too many."""
    counted = FOUR.rising(gpu(), "pcie_replays", per_minute / 60.0)
    seldom = counted.without(lambda s: (NOON - s.at).total_seconds() % apart != 10 % apart)
    assert len(degraded_links(seldom.window())) == count


@pytest.mark.parametrize(("apart", "count"), [(20, 0), (30, 1)])
def test_a_link_of_a_node_that_is_read_seldom_is_told_by_the_steady_span(
    apart: int, count: int
) -> None:
    slow = {"pcie_width": 8, "pcie_generation": 3}
    scene = healthy(nodes=1, seconds=400.0).changed(gpu(), slow)
    seldom = scene.without(lambda s: (NOON - s.at).total_seconds() % apart != 10 % apart)
    # Two lines of a minute say nothing, of which three could be there.
    few = seldom.without(lambda s: s.at == NOON - 30 * SECOND)
    active = incident("gpu_pcie", gpu(), condition="pcie_narrow")
    assert len(degraded_links(few.window())) == count
    assert would_show_degraded_link(few.window(), active) is bool(count)
    # One line with all lanes and at its speed is enough: it is none.
    whole = few.changed(gpu(), {"pcie_width": 16, "pcie_generation": 5}, 15)
    assert degraded_links(whole.window()) == []


@pytest.mark.parametrize(
    ("condition", "lines", "busy", "shows"),
    [
        ("pcie_narrow", 3, 0, True),
        ("pcie_narrow", 2, 0, False),
        ("pcie_slow", 3, 20, True),
        ("pcie_slow", 3, 19, False),
        ("pcie_slow", 3, None, False),
        ("pcie_replays", 3, 0, True),
    ],
)
def test_an_active_incident_of_a_link_is_over_only_where_its_lines_would_show_it(
    condition: str, lines: int, busy: int | None, shows: bool
) -> None:
    scene = FOUR.changed(gpu(), {"utilization_percent": busy})
    young = scene.now - (lines + 0.5) * 10 * SECOND
    scene = replace(scene, samples=tuple(s for s in scene.samples if s.at > young))
    active = incident("gpu_pcie", gpu(), condition=condition)
    assert would_show_degraded_link(scene.window(), active) is shows
