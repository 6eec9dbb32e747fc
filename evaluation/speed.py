"""`python -m evaluation.speed`: what a node-day costs, into `evaluation/speed.json`.

1,000 GPUs without a fault, in CPU time of one process, so that what else the machine does counts
little; fleets of other seeds run beside each other.
"""

import json
import os
import platform
import sys
import time
from datetime import timedelta
from typing import Any

from simulator.fleet import FleetSettings, build

from .fingerprint import ROOT, fleet_hash, judged_hash
from .replay import Replay

FIGURES = ROOT / "evaluation/speed.json"
_NODES, _HOURS, _SEED = 125, 3, 15_000
_BLOCK = timedelta(minutes=30)


def measured() -> dict[str, Any]:
    """CPU seconds for each node-day, of the fleet and of the detectors."""
    fleet = build(FleetSettings(seed=_SEED, nodes=_NODES, days=_HOURS / 24.0))
    replay = Replay(ahead=_BLOCK)
    seconds = {"fleet": 0.0, "detectors": 0.0}
    before = time.process_time()
    for block in fleet.blocks(block_seconds=_BLOCK.total_seconds()):
        played = time.process_time()
        seconds["fleet"] += played - before
        replay.feed(block)
        before = time.process_time()
        seconds["detectors"] += before - played
    node_days = _NODES * _HOURS / 24.0
    return {
        "command": "python -m evaluation.speed",
        "fleet": fleet_hash(),
        "judged": judged_hash(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "nodes": _NODES,
        "node_days": node_days,
        "passes": replay.passes,
        "cpu_seconds_per_node_day": {name: s / node_days for name, s in seconds.items()},
    }


def main() -> int:
    """Measure and write."""
    FIGURES.write_text(json.dumps(measured(), indent=2) + "\n", encoding="utf-8")
    print(f"wrote {FIGURES.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
