"""What `gpuvigil inefficient` shows of a small fleet."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from accounting.cost.money import Prices
from dashboard.lists import inefficient
from dashboard.lists.fleet_now import FleetNow, moment_of
from dashboard.lists.table import text
from dashboard.model.facts import Facts
from gpuvigil.config import AnalyzerSettings, CostSettings, PriceSettings
from gpuvigil.model import Allocation, Incident, Severity
from tests.dashboard.scene import NOON, allocation, busy_fleet, gpu, incident, node

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
    "utilization_percent_count": 3600,  # a tick of a second
    "first_at": SPAN[0],
}
STILL = {**LITTLE, "utilization_percent_mean": 0.0, "utilization_percent_max": 0.0}


def moment(*held: Allocation, active: tuple[Incident, ...] = ()) -> FleetNow:
    facts: Facts = replace(busy_fleet([FIRST], 4), allocations=held, incidents=active)
    return moment_of(facts, AnalyzerSettings())


def shown(
    of: FleetNow, row: dict[str, Any], last: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """`last`: the row of the last GPU."""
    rows = {gpu(i, FIRST).key: row for i in range(4)} | {gpu(3, FIRST).key: last or row}
    grid = inefficient.grid(of, rows, SPAN)
    keys = [column.key for column in grid.columns]
    assert all(len(line) <= 80 for line in text(grid, 80).splitlines())
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


def test_where_there_is_a_price_it_is_told_what_that_costs() -> None:
    price = PriceSettings(model="H100", per_gpu_hour=2.0)
    prices = Prices(settings=CostSettings(prices=(price,), currency="EUR"))
    rows = {gpu(i, FIRST).key: LITTLE for i in range(4)}
    grid = inefficient.grid(moment(*(old(i) for i in range(4))), rows, SPAN, prices)
    keys = [column.key for column in grid.columns]
    (one,) = grid.rows
    assert dict(zip(keys, one, strict=True))["wasted_cost"] == 4 * 0.8 * 2.0
    shown = text(grid, 80)
    assert "COST EUR" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_nothing_is_said_of_who_is_new_shares_a_gpu_or_was_not_measured() -> None:
    young = replace(old(0), started_at=NOON - timedelta(minutes=5))
    assert not shown(moment(young), LITTLE)
    assert not shown(moment(old(0), old(0, "job 8", "ben")), LITTLE)
    assert not shown(moment(old(0)), {**LITTLE, "sm_activity_percent_mean": None})
    assert not shown(moment(old(0)), {**LITTLE, "sm_activity_percent_mean": 90.0})


def test_where_too_little_was_measured_that_is_said_and_not_that_nobody_gets_little() -> None:
    def said(row: dict[str, Any]) -> str:
        of = moment(old(0), old(1, "job 8", "ben"))
        grid = inefficient.grid(of, {gpu(0, FIRST).key: row}, SPAN)
        return text(grid, 400)

    fine = {**LITTLE, "sm_activity_percent_mean": 90.0}
    assert "No inefficient jobs" in said(fine)
    assert "known of 1 of 2 holders." in said(fine)
    assert "Not known yet: nobody's GPUs were measured for all of " in said(
        {**fine, "utilization_percent_count": 10}
    )
    assert "Not known yet: nobody's GPUs were measured for all of " in said(
        {**fine, "sm_activity_percent_mean": None}
    )


def test_a_gpu_that_fell_out_or_is_broken_did_not_compute_nothing_by_its_holders_fault() -> None:
    four = [old(i) for i in range(4)]
    (one,) = shown(moment(*four), LITTLE, STILL)
    assert one["said"] == "1 of its 4 GPUs computed nothing: 3 would have done"
    assert not shown(moment(*four), LITTLE, {**STILL, "utilization_percent_count": 40})
    late = SPAN[1] - timedelta(minutes=10)
    assert not shown(moment(*four), LITTLE, {**STILL, "first_at": late})
    for fault, about in (("gpu_hung", gpu(3, FIRST)), ("node_silent", FIRST)):
        stands = incident(fault, about, Severity.CRITICAL)
        assert not shown(moment(*four, active=(stands,)), LITTLE, STILL)
