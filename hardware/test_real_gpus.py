"""The reader on the machine's own driver, held to what the driver's own tool says."""

import csv
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from collector.samples.messages import LOADED, Tick
from gpuvigil.metrics import GPU
from tests.collector.test_reader import Reader

# Not read from the driver, but known to whoever reads it.
BY_THE_SUPERVISOR = {
    "up",
    "unmeasured_reason",
    "unmeasured_seconds",
    "pcie_present",
    "read_seconds",
}
QUERY = "index,uuid,name,memory.total,power.limit,driver_version"


@pytest.fixture(scope="module")
def tick() -> Iterator[Tick]:
    """One sweep over every GPU of this machine, once all of them have answered."""
    # Every tick is a slow one; GPM speaks from the second on.
    reader = Reader(os.environ, start_timeout_seconds=30.0, slow_seconds=0.1)
    try:
        for _ in range(3):
            tick = reader.tick_with(
                lambda it: it.state == LOADED and all(gpu.slow for gpu in it.gpus)
            )
        yield tick
    finally:
        reader.end()


def asked() -> list[dict[str, str]]:
    program = shutil.which("nvidia-smi")
    assert program, "nvidia-smi is missing: these tests need a machine with an NVIDIA driver"
    shown = subprocess.run(
        [program, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return list(csv.DictReader(shown.splitlines(), QUERY.split(","), skipinitialspace=True))


def test_every_gpu_is_seen_under_its_uuid(tick: Tick) -> None:
    assert sorted(gpu.identity.uuid for gpu in tick.gpus if gpu.identity) == sorted(
        row["uuid"] for row in asked()
    )


def test_numbers_agree_with_the_drivers_own_tool(tick: Tick) -> None:
    by_uuid = {row["uuid"]: row for row in asked()}
    for gpu in tick.gpus:
        assert gpu.identity is not None
        assert gpu.values is not None
        row, values = by_uuid[gpu.identity.uuid], gpu.values
        assert values["power_limit_watts"] == pytest.approx(float(row["power.limit"]), abs=1.0)
        total_mib = values["memory_total_bytes"] / 1024**2
        assert total_mib == pytest.approx(float(row["memory.total"]), rel=0.01)


def test_it_says_which_metrics_this_gpu_has_and_how_long_they_take(tick: Tick) -> None:
    for gpu in tick.gpus:
        assert gpu.values is not None
        read = gpu.values.keys() | (gpu.slow or {}).keys()
        missing = {m.name for m in GPU.metrics} - read - BY_THE_SUPERVISOR
        print(f"\n{gpu.identity}: not measured here: {sorted(missing)}")  # noqa: T201 - for docs/hardware.md
        assert "utilization_percent" in gpu.values
        for call, cost in sorted((gpu.costs or {}).items()):
            mean = cost.seconds / cost.calls
            print(f"{call}: {cost.calls} x {mean:.6f} s, {cost.slowest_seconds:.6f}")  # noqa: T201
        print(f"links: {gpu.links}\nMIG: {gpu.migs}")  # noqa: T201
    print(f"sweep: {tick.sweep_seconds}")  # noqa: T201
