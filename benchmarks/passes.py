"""How long a pass of the analyzer over the whole fleet takes, while the hub takes in what it sends.

`python -m benchmarks.passes` writes a past that is as long as the longest span a rule looks back
over, lets the simulated cluster go on from there, and reads from the analyzer's own word in the hub
what each of its passes took: 10,000 GPUs every 10 s, then 100,000 every 60 s. It writes
`benchmarks/passes.json`; `make docs` makes the document from it.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.footprint import cpu_seconds
from benchmarks.history import Target, write
from benchmarks.past import GPUS_PER_NODE, begin
from benchmarks.spine import about, descendants, rounded, say, summary
from benchmarks.store_sustained import resident_mib
from gpuvigil.config import AnalyzerSettings
from gpuvigil.hub_client import Hub
from gpuvigil.model import RecordKind
from tests.servers import HubProcess
from tests.services import commands, running, simulated

RESULT = Path(__file__).with_suffix(".json")
SEED = 1
# The hub's memory, and what is counted of it, is that of its largest spans: the longest, and a bit.
_MARGIN = timedelta(minutes=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fleet, how often it is read and looked at, and for how long passes are timed."""

    nodes: int
    tick_seconds: float
    warm_up_seconds: float
    seconds: float


CASES = {
    "ten_thousand": Case(nodes=1_250, tick_seconds=10.0, warm_up_seconds=60.0, seconds=200.0),
    "hundred_thousand": Case(nodes=12_500, tick_seconds=60.0, warm_up_seconds=120.0, seconds=300.0),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the cases and write what came out beside those measured before."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.passes")
    options.add_argument("--only", choices=sorted(CASES))
    chosen = options.parse_args(arguments)
    result = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in [chosen.only] if chosen.only else CASES:
        said = {**about(), "command": f"python -m benchmarks.passes --only {name}"}
        load = round(os.getloadavg()[0], 1)
        with tempfile.TemporaryDirectory(prefix="gpuvigil-bench-") as folder:
            result[name] = {"about": said, "load": load, **measure(CASES[name], Path(folder))}
        RESULT.write_text(
            json.dumps({it: result[it] for it in CASES if it in result}, indent=2) + "\n"
        )
        say(f"{name}: {result[name]['pass_seconds']}")
    return 0


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """One fleet: its past written, then hub, simulator and analyzer together."""
    settings = AnalyzerSettings()
    spans = (settings.idle_after_seconds, settings.trend_seconds, settings.underused_after_seconds)
    longest = max(spans)
    with HubProcess(folder / "hub", {"commit_seconds": 1.0}) as hub:
        assert hub.process is not None
        past = begin(case.nodes, timedelta(seconds=longest) + _MARGIN, case.tick_seconds, SEED)
        target = Target(url=hub.url, token_file=hub.collector_token_file)
        written = write(past, target, processes=2, simulator=folder)
        say(f"{written.gpu_rows} rows of GPUs written in {written.seconds:.0f} s")
        config = simulated(folder, hub, case.nodes, case.tick_seconds, SEED)
        with running(folder, config, commands("simulate", "analyze")) as processes:
            time.sleep(case.warm_up_seconds)
            pids = {"hub": hub.process.pid, **{name: it.pid for name, it in processes.items()}}
            before = {name: _used(pid) for name, pid in pids.items()}
            began = time.monotonic()
            passes = _passes(hub.hub(), case.seconds)
            wall = time.monotonic() - began
            used = {name: (_used(pid) - before[name]) / wall for name, pid in pids.items()}
            memory = {name: resident_mib(pid) for name, pid in pids.items()}
    return {
        **asdict(case),
        "gpus": case.nodes * GPUS_PER_NODE,
        "past_seconds": round(longest + _MARGIN.total_seconds()),
        "passes": len(passes),
        "pass_seconds": summary(passes),
        "all_seconds": rounded(passes),
        "cpu_share_of_one": {name: round(share, 3) for name, share in used.items()},
        "memory_rss_mib": memory,
    }


def _passes(hub: Hub, seconds: float) -> list[float]:
    """What each pass took of which the analyzer tells within a time."""
    told: dict[str, float] = {}
    until = time.monotonic() + seconds
    first = None
    while time.monotonic() < until:
        for record in hub.records(RecordKind.PULSE):
            body = record.body
            if "pass_seconds" in body:
                at = record.at.isoformat()
                first = first or at
                told[at] = float(body["pass_seconds"])
        time.sleep(1.0)
    # The one that was told before the watch began may have been made while nothing ran yet.
    return [took for at, took in told.items() if at != first]


def _used(pid: int) -> float:
    return cpu_seconds(list(descendants(pid)))


if __name__ == "__main__":
    sys.exit(main())
