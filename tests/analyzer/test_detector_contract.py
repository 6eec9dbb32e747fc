"""What every detector owes."""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.correlation.all_detectors import DETECTORS, Detector, questions
from analyzer.window.window import Window
from gpuvigil.config import AnalyzerSettings
from gpuvigil.faults import FAULTS
from gpuvigil.model import EventKind, Finding, Inventory, PortIdentity, Subject

from .scene import (
    NOON,
    Scene,
    allocation,
    carrying,
    event,
    gpu,
    healthy,
    in_one_job,
    incident,
    node,
    port,
)

SECOND = timedelta(seconds=1)
IDLE = {"utilization_percent": 0, "memory_utilization_percent": 0}
SILENT = dict.fromkeys(("up", "utilization_percent", "compute_processes"))


def _still_low(scene: Scene, gpus: int) -> Scene:
    """A node whose clocks were set lower long ago, as it stands of it."""
    for index in range(gpus):
        scene = scene.changed(gpu(1, index), {"sm_clock_hertz": 1_700_000_000})
    stands = incident("clocks_lowered", node(), members=(node().key,))
    return replace(scene, recent_incidents=(stands,))


def _full_host(scene: Scene) -> Scene:
    """A host whose memory ran full long ago, as it stands of it."""
    fields = {"memory_total_bytes": 2 * 10**12, "memory_available_bytes": 4 * 10**9}
    return replace(
        scene.changed(node(), fields), recent_incidents=(incident("host_memory_full", node()),)
    )


def _crashed_twice(scene: Scene) -> Scene:
    """A job of a scheduler held a node that was started twice under it."""
    boots = (event(EventKind.BOOT, node(), NOON - n * 60 * 60 * SECOND) for n in (2, 1))
    held = allocation(gpu(), "job 7", started_at=NOON - 3 * 60 * 60 * SECOND)
    return replace(scene.with_events(*boots), allocations=(held,))


def _ports_down(scene: Scene, nodes: int) -> Scene:
    """The same port of these nodes went down together; each has another one that is up."""
    for number in range(1, nodes + 1):
        other = replace(port(number), device="mlx5_1")
        up = tuple(
            replace(sample, subject=other)
            for sample in scene.samples
            if sample.subject == port(number)
        )
        identity = PortIdentity(
            device="mlx5_1", port="1", kind="infiniband", role="fabric", was_up=True
        )
        inventories = tuple(
            replace(i, ports=(*i.ports, identity)) if i.subject == node(number) else i
            for i in scene.inventories
        )
        scene = replace(scene, samples=(*scene.samples, *up), inventories=inventories)
        scene = scene.changed(port(number), {"up": 0, "physical_state": 2}, 25)
        scene = scene.with_events(event(EventKind.PORT_DOWN, port(number), NOON - 25 * SECOND))
    return scene


def _in_one_domain(one: Inventory) -> Inventory:
    gpus = (replace(gpu, fabric_cluster="5e3b", fabric_clique=1) for gpu in one.gpus)
    return replace(one, gpus=tuple(gpus))


def _with_a_cable_in_the_wrong_rail(scene: Scene) -> Scene:
    """Of a fifth host, too; the first one's is at the second leaf."""
    hosts = [*scene.inventories, replace(scene.inventories[0], subject=node(5))]

    def ports(host: Inventory) -> tuple[PortIdentity, ...]:
        at = ("leaf1" if host.subject == node() else "leaf0", "leaf1", "leaf2")
        (one,) = host.ports
        return tuple(replace(one, device=f"mlx5_{n}", switch=leaf) for n, leaf in enumerate(at))

    return replace(scene, inventories=tuple(replace(it, ports=ports(it)) for it in hosts))


def _without_a_rail(scene: Scene) -> Scene:
    """Of five hosts, the first one."""
    hosts = [*scene.inventories, replace(scene.inventories[0], subject=node(5))]

    def told(host: Inventory) -> Inventory:
        (one,) = host.ports
        rails = range(1 if host.subject == node() else 2)
        ports = tuple(replace(one, device=f"mlx5_{n}") for n in rails)
        return replace(host, at=scene.now - timedelta(minutes=1), ports=ports)

    return replace(scene, inventories=tuple(map(told, hosts)))


def _without_a_partition(scene: Scene) -> Scene:
    """Of five hosts, the first one's port."""
    hosts = [*scene.inventories, replace(scene.inventories[0], subject=node(5))]

    def told(host: Inventory) -> Inventory:
        keys = ("partition 0xffff",) if host.subject == node() else ("partition 0x8001",)
        ports = (replace(it, addressing=("partition 0xffff", *keys)) for it in host.ports)
        return replace(host, at=scene.now - timedelta(minutes=1), ports=tuple(ports))

    return replace(scene, inventories=tuple(map(told, hosts)))


def _with_a_small_mtu(scene: Scene) -> Scene:
    """Of six hosts, the first one's port, which carries data."""
    hosts = [*scene.inventories, *(replace(scene.inventories[0], subject=node(n)) for n in (5, 6))]

    def told(host: Inventory) -> Inventory:
        mtu = 1500 if host.subject == node() else 9000
        ports = (replace(it, kind="roce", mtu=mtu) for it in host.ports)
        return replace(host, at=scene.now - timedelta(minutes=1), ports=tuple(ports))

    for way in ("receive_bytes", "transmit_bytes"):
        scene = scene.rising(port(), way, 1e9)
    return replace(scene, inventories=tuple(map(told, hosts)))


def _gpus(scene: Scene) -> frozenset[Subject]:
    return frozenset(sample.subject for sample in scene.samples if sample.subject.kind == "gpu")


# For each fault: a scene in which it is there, and its subject.
FAULTY: dict[str, tuple[Callable[[Scene], Scene], Subject]] = {
    "gpu_lost": (
        lambda scene: scene.changed(gpu(), {"up": 0, "unmeasured_reason": 3}, 15),
        gpu(),
    ),
    "gpu_xid": (
        lambda scene: scene.with_events(event(EventKind.XID, gpu(), NOON - 5 * SECOND, 48)),
        gpu(),
    ),
    "gpu_program": (
        lambda scene: scene.with_events(event(EventKind.XID, gpu(), NOON - 5 * SECOND, 31)),
        gpu(),
    ),
    "nvswitch_error": (
        lambda scene: scene.with_events(
            replace(event(EventKind.SXID, node(), NOON - 5 * SECOND), sxid=20034)
        ),
        node(),
    ),
    "gpu_idle_held": (
        lambda scene: replace(scene.changed(gpu(), IDLE), allocations=(allocation(gpu()),)),
        gpu(),
    ),
    "gpu_underused": (
        lambda scene: replace(
            scene.changed(gpu(), {"utilization_percent": 4}),
            allocations=(allocation(gpu(), "job 7"),),
        ),
        gpu(),
    ),
    "port_down": (lambda scene: scene.changed(port(), {"up": 0, "physical_state": 2}, 15), port()),
    "port_flapping": (
        lambda scene: scene.with_events(
            *(event(EventKind.PORT_DOWN, port(), NOON - n * 20 * SECOND) for n in (3, 2, 1)),
            *(event(EventKind.PORT_UP, port(), NOON - (n * 20 - 5) * SECOND) for n in (3, 2, 1)),
        ),
        port(),
    ),
    "driver_silent": (
        lambda scene: scene.with_events(event(EventKind.DRIVER_SILENT, node(), NOON - 5 * SECOND)),
        node(),
    ),
    "driver_not_loaded": (
        lambda scene: replace(
            scene,
            inventories=tuple(
                replace(one, driverless_since=scene.now - timedelta(hours=1))
                if one.subject == node()
                else one
                for one in scene.inventories
            ),
        ),
        node(),
    ),
    "gpu_silent": (
        lambda scene: scene.changed(gpu(), {**SILENT, "unmeasured_reason": 4}, 25),
        gpu(),
    ),
    "gpu_memory": (lambda scene: scene.changed(gpu(), {"remap_failure": 1}, 15), gpu()),
    "gpu_pcie": (lambda scene: scene.changed(gpu(), {"pcie_width": 8}), gpu()),
    "gpu_nvlink": (lambda scene: scene.changed(gpu(), {"nvlink_links_up": 17}), gpu()),
    "fabric_down": (lambda scene: scene.changed(gpu(), {"fabric_state": 2}), node()),
    "nvlink_domain": (
        lambda scene: replace(
            scene.changed(gpu(), {"nvlink_links_up": 17}).changed(gpu(2), {"nvlink_links_up": 16}),
            inventories=tuple(map(_in_one_domain, scene.inventories)),
        ),
        node(),
    ),
    "gpu_hot": (
        lambda scene: scene.rising(gpu(), "hardware_thermal_slowdown_seconds", 0.9),
        gpu(),
    ),
    "gpu_power": (lambda scene: scene.rising(gpu(), "power_brake_seconds", 0.9), gpu()),
    "gpu_clocks": (lambda scene: scene.changed(gpu(), {"sm_clock_hertz": 990_000_000}), gpu()),
    "clocks_lowered": (lambda scene: _still_low(scene, gpus=4), node()),
    "gpu_sensor": (
        lambda scene: scene.changed(gpu(), {"utilization_percent": 0, "power_watts": 500.0}),
        gpu(),
    ),
    "gpu_slow": (
        lambda scene: in_one_job(
            scene.changed(gpu(), {"power_watts": 520.0}, 65), _gpus(scene), lost=0.1
        ),
        gpu(),
    ),
    "gpu_settings": (lambda scene: scene.changed(gpu(), {"ecc_mode": 0}), gpu()),
    "gpu_hung": (
        lambda scene: scene.changed(
            gpu(),
            {
                "utilization_percent": 100,
                "memory_utilization_percent": 0,
                "power_watts": 130.0,
                "pcie_receive_bytes_per_second": 0.0,
            },
        ),
        gpu(),
    ),
    "gpu_memory_held": (
        lambda scene: replace(
            scene,
            allocations=(allocation(gpu(), "job 7", ended_at=NOON - timedelta(minutes=6)),),
        ),
        gpu(),
    ),
    "gpus_missing": (
        lambda scene: replace(
            scene,
            inventories=tuple(
                replace(one, gpus=one.gpus[:-1]) if one.subject == node() else one
                for one in scene.inventories
            ),
        ),
        node(),
    ),
    "driver_drift": (
        lambda scene: replace(
            scene,
            inventories=tuple(
                replace(one, rack="r1", driver="570.1" if one.subject == node() else "580.2")
                for one in scene.inventories
            ),
        ),
        node(),
    ),
    "host_memory": (
        lambda scene: scene.with_events(
            *(event(EventKind.MACHINE_CHECK, node(), NOON - n * 60 * SECOND) for n in (3, 2, 1))
        ),
        node(),
    ),
    "host_hang": (
        lambda scene: scene.with_events(
            *(event(EventKind.KERNEL_HANG, node(), NOON - n * 60 * SECOND) for n in (3, 2, 1))
        ),
        node(),
    ),
    "node_crashes": (_crashed_twice, node()),
    "host_storage": (
        lambda scene: scene.with_events(event(EventKind.STORAGE_ERROR, node(), NOON - 60 * SECOND)),
        node(),
    ),
    "host_power": (lambda scene: scene.changed(node(), {"power_supplies_failed": 1}), node()),
    "host_fan": (lambda scene: scene.changed(node(), {"fans_failed": 2}), node()),
    "host_mount": (lambda scene: scene.changed(node(), {"mounts_hung": 1}), node()),
    "host_space": (lambda scene: scene.changed(node(), {"space_used_share": 0.97}), node()),
    "host_memory_full": (_full_host, node()),
    "host_throttled": (
        lambda scene: scene.rising(node(), "cpu_throttled_milliseconds", 400.0),
        node(),
    ),
    "clock_wrong": (lambda scene: replace(scene, clocks={node().key: 3600.0}), node()),
    "host_disk": (lambda scene: scene.changed(node(), {"spool_writable": 0}), node()),
    "port_errors": (lambda scene: scene.rising(port(), "symbol_errors", 1.0), port()),
    "port_congested": (lambda scene: scene.rising(port(), "transmit_discards", 200.0), port()),
    "port_degraded": (
        lambda scene: scene.changed(port(), {"speed_bits_per_second": 100_000_000_000}, 65),
        port(),
    ),
    "port_mtu": (_with_a_small_mtu, port()),
    "port_setup": (_without_a_partition, port()),
    "rail_missing": (_without_a_rail, node()),
    "port_slow_receiver": (
        lambda scene: scene.rising(port(), "transmit_pause_microseconds", 300_000.0),
        port(),
    ),
    "port_packet_loss": (
        lambda scene: carrying(scene, [port(1), port(2)], 0.3).rising(port(), "retransmits", 90.0),
        port(),
    ),
    "port_ecn": (lambda scene: scene.rising(port(), "ecn_marked_packets", 50.0), port()),
    "port_miswired": (_with_a_cable_in_the_wrong_rail, port()),
    "port_module": (lambda scene: scene.changed(port(), {"module_celsius": 80}), port()),
    "switch_congested": (
        lambda scene: (
            scene.rising(port(1), "transmit_discards", 200.0)
            .rising(port(2), "transmit_discards", 200.0)
            .rising(port(3), "transmit_discards", 200.0)
        ),
        port(),
    ),
    "switch_down": (
        lambda scene: _ports_down(scene, 3),
        port(),
    ),
    "node_silent": (
        lambda scene: replace(scene, heard={**scene.heard, node().key: NOON - 31 * SECOND}),
        node(),
    ),
}
BY_FAULT = {fault: detector for detector in DETECTORS for fault in detector.faults}
CASES = sorted(FAULTY)


def faulty(fault: str) -> Scene:
    """Enough nodes and GPUs that there are peers."""
    return FAULTY[fault][0](healthy(nodes=4, gpus=4))


def find(fault: str, scene: Scene) -> list[Finding]:
    return found(BY_FAULT[fault], scene)


def found(detector: Detector, scene: Scene) -> list[Finding]:
    """By a detector that sees nothing but what it asks for."""
    return detector.find(scene.window((detector,)))


def test_every_fault_is_found_by_one_detector() -> None:
    assert set(BY_FAULT) == set(FAULTS) == set(FAULTY)
    assert sum(len(detector.faults) for detector in DETECTORS) == len(FAULTS)


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda d: d.name)
def test_a_healthy_fleet_is_silent(detector: Detector) -> None:
    assert found(detector, healthy()) == []
    assert detector.sentence.endswith(".")
    assert detector.source


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda d: d.name)
def test_nothing_known_is_nothing_found(detector: Detector) -> None:
    assert detector.find(Window(now=NOON, settings=AnalyzerSettings())) == []
    assert found(detector, Scene()) == []


@pytest.mark.medium
@pytest.mark.parametrize("fault", CASES)
def test_the_fault_is_found_on_its_subject_alone(fault: str) -> None:
    (finding,) = find(fault, faulty(fault))
    assert (finding.fault, finding.subject) == (fault, FAULTY[fault][1])
    assert finding.detector == BY_FAULT[fault].name
    assert finding.since <= NOON
    assert finding.evidence
    assert finding.action
    assert finding.source
    assert finding.own_limit == ("ours" in re.findall(r"\w+", finding.source))


@pytest.mark.medium
@pytest.mark.parametrize("fault", CASES)
def test_the_same_window_gives_the_same_findings(fault: str) -> None:
    window = faulty(fault).window((BY_FAULT[fault],))
    assert BY_FAULT[fault].find(window) == BY_FAULT[fault].find(window)


@pytest.mark.medium
@pytest.mark.parametrize("fault", CASES)
def test_the_order_of_subjects_does_not_matter(fault: str) -> None:
    scene = faulty(fault)
    samples, events = list(scene.samples), list(scene.events)
    random.Random(7).shuffle(samples)
    random.Random(8).shuffle(events)
    mixed = replace(
        scene,
        samples=tuple(samples),
        events=tuple(events),
        inventories=scene.inventories[::-1],
        heard=dict(sorted(scene.heard.items(), reverse=True)),
    )
    assert find(fault, mixed) == find(fault, scene)


@pytest.mark.medium
@pytest.mark.parametrize("fault", CASES)
def test_a_scene_at_another_time_gives_the_same_findings_at_that_time(fault: str) -> None:
    by = timedelta(days=3, seconds=17, microseconds=5)
    before, after = find(fault, faulty(fault)), find(fault, faulty(fault).shifted(by))

    def facts(finding: Finding, shift: timedelta) -> object:
        return (finding.fault, finding.subject, finding.severity, finding.since + shift)

    assert [facts(finding, by) for finding in before] == [
        facts(finding, timedelta()) for finding in after
    ]


def test_these_look_again_as_soon_as_an_event_comes() -> None:
    """What others make of events takes several nodes, or ends a fault and brings none."""
    assert {detector.name for detector in DETECTORS if detector.reads_events} == {
        "driver_silent",
        "gpu_lost",
        "gpu_silent",
        "gpu_xid",
        "host_kernel",
        "host_memory",
        "node_crashes",
        "nvswitch_error",
        "port_down",
    }


@pytest.mark.parametrize("fault", [f for f in CASES if BY_FAULT[f].needs_holders])
def test_these_find_nothing_where_nobody_is_known_to_hold_a_gpu(fault: str) -> None:
    assert find(fault, replace(faulty(fault), allocations=())) == []


@pytest.mark.medium
@pytest.mark.parametrize("fault", [f for f in CASES if BY_FAULT[f].reads_events])
def test_looking_at_one_node_finds_what_looking_at_all_finds_there(fault: str) -> None:
    window = faulty(fault).window()
    everywhere = BY_FAULT[fault].find(window)
    there = [BY_FAULT[fault].find(window.of_node(node(number))) for number in (1, 2)]
    assert [finding for found in there for finding in found] == everywhere


@pytest.mark.medium
@pytest.mark.parametrize("fault", CASES)
@pytest.mark.parametrize("seconds", [5, 10, 20])
def test_few_samples_or_none_do_no_harm(fault: str, seconds: int) -> None:
    scene = faulty(fault).without(lambda sample: sample.at < NOON - timedelta(seconds=seconds))
    assert {finding.fault for finding in find(fault, scene)} <= {fault}


@pytest.mark.medium
@pytest.mark.parametrize("detector", DETECTORS, ids=lambda d: d.name)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_gaps_and_values_that_were_not_measured_never_make_a_fault(
    detector: Detector, data: st.DataObject
) -> None:
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    share = data.draw(st.sampled_from([0.1, 0.5, 0.9, 1.0]))
    assert found(detector, _with_gaps(healthy(nodes=1), chance, share)) == []


@pytest.mark.medium
@pytest.mark.parametrize("fault", CASES)
@settings(max_examples=5, deadline=None)
@given(st.data())
def test_gaps_beside_a_fault_make_no_other_fault_and_stop_no_detector(
    fault: str, data: st.DataObject
) -> None:
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    share = data.draw(st.sampled_from([0.05, 0.3]))
    scene = _with_gaps(faulty(fault), chance, share)
    assert {finding.fault for finding in find(fault, scene)} <= set(BY_FAULT[fault].faults)


def _with_gaps(scene: Scene, chance: random.Random, share: float) -> Scene:
    """Half the share of samples is lost; of the others the share of values was not measured."""
    scene = scene.without(lambda _: chance.random() < share / 2)
    return replace(
        scene,
        samples=tuple(
            replace(
                sample,
                fields={
                    key: None if chance.random() < share else value
                    for key, value in sample.fields.items()
                },
            )
            for sample in scene.samples
        ),
    )


def test_one_question_per_measurement_and_span_serves_all() -> None:
    asked = questions(DETECTORS)
    for detector in DETECTORS:
        for need in detector.needs:
            answer = asked[need.measurement, need.span]
            assert set(need.fields) <= set(answer.fields)
            assert set(need.aggregates) <= set(answer.aggregates)
