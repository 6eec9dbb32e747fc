"""What is recorded on a machine with GPUs, tried on the fake driver, and the page from it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hardware import record
from scripts import hardware_page
from tests.nvml_fake import LIBRARY, FakeDriver

ROOT = Path(__file__).parent.parent


@pytest.mark.server
def test_a_recording_names_what_was_read_and_what_it_cost(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = FakeDriver(tmp_path / "driver", library, gpus=2)
    for name, value in driver.environment().items():
        monkeypatch.setenv(name, value)
    with record.reading() as (_, ticks):
        first = next(tick for tick in ticks if record.is_whole(tick))
        result = record.said([first, next(ticks)])
    assert (result["model"], result["gpus"]) == ("NVIDIA H100 80GB HBM3", 2)
    assert {"power_watts", "ecc_mode"} <= set(result["read"]["gpu"])
    assert "crc_errors" in result["read"]["nvlink"]
    assert result["calls"]["nvmlDeviceGetFieldValues"]["calls"] >= 2
    shown = {**result, "reader_cpu_percent": 0.1, "matrix_products": None}
    page = "\n".join(hardware_page.written([shown]))
    assert "## NVIDIA H100 80GB HBM3" in page
    assert " fields read. Not given here: " in page
    assert "has not yet run" not in page
    assert "gpuvigil itself has not yet run" in "\n".join(hardware_page.written([]))


@pytest.mark.medium
def test_without_a_driver_nothing_is_recorded(tmp_path: Path) -> None:
    (tmp_path / LIBRARY).write_bytes(b"")  # not even where there is a real one
    done = subprocess.run(
        [sys.executable, "-m", "hardware.record"],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "no NVIDIA driver here answers: nothing to record\n"


def test_a_loop_that_was_run_is_one_sentence() -> None:
    found = {
        "type": "bfloat16",
        "size": 8192,
        "slower_percent": 0.04,
        "pairs": 6,
        "window_seconds": 8.0,
    }
    assert "0.04 % slower beside a reader" in hardware_page.matrix_products(found)
