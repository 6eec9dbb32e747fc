"""The rules on facts made by hand."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.check.driver_silence import unjudged
from collector.check.evidence import CheckEvidence
from collector.check.facts import DriverFacts, Facts, GpuFacts, Known
from collector.check.findings_text import action
from collector.check.gpu_rules import judge
from collector.check.rules import findings
from collector.processes.driver_lock import Stuck
from collector.processes.watchdog_child import CALL_SECONDS
from collector.sensors.pci import PciGpu, same_form
from collector.sensors.ports import PortReading
from gpuvigil.faults import FAULTS
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.faults.node_check_faults import NODE_FAULTS
from gpuvigil.metrics import GPU
from gpuvigil.model import Finding, PortIdentity, Severity, Unmeasured
from tests.collector.check.nodes import HEALTHY, a_node, identity, on_bus


def faults(facts: Facts) -> list[str]:
    return [finding.fault for finding in findings(facts)]


def only(facts: Facts) -> Finding:
    (finding,) = findings(facts)
    return finding


def keys(finding: Finding) -> list[str]:
    """What programs read; a finding of a check has no other evidence."""
    found = [item for item in finding.evidence if isinstance(item, CheckEvidence)]
    assert len(found) == len(finding.evidence)
    return [item.key for item in found]


def evidence(finding: Finding) -> dict[str, str]:
    return {item.name: item.value for item in finding.evidence}


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_nothing_is_found_on_a_healthy_node(gpus: int) -> None:
    assert findings(a_node(gpus)) == []


def test_a_machine_without_gpus_and_without_a_driver_is_well() -> None:
    none = DriverFacts(code=9, failure="none", reason=Unmeasured.DRIVER_NOT_LOADED)
    assert findings(a_node(0, driver=none)) == []


def test_gpus_without_a_driver_are_one_finding() -> None:
    none = DriverFacts(code=9, failure="nvmlInit: ...", reason=Unmeasured.DRIVER_NOT_LOADED)
    pci = tuple(on_bus(index, "nouveau") for index in range(4))
    finding = only(a_node(driver=none, gpus={}, pci=pci, expects_gpus=True))
    assert finding.fault == "driver_not_loaded"
    assert finding.severity is Severity.CRITICAL
    assert "blacklist nouveau" in finding.action
    assert evidence(finding)["GPUs that should be here"] == "4"
    assert evidence(finding)["the GPUs are held by"] == "nouveau"


def test_a_driver_that_is_not_loaded_is_critical_where_gpus_are_expected() -> None:
    none = DriverFacts(code=9, failure="nvmlInit: ...", reason=Unmeasured.DRIVER_NOT_LOADED)
    bare = a_node(driver=none, gpus={})
    assert only(bare).severity is Severity.WARNING
    known = Known(gpus=(identity(0),))
    for expected in ({"known": known}, {"gpus_wanted": 4}, {"expects_gpus": True}):
        assert only(replace(bare, **expected)).severity is Severity.CRITICAL
    assert findings(a_node(driver=none, gpus={}, pci=(on_bus(0, "vfio-pci"),))) == []


def test_gpus_of_other_makers_are_named_and_no_fault() -> None:
    amd = PciGpu(address="0000:43:00.0", driver="amdgpu", vendor="AMD")
    finding = only(a_node(unsupported=(amd,)))
    assert (finding.fault, finding.severity) == ("gpu_unsupported", Severity.INFO)
    assert evidence(finding) == {"maker": "AMD", "driver": "amdgpu"}
    assert keys(finding) == ["maker", "driver"]


def test_a_driver_of_another_version_than_its_library_is_named() -> None:
    mismatch = DriverFacts(code=18, failure="nvmlInit: ...", reason=Unmeasured.READ_ERROR)
    assert faults(a_node(driver=mismatch, gpus={})) == ["driver_mismatch"]


def test_another_failure_of_the_driver_is_told_where_gpus_are() -> None:
    broken = DriverFacts(code=999, failure="nvmlInit: ...", reason=Unmeasured.READ_ERROR)
    assert faults(a_node(driver=broken, gpus={})) == ["driver_unusable"]
    assert faults(a_node(0, driver=broken)) == []


def test_what_is_still_being_started_after_a_boot_is_told_and_not_certain() -> None:
    none = DriverFacts(code=9, failure="none", reason=Unmeasured.DRIVER_NOT_LOADED)
    gpus = dict(a_node().gpus)
    values = {**HEALTHY, "fabric_state": 2}
    gpus[1] = GpuFacts(index=1, identity=identity(1), values=values)
    for changes in ({"driver": none, "gpus": {}}, {"gpus": gpus}):
        assert only(a_node(**changes)).certain
        assert not only(a_node(**changes, uptime_seconds=90.0)).certain


def test_a_gpu_that_could_not_be_looked_at_is_not_called_silent() -> None:
    gpus = dict(a_node().gpus)
    gpus[1] = GpuFacts(index=1, identity=identity(1))
    assert faults(a_node(gpus=gpus, unread={"GPU 1": "no memory"})) == []


def test_a_driver_that_has_not_answered_yet_may_be_waking_up() -> None:
    finding = only(a_node(driver=None, gpus={}, called={"driver": 3.5}))
    assert (finding.fault, finding.certain) == ("driver_silent", False)
    assert evidence(finding) == {"no answer within": "3.5 s"}
    assert keys(finding) == ["no_answer_within"]


@pytest.mark.parametrize(("seconds", "found"), [(CALL_SECONDS - 0.01, 0), (CALL_SECONDS, 1)])
def test_a_verdict_on_a_silence_takes_a_call_that_had_its_time(seconds: float, found: int) -> None:
    driver = a_node(driver=None, gpus={}, called={"driver": seconds})
    assert faults(driver) == ["driver_silent"] * found
    assert list(unjudged(driver)) == ["driver"] * (1 - found)
    gpus = {**a_node().gpus, 1: GpuFacts(index=1, identity=identity(1))}
    gpu = a_node(gpus=gpus, called={"GPU 1": seconds})
    assert faults(gpu) == ["gpu_silent"] * found
    assert list(unjudged(gpu)) == ["GPU 1"] * (1 - found)


def test_a_call_that_was_never_begun_says_nothing() -> None:
    facts = a_node(driver=None, gpus={}, waited_seconds=60.0)
    assert findings(facts) == []
    assert "too busy: of 60.0 s the call itself had 0.0 s" in unjudged(facts)["driver"]


@pytest.mark.parametrize(("seconds", "why"), [(0.9, "this machine"), (1.0, "other checks")])
def test_a_check_that_waited_for_others_says_so(seconds: float, why: str) -> None:
    facts = a_node(driver=None, gpus={}, called={"driver": 0.9}, others_seconds=seconds)
    assert findings(facts) == []
    assert unjudged(facts)["driver"].startswith(why)


@pytest.mark.parametrize(("seconds", "certain"), [(29.0, False), (30.0, True)])
def test_a_call_that_had_longer_than_a_driver_takes_to_wake_up_is_certain(
    seconds: float, certain: bool
) -> None:
    assert only(a_node(driver=None, gpus={}, called={"driver": seconds})).certain is certain


@pytest.mark.parametrize(("seconds", "certain"), [(29.0, False), (30.0, True)])
def test_a_driver_that_an_earlier_check_is_stuck_in_hangs(seconds: float, certain: bool) -> None:
    stuck = Stuck(pid=4711, seconds=seconds, killed=True)
    finding = only(a_node(driver=None, gpus={}, stuck=stuck))
    assert (finding.fault, finding.certain) == ("driver_silent", certain)
    assert "process 4711" in evidence(finding)["a call has not returned for"]


def test_a_check_that_is_not_done_yet_is_no_check_that_is_stuck() -> None:
    facts = a_node(driver=None, gpus={}, stuck=Stuck(pid=4711, seconds=60.0))
    assert findings(facts) == []
    assert unjudged(facts) == {"driver": "process 4711 is asking the driver, since 60 s"}


def test_a_driver_that_the_collector_cannot_reach_either_hangs() -> None:
    finding = only(a_node(driver=None, gpus={}, agent_silent_seconds=75.0))
    assert finding.certain
    assert evidence(finding)["the collector has had no answer for"] == "75 s"
    assert not only(a_node(driver=None, gpus={}, agent_silent_seconds=5.0)).certain


def test_a_driver_that_could_not_be_looked_at_is_not_called_silent() -> None:
    assert faults(a_node(driver=None, gpus={}, unread={"driver": "no library"})) == []


def test_a_released_driver_is_told_and_not_called_silent() -> None:
    until = a_node().at + timedelta(minutes=10)
    known = Known(gpus=tuple(map(identity, range(4))), released_until=until)
    assert faults(a_node(driver=None, gpus={}, known=known)) == ["driver_released"]
    assert unjudged(a_node(driver=None, gpus={}, known=known)) == {}
    over = a_node(driver=None, gpus={}, known=Known(released_until=a_node().at))
    assert faults(replace(over, called={"driver": 2.0})) == ["driver_silent"]


def test_nothing_is_said_of_a_driver_that_nobody_wants_read() -> None:
    assert faults(a_node(driver=None, gpus={}, wants_gpus=False)) == []


def listed(*indices: int) -> dict[str, Any]:
    """The driver lists these GPUs only."""
    return {
        "driver": DriverFacts(version="570", gpus=len(indices)),
        "gpus": {
            place: GpuFacts(index=place, identity=identity(index), values=dict(HEALTHY))
            for place, index in enumerate(indices)
        },
    }


def test_a_gpu_on_the_bus_that_the_driver_does_not_list_is_lost() -> None:
    finding = only(a_node(4, **listed(0, 1, 3)))
    assert finding.fault == "gpu_lost"
    assert evidence(finding) == {
        "PCI address": "0000:12:00.0",
        "the driver lists": "3 GPUs",
        "on the PCI bus": "yes",
    }


def test_a_gpu_that_was_here_is_lost_by_its_uuid_also_when_it_left_the_bus() -> None:
    pci = tuple(on_bus(index) for index in (0, 1, 3))
    known = Known(gpus=tuple(map(identity, range(4))))
    finding = only(a_node(4, **listed(0, 1, 3), pci=pci, known=known))
    assert (finding.fault, finding.subject.gpu) == ("gpu_lost", "GPU-2")
    assert evidence(finding)["on the PCI bus"] == "no"


def test_a_node_that_must_have_more_gpus_than_anybody_knows_of_is_told() -> None:
    finding = only(a_node(2, gpus_wanted=4))
    assert (finding.fault, finding.subject.gpu) == ("too_few_gpus", None)
    assert evidence(finding) == {"GPUs": "2 of 4"}
    assert findings(a_node(4, gpus_wanted=4)) == []
    # One that is known by its address is told by that.
    assert faults(a_node(4, **listed(0, 1, 3), gpus_wanted=4)) == ["gpu_lost"]
    none = DriverFacts(code=9, failure="none", reason=Unmeasured.DRIVER_NOT_LOADED)
    assert faults(a_node(0, driver=none, gpus_wanted=4)) == ["driver_not_loaded"]


def test_a_gpu_given_to_a_virtual_machine_is_not_lost() -> None:
    pci = (*map(on_bus, (0, 1, 3)), on_bus(2, "vfio-pci"))
    known = Known(gpus=tuple(map(identity, range(4))))
    assert faults(a_node(4, **listed(0, 1, 3), pci=pci, known=known)) == []


def test_a_container_is_not_told_that_the_rest_of_the_machine_is_lost() -> None:
    assert faults(a_node(4, **listed(0, 1), container=True)) == []


def test_without_a_bus_what_is_remembered_still_counts() -> None:
    known = Known(gpus=(identity(0), identity(1)))
    facts = a_node(2, **listed(0), pci=None, known=known)
    assert only(facts).subject.gpu == "GPU-1"
    assert "on the PCI bus" not in evidence(only(facts))


def test_a_gpu_that_says_nothing_of_itself_is_not_also_missing() -> None:
    gpus = dict(a_node().gpus)
    gpus[2] = GpuFacts(index=2, reason=Unmeasured.LOST, failure="lost (NVML code 15)")
    known = Known(gpus=tuple(map(identity, range(4))))
    finding = only(a_node(gpus=gpus, known=known))
    assert (finding.fault, finding.subject.gpu) == ("gpu_lost", "GPU-2")


def test_of_the_one_gpu_that_says_nothing_the_address_is_known_by_exclusion() -> None:
    gpus = dict(a_node().gpus)
    gpus[2] = GpuFacts(index=2, reason=Unmeasured.LOST, failure="lost (NVML code 15)")
    assert only(a_node(gpus=gpus)).subject.gpu == "0000:12:00.0"
    gpus[3] = GpuFacts(index=3, reason=Unmeasured.LOST, failure="lost (NVML code 15)")
    two = findings(a_node(gpus=gpus))
    assert [finding.subject.gpu for finding in two] == ["index 2", "index 3"]


def test_a_gpu_whose_calls_do_not_return_is_silent() -> None:
    gpus = dict(a_node().gpus)
    gpus[1] = GpuFacts(index=1, identity=identity(1))
    finding = only(a_node(gpus=gpus, called={"GPU 1": 2.0}))
    assert (finding.fault, finding.subject.gpu, finding.certain) == ("gpu_silent", "GPU-1", False)
    assert only(a_node(gpus=gpus, silent_gpus={1: 40.0})).certain


def test_a_gpu_that_refuses_every_call_is_unreadable() -> None:
    gpus = dict(a_node().gpus)
    gpus[0] = GpuFacts(
        index=0, identity=identity(0), reason=Unmeasured.READ_ERROR, failure="code 999"
    )
    assert faults(a_node(gpus=gpus)) == ["gpu_unreadable"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"ecc_uncorrected_errors": 1}, ["uncorrected_growth"]),
        ({"clock_event_reasons": 0x4}, []),
        ({"clock_event_reasons": 0x8}, ["hw_slowdown"]),
        ({"clock_event_reasons": 0x20}, ["software_thermal"]),
        ({"clock_event_reasons": 0x68}, ["hardware_thermal"]),
        ({"clock_event_reasons": 0x88}, ["power_brake"]),
        ({"clock_event_reasons": 0xC8}, ["power_brake", "hardware_thermal"]),
        ({"sram_threshold_exceeded": 1, "sram_parity_errors": 9}, ["sram_threshold"]),
        ({"sram_threshold_exceeded": 0, "sram_parity_errors": 1}, []),
        ({"remap_failure": 1, "remap_pending": 1}, ["remap_failure", "repair_pending"]),
        ({"remap_pending": 0, "remapped_rows_uncorrected": 3}, []),
        ({"channel_repair_pending": 1, "tpc_repair_pending": 1}, ["repair_pending"]),
        ({"bank_remap_pending": 1}, ["repair_pending"]),
        ({"retired_pages_pending": 1}, ["repair_pending"]),
        ({"remap_banks_none": 1}, ["no_spare_rows"]),
        ({"recovery_action": 1}, ["recovery_action"]),
        ({"fabric_state": 0, "fabric_health": 0}, []),
        ({"fabric_state": 2}, ["fabric_down"]),
        ({"fabric_state": 3, "fabric_status": 0, "fabric_health": 1}, []),
        ({"fabric_state": 3, "fabric_status": 999}, ["fabric_down"]),
        ({"fabric_state": 3, "fabric_health": 2, "fabric_health_mask": 1}, ["fabric_unhealthy"]),
        ({"pcie_width": 8}, ["pcie_narrow"]),
        ({"pcie_generation": 1}, ["pcie_slow"]),
        ({"pcie_generation": 1, "utilization_percent": 0}, []),
        ({"pcie_generation": 1, "utilization_percent": None}, []),
        ({"pcie_width": None}, []),
        ({"pcie_width": 8, "pcie_width_max": None}, []),
    ],
)
def test_what_one_gpus_numbers_show(values: dict[str, Any], expected: list[str]) -> None:
    given = {k: v for k, v in {**HEALTHY, **values}.items() if v is not None}
    assert [claim.fault for claim in judge(given)] == expected


@pytest.mark.parametrize(
    ("number", "severity", "words"),
    [
        (1, Severity.CRITICAL, "reset the GPU"),
        (2, Severity.CRITICAL, "reboot"),
        (3, Severity.WARNING, "peer-to-peer"),
        (4, Severity.CRITICAL, "reset the GPU"),
        (5, Severity.WARNING, "nvidia-imex"),
        (7, Severity.CRITICAL, "reboot"),
        (77, Severity.WARNING, "reset the GPU"),
    ],
)
def test_the_drivers_advice_is_what_to_do(number: int, severity: Severity, words: str) -> None:
    gpus = dict(a_node().gpus)
    values = {**HEALTHY, "recovery_action": number}
    gpus[1] = GpuFacts(index=1, identity=identity(1), values=values)
    finding = only(a_node(gpus=gpus))
    assert (finding.fault, finding.severity) == ("recovery_action", severity)
    assert words in finding.action


def test_who_must_reset_a_gpu_is_told_to_let_the_collector_go_first() -> None:
    gpus = dict(a_node().gpus)
    values = {**HEALTHY, "recovery_action": 1, "remap_failure": 1}
    gpus[1] = GpuFacts(index=1, identity=identity(1), values=values)
    said = {finding.fault: action(finding) for finding in findings(a_node(gpus=gpus))}
    assert said["recovery_action"] == (
        "Drain the node, then reset the GPU (right after gpuvigil collect --release 10m on the node)."
    )
    assert said["remap_failure"].startswith("Drain the node")


METRICS = sorted(metric.name for metric in GPU.metrics)


@given(st.dictionaries(st.sampled_from(METRICS), st.integers(0, 2**40)))
def test_any_numbers_are_judged_and_every_claim_has_evidence(values: dict[str, int]) -> None:
    for claim in judge(dict(values)):
        assert claim.fault in {**NODE_FAULTS, **CONDITIONS, **FAULTS}
        assert claim.evidence


def test_fewer_links_than_the_peers_have_are_told_and_few_on_all_are_not() -> None:
    gpus = dict(a_node().gpus)
    gpus[3] = GpuFacts(index=3, identity=identity(3), values={**HEALTHY, "nvlink_links_up": 17})
    finding = only(a_node(gpus=gpus))
    assert (finding.fault, finding.subject.gpu) == ("nvlink_down", "GPU-3")
    alike = {
        index: GpuFacts(
            index=index, identity=identity(index), values={**HEALTHY, "nvlink_links_up": 4}
        )
        for index in range(4)
    }
    assert findings(a_node(gpus=alike)) == []


def port(device: str, *, was_up: bool = True) -> PortIdentity:
    return PortIdentity(device=device, port="1", kind="infiniband", role="fabric", was_up=was_up)


def test_a_port_that_was_up_and_is_down_or_gone_is_told() -> None:
    known = Known(ports=(port("mlx5_0"), port("mlx5_1"), port("mlx5_2"), port("x", was_up=False)))
    ports = (
        PortReading(identity=port("mlx5_0"), values={"up": 1}),
        PortReading(identity=port("mlx5_1"), values={"up": 0}),
        PortReading(identity=port("x"), values={"up": 0}),
    )
    found = findings(a_node(known=known, ports=ports))
    told = {f.subject.device: evidence(f)["link"] for f in found}
    assert told == {"mlx5_1": "down", "mlx5_2": "has gone from the system"}
    assert findings(a_node(known=known, ports=None)) == []


def test_the_most_severe_comes_first() -> None:
    gpus = dict(a_node().gpus)
    for index, reasons in ((0, 0x20), (1, 0x88)):
        gpus[index] = GpuFacts(
            index=index,
            identity=identity(index),
            values={**HEALTHY, "clock_event_reasons": reasons},
        )
    gpus[3] = GpuFacts(index=3, identity=identity(3), reason=Unmeasured.LOST, failure="code 15")
    assert faults(a_node(gpus=gpus)) == ["gpu_lost", "power_brake", "software_thermal"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("00000000:9B:00.0", "0000:9b:00.0"),
        ("0000:9b:00", "0000:9b:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_pci_address_has_one_form(given: str, expected: str) -> None:
    assert same_form(given) == expected
