"""How long from an Xid to the payload that Slack gets: fifty lost GPUs, one after the other.

`python -m benchmarks.messages` starts `gpuvigil up` with a simulated cluster and a Slack channel that leads
to a receiver of ours, and writes `benchmarks/messages.json`; `make docs` makes the document from it.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.spine import about, rounded, say, summary
from simulator.inject import main as inject
from tests.product import Product
from tests.receiver import Received, Receiver

ROOT = Path(__file__).parent.parent
RESULT = Path(__file__).with_suffix(".json")
RUNS = 50
# On one node after the other, so that fewer than half of them are hit: that would be one message.
NODES, PER_NODE = 32, 7
# Slack takes a message a second: one that waited for its turn would measure that.
APART_SECONDS = 1.5
REST_SECONDS = 20.0  # start-up is over


def main() -> int:
    """Measure and write the result."""
    with tempfile.TemporaryDirectory(prefix="gpuvigil-bench-") as name, Receiver() as receiver:
        folder = Path(name)
        config = folder / "bench.toml"
        config.write_text(f'[[alerts.slack]]\nname = "chat"\nurl = "{receiver.url}"\n')
        command = [sys.executable, "-m", "gpuvigil", "up", "--config", str(config)]
        began = os.getloadavg()[0]
        with Product([*command, "--simulate", str(NODES)], ROOT, folder) as product:
            product.url(300.0)
            time.sleep(REST_SECONDS)
            seconds = xids(product.state, receiver)
    load = {"before": round(began, 1), "after": round(os.getloadavg()[0], 1)}
    found = {"runs": RUNS, "seconds": summary(seconds), "all_seconds": rounded(seconds)}
    said = {**about(), "command": "python -m benchmarks.messages", "load": load}
    RESULT.write_text(json.dumps({"about": said, "xid_to_slack": found}, indent=2) + "\n")
    say(f"wrote {RESULT.relative_to(ROOT)}: {summary(seconds)}, load {load}")
    return 0


def xids(state: Path, receiver: Receiver) -> list[float]:
    """Per GPU the seconds from the Xid in the simulated node's log to the payload received."""
    os.environ["XDG_STATE_HOME"] = str(state.parent)  # where `inject` finds this `up`
    seconds = []
    for number in range(RUNS):
        node, gpu = f"sim-{number // PER_NODE:03d}", number % PER_NODE
        place = f"{node} GPU {gpu}"
        began = time.monotonic()
        assert inject(["xid79", "--node", node, "--gpu", str(gpu)]) == 0
        got = _wait(receiver, place, began)
        seconds.append(got.monotonic - began)
        time.sleep(APART_SECONDS)
    return seconds


def _wait(receiver: Receiver, place: str, since: float) -> Received:
    def wanted(one: Received) -> bool:
        payload: dict[str, Any] = one.payload
        return one.monotonic >= since and place in payload["text"]

    got = receiver.wait(lambda all_: any(map(wanted, all_)), timeout_seconds=90)
    return next(filter(wanted, got))


if __name__ == "__main__":
    sys.exit(main())
