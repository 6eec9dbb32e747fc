"""What `gpuvigil slurm` costs a real Slurm's controller with a long queue: `python -m benchmarks.slurm`.

Writes `benchmarks/slurm.json`: milliseconds per question by the client's clock, microseconds in `slurmctld` and requests by
`sdiag`, processor time of the one who asks.
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.spine import about
from gpuvigil.clock import SystemClock
from gpuvigil.model import Record, Subject
from integrations.slurm.client import Slurm as Asking
from integrations.slurm.pace import Pace
from integrations.slurm.watch import Watch
from tests.end_to_end.slurm import Slurm
from tests.polling import wait_until

FILE = Path(__file__).with_name("slurm.json")
_ROUNDS = 12
_RPCS = {
    "jobs": r"REQUEST_JOB_INFO\b.*?count:(\d+)\s+ave_time:(\d+)",
    "nodes": r"REQUEST_NODE_INFO\b.*?count:(\d+)\s+ave_time:(\d+)",
    "partitions": r"REQUEST_PARTITION_INFO\b.*?count:(\d+)\s+ave_time:(\d+)",
}


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slurm", description=__doc__)
    parser.add_argument("--pending", type=int, default=5000)
    parser.add_argument("--running", type=int, default=100)
    parser.add_argument("--submit-seconds", type=float, default=1800.0, help="then with fewer")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = _measured(Path(folder), asked)
    FILE.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _measured(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    script = folder / "nothing.sh"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    settings = {
        "MaxJobCount": 20000,
        "SchedulerParameters": "bf_max_job_test=100,default_queue_depth=50",
    }
    nodes = [f"n{number}" for number in range(1, asked.running // 8 + 2)]
    with Slurm(
        folder / "slurm",
        prolog=script,
        epilog=script,
        gpus=range(8),
        nodes=nodes,
        settings=settings,
    ) as slurm:
        os.environ["SLURM_CONF"] = slurm.environment["SLURM_CONF"]
        _queue(slurm, asked)
        counts = _counts(slurm)
        slurm.ask("sdiag", "--reset")
        rounds = _rounds(folder)
        return {
            "about": {**about(), "command": "python -m benchmarks.slurm"},
            "slurm": slurm.ask("squeue", "--version").strip(),
            **counts,
            "rounds": _ROUNDS,
            **rounds,
            "in_slurmctld": _in_controller(slurm.ask("sdiag")),
            "load_average": [round(load, 1) for load in os.getloadavg()],
        }


def _queue(slurm: Slurm, asked: argparse.Namespace) -> None:
    """Each job by itself: of an array that waits Slurm tells one line."""
    deadline = time.monotonic() + asked.submit_seconds
    for _ in range(asked.running):
        slurm.submit("sleep 3000", "--gres=gpu:1", "-t", "60")
    wait_until(
        "the running ones", lambda: _counts(slurm)["running"] >= asked.running, asked.submit_seconds
    )

    def one(_: int) -> None:
        if time.monotonic() < deadline:
            slurm.submit("true", "--gres=gpu:8", "-t", "60", "--hold")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(asked.pending)))


def _counts(slurm: Slurm) -> dict[str, int]:
    states = slurm.ask("squeue", "-h", "-o", "%T").split()
    return {"pending": states.count("PENDING"), "running": states.count("RUNNING")}


def _rounds(folder: Path) -> dict[str, Any]:
    clock, teller = SystemClock(), Subject(cluster="c", node="login")
    pace = Pace(5.0, 1000)
    asking = Asking(teller, pace, clock.monotonic, 120.0)
    times: dict[str, list[float]] = {"jobs": [], "nodes": []}
    sizes = []
    for _ in range(_ROUNDS):
        for name, ask in (("jobs", lambda: asking.jobs(clock.now())), ("nodes", asking.nodes)):
            begun = time.monotonic()
            ask()
            times[name].append((time.monotonic() - begun) * 1000)
    before, own = _spent(), Watch(asking, pace, folder, teller, clock)
    for _ in range(2):
        told: list[Record] = []
        own.round(told.extend)
        sizes.append(len(told))
    raw = subprocess.run(
        ["squeue", "--all", "--states=all", "--json"], capture_output=True, check=True
    ).stdout
    return {
        "requests_per_minute_of_the_client": 2 * 60 / 60.0,
        "milliseconds_per_question": {
            name: {"median": round(statistics.median(them)), "longest": round(max(them))}
            for name, them in times.items()
        },
        "json_mib": round(len(raw) / 2**20, 1),
        "records_of_the_first_round": sizes[0],
        "records_of_the_second_round": sizes[1],
        "processor_seconds_a_round_of_who_asks": round((_spent() - before) / 2, 2),
        "peak_mib_of_who_asks": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def _spent() -> float:
    """Processor seconds of this process and of the commands that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _in_controller(said: str) -> dict[str, Any]:
    """Requests since the reset, and how long the controller took for each, by its own count."""
    found = {}
    for name, pattern in _RPCS.items():
        match = re.search(pattern, said)
        if match:
            found[name] = {"requests": int(match[1]), "mean_microseconds": int(match[2])}
    return found


if __name__ == "__main__":
    _main()
