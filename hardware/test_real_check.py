"""`gpuvigil check` and `gpuvigil doctor` on the machine's own driver."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def run(*arguments: str, tmp: Path) -> tuple[int, dict[str, Any], float]:
    """The exit code, what was said, and how long that took."""
    config = tmp / "node.toml"
    config.write_text(f"[collector]\nspool_directory = '{tmp}/spool'\n")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "gpuvigil", *arguments, "--config", str(config), "-o", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    seconds = time.monotonic() - began
    sys.stdout.write(done.stdout)
    return done.returncode, json.loads(done.stdout), seconds


def test_a_check_reads_every_gpu_in_less_than_a_second(tmp_path: Path) -> None:
    run("check", "--timeout", "60", tmp=tmp_path)  # a driver that is not kept loaded wakes up
    code, value, seconds = run("check", tmp=tmp_path)
    sys.stdout.write(f"check of {value['gpus']} GPUs: {seconds:.3f} s\n")
    assert value["gpus"] > 0
    assert value["driver"]
    assert code in {0, 3, 4}
    assert code == {"ok": 0, "info": 0, "warning": 3, "critical": 4}[value["result"]]
    assert seconds < 1.0


def test_a_doctor_says_of_every_group_what_can_be_read(tmp_path: Path) -> None:
    _, value, _ = run("doctor", "--timeout", "60", tmp=tmp_path)
    told = {row["what"]: row for row in value["diagnoses"]}
    assert "libnvidia-ml" in told["NVML library"]["text"]
    assert told["driver"]["state"] in {"ok", "limited"}
    assert any(name.startswith("power and energy") for name in told)
