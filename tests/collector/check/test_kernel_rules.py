"""What stands of what the kernel has logged."""

from dataclasses import replace
from pathlib import Path

import pytest

from collector.check.evidence import CheckEvidence
from collector.check.facts import Facts, GpuFacts
from collector.check.kernel_log import KernelSeen, read
from collector.check.rules import findings
from collector.sensors.kernel_log_parser import parse
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Finding, Severity, Unmeasured
from tests.collector.check.nodes import HEALTHY, a_node, identity

GPU_1 = "0000:11:00"


def said(text: str, seconds_ago: float = 60.0) -> KernelSeen:
    event = parse(text)
    assert event is not None
    return KernelSeen(event=event, seconds_ago=seconds_ago)


def an_xid(code: int, seconds_ago: float = 60.0, address: str = GPU_1) -> KernelSeen:
    return said(f"NVRM: Xid (PCI:{address}): {code}, pid=1, name=a, some words", seconds_ago)


def found(*seen: KernelSeen) -> list[Finding]:
    return findings(a_node(kernel=seen))


def test_a_critical_xid_is_told_of_its_gpu_with_what_the_table_says() -> None:
    (finding,) = found(an_xid(95))
    assert finding.fault == "gpu_xid"
    assert finding.subject.gpu == "GPU-1"
    assert finding.severity is Severity.CRITICAL
    assert finding.title.startswith("Xid 95: ")
    assert {item.name: item.value for item in finding.evidence} == {
        "Xid 95": "60 s ago",
        "the driver's words": "some words",
    }
    keys = [it.key for it in finding.evidence if isinstance(it, CheckEvidence)]
    assert keys == ["xid_95", "driver_words"]


@pytest.mark.parametrize(
    ("word", "severity"), [("Fatal", Severity.CRITICAL), ("Nonfatal", Severity.WARNING)]
)
def test_an_nvlink_5_report_is_as_grave_as_its_message_says(word: str, severity: Severity) -> None:
    words = f"RLW_CTRL {word} XC1 i0 Link 08 (0x0 0x0 0x0 0x0 0x0 0x0)"
    (finding,) = found(said(f"NVRM: Xid (PCI:{GPU_1}): 145, {words}"))
    assert finding.severity is severity


@pytest.mark.parametrize(("seconds", "certain"), [(10.0, True), (600.0, True), (601.0, False)])
def test_only_a_fresh_xid_stops_jobs(seconds: float, certain: bool) -> None:
    (finding,) = found(an_xid(95, seconds))
    assert finding.certain is certain


def test_what_is_old_reset_or_nobodys_business_is_not_told() -> None:
    reset = said(f"vfio-pci {GPU_1}.0: reset done", 30.0)
    assert found(an_xid(95, 7201.0)) == []
    assert found(an_xid(95, 60.0), reset) == []
    assert [f.fault for f in found(reset, an_xid(95, 20.0))] == ["gpu_xid"]
    assert found(an_xid(43)) == []  # the program's own fault


def test_codes_of_one_gpu_are_one_finding_by_the_worst() -> None:
    (finding,) = found(an_xid(16, 50), an_xid(95, 300), an_xid(16, 40), an_xid(16, 10))
    assert finding.title.startswith("Xid 95: ")
    numbers = {item.name: item.value for item in finding.evidence}
    assert numbers["Xid 16"] == "3 times, last 10 s ago"


def test_each_gpu_has_its_own_and_one_that_is_not_known_its_address() -> None:
    two = found(an_xid(95), an_xid(95, address="0000:99:00"))
    assert [finding.subject.gpu for finding in two] == ["GPU-1", "0000:99:00.0"]


def test_a_gpu_that_fell_off_the_bus_is_told_once() -> None:
    gpus = dict(a_node().gpus)
    gpus[1] = GpuFacts(index=1, identity=identity(1), reason=Unmeasured.LOST, failure="code 15")
    lost: Facts = a_node(gpus=gpus, kernel=(an_xid(79),))
    assert [finding.fault for finding in findings(lost)] == ["gpu_lost"]
    # It has come back since: what it says of itself counts.
    gpus[1] = GpuFacts(index=1, identity=identity(1), values=dict(HEALTHY))
    assert findings(a_node(gpus=gpus, kernel=(an_xid(79),))) == []
    # When the driver says nothing, the log is all that there is.
    silent = a_node(driver=None, gpus={}, kernel=(an_xid(79),), called={"driver": 2.0})
    assert [finding.fault for finding in findings(silent)] == ["gpu_lost", "driver_silent"]
    unheard = replace(silent, analyzer=AnalyzerSettings(xid_overrides=("79=ignore",)))
    assert [finding.fault for finding in findings(unheard)] == ["driver_silent"]


def test_a_switch_is_of_the_node() -> None:
    line = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12020, Fatal, Link 32 egress ECC DBE error"
    (finding,) = found(said(line))
    assert (finding.fault, finding.subject.gpu) == ("nvswitch_error", None)


def test_the_log_is_read_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    filler = "6,{},1000000,-;systemd[1]: nothing of interest\n SUBSYSTEM=x\n"
    xid = "4,9000,2000000,-;NVRM: Xid (PCI:0000:11:00): 95, pid=1, Uncontained\n"
    of_a_program = "30,9001,2000000,-;NVRM: Xid (PCI:0000:12:00): 95, pid=1, Uncontained\n"
    file.write_text("".join(map(filler.format, range(5000))) + xid + of_a_program)
    (seen,) = read(file)
    assert (seen.event.code, seen.event.pci_address) == (95, "0000:11:00.0")
    assert seen.seconds_ago >= 0.0
    with pytest.raises(OSError, match="No such file"):
        read(tmp_path / "none")


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({}, [(95, Severity.CRITICAL)]),
        ({46: "info"}, [(95, Severity.CRITICAL)]),  # hides no graver one beside it
        ({95: "ignore"}, [(46, Severity.CRITICAL)]),
        ({95: "warning"}, [(46, Severity.CRITICAL)]),
        ({46: "ignore", 95: "ignore"}, []),
        ({43: "critical", 46: "ignore", 95: "ignore"}, [(43, Severity.CRITICAL)]),
    ],
)
def test_the_sites_own_severities_count_here_as_well(
    overrides: dict[int, str], told: list[tuple[int, Severity]]
) -> None:
    seen = (an_xid(95, 20.0), an_xid(46, 30.0), an_xid(43, 40.0))
    wanted = AnalyzerSettings(xid_overrides=tuple(f"{k}={v}" for k, v in overrides.items()))
    assert codes(findings(a_node(kernel=seen, analyzer=wanted))) == [
        (f"Xid {code}", severity) for code, severity in told
    ]


def codes(found: list[Finding]) -> list[tuple[str, Severity]]:
    return [(it.title.partition(":")[0], it.severity) for it in found]


@pytest.mark.parametrize(
    ("setting", "seconds", "told"),
    [(300.0, 300.0, True), (300.0, 300.1, False), (1e6, 7200.0, True), (1e6, 7200.1, False)],
)
def test_what_passes_stands_as_long_as_for_the_analyzer(
    setting: float, seconds: float, told: bool
) -> None:
    wanted = AnalyzerSettings(passing_xid_seconds=setting, xid_overrides=("43=critical",))
    found = findings(a_node(kernel=(an_xid(43, seconds),), analyzer=wanted))
    assert bool(found) is told


def an_sxid(code: int, seconds_ago: float = 60.0) -> KernelSeen:
    return said(f"nvidia-nvswitch3: SXid (PCI:0000:05:00.0): {code}, Fatal, Link 32 x", seconds_ago)


CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((), [("SXid 12020", CRITICAL)]),
        (("12020=info",), [("SXid 10003", CRITICAL)]),  # hides no graver one beside it
        (("12020=warning", "10003=ignore"), [("SXid 12020", WARNING)]),
        (("12020=info", "10003=info"), []),
        (("12020=ignore", "10003=ignore"), []),
        (("12020=ignore", "10003=info", "12028=critical"), [("SXid 12028", CRITICAL)]),
    ],
)
def test_the_sites_own_severities_of_sxids_count_here_as_well(
    overrides: tuple[str, ...], told: list[tuple[str, Severity]]
) -> None:
    seen = (an_sxid(12020, 20.0), an_sxid(10003, 30.0), an_sxid(12028, 40.0))
    wanted = AnalyzerSettings(sxid_overrides=overrides)
    assert codes(findings(a_node(kernel=seen, analyzer=wanted))) == told
