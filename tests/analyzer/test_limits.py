"""The limit of each detector that looks at numbers: just below it says nothing, and from it on the fault."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.clock_wrong import wrong_clocks
from analyzer.detectors.driver_drift import drifted_drivers
from analyzer.detectors.driver_silent import silent_drivers
from analyzer.detectors.fabric_down import fabrics_down
from analyzer.detectors.gpu_clocks import stuck_clocks
from analyzer.detectors.gpu_hot import hot_gpus
from analyzer.detectors.gpu_memory import failing_memory
from analyzer.detectors.gpu_memory_held import held_memory
from analyzer.detectors.gpu_nvlink import broken_links
from analyzer.detectors.gpu_pcie import degraded_links
from analyzer.detectors.gpu_power import held_back
from analyzer.detectors.gpu_settings import odd_settings
from analyzer.detectors.gpus_missing import nodes_with_too_few
from analyzer.detectors.host_disk import full_disks
from analyzer.detectors.host_kernel import troubled_kernels
from analyzer.detectors.host_memory import failing_hosts
from analyzer.detectors.host_sensors import failing_parts
from analyzer.detectors.port_congested import congested_ports
from analyzer.detectors.port_ecn import deaf_ports
from analyzer.detectors.port_errors import bad_ports
from analyzer.detectors.port_module import failing_modules
from analyzer.detectors.port_receiver import slow_hosts
from analyzer.window.window import Window
from gpuvigil.model import EventKind, Finding, Severity, Subject

from .scene import (
    GPU_FIELDS,
    NODE_FIELDS,
    NOON,
    PORT_FIELDS,
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

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
Find = Callable[[Window], list[Finding]]
PEERS = healthy(nodes=4, gpus=4)
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "gpu": GPU_FIELDS,
    "port": PORT_FIELDS,
    "node": NODE_FIELDS,
}
ALONE: Mapping[str, Subject] = {"gpu": gpu(), "port": port(), "node": node()}


def grown(kind: str, **by: float) -> Scene:
    """The counters of one GPU, port or node have grown by so much since just now."""
    before = FIELDS[kind]
    return PEERS.changed(ALONE[kind], {name: before[name] + more for name, more in by.items()}, 15)


def of(kind: str, **fields: Any) -> Scene:
    """One GPU, port or node has always had these values."""
    return PEERS.changed(ALONE[kind], fields)


# What counts, the detector, the scene just below the limit, the one at it, and what is said there.
LIMITS: list[tuple[Find, Scene, Scene, str]] = [
    (
        failing_memory,
        grown("gpu", ecc_corrected_errors=59),
        grown("gpu", ecc_corrected_errors=60),
        "warning; corrected memory errors: 60 in 1 min (limit fewer than 60)",
    ),
    (
        failing_memory,
        of("gpu", retired_pages_corrected=47, retired_pages_uncorrected=15),
        of("gpu", retired_pages_corrected=48, retired_pages_uncorrected=15),
        "critical; retired pages: 63, 15 of them by double-bit errors"
        " (limit under 63, 15 by double-bit errors at most)",
    ),
    (
        failing_memory,
        of("gpu", retired_pages_corrected=0, retired_pages_uncorrected=15),
        of("gpu", retired_pages_corrected=0, retired_pages_uncorrected=16),
        "critical; retired pages: 16, 16 of them by double-bit errors"
        " (limit under 63, 15 by double-bit errors at most)",
    ),
    (
        failing_memory,
        of("gpu", remap_banks_none=0),
        of("gpu", remap_banks_none=1),
        "warning; banks without a spare row: 1 (limit 0)",
    ),
    (
        failing_memory,
        of("gpu", remap_pending=0),
        of("gpu", remap_pending=1, retired_pages_pending=1),
        "info; waits for a reset: remap, retired pages",
    ),
    (
        broken_links,
        grown("gpu", nvlink_crc_errors=9),
        grown("gpu", nvlink_crc_errors=10),
        "warning; NVLink CRC errors: 10 in 5 min (limit fewer than 10)",
    ),
    (
        broken_links,
        grown("gpu", nvlink_replay_errors=1, nvlink_recovery_errors=1),
        grown("gpu", nvlink_replay_errors=2, nvlink_recovery_errors=1),
        "warning; NVLink replays: 2 and 1 recoveries in 5 min (limit fewer than 3)",
    ),
    (
        broken_links,
        of("gpu", nvlink_links_up=18),
        of("gpu", nvlink_links_up=17),
        "warning; NVLinks up: 17 (peers 18)",
    ),
    (
        degraded_links,
        of("gpu", pcie_generation=4, utilization_percent=19),
        of("gpu", pcie_generation=4, utilization_percent=20),
        "warning; PCIe generation: 4 at 20 % or more (limit 5)",
    ),
    (
        degraded_links,
        of("gpu", pcie_width=16),
        of("gpu", pcie_width=15),
        "warning; PCIe width: 15 lanes (limit 16)",
    ),
    (
        degraded_links,
        grown("gpu", pcie_replays=31),
        grown("gpu", pcie_replays=32),
        "warning; PCIe replays: 32 in 1 min (limit 31 at most)",
    ),
    (
        degraded_links,
        grown("gpu", pcie_naks_sent=31),
        grown("gpu", pcie_naks_sent=32),
        "warning; PCIe packets refused: 32 in 1 min (limit 31 at most)",
    ),
    (
        held_back,
        grown("gpu", power_brake_seconds=9.9),
        grown("gpu", power_brake_seconds=10.0),
        "warning; power brake: 10 s of the last 60 s (limit 0 s)",
    ),
    (
        held_back,
        of("gpu", power_limit_watts=679.0),
        of("gpu", power_limit_watts=678.9),
        "info; power limit: 679 W (limit 700 W, peers 700 W)",
    ),
    (
        hot_gpus,
        grown("gpu", hardware_thermal_slowdown_seconds=9.9),
        grown("gpu", hardware_thermal_slowdown_seconds=10.0),
        "warning; slowed down by heat: 10 s of the last 60 s (limit 0 s); core: 60 °C at most",
    ),
    (
        hot_gpus,
        grown("gpu", software_thermal_slowdown_seconds=29.9),
        grown("gpu", software_thermal_slowdown_seconds=30.0),
        "warning; slowed down by heat: 30 s of the last 60 s (limit 0 s); core: 60 °C at most",
    ),
    (
        stuck_clocks,
        of("gpu", sm_clock_hertz=1_782_000_000),
        of("gpu", sm_clock_hertz=1_781_000_000),
        "warning; SM clock: 1781 MHz at most in 5 min (limit 1980 MHz, peers 1980 MHz);"
        " utilisation: 93 %",
    ),
    (
        stuck_clocks,
        of("gpu", sm_clock_hertz=990_000_000, utilization_percent=9),
        of("gpu", sm_clock_hertz=990_000_000, utilization_percent=10),
        "warning; SM clock: 990 MHz at most in 5 min (limit 1980 MHz, peers 1980 MHz);"
        " utilisation: 10 %",
    ),
    (
        stuck_clocks,
        grown("gpu", power_cap_seconds=30.0).changed(gpu(), {"sm_clock_hertz": 990_000_000}),
        grown("gpu", power_cap_seconds=29.9).changed(gpu(), {"sm_clock_hertz": 990_000_000}),
        "warning; SM clock: 990 MHz at most in 5 min (limit 1980 MHz, peers 1980 MHz);"
        " utilisation: 93 %",
    ),
    (
        odd_settings,
        of("gpu", ecc_mode=1),
        of("gpu", ecc_mode=0),
        "warning; ECC: off (peers on)",
    ),
    (
        odd_settings,
        of("gpu", mig_mode=0),
        of("gpu", mig_mode=1),
        "info; MIG: on (peers off)",
    ),
    (
        full_disks,
        grown("node", dropped_bodies=2),
        grown("node", dropped_bodies=3),
        "warning; dropped bodies: 3 in 5 min (limit fewer than 3)",
    ),
    (
        full_disks,
        PEERS.changed(node(), {"spool_writable": 0}, 55),
        PEERS.changed(node(), {"spool_writable": 0}, 65),
        "warning; writes to the spool: refused (limit taken)",
    ),
    (
        failing_hosts,
        grown("node", memory_errors_corrected=9),
        grown("node", memory_errors_corrected=10),
        "warning; corrected errors: 10 in 5 min (limit fewer than 10 in a day);"
        " uncorrected errors: 0 (limit 0)",
    ),
    (
        failing_hosts,
        grown("node", memory_errors_uncorrected=0),
        grown("node", memory_errors_uncorrected=1),
        "warning; corrected errors: 0 in 5 min (limit fewer than 10 in a day);"
        " uncorrected errors: 1 (limit 0)",
    ),
    (
        failing_parts,
        of("node", space_used_share=0.949),
        of("node", space_used_share=0.95),
        "info; fullest file system: 95.0 % in use (limit 95 %)",
    ),
    (
        failing_parts,
        of("node", power_supplies_failed=0),
        of("node", power_supplies_failed=1),
        "warning; power supplies failed: 1 (limit 0)",
    ),
    (
        failing_parts,
        of("node", fans_failed=0),
        of("node", fans_failed=2),
        "warning; fans failed: 2 (limit 0)",
    ),
    (
        failing_parts,
        of("node", mounts_hung=0),
        of("node", mounts_hung=1),
        "warning; mounts that do not answer: 1 (limit 0)",
    ),
    (
        bad_ports,
        grown("port", symbol_errors=10),
        grown("port", symbol_errors=11),
        "warning; symbol errors: 11 in 5 min (limit 120 in an hour, peers 0); receive errors: 0",
    ),
    (
        bad_ports,
        grown("port", receive_errors=300),
        grown("port", receive_errors=301),
        "warning; symbol errors: 0 in 5 min (limit 120 in an hour, peers 0); receive errors: 301",
    ),
    (
        bad_ports,
        grown("port", link_recoveries=2),
        grown("port", link_recoveries=3),
        "warning; symbol errors: 0 in 5 min (limit 120 in an hour, peers 0); receive errors: 0;"
        " link recoveries: 3 (limit 3)",
    ),
    (
        bad_ports,
        grown("port", local_integrity_errors=9),
        grown("port", local_integrity_errors=10),
        "warning; symbol errors: 0 in 5 min (limit 120 in an hour, peers 0); receive errors: 0;"
        " local integrity errors: 10 (limit 10)",
    ),
    (
        congested_ports,
        grown("port", transmit_discards=11_999),
        grown("port", transmit_discards=12_000),
        "warning; discards: 200 per second (limit 100 per second at most); "
        "beyond the port: not observable without switch counters",
    ),
    (
        failing_modules,
        of("port", module_celsius=74),
        of("port", module_celsius=75),
        "warning; module: 75 °C (limit 75 °C)",
    ),
    (
        failing_modules,
        grown("port", module_faults=0),
        grown("port", module_faults=1),
        "warning; faults that the module reported: 1",
    ),
    (
        deaf_ports,
        grown("port", ecn_marked_packets=999),
        grown("port", ecn_marked_packets=1000),
        "info; packets marked as congested: 1,000 in 5 min; congestion notifications sent: 0 (limit one at least)",
    ),
    (
        slow_hosts,
        grown("port", pause_storms=1),
        grown("port", pause_storms=2),
        "warning; pause storms: 2",
    ),
]


@pytest.mark.medium
@pytest.mark.parametrize(("find", "below", "at", "what"), LIMITS, ids=[it[3] for it in LIMITS])
def test_just_below_the_limit_nothing_is_said_and_at_it_the_fault_is(
    find: Find, below: Scene, at: Scene, what: str
) -> None:
    assert find(below.window()) == []
    assert [told(finding) for finding in find(at.window())] == [what]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("find", "below", "at", "severities"),
    [
        (
            held_back,
            grown("gpu", power_brake_seconds=29.9),
            grown("gpu", power_brake_seconds=30.0),
            ("warning", "critical"),
        ),
        (
            hot_gpus,
            grown("gpu", hardware_thermal_slowdown_seconds=29.9),
            grown("gpu", hardware_thermal_slowdown_seconds=30.0),
            ("warning", "critical"),
        ),
        (
            failing_parts,
            of("node", space_used_share=0.989),
            of("node", space_used_share=0.99),
            ("info", "warning"),
        ),
    ],
)
def test_from_its_limit_on_it_is_graver(
    find: Find, below: Scene, at: Scene, severities: tuple[str, str]
) -> None:
    found = [finding.severity.value for scene in (below, at) for finding in find(scene.window())]
    assert tuple(found) == severities


@pytest.mark.medium
@pytest.mark.parametrize(
    ("generation", "most"), [(1, 4), (2, 6), (3, 9), (4, 17), (5, 32), (6, 63), (7, 63)]
)
def test_a_link_may_repeat_what_dcgm_allows_its_generation_and_its_lanes(
    generation: int, most: int
) -> None:
    speeds = {"pcie_generation": generation, "pcie_generation_max": generation}

    def found(replays: int, lanes: int) -> bool:
        scene = grown("gpu", pcie_replays=replays).changed(gpu(), speeds)
        widths = {"pcie_width": lanes, "pcie_width_max": lanes}
        return bool(degraded_links(scene.changed(gpu(), widths).window()))

    assert (found(most - 1, 16), found(most, 16)) == (False, True)
    assert found(most - 1, 8)


@pytest.mark.parametrize(
    ("lanes", "began", "ended", "count"),
    [
        (8, 110, 45, 1),
        (8, 100, 45, 0),  # six lines of half the lanes are less than a minute without any
        (4, 90, 45, 1),
        (4, 80, 45, 0),
        (8, 1e9, 45, 0),  # it was so from the beginning, and somebody mended it
        (1, 50, 5, 0),  # no line says yet that it came back
        (0, 110, 45, 0),  # a reading that failed
    ],
)
def test_lanes_that_a_working_gpu_loses_and_gets_back_are_told(
    lanes: int, began: float, ended: float, count: int
) -> None:
    whole = {"pcie_width": 16}
    scene = PEERS.changed(gpu(), {"pcie_width": lanes}, began).changed(gpu(), whole, ended)
    found = degraded_links(scene.window())
    assert [it.condition for it in found] == ["pcie_narrow"] * count
    rested = scene.changed(gpu(), {"utilization_percent": 19}, began)
    assert degraded_links(rested.window()) == []


@pytest.mark.parametrize(("began", "count"), [(130, 0), (190, 1)])
def test_lanes_that_come_and_go_take_three_lines(began: float, count: int) -> None:
    scene = PEERS.changed(gpu(), {"pcie_width": 8}, began).changed(gpu(), {"pcie_width": 16}, 65)
    seldom = scene.without(lambda s: (NOON - s.at).total_seconds() % 60 != 10)
    assert len(degraded_links(seldom.window())) == count


def test_one_reading_of_few_is_no_narrow_link() -> None:
    narrow = of("gpu", pcie_width=8)
    for seconds, count in ((25, 0), (35, 1)):
        young = narrow.without(lambda s, t=seconds: s.at < NOON - t * SECOND)  # type: ignore[misc]
        assert len(degraded_links(young.window())) == count


@pytest.mark.parametrize(("bytes_", "count"), [(1024**3 - 1, 0), (1024**3, 1)])
def test_memory_that_a_job_left_behind_is_a_gibibyte_at_least(bytes_: int, count: int) -> None:
    ended = allocation(gpu(), "job 7", ended_at=NOON - 5 * MINUTE)
    scene = replace(of("gpu", memory_used_bytes=bytes_), allocations=(ended,))
    found = held_memory(scene.window())
    assert [told(it) for it in found] == [
        "warning; memory: 1.0 GiB in use; last allocated to: job 7, ended 11:55:00 UTC on 31 Jan"
    ] * count
    early = replace(ended, ended_at=NOON - 5 * MINUTE + SECOND)
    assert held_memory(replace(scene, allocations=(early,)).window()) == []


@pytest.mark.parametrize(("count", "minutes", "found"), [(2, 59, 0), (3, 59, 1), (3, 60, 0)])
def test_three_machine_checks_in_an_hour_are_a_fault(count: int, minutes: int, found: int) -> None:
    checks = [
        event(
            EventKind.MACHINE_CHECK, node(), NOON - minutes * MINUTE + number * timedelta(0, 0, 1)
        )
        for number in range(count)
    ]
    assert len(failing_hosts(healthy().with_events(*checks).window())) == found


@pytest.mark.parametrize(("count", "hours", "found"), [(9, 23, 0), (10, 23, 1), (10, 24, 0)])
def test_ten_machine_checks_in_a_day_are_a_fault(count: int, hours: int, found: int) -> None:
    check = replace(event(EventKind.MACHINE_CHECK, node(), NOON - hours * HOUR), count=count)
    assert [told(it) for it in failing_hosts(healthy().with_events(check).window())] == [
        "warning; machine checks: 10 in a day, last at 13:00:00 UTC on 30 Jan"
        " (limit fewer than 3 in an hour, 10 in a day); message: none"
    ] * found


@pytest.mark.parametrize(
    ("count", "apart", "minutes", "found"),
    [(2, 60, 1, 0), (3, 60, 1, 1), (3, 300, 1, 1), (3, 301, 1, 0), (3, 60, 57, 1), (3, 60, 60, 0)],
)
def test_three_reports_of_a_hang_within_ten_minutes_are_a_fault_for_an_hour(
    count: int, apart: int, minutes: int, found: int
) -> None:
    hangs = [
        event(EventKind.KERNEL_HANG, node(), NOON - minutes * MINUTE - number * apart * SECOND)
        for number in range(count)
    ]
    scene = healthy().with_events(*hangs)
    assert [it.fault for it in troubled_kernels(scene.window())] == ["host_hang"] * found
    booted = scene.with_events(event(EventKind.BOOT, node(), NOON - minutes * MINUTE + SECOND))
    assert troubled_kernels(booted.window()) == []


@pytest.mark.parametrize(
    ("fault", "subject", "over", "found"),
    [
        ("host_mount", node(), 5, 0),
        ("host_mount", node(), 5.1, 1),
        ("host_mount", node(), None, 1),  # the mount explains it, and is told for it
        ("host_mount", node(2), 3, 1),
        ("host_fan", node(), 3, 1),
    ],
)
def test_what_tasks_waited_for_is_over_with_it(
    fault: str, subject: Subject, over: float | None, found: int
) -> None:
    """Of four reports, three came within five minutes and a little."""
    hangs = [event(EventKind.KERNEL_HANG, node(), NOON - n * MINUTE) for n in (3, 3.05, 5, 7)]
    ended = None if over is None else NOON - over * MINUTE
    stood = replace(incident(fault, subject, -HOUR), resolved_at=ended)
    scene = replace(healthy().with_events(*hangs), recent_incidents=(stood,))
    assert [it.fault for it in troubled_kernels(scene.window())] == ["host_hang"] * found


@pytest.mark.parametrize(("hours", "found"), [(23.9, 1), (24.0, 0)])
def test_a_drive_that_failed_is_told_for_a_day_or_until_a_boot(hours: float, found: int) -> None:
    at = NOON - timedelta(hours=hours)
    scene = healthy().with_events(event(EventKind.STORAGE_ERROR, node(), at))
    assert [it.fault for it in troubled_kernels(scene.window())] == ["host_storage"] * found
    before = scene.with_events(event(EventKind.BOOT, node(), at - SECOND))
    assert len(troubled_kernels(before.window())) == found
    after = scene.with_events(event(EventKind.BOOT, node(), at + SECOND))
    assert troubled_kernels(after.window()) == []


def with_drivers(*versions: str | None, minutes: float = 15.0) -> Scene:
    scene = healthy(nodes=len(versions))
    return replace(
        scene,
        inventories=tuple(
            replace(it, rack="r1", driver=version, at=NOON - minutes * MINUTE)
            for it, version in zip(scene.inventories, versions, strict=True)
        ),
    )


@pytest.mark.parametrize(
    ("scene", "count"),
    [
        (with_drivers("1", "1", "1", "2"), 1),
        (with_drivers("1", "1", "1", "2", minutes=14.9), 0),
        (with_drivers("1", "1", "2"), 0),
        (with_drivers("1", "1", "1", "2", None), 1),  # nobody knows the last one's
        (with_drivers("1", "1", "2", None), 0),
        (with_drivers("1", "1", "1", "2", "2"), 0),
        (with_drivers(*"111111", "2", "2"), 2),
    ],
)
def test_three_of_four_say_which_driver_is_a_racks(scene: Scene, count: int) -> None:
    found = drifted_drivers(scene.window())
    assert len(found) == count
    if count == 1:
        assert told(found[0]) == "info; driver: 2 (peers 1 on 3 nodes of rack r1)"


def test_a_rack_without_a_majority_hides_no_other() -> None:
    none = with_drivers("1", "1", "2", "2", "3").inventories
    some = with_drivers(*"1112").inventories
    moved = [
        replace(it, rack="r2", subject=replace(it.subject, node=f"m{number}"))
        for number, it in enumerate(some)
    ]
    scene = replace(healthy(), inventories=(*none, *moved))
    assert [it.subject.node for it in drifted_drivers(scene.window())] == ["m3"]


@pytest.mark.parametrize(("nodes", "few", "count"), [(4, 1, 1), (3, 1, 0), (8, 2, 2), (8, 3, 0)])
def test_three_of_four_nodes_say_how_many_gpus_there_are(nodes: int, few: int, count: int) -> None:
    scene = healthy(nodes=nodes)
    inventories = [
        replace(it, gpus=it.gpus[:1]) if number < few else it
        for number, it in enumerate(scene.inventories)
    ]
    found = nodes_with_too_few(replace(scene, inventories=tuple(inventories)).window())
    assert len(found) == count


@pytest.mark.parametrize(("gpus", "count"), [(3, 0), (4, 1)])
def test_four_gpus_have_a_usual_mode(gpus: int, count: int) -> None:
    scene = healthy(gpus=gpus).changed(gpu(), {"ecc_mode": 0})
    assert len(odd_settings(scene.window())) == count
    both = scene.changed(gpu(1, 1), {"ecc_mode": 0})
    assert odd_settings(both.window()) == []


@pytest.mark.parametrize(("nodes", "count"), [(9, 0), (10, 1)])
def test_a_node_without_ecc_is_told_where_nine_of_ten_gpus_of_the_cluster_have_it(
    nodes: int, count: int
) -> None:
    """After maintenance no neighbour tells: all of the node came back without."""
    scene = healthy(nodes=nodes, seconds=20.0)
    off = scene.changed(gpu(1, 0), {"ecc_mode": 0}).changed(gpu(1, 1), {"ecc_mode": 0})
    found = odd_settings(off.window())
    assert [(it.subject, told(it)) for it in found] == [
        (node(), "warning; GPUs: 2 of 2; ECC: off (peers on)")
    ] * count
    assert {it.condition for it in found} <= {"ecc_off_node"}
    # Of what model they are nobody knows: others may be built without.
    assert odd_settings(replace(off, inventories=()).window()) == []
    # Slices may be wanted.
    cut = scene.changed(gpu(1, 0), {"mig_mode": 1}).changed(gpu(1, 1), {"mig_mode": 1})
    assert odd_settings(cut.window()) == []


def test_one_gpu_of_a_small_node_without_ecc_is_told_by_the_cluster() -> None:
    scene = healthy(nodes=5, seconds=20.0).changed(gpu(), {"ecc_mode": 0})
    (it,) = odd_settings(scene.window())
    assert (it.subject, it.condition) == (gpu(), "ecc_off")
    two = scene.changed(gpu(2), {"ecc_mode": 0})
    assert odd_settings(two.window()) == []


@pytest.mark.medium
@pytest.mark.parametrize(
    ("gpus", "odd", "count"),
    [(3, 1, 0), (4, 1, 1), (9, 1, 1), (9, 2, 0), (10, 1, 1), (20, 2, 2), (20, 3, 0), (19, 2, 0)],
)
def test_nine_of_ten_gpus_of_a_kind_say_which_firmware_is_usual(
    gpus: int, odd: int, count: int
) -> None:
    scene = healthy(nodes=1, gpus=gpus)
    (one,) = scene.inventories
    cards = tuple(
        replace(it, vbios="96.1" if number < odd else "96.2") for number, it in enumerate(one.gpus)
    )
    found = odd_settings(replace(scene, inventories=(replace(one, gpus=cards),)).window())
    assert [told(it) for it in found] == ["info; VBIOS: 96.1 (peers 96.2)"] * count


@pytest.mark.parametrize(("nodes", "odd", "count"), [(4, 1, 1), (4, 2, 0), (20, 2, 2), (20, 3, 0)])
def test_where_racks_have_versions_of_their_day_a_nodes_own_gpus_tell(
    nodes: int, odd: int, count: int
) -> None:
    scene = healthy(nodes=nodes, gpus=4, seconds=20.0)

    def version(node: int, index: int) -> str:
        return "95" if node < odd and index == 0 else "96.1" if node % 2 else "96.2"

    inventories = tuple(
        replace(
            it,
            gpus=tuple(replace(g, vbios=version(number, place)) for place, g in enumerate(it.gpus)),
        )
        for number, it in enumerate(scene.inventories)
    )
    found = odd_settings(replace(scene, inventories=inventories).window())
    assert [one.subject.gpu for one in found] == sorted(f"GPU-{n + 1}-0" for n in range(count))
    # Where more have one, they are built so.
    assert {one.condition for one in found} <= {"vbios_odd"}


# --- the fabric -----------------------------------------------------------------------------------


def test_a_fabric_is_told_with_its_state_and_how_many_wait_for_it() -> None:
    down = healthy(nodes=4).changed(gpu(), {"fabric_state": 1})
    (found,) = fabrics_down(down.window())
    assert told(found) == (
        "critical; fabric: not started (limit completed); GPUs that have not joined: 1"
    )
    (found,) = fabrics_down(down.changed(gpu(1, 1), {"fabric_state": 2}).window())
    assert "fabric: in progress, not started" in told(found)
    alone = healthy(nodes=1, gpus=1).changed(gpu(), {"fabric_state": 1})
    (found,) = fabrics_down(alone.window())
    assert told(found) == (
        "info; fabric: not started (limit completed, peers none of the model has joined);"
        " GPUs that have not joined: 1"
    )


@pytest.mark.parametrize(("minutes", "count"), [(9.9, 0), (10.0, 1)])
def test_for_ten_minutes_after_a_boot_gpus_may_join(minutes: float, count: int) -> None:
    booted = event(EventKind.BOOT, node(), NOON - minutes * MINUTE)
    down = healthy().changed(gpu(), {"fabric_state": 1}).with_events(booted)
    assert len(fabrics_down(down.window())) == count


@pytest.mark.parametrize(("readings", "count"), [(2, 0), (3, 1)])
def test_three_readings_of_the_fabric_are_a_fault(readings: int, count: int) -> None:
    ticks = {NOON - second * SECOND for second in (10, 290, 150)[:readings]}
    down = healthy().changed(gpu(), {"fabric_state": 1})
    few = down.without(lambda s: s.subject == gpu() and s.at not in ticks)
    assert len(fabrics_down(few.window())) == count


# --- the driver -----------------------------------------------------------------------------------

SILENT = {"driver_answering": 0, "driver_silent_seconds": 42.0, "gpus_answering": 1}


def test_a_hanging_driver_is_told_with_all_that_is_known() -> None:
    hung = healthy().changed(node(), SILENT, 15)
    (found,) = silent_drivers(hung.window())
    assert told(found) == "critical; no call came back for: 42 s; GPUs that answer: 1 (limit 2)"
    assert (found.since, found.late) == (NOON - 10 * SECOND, False)
    came = event(EventKind.DRIVER_SILENT, node(), NOON - MINUTE)
    (found,) = silent_drivers(hung.with_events(replace(came, message="stuck")).window())
    assert told(found) == (
        "critical; silent since: 11:59:00 UTC on 31 Jan; message: stuck;"
        " no call came back for: 42 s; GPUs that answer: 1 (limit 2)"
    )
    assert [item.detail for item in found.evidence] == [False, True, False, False]
    assert found.since == NOON - MINUTE
    nothing = {"driver_silent_seconds": None, "gpus_answering": None}
    (found,) = silent_drivers(hung.changed(node(), nothing, 15).window())
    assert told(found) == "critical; driver: does not answer"
    unknown = hung.changed(node(), {"gpus_expected": None}, 15)
    (found,) = silent_drivers(unknown.window())
    assert told(found).endswith("GPUs that answer: 1")


def test_a_driver_that_answered_since_does_not_hang() -> None:
    at = NOON - 30 * SECOND
    hung = event(EventKind.DRIVER_SILENT, node(), at)
    quiet = healthy().without(lambda s: s.subject == node() and s.at > at).with_events(hung)
    assert len(silent_drivers(quiet.window())) == 1  # a line of the same moment is no later word
    assert silent_drivers(healthy().with_events(hung).window()) == []
    for seconds, count in ((-1, 1), (0, 1), (1, 0)):
        back = event(EventKind.DRIVER_BACK, node(), at + seconds * SECOND)
        assert len(silent_drivers(quiet.with_events(back).window())) == count
    row = healthy().changed(node(), SILENT, 15)
    for seconds, count in ((-1, 1), (0, 0)):
        back = event(EventKind.DRIVER_BACK, node(), NOON - 10 * SECOND + seconds * SECOND)
        assert len(silent_drivers(row.with_events(back).window())) == count


def test_only_what_rests_on_a_late_event_alone_is_late() -> None:
    hung = event(EventKind.DRIVER_SILENT, node(), NOON - 5 * SECOND)
    scene = replace(healthy().with_events(hung), late=frozenset({hung.id}))
    assert [it.late for it in silent_drivers(scene.window())] == [True]
    seen = scene.changed(node(), SILENT, 15)
    assert [it.late for it in silent_drivers(seen.window())] == [False]


@pytest.mark.parametrize(
    ("seconds", "words"), [(90.4, "90 s ahead of the hub's"), (-90.4, "90 s behind the hub's")]
)
def test_a_wrong_clock_is_certain_and_says_which_way(seconds: float, words: str) -> None:
    scene = replace(healthy(), clocks={node().key: seconds})
    (found,) = wrong_clocks(scene.window())
    assert told(found) == f"warning; clock: {words} (limit hub.clock_wrong_seconds)"
    assert (found.certain, found.severity) == (True, Severity.WARNING)
