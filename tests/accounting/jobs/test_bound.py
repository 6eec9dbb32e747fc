"""What bounds a job: the first that holds, just below and just above each limit, and what is missing."""

from dataclasses import replace

import pytest

from accounting.jobs import bound
from accounting.jobs.bound import ADVICE, Activity, Bound, Steps, decide

FULL = Activity(
    gpus=16,
    nodes=2,
    coverage=1.0,
    utilization_percent=99.0,
    utilization_most_percent=100.0,
    sm_percent=85.0,
    tensor_percent=50.0,
    dram_percent=40.0,
    fabric_share=0.2,
    fabric_wait_percent=0.0,
    fabric_bytes_per_second=2e10,
    nvlink_share=0.1,
    cpu_percent=40.0,
    cpu_pressure_percent=2.0,
)
SOME = replace(FULL, sm_percent=70.0)
HALF = replace(FULL, sm_percent=40.0)
WAITS = replace(FULL, utilization_percent=60.0)
ALONE = replace(HALF, gpus=1, nodes=1, fabric_share=None)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (FULL, Bound.COMPUTE),
        (replace(FULL, sm_percent=bound.EFFECTIVE_SM_PERCENT - 0.1), Bound.COMPUTE),  # less sure
        (replace(FULL, dram_percent=bound.MEMORY_DRAM_PERCENT), Bound.MEMORY),
        (replace(FULL, dram_percent=bound.MEMORY_DRAM_PERCENT - 0.1), Bound.COMPUTE),
        (replace(FULL, dram_percent=70.0, tensor_percent=71.0), Bound.COMPUTE),
        (replace(HALF, fabric_wait_percent=bound.PORT_WAIT_PERCENT), Bound.BETWEEN_NODES),
        (replace(HALF, fabric_wait_percent=bound.PORT_WAIT_PERCENT - 0.1), Bound.UNKNOWN),
        (replace(HALF, fabric_share=bound.LINK_SHARE), Bound.BETWEEN_NODES),
        (replace(HALF, fabric_share=bound.LINK_SHARE - 0.01), Bound.UNKNOWN),
        (replace(HALF, nvlink_share=bound.LINK_SHARE), Bound.IN_NODE),
        (replace(HALF, nvlink_share=bound.LINK_SHARE - 0.01), Bound.UNKNOWN),
        (replace(HALF, sm_percent=bound.LITTLE_SM_PERCENT), Bound.COMPUTE),
        (replace(HALF, sm_percent=bound.LITTLE_SM_PERCENT - 0.1), Bound.UNKNOWN),
        (replace(HALF, nodes=1, fabric_share=0.9), Bound.UNKNOWN),  # it talks to nobody there
        (replace(ALONE, nvlink_share=0.9), Bound.UNKNOWN),
        (replace(WAITS, cpu_pressure_percent=bound.CPU_PRESSURE_PERCENT), Bound.CPU),
        (replace(WAITS, cpu_pressure_percent=bound.CPU_PRESSURE_PERCENT - 0.1), Bound.UNKNOWN),
        (replace(WAITS, cpu_percent=bound.CPU_PERCENT), Bound.CPU),
        (replace(WAITS, cpu_percent=bound.CPU_PERCENT - 0.1), Bound.UNKNOWN),
        (replace(WAITS, storage_sent_share=bound.LINK_SHARE), Bound.CHECKPOINT),
        (replace(WAITS, storage_sent_share=bound.LINK_SHARE - 0.01), Bound.UNKNOWN),
        (replace(WAITS, storage_received_share=bound.LINK_SHARE), Bound.INPUT),
        (replace(WAITS, pcie_share=bound.LINK_SHARE), Bound.INPUT),
        (replace(WAITS, pcie_share=bound.LINK_SHARE - 0.01), Bound.UNKNOWN),
        (replace(WAITS, utilization_percent=bound.BUSY_PERCENT), Bound.COMPUTE),
        (replace(WAITS, utilization_percent=bound.BUSY_PERCENT - 0.1), Bound.UNKNOWN),
        (replace(FULL, utilization_percent=0.0, utilization_most_percent=0.9), Bound.NOTHING),
        (replace(FULL, utilization_percent=0.5, utilization_most_percent=1.0), Bound.UNKNOWN),
        (replace(FULL, utilization_percent=None), Bound.UNKNOWN),
        (replace(FULL, sm_percent=None), Bound.UNKNOWN),
        (replace(FULL, coverage=bound.COVERAGE), Bound.COMPUTE),
        (replace(FULL, coverage=bound.COVERAGE - 0.01), Bound.UNKNOWN),
    ],
)
def test_counters_say_what_they_can(job: Activity, expected: Bound) -> None:
    found = decide(job)
    assert found.bound is expected, found
    assert found.text
    assert (found.confidence > 0.0) == (expected is not Bound.UNKNOWN)
    assert found.advice == ADVICE[expected]


def steps(**more: float) -> Steps:
    given = {"seconds": 4.0, "ranks": 16, "own_seconds": 3.9, "input_seconds": 0.0, **more}
    return Steps(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (steps(own_seconds=0.79), Bound.BETWEEN_NODES),  # four passes are 3.16 of 4 s
        (steps(own_seconds=0.81), Bound.COMPUTE),
        (steps(input_seconds=0.8), Bound.INPUT),
        (steps(input_seconds=0.79), Bound.COMPUTE),
        (steps(own_seconds=0.2, input_seconds=1.0), Bound.BETWEEN_NODES),  # the larger share
        (steps(own_seconds=0.2, input_seconds=1.7), Bound.INPUT),
        (steps(outside_share=0.5), Bound.COMPUTE),  # evaluation, or a restart
        (steps(seconds=0.0), Bound.COMPUTE),
    ],
)
def test_the_jobs_own_word_comes_first(told: Steps, expected: Bound) -> None:
    found = decide(replace(SOME, steps=told))
    assert found.bound is expected, found
    assert bound.STEPS not in found.missing


@pytest.mark.parametrize(
    ("outside", "checkpoint", "expected"),
    [
        (0.2, 0.2, Bound.CHECKPOINT),
        (0.19, 0.5, Bound.COMPUTE),
        (0.5, 0.19, Bound.COMPUTE),
        (0.5, None, Bound.COMPUTE),
        (None, 0.5, Bound.COMPUTE),
    ],
)
def test_time_outside_of_steps_is_a_checkpoint_s_where_ranks_say_so(
    outside: float | None, checkpoint: float | None, expected: Bound
) -> None:
    told = Steps(seconds=4.0, ranks=16, own_seconds=3.9, outside_share=outside)
    job = replace(SOME, steps=told, checkpoint_share=checkpoint, checkpoints=True)
    assert decide(job).bound is expected


def test_what_is_in_no_step_is_said_where_nothing_else_is() -> None:
    told = Steps(seconds=4.0, ranks=16, own_seconds=3.9, outside_share=0.2)
    evaluates = replace(WAITS, steps=told, checkpoints=True)
    assert decide(evaluates).bound is Bound.UNKNOWN
    assert "20 % of the time is outside steps" in decide(evaluates).text
    less = replace(evaluates, steps=replace(told, outside_share=0.19))
    assert "outside steps" not in decide(less).text
    assert decide(replace(evaluates, storage_sent_share=0.6)).bound is Bound.CHECKPOINT


def test_a_job_that_writes_a_checkpoint_is_not_idle() -> None:
    idle = replace(FULL, utilization_percent=0.0, utilization_most_percent=0.0)
    assert decide(idle).bound is Bound.NOTHING
    assert decide(replace(idle, checkpoint_share=bound.STEP_SHARE)).bound is Bound.CHECKPOINT
    assert decide(replace(idle, checkpoint_share=bound.STEP_SHARE - 0.01)).bound is Bound.NOTHING
    assert decide(replace(idle, checkpoints=True)).bound is Bound.UNKNOWN


def test_ranks_on_several_nodes_whose_ports_are_quiet_talk_inside_of_each() -> None:
    waits = replace(SOME, steps=steps(own_seconds=0.5))
    assert decide(waits).bound is Bound.BETWEEN_NODES
    quiet = replace(waits, fabric_bytes_per_second=bound.HEARTBEAT_BYTES - 1.0)
    assert decide(quiet).bound is Bound.IN_NODE
    loud = replace(waits, fabric_bytes_per_second=bound.HEARTBEAT_BYTES)
    assert decide(loud).bound is Bound.BETWEEN_NODES
    assert decide(replace(waits, nodes=1)).bound is Bound.IN_NODE
    assert decide(replace(waits, gpus=1, nodes=1)).bound is Bound.COMPUTE


def test_multiprocessors_that_are_filled_wait_for_nobody() -> None:
    waits = replace(SOME, steps=steps(own_seconds=0.5))
    filled = replace(waits, sm_percent=bound.EFFECTIVE_SM_PERCENT)
    assert decide(filled).bound is Bound.COMPUTE
    less = replace(waits, sm_percent=bound.EFFECTIVE_SM_PERCENT - 0.1)
    assert decide(less).bound is Bound.BETWEEN_NODES
    assert decide(replace(waits, sm_percent=None)).bound is Bound.BETWEEN_NODES


def test_it_says_what_is_missing_and_is_surer_of_what_was_told() -> None:
    blind = replace(
        FULL, sm_percent=None, fabric_share=None, cpu_percent=None, cpu_pressure_percent=None
    )
    assert decide(blind).missing == (bound.STEPS, bound.SM, bound.PORTS, bound.HOST)
    assert decide(FULL).missing == (bound.STEPS,)
    told = decide(replace(SOME, steps=steps(own_seconds=0.5)))
    assert told.confidence > decide(FULL).confidence
    assert decide(FULL).confidence > decide(replace(FULL, sm_percent=60.0)).confidence
    assert decide(replace(FULL, coverage=0.6)).confidence < decide(FULL).confidence


STORES = replace(WAITS, read_bytes_per_second=1e6, written_bytes_per_second=1e6)
_LIMIT = bound.STORAGE_BYTES


@pytest.mark.parametrize(
    ("read", "written", "expected"),
    [
        (0.0, _LIMIT, Bound.CHECKPOINT),
        (0.0, _LIMIT - 1.0, Bound.UNKNOWN),
        (_LIMIT, 0.0, Bound.INPUT),
        (_LIMIT - 1.0, None, Bound.UNKNOWN),
        # Whichever is more; a checkpoint is not read back while it is written.
        (2.0 * _LIMIT, 2.0 * _LIMIT - 1.0, Bound.INPUT),
        (2.0 * _LIMIT - 1.0, 2.0 * _LIMIT, Bound.CHECKPOINT),
        (None, _LIMIT, Bound.CHECKPOINT),
    ],
)
def test_idle_gpus_of_nodes_that_read_or_write_wait_for_it(
    read: float | None, written: float | None, expected: Bound
) -> None:
    job = replace(STORES, read_bytes_per_second=read, written_bytes_per_second=written)
    assert decide(job).bound is expected
    # Who is busy waits for none of it, and processors that are short of time come first.
    busy = replace(job, utilization_percent=bound.BUSY_PERCENT)
    assert decide(busy).bound not in {Bound.CHECKPOINT, Bound.INPUT}
    short = replace(job, cpu_pressure_percent=bound.CPU_PRESSURE_PERCENT)
    assert decide(short).bound is Bound.CPU


def test_what_neither_disks_nor_mounts_show_is_said() -> None:
    assert "object store or a cache" in decide(STORES).text
    assert bound.STORAGE not in decide(STORES).missing
    blind = replace(STORES, read_bytes_per_second=None, written_bytes_per_second=None)
    assert "object store" not in decide(blind).text
    assert bound.STORAGE in decide(blind).missing
    busy = replace(blind, utilization_percent=bound.BUSY_PERCENT)
    assert bound.STORAGE not in decide(busy).missing


def test_on_nodes_that_it_has_with_others_it_is_the_job_itself_that_writes() -> None:
    writes = replace(STORES, written_bytes_per_second=_LIMIT, with_others=True)
    assert decide(writes).text.endswith("and it writes 50 MB/s")
    reads = replace(STORES, read_bytes_per_second=_LIMIT, with_others=True)
    assert decide(reads).text.endswith("and it reads 50 MB/s")
    assert "its nodes write" in decide(replace(writes, with_others=False)).text
    little = decide(replace(STORES, with_others=True))
    assert little.bound is Bound.UNKNOWN
    assert "other jobs use" in little.text


@pytest.mark.parametrize(
    ("outside", "expected"),
    [(0.2, Bound.CHECKPOINT), (0.19, Bound.COMPUTE), (None, Bound.COMPUTE)],
)
def test_ranks_that_spin_while_one_writes_for_all_wait_for_it(
    outside: float | None, expected: Bound
) -> None:
    """Kernels always run; only that steps leave time between them says that they wait."""
    told = Steps(seconds=4.0, ranks=16, own_seconds=3.9, outside_share=outside)
    spins = replace(SOME, steps=told, written_bytes_per_second=_LIMIT)
    assert decide(spins).bound is expected
    assert decide(replace(spins, written_bytes_per_second=_LIMIT - 1.0)).bound is Bound.COMPUTE
    # Nor do idle GPUs where steps leave none.
    idle = replace(spins, utilization_percent=50.0)
    assert (decide(idle).bound is Bound.CHECKPOINT) is (outside != 0.19)


@pytest.mark.parametrize(
    ("sm", "most", "expected"),
    [
        (52.0, 65.0, Bound.CHECKPOINT),
        (52.0, 64.9, Bound.COMPUTE),
        (52.0, None, Bound.COMPUTE),
        (45.0, 65.0, Bound.CHECKPOINT),
        (45.0, 56.0, Bound.UNKNOWN),
    ],
)
def test_where_no_steps_are_counted_multiprocessors_that_rest_while_a_node_writes_wait_for_it(
    sm: float, most: float | None, expected: Bound
) -> None:
    spins = replace(FULL, sm_percent=sm, sm_most_percent=most, written_bytes_per_second=_LIMIT)
    found = decide(spins)
    assert found.bound is expected
    if expected is Bound.CHECKPOINT:
        assert f"{most:.0f} % active at most and {sm:.0f} % on average" in found.text
    assert (
        decide(replace(spins, written_bytes_per_second=_LIMIT - 1.0)).bound is not Bound.CHECKPOINT
    )
    # What it reads says nothing: who works well reads, too.
    reads = replace(spins, read_bytes_per_second=2.0 * _LIMIT)
    assert decide(reads).bound is decide(replace(spins, written_bytes_per_second=None)).bound
    # Nor does it wait where its steps leave no time between them.
    told = Steps(seconds=4.0, ranks=16, outside_share=0.19)
    assert decide(replace(spins, steps=told)).bound is not Bound.CHECKPOINT
