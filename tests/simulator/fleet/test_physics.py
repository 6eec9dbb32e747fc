"""What holds in any fleet whose numbers are to be believed."""

import numpy as np
import pytest

from simulator.fleet import FaultOrder
from simulator.fleet.hardware import MODELS
from tests.simulator.fleet import runs

pytestmark = pytest.mark.slow

ALL = runs.with_settings(models=tuple(MODELS), nodes=20, nodes_per_rack=4)


def test_energy_is_the_integral_of_power() -> None:
    fleet, blocks = runs.planned(ALL), runs.played(ALL)
    watts = runs.grid(fleet, blocks, "power_watts")
    joules = runs.grid(fleet, blocks, "energy_joules")
    gained = joules[-1] - joules[0]
    assert gained == pytest.approx(watts[1:].sum(axis=0) * runs.TICK_SECONDS, rel=2e-3)


def test_power_stays_within_the_limit() -> None:
    fleet, blocks = runs.planned(ALL), runs.played(ALL)
    watts = runs.grid(fleet, blocks, "power_watts")
    limits = runs.grid(fleet, blocks, "power_limit_watts")
    assert (watts <= limits * 1.01).all()
    assert (watts > 40.0).all()


def test_gpus_of_large_training_sit_at_their_limit_because_they_are_busy() -> None:
    settings = runs.with_settings(workloads=("tensor parallel",), days=0.5, demand=1.0)
    fleet, blocks = runs.planned(settings), runs.played(settings)
    reasons = runs.grid(fleet, blocks, "clock_event_reasons").astype(np.int64)
    busy = runs.grid(fleet, blocks, "utilization_percent") > 90
    assert ((reasons & 4) > 0)[busy].mean() > 0.3


def test_temperatures_are_those_of_air_cooled_gpus() -> None:
    fleet, blocks = runs.planned(ALL), runs.played(ALL)
    core = runs.grid(fleet, blocks, "temperature_celsius")
    memory = runs.grid(fleet, blocks, "memory_temperature_celsius")
    assert core.min() >= 20
    assert core.max() <= 84
    assert (memory >= core).all()


def test_a_hot_gpu_gives_way_and_stays_below_its_shutdown() -> None:
    settings = runs.with_settings(workloads=("tensor parallel",), demand=1.0, nodes=4)
    held = next(job for job in runs.planned(settings).plan.jobs if job.start <= 0 and job.end > 9e3)
    node, gpu = divmod(held.gpus[0], 8)
    fault = FaultOrder(
        kind="HW thermal", node=node, gpu=gpu, start_seconds=600.0, seconds=8000.0, magnitude=5.0
    )
    sick = runs.with_settings(workloads=("tensor parallel",), demand=1.0, nodes=4, faults=(fault,))
    fleet, blocks = runs.planned(sick), runs.played(sick)
    core = runs.grid(fleet, blocks, "temperature_celsius")[:, held.gpus[0]]
    clock = runs.grid(fleet, blocks, "sm_clock_hertz")[:, held.gpus[0]]
    assert 80 < core.max() < 95
    assert clock[30:100].mean() < 0.6 * 1.98e9


@pytest.mark.parametrize(
    "field",
    [
        "energy_joules",
        "nvlink_receive_bytes",
        "power_cap_seconds",
        "ecc_corrected_errors",
        "thermal_violation_seconds",
    ],
)
def test_counters_only_grow(field: str) -> None:
    values = runs.grid(runs.planned(runs.QUIET), runs.played(runs.QUIET), field)
    assert (np.diff(values, axis=0) >= 0).all()


def test_traffic_follows_from_how_a_job_is_spread() -> None:
    settings = runs.with_settings(days=0.5)
    fleet, blocks = runs.planned(settings), runs.played(settings)
    moved = runs.grid(fleet, blocks, "nvlink_transmit_bytes")
    gained = moved[-1] - moved[0]
    for job in fleet.plan.jobs:
        throughout = job.start < 0 and job.end > 0.5 * 86400
        if throughout and len(job.gpus) == 1:
            assert gained[job.gpus[0]] == 0
        if throughout and job.workload.key == "tensor parallel":
            assert (gained[list(job.gpus)] > 1e13).all()


def test_a_whole_job_goes_at_the_pace_of_its_slowest_gpu() -> None:
    quiet = runs.with_settings(workloads=("pipeline parallel",), demand=1.0)
    held = next(
        j
        for j in runs.planned(quiet).plan.jobs
        if j.start < 3000 and j.end > 2e4 and len(j.gpus) > 8
    )
    fault = FaultOrder(
        kind="slow GPU",
        node=held.gpus[0] // 8,
        gpu=held.gpus[0] % 8,
        start_seconds=3600.0,
        seconds=14_400.0,
        magnitude=0.2,
    )
    slow = runs.with_settings(workloads=("pipeline parallel",), demand=1.0, faults=(fault,))
    peer = held.gpus[-1]
    before, after = (
        np.diff(runs.grid(runs.planned(s), runs.played(s), "nvlink_transmit_bytes")[:, peer])[
            130:580
        ].sum()
        for s in (quiet, slow)
    )
    assert 0.78 < after / before < 0.95
