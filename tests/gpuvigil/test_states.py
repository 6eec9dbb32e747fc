"""A GPU is in exactly one state, and the reason is in words."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.faults import FAULTS
from gpuvigil.faults.gpu_states import gpu_state, is_failing
from gpuvigil.model import GpuState, Severity, Unmeasured

BUSY = {"up": 1, "utilization_percent": 97, "compute_processes": 1}
STILL = {"up": 1, "utilization_percent": 0, "compute_processes": 0}
CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING


@pytest.mark.parametrize(
    ("row", "held", "faults", "state", "reason"),
    [
        (BUSY, True, {}, GpuState.ACTIVE, "97 %"),
        (BUSY, False, {}, GpuState.ACTIVE, "97 %"),
        (STILL, True, {}, GpuState.IDLE, "allocated, 0 % now"),
        ({**STILL, "compute_processes": 2}, False, {}, GpuState.IDLE, "allocated, 0 % now"),
        (STILL, False, {}, GpuState.FREE, "not allocated"),
        (
            {**STILL, "compute_processes": None},
            False,
            {},
            GpuState.UNKNOWN,
            "processes not measured",
        ),
        ({**STILL, "compute_processes": None}, True, {}, GpuState.IDLE, "allocated, 0 % now"),
        (None, True, {}, GpuState.UNKNOWN, "no data"),
        ({"up": 1}, True, {}, GpuState.UNKNOWN, "utilisation not measured"),
        ({}, True, {}, GpuState.UNKNOWN, "not measured"),
        ({"unmeasured_reason": 4}, True, {}, GpuState.UNKNOWN, "driver not answering"),
        ({"unmeasured_reason": 99}, True, {}, GpuState.UNKNOWN, "not measured"),
        ({"up": 0, "unmeasured_reason": 3}, True, {}, GpuState.UNAVAILABLE, "missing: lost"),
        ({"up": 0}, True, {}, GpuState.UNAVAILABLE, "missing: lost"),
        (
            {"unmeasured_reason": 7},
            True,
            {},
            GpuState.UNAVAILABLE,
            "released for maintenance",
        ),
        (BUSY, True, {"gpu_lost": CRITICAL}, GpuState.UNAVAILABLE, "GPU fell off the bus"),
        (BUSY, True, {"gpu_xid": CRITICAL}, GpuState.UNAVAILABLE, "GPU reported an Xid error"),
        (BUSY, True, {"gpu_xid": WARNING}, GpuState.ACTIVE, "97 %"),
        (STILL, True, {"gpu_idle_held": Severity.INFO}, GpuState.IDLE, "allocated, 0 % now"),
        (BUSY, True, {"gpu_silent": CRITICAL}, GpuState.UNKNOWN, "GPU does not answer"),
        (BUSY, True, {"driver_silent": CRITICAL}, GpuState.UNKNOWN, FAULTS["driver_silent"].title),
        (
            BUSY,
            True,
            {"gpu_lost": CRITICAL, "node_silent": WARNING},
            GpuState.UNAVAILABLE,
            "GPU fell off the bus",
        ),
        (BUSY, True, {"node_silent": WARNING}, GpuState.ACTIVE, "97 %"),
        (
            None,
            True,
            {"gpu_lost": CRITICAL, "node_silent": WARNING},
            GpuState.UNKNOWN,
            "Node stopped reporting",
        ),
    ],
)
def test_the_state_and_its_reason(
    row: dict[str, Any] | None,
    held: bool,
    faults: dict[str, Severity],
    state: GpuState,
    reason: str,
) -> None:
    assert gpu_state(row, held=held, faults=faults) == (state, reason)


@pytest.mark.parametrize(
    ("row", "held", "faults", "state"),
    [
        (STILL, False, {}, GpuState.UNAVAILABLE),
        (None, True, {"node_silent": WARNING}, GpuState.UNAVAILABLE),
        (STILL, True, {}, GpuState.IDLE),  # its job runs on
        (BUSY, False, {}, GpuState.ACTIVE),
    ],
)
def test_on_a_node_that_is_out_of_service_nothing_is_free_or_unknown(
    row: dict[str, Any] | None, held: bool, faults: dict[str, Severity], state: GpuState
) -> None:
    found, reason = gpu_state(row, held=held, faults=faults, out="drained: dust")
    assert found is state
    assert (reason == "drained: dust") is (state is GpuState.UNAVAILABLE)
    assert is_failing(GpuState.UNAVAILABLE, {}) is True
    assert is_failing(GpuState.UNAVAILABLE, {}, out=True) is False
    assert is_failing(GpuState.UNAVAILABLE, {"gpu_lost": CRITICAL}, out=True) is True


numbers = st.none() | st.integers(-1, 101)
rows = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "up": st.none() | st.sampled_from([0, 1]),
        "unmeasured_reason": st.none() | st.sampled_from([*map(int, Unmeasured), 0, 99]),
        "utilization_percent": numbers,
        "compute_processes": numbers,
    },
)


@given(
    rows, st.booleans(), st.dictionaries(st.sampled_from(sorted(FAULTS)), st.sampled_from(Severity))
)
def test_any_row_has_one_state_with_a_reason(
    row: dict[str, Any] | None, held: bool, faults: dict[str, Severity]
) -> None:
    state, reason = gpu_state(row, held=held, faults=faults)
    assert isinstance(state, GpuState)
    assert reason
    if row is None or row.get("utilization_percent") is None:
        assert state not in {GpuState.ACTIVE, GpuState.IDLE, GpuState.FREE}
