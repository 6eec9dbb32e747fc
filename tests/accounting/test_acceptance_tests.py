"""What outputs of dcgmi diag and nccl-tests say of a node."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from accounting.hardware.acceptance_tests import (
    LONGEST_OUTPUT,
    Outcome,
    judge,
    together,
)

# As the user guide "DCGM Diagnostics" prints it.
TEXT = """Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
| NVML Library              | Pass                                           |
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | {pcie}                                     |
+-----  Hardware  ----------+------------------------------------------------+
| GPU Memory                | Pass - All                                     |
+-----  Stress  ------------+------------------------------------------------+
| Targeted Stress           | Skip - All                                     |
+---------------------------+------------------------------------------------+
"""
FINE = TEXT.format(pcie="Pass - All")
# As DCGM 4 prints it: a line for each entity below the test's own.
FOUR = """| Diagnostic                | Result                                         |
| memory                    | Fail                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Fail                                     |
| Warning: GPU1             | ECC errors were seen                           |
"""
NCCL = """# nThread 1 nGpus 8 minBytes 1073741824 maxBytes 4294967296
#  Rank  0 Group  0 Pid     96 on n017 device  0 [0000:0f:00] NVIDIA H100
#  Rank  8 Group  0 Pid     96 on n018 device  0 [0000:0f:00] NVIDIA H100
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1073741824     268435456     float     sum      -1    10776   99.64  186.83      0    10781   99.60  186.75      0
  4294967296    1073741824     float     sum      -1    42381  101.34  190.02      {wrong}    42364  101.38  190.09      0
# Out of bounds values : {bounds}
# Avg bus bandwidth    : 188.648
#
# Collective test concluded: all_reduce_perf
"""
GOOD = NCCL.format(wrong=0, bounds="0 OK")


def told(status: str, key: str = "DCGM GPU Diagnostic") -> str:
    tests = [
        {"name": "PCIe", "results": [{"gpu_ids": "0", "status": "PASS"}]},
        {"name": "Memory", "results": [{"gpu_ids": "1", "status": status, "warnings": ["x"]}]},
    ]
    category = {"category": "Hardware", "tests": tests}
    return "hello\n" + json.dumps({key: {"test_categories": [category], "version": "3.3"}})


@pytest.mark.parametrize(
    ("output", "outcome", "text"),
    [
        (TEXT.format(pcie="Pass - All"), Outcome.PASSED, "4 tests passed, 1 skipped"),
        (TEXT.format(pcie="Warn - All"), Outcome.PASSED, "1 skipped, warnings of PCIe"),
        (TEXT.format(pcie="Fail - GPU"), Outcome.FAILED, "dcgmi diag: PCIe failed"),
        (FOUR, Outcome.FAILED, "dcgmi diag: memory failed"),
        (told("PASS"), Outcome.PASSED, "dcgmi diag: 2 tests passed"),
        (told("Fail", "DCGM Diagnostic"), Outcome.FAILED, "Memory failed"),
        (told("something new"), Outcome.FAILED, "Memory failed"),
        (told("PASS")[:-9], Outcome.UNJUDGED, "cut short"),
        (json.dumps({"DCGM GPU Diagnostic": {"version": "4"}}), Outcome.UNJUDGED, "no test"),
        ("| Diagnostic | Result |\n| PCIe | Skip - All |\n", Outcome.UNJUDGED, "no test"),
        (
            "Error: unable to connect\n| Diagnostic | Result |\n| PCIe | Pass |\n",
            Outcome.FAILED,
            "unable to connect",
        ),
        (GOOD, Outcome.PASSED, "all_reduce_perf: 190.1 GB/s bus bandwidth at 4,096 MiB"),
        (NCCL.format(wrong=3, bounds="0 OK"), Outcome.FAILED, "3 wrong values"),
        (NCCL.format(wrong=0, bounds="2 FAILED"), Outcome.FAILED, "2 wrong values"),
        (NCCL.format(wrong="N/A", bounds="0 OK"), Outcome.PASSED, "190.1 GB/s"),
        (GOOD.split("# Out of")[0], Outcome.UNJUDGED, "did not run to its end"),
        (
            GOOD.split("# Out of")[0] + "n017: Test NCCL failure common.cu:958 'unhandled'",
            Outcome.FAILED,
            "Test NCCL failure",
        ),
        ("\n".join(f" 0: {line}" for line in GOOD.splitlines()), Outcome.PASSED, "190.1 GB/s"),
        # A table that was cut after rows that passed, or that no success line stands before.
        (FINE.split("+-----  Stress")[0], Outcome.UNJUDGED, "table was cut short"),
        (FINE.partition("\n")[2], Outcome.UNJUDGED, "table was cut short"),
        (FINE + FINE.split("+-----  Stress")[0], Outcome.UNJUDGED, "table was cut short"),
        (FINE + FINE, Outcome.PASSED, "4 tests passed"),
        # Each tool in a file is judged.
        (TEXT.format(pcie="Fail - GPU") + GOOD, Outcome.FAILED, "PCIe failed"),
        (told("Fail") + GOOD, Outcome.FAILED, "Memory failed"),
        (told("PASS") + told("Fail"), Outcome.FAILED, "Memory failed"),
        (told("PASS") + GOOD, Outcome.PASSED, "2 tests passed; all_reduce_perf: 190.1"),
        (FINE + GOOD.split("# Out of")[0], Outcome.UNJUDGED, "did not run to its end"),
        # The second run of a log was cut short.
        (GOOD + GOOD.split("# Out of")[0], Outcome.UNJUDGED, "did not run to its end"),
        (GOOD + GOOD, Outcome.PASSED, "190.1 GB/s"),
        (GOOD.replace("190.09", "nan"), Outcome.UNJUDGED, "no number"),
        (GOOD.replace("190.09", "N/A"), Outcome.UNJUDGED, "no number"),
        ("all is well", Outcome.UNJUDGED, "neither"),
        ("", Outcome.UNJUDGED, "neither"),
        ("x" * (LONGEST_OUTPUT + 1), Outcome.UNJUDGED, "4 MiB"),
    ],
)
def test_an_output_is_judged_by_what_it_says(output: str, outcome: Outcome, text: str) -> None:
    found = judge(output)
    assert found.outcome is outcome
    assert text in found.text


@pytest.mark.parametrize(("least", "outcome"), [(190.0, Outcome.PASSED), (190.2, Outcome.FAILED)])
def test_the_bandwidth_of_the_largest_size_is_held_against_what_is_asked_for(
    least: float, outcome: Outcome
) -> None:
    assert judge(GOOD, least).outcome is outcome


@pytest.mark.parametrize(
    ("node", "outcome"),
    [
        ("n017", Outcome.PASSED),
        ("n018.cluster.example", Outcome.PASSED),
        ("n019", Outcome.UNJUDGED),
    ],
)
def test_a_test_of_other_nodes_accepts_none(node: str, outcome: Outcome) -> None:
    found = together([judge(TEXT.format(pcie="Pass - All")), judge(GOOD)], node)
    assert found.outcome is outcome
    assert together([], node).outcome is Outcome.UNJUDGED


def test_one_that_failed_is_the_verdict_of_all() -> None:
    found = together([judge(GOOD), judge(FOUR)], "n017")
    assert found.text == "dcgmi diag: memory failed"


def test_what_failed_on_another_host_is_no_verdict_on_this_one() -> None:
    failed = judge(NCCL.format(wrong=3, bounds="0 OK"))
    assert together([failed], "n017").outcome is Outcome.FAILED
    found = together([failed], "n019")
    assert found.outcome is Outcome.UNJUDGED
    assert "n017, n018, and not on n019" in found.text
    assert together([failed, judge(FOUR)], "n019").text == "dcgmi diag: memory failed"


def test_a_bandwidth_that_is_no_number_reaches_nothing() -> None:
    both = GOOD.replace("190.02", "nan").replace("190.09", "nan")
    assert judge(both, 400.0).outcome is Outcome.UNJUDGED
    assert judge(GOOD, float("nan")).outcome is Outcome.FAILED


@given(some.text(max_size=300))
def test_no_text_passes_by_accident(text: str) -> None:
    assert judge(text).outcome is not Outcome.PASSED
