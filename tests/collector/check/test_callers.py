"""What each caller is told, and its exit code."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.check.callers import (
    CALLERS,
    NPD_LENGTH,
    PERSON,
    PROGRAM,
    drains,
    shortened,
    stops_jobs,
)
from collector.check.facts import DriverFacts, Facts, GpuFacts, Known
from collector.check.rules import findings
from collector.check.slurm_drain import drain_refusal, reason
from gpuvigil.model import Unmeasured
from gpuvigil.schedulers.slurm_nodes import nodes
from tests.collector.check.nodes import HEALTHY, a_node, identity


def with_reasons(bits: int) -> Facts:
    gpus = dict(a_node().gpus)
    values = {**HEALTHY, "clock_event_reasons": bits}
    gpus[1] = GpuFacts(index=1, identity=identity(1), values=values)
    return a_node(gpus=gpus)


NONE = DriverFacts(code=9, failure="nvmlInit: ...", reason=Unmeasured.DRIVER_NOT_LOADED)
LOST = GpuFacts(index=2, identity=identity(2), reason=Unmeasured.LOST, failure="code 15")
WELL = a_node()
INFO = with_reasons(0x20)
WARNING = with_reasons(0x88)
CRITICAL = replace(WARNING, gpus={**WARNING.gpus, 2: LOST})
UNSURE = a_node(driver=None, gpus={}, called={"driver": 2.0})
HUNG = a_node(driver=None, gpus={}, called={"driver": 2.0}, agent_silent_seconds=60.0)
BUSY = a_node(driver=None, gpus={}, called={"driver": 0.2})
BOOTING = a_node(gpus={}, driver=NONE, uptime_seconds=60.0, expects_gpus=True)
CRASHED = a_node(driver=None, gpus={}, unread={"driver": "the library crashed"})

#         well, info, warning, critical, not certain, hung for sure, too busy, booting, crashed
CODES = {
    None: (0, 0, 3, 4, 3, 4, 1, 3, 1),
    "nagios": (0, 0, 1, 2, 1, 2, 3, 1, 3),
    "slurm-health": (0, 0, 0, 0, 0, 0, 0, 0, 0),
    # A prolog fails for nothing that was waited for in vain, however long.
    "slurm-prolog": (0, 0, 0, 1, 0, 0, 0, 0, 0),
    "slurm-epilog": (0, 0, 0, 1, 0, 0, 0, 0, 0),
    "npd": (0, 0, 0, 1, 2, 1, 2, 2, 2),
}


@pytest.mark.parametrize("who", CODES)
def test_the_exit_code_is_what_the_caller_means_by_it(who: str | None) -> None:
    caller = CALLERS[who] if who else PERSON
    nodes = (WELL, INFO, WARNING, CRITICAL, UNSURE, HUNG, BUSY, BOOTING, CRASHED)
    assert tuple(caller.present(facts, findings(facts)).code for facts in nodes) == CODES[who]
    assert set(CODES) == {*CALLERS, None}


@pytest.mark.parametrize("who", [who for who in CALLERS if who.startswith("slurm")])
def test_a_check_that_fails_itself_drains_no_node(who: str) -> None:
    assert CALLERS[who].broken_outcome("anything").code == 0
    assert CALLERS[who].longest_seconds is not None


@pytest.mark.parametrize("facts", [UNSURE, BUSY, BOOTING])
def test_what_is_not_certain_drains_no_node(facts: Facts) -> None:
    assert not any(map(drains, findings(facts)))
    assert not any(map(stops_jobs, findings(facts)))


def test_who_could_not_look_says_so_and_why() -> None:
    lines = PERSON.present(BUSY, findings(BUSY)).lines
    assert lines[0].startswith("not looked at: driver: this machine is too busy: of 4.0 s the call")
    assert lines[1].startswith("nothing found, and not everything could be looked at; ")
    first, *_ = CALLERS["nagios"].present(BUSY, findings(BUSY)).lines
    assert first.startswith("GPUVIGIL UNKNOWN - nothing found, and not everything")
    assert json.loads(PROGRAM.present(BUSY, ()).lines[0])["result"] == "unknown"
    assert json.loads(PROGRAM.present(UNSURE, findings(UNSURE)).lines[0])["result"] == "warning"
    assert " (not certain) -> " in PERSON.present(UNSURE, findings(UNSURE)).lines[0]


def test_people_read_a_line_per_finding_with_the_first_action() -> None:
    lines = PERSON.present(CRITICAL, findings(CRITICAL)).lines
    assert lines[0] == (
        "critical GPU 2 (00000000:12:00.0, GPU-2): GPU fell off the bus [NVML: code 15]"
        " -> Drain the node and reboot it; if the GPU is lost again, check power, seating and heat."
    )
    assert lines[1].startswith("warning  GPU 1 (00000000:11:00.0, GPU-1): GPUs are slowed")
    assert lines[2] == "1 critical, 1 warning; 3 GPUs and 0 ports read in 4.00 s"
    assert len(lines) == 3


def test_of_a_machine_without_a_gpu_it_is_said_that_it_has_none() -> None:
    bare = replace(WELL, gpus={}, pci=(), driver=None)
    said = "this machine has no NVIDIA GPU, 0 ports read in 4.00 s"
    assert PERSON.present(bare, ()).lines[-1].endswith(said)
    unknown = replace(bare, pci=None)
    assert "no NVIDIA GPU" not in PERSON.present(unknown, ()).lines[-1]


def test_what_could_not_be_looked_at_is_said() -> None:
    facts = a_node(ports=None, unread={"ports": "Permission denied"})
    assert "not looked at: ports: Permission denied" in PERSON.present(facts, ()).lines


def test_nagios_reads_a_state_a_text_and_performance_data() -> None:
    first, *others = CALLERS["nagios"].present(CRITICAL, findings(CRITICAL)).lines
    text, bar, numbers = first.partition(" | ")
    assert text.startswith("GPUVIGIL CRITICAL - GPU 2 ")
    assert bar
    assert numbers == "gpus=3;;;0; critical=1;;;0; warning=1;;;0; time=4.000s;;;0;"
    assert len(others) == 2
    assert not any("|" in line for line in others)


def test_a_person_with_a_program_gets_one_object() -> None:
    outcome = PROGRAM.present(CRITICAL, findings(CRITICAL))
    value = json.loads("\n".join(outcome.lines))
    assert (value["result"], outcome.code) == ("critical", 4)
    assert value["findings"][0]["subject"] == "c/n1/gpu/GPU-2"
    assert value["findings"][0]["evidence"][0]["value"] == "code 15"


@given(st.text(max_size=200), st.integers(4, 100))
def test_a_message_for_npd_is_short_and_plain(text: str, length: int) -> None:
    short = shortened(text, length)
    assert len(short.encode()) <= length


@pytest.mark.parametrize("facts", [WELL, WARNING, CRITICAL, UNSURE, HUNG, BUSY])
def test_npd_gets_one_line_that_it_does_not_cut(facts: Facts) -> None:
    (line,) = CALLERS["npd"].present(facts, findings(facts)).lines
    assert len(line.encode()) <= NPD_LENGTH


def test_a_drain_says_the_fault_the_gpu_and_the_evidence_in_one_plain_line() -> None:
    worst = [f for f in findings(CRITICAL) if f.severity.value == "critical"]
    text = reason(CRITICAL, worst)
    assert text.startswith("gpuvigil gpu_lost: GPU 2 (00000000:12:00.0, GPU-2): GPU fell off")
    assert "code 15" in text
    assert text.isascii()
    assert "[" not in text
    assert reason(CRITICAL, worst * 40).endswith(" (+39 more)")
    assert len(reason(CRITICAL, worst * 40)) <= 200


IDLE = "NodeName=n1 Arch=x86_64  State=IDLE ThreadsPerCore=1 Partitions=gpu"


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (IDLE, ""),
        (IDLE.replace("IDLE", "MIXED"), ""),
        (IDLE.replace("IDLE", "IDLE*"), ""),
        (IDLE.replace("IDLE", "IDLE+DRAIN"), "n1 is DRAIN already"),
        (IDLE.replace("IDLE", "DOWN*+DRAIN"), "n1 is DOWN and DRAIN already"),
        (IDLE.replace("IDLE", "MIXED+REBOOT_REQUESTED"), "n1 is REBOOT_REQUESTED already"),
        (
            f"{IDLE} Reason=bad disk [root@2026-01-01T00:00:00]",
            "n1 has somebody's reason: bad disk",
        ),
        (
            f"{IDLE} Reason=gpuvigil x: y [root@2026-01-01T00:00:00]",
            "n1 already says: gpuvigil x: y",
        ),
    ],
)
def test_a_node_that_somebody_has_spoken_for_is_left_alone(shown: str, why: str) -> None:
    (node,) = nodes(shown).values()
    assert drain_refusal(node) == why


def test_npd_is_told_which_gpu_it_is_also_when_the_driver_lists_it_no_more() -> None:
    kept = [gpu for index, gpu in WELL.gpus.items() if index != 2]
    left = {index: replace(gpu, index=index) for index, gpu in enumerate(kept)}
    gone = replace(
        a_node(gpus=left, driver=DriverFacts(version="570", gpus=3)),
        known=Known(gpus=tuple(map(identity, range(4)))),
    )
    (lost,) = [finding for finding in findings(gone) if finding.subject.gpu == "GPU-2"]
    (line,) = CALLERS["npd"].present(gone, [lost]).lines
    assert line.startswith("GPU 2: ")
    unnumbered = replace(gone, known=Known(gpus=(replace(identity(2), index=None),)))
    (line,) = CALLERS["npd"].present(unnumbered, [lost]).lines
    assert line.startswith(f"GPU {identity(2).pci_address}: ")
