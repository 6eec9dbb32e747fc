"""What simulating a fleet costs: a thousand GPUs for a week, and a hundred thousand at once.

`python -m benchmarks.fleet` plays both in processes of their own, and writes
`benchmarks/fleet.json`; `make docs` makes the figures of `docs/fleet-tables.md` from it.
"""

import json
import multiprocessing
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.spine import about, say
from simulator.fleet import FleetSettings, build

RESULT = Path(__file__).with_suffix(".json")
TICK_SECONDS = 10.0
# What is played: nodes, days, days of them that are played, seconds of a block.
CASES = {
    "thousand_gpus_week": (125, 7.0, 7.0, 1800.0),
    "hundred_thousand_gpus": (12_500, 0.25, 1 / 288, 60.0),
}


def main() -> int:
    """Measure both and write the result."""
    spawned = multiprocessing.get_context("spawn")
    result: dict[str, Any] = {
        "about": {**about(), "command": "python -m benchmarks.fleet"},
        "cases": {},
    }
    for name, case in CASES.items():
        with spawned.Pool(1) as pool:
            result["cases"][name] = pool.apply(measure, case)
        say(f"{name}: {result['cases'][name]}")
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    say(f"wrote {RESULT}")
    return 0


def measure(nodes: int, days: float, played_days: float, block_seconds: float) -> dict[str, Any]:
    """Plan a fleet and play it; everything that a block holds is made."""
    started, used = time.perf_counter(), time.process_time()
    settings = FleetSettings(seed=1, nodes=nodes, days=days, fault_rate=7.0)
    fleet = build(settings)
    planned = time.perf_counter() - started
    counted = dict.fromkeys(("gpu", "port", "node", "nvlink"), 0)
    columns = 0
    end = fleet.at(played_days * 86_400.0)
    for block in fleet.blocks(end=end, tick_seconds=TICK_SECONDS, block_seconds=block_seconds):
        for measurement, table in block.tables.items():
            counted[measurement] += table.num_rows
        columns = max(columns, block.tables["gpu"].num_columns)
    return {
        "gpus": nodes * settings.gpus_per_node,
        "tick_seconds": TICK_SECONDS,
        "simulated_seconds": round(played_days * 86_400.0),
        "wall_seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
        "plan_seconds": round(planned, 1),
        "rows": counted,
        "gpu_columns": columns,
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "load_average": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    sys.exit(main())
