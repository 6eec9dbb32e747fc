"""The fleet lies near what it was calibrated to; the limits are wide, its plots say the rest."""

import csv
import statistics
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from simulator.fleet import build
from simulator.fleet.workloads import Ending
from tests.simulator.fleet import runs

pytestmark = [pytest.mark.slow, pytest.mark.site]

REFERENCE = Path(__file__).parents[3] / "docs/reference"
LIKE_ACME = runs.with_settings(seed=1, nodes=32, days=1.5, models=("A100",), demand=0.85)


def share_below(curve: str, value: float) -> float:
    """Percent of the reference's samples that are at or below a value."""
    best = 0.0
    with (REFERENCE / f"acme/{curve}.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if float(row["value"]) <= value:
                best = float(row["cdf_percent"])
    return best


@cache
def like_acme(field: str) -> tuple[float, ...]:
    values = runs.grid(runs.planned(LIKE_ACME), runs.played(LIKE_ACME, tick_seconds=600.0), field)
    return tuple(values.ravel())


def test_as_many_samples_are_at_zero_as_in_production() -> None:
    zero = 100.0 * np.mean(np.array(like_acme("utilization_percent")) == 0)
    assert abs(zero - share_below("util_gpu_seren_0", 0.0)) < 12
    busy = 100.0 * np.mean(np.array(like_acme("utilization_percent")) >= 80)
    assert abs(busy - (100.0 - share_below("util_gpu_kalos_0", 79.0))) < 20


def test_temperatures_are_spread_as_in_production() -> None:
    for field, curve in (
        ("temperature_celsius", "gpu_temp_seren_0"),
        ("memory_temperature_celsius", "gpu_temp_seren_1"),
    ):
        values = np.array(like_acme(field))
        for limit in (35, 45, 55, 65):
            ours = 100.0 * np.mean(values <= limit)
            assert abs(ours - share_below(curve, limit)) < 22, (field, limit)


def test_free_and_held_power_are_those_of_production() -> None:
    watts = np.array(like_acme("power_watts"))
    assert 55 < np.percentile(watts, 12) < 68
    assert watts.max() <= 404
    assert abs(100.0 * np.mean(watts > 350) - (100.0 - share_below("gpu_power_seren_0", 350))) < 15


def test_jobs_are_as_short_as_many_and_as_unlucky_as_in_production() -> None:
    jobs = [job for job in build(runs.with_settings(nodes=64, days=4.0)).plan.jobs if job.start > 0]
    seconds = [job.end - job.start for job in jobs]
    assert 60 < statistics.median(seconds) < 300  # Seren 122, Kalos 124, Helios 206
    assert 1000 < statistics.mean(seconds) < 6700  # Seren 1414, PAI 4787, Helios 6652
    failed = sum(job.ending is Ending.FAILED for job in jobs) / len(jobs)
    assert 0.3 < failed < 0.5  # Seren 0.43, Kalos 0.40
    gpu_time = dict.fromkeys(Ending, 0.0)
    for job in jobs:
        gpu_time[job.ending] += len(job.gpus) * (job.end - job.start)
    assert gpu_time[Ending.CANCELLED] / sum(gpu_time.values()) > 0.4  # Seren 0.66, Kalos 0.61


def test_our_own_training_run_draws_what_it_drew() -> None:
    with (REFERENCE / "h100_workload_stats.csv").open(encoding="utf-8") as file:
        steady = {
            row["metric"]: row
            for row in csv.DictReader(file)
            if row["workload"] == "small data-parallel training" and row["phase"] == "steady"
        }
    settings = runs.with_settings(workloads=("data parallel",), nodes=16, demand=1.0)
    fleet, blocks = runs.planned(settings), runs.played(settings)
    busy = runs.grid(fleet, blocks, "sm_activity_percent") > 58
    for metric, field, scale in (
        ("power_w", "power_watts", 1.0),
        ("temp_c", "temperature_celsius", 1.0),
        ("sm_active", "sm_activity_percent", 0.01),
        ("dram_active", "dram_activity_percent", 0.01),
        ("pcie_rx_bytes_s", "pcie_receive_bytes_per_second", 1.0),
    ):
        ours = np.median(runs.grid(fleet, blocks, field)[busy]) * scale
        theirs = float(steady[metric]["p50"])
        assert abs(ours / theirs - 1.0) < 0.15, metric
