"""What `gpuvigil inefficient` shows of a small fleet."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from dashboard.facts import Facts
from dashboard.terminal import inefficient
from dashboard.terminal.fleet import Moment, moment_of
from dashboard.terminal.grid import text
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Allocation
from tests.dashboard.scene import NOON, allocation, busy_fleet, gpu, node

FIRST = node("n-1", "prod")
SPAN = (NOON - timedelta(hours=1), NOON)
LITTLE: dict[str, Any] = {
    "utilization_percent_mean": 95.0,
    "utilization_percent_max": 100.0,
    "sm_activity_percent_mean": 20.0,
    "tensor_activity_percent_mean": 1.0,
    "dram_activity_percent_mean": 10.0,
    "memory_used_bytes_max": 8e9,
    "memory_total_bytes_max": 80e9,
}


def moment(*held: Allocation) -> Moment:
    facts: Facts = replace(busy_fleet([FIRST], 4), allocations=held)
    return moment_of(facts, AnalyzerSettings())


def shown(of: Moment, row: dict[str, Any]) -> list[dict[str, Any]]:
    rows = {gpu(i, FIRST).key: row for i in range(4)}
    grid = inefficient.grid(of, rows, SPAN)
    keys = [column.key for column in grid.columns]
    assert all(len(line) <= 80 for line in text(grid, 80, quiet=False).splitlines())
    return [dict(zip(keys, line, strict=True)) for line in grid.rows]


def old(index: int, holder: str = "job 7", user: str = "ann") -> Allocation:
    return replace(
        allocation(gpu(index, FIRST), holder, user), started_at=NOON - timedelta(hours=2)
    )


def test_who_gets_little_is_told_with_what_it_costs() -> None:
    (one,) = shown(moment(*(old(i) for i in range(4))), LITTLE)
    assert (one["holder"], one["gpus"]) == ("job 7", 4)
    assert one["advice"] == "a smaller GPU or a slice would do"
    assert one["wasted_gpu_hours"] == 4 * 0.8
    assert one["sm_activity_percent"] == 20.0


def test_nothing_is_said_of_who_is_new_shares_a_gpu_or_was_not_measured() -> None:
    young = replace(old(0), started_at=NOON - timedelta(minutes=5))
    assert not shown(moment(young), LITTLE)
    assert not shown(moment(old(0), old(0, "job 8", "ben")), LITTLE)
    assert not shown(moment(old(0)), {**LITTLE, "sm_activity_percent_mean": None})
    assert not shown(moment(old(0)), {**LITTLE, "sm_activity_percent_mean": 90.0})
