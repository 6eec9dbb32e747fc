"""How long from a lost link to the webhook, and what a lost leaf of eight nodes becomes, as shipped.

`python -m benchmarks.ports` starts a hub, an analyzer, alerts and a collector for each of eight nodes
whose InfiniBand ports are files, with the settings of an installation, and writes `benchmarks/ports.json`;
`make docs` makes the document from it.
"""

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.spine import about, rounded, say, summary
from tests.fabric import Fabric, labels_of, running

RESULT = Path(__file__).with_suffix(".json")
RUNS = 4
NODES = {f"node-{n}": ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3") for n in range(1, 9)}
# Ports that wait for a switch to explain them are told within this time where none does.
TOLD_WITHIN_SECONDS = 60.0


def main() -> int:
    """Measure and write the result."""
    began = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="gpuvigil-bench-") as name,
        running(Path(name), NODES) as fabric,
    ):
        seconds = ports(fabric)
        leaf = lost_leaf(fabric)
    load = {"before": round(began, 1), "after": round(os.getloadavg()[0], 1)}
    found = {"runs": RUNS, "seconds": summary(seconds), "all_seconds": rounded(seconds)}
    said = {**about(), "command": "python -m benchmarks.ports", "load": load}
    result = {"about": said, "port_down_to_webhook": found, "leaf": leaf}
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    say(f"wrote {RESULT.name}: {summary(seconds)}, {leaf}, load {load}")
    return 0


def ports(fabric: Fabric) -> list[float]:
    """Seconds from one port's loss to its message; each port once, since one that comes back is told later.

    The moment is drawn, so that it falls anywhere between two looks of the collector.
    """
    chance = random.Random(1)
    places = [(node, port) for port in ("mlx5_1", "mlx5_2", "mlx5_3") for node in NODES]
    seconds = []
    for node, port in places[:RUNS]:
        time.sleep(3.0 + chance.random())
        seconds.append(fabric.seconds_to_webhook(node, port))
    return seconds


def lost_leaf(fabric: Fabric) -> dict[str, Any]:
    """All ports of all nodes at once: how many messages in the minute after, and when the first came."""
    time.sleep(5.0)
    began = fabric.down(*((node, port) for node, ports in NODES.items() for port in ports))
    first = fabric.wait(began, timeout_seconds=TOLD_WITHIN_SECONDS)
    time.sleep(max(began + TOLD_WITHIN_SECONDS - time.monotonic(), 0.0))
    told = [labels_of(one) for one in fabric.told(began)]
    return {
        "nodes": len(NODES),
        "messages": len(told),
        "critical": sum(severity == "critical" for _, severity in told),
        "fault": told[0][0],
        "seconds": round(first.monotonic - began, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
