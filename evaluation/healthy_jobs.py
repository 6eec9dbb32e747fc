"""`python -m evaluation.healthy_jobs HOURS`: is any healthy job reported as hanging, or as slowed by hardware?

Fleets of trainings that only look faulty, of 4 to 128 GPUs. The jobs' detectors get GPUs and nodes, and for one job
in five what NCCL Inspector's files say about its collectives. Seeds follow from the commit; a tree with changes is
refused. Played until jobs that are cut unevenly or have uneven data had HOURS job-hours, and all jobs ten times as
many pauses. Writes `evaluation/healthy_jobs.json`, from which `make docs` makes a section of `docs/accuracy.md`.
With `--seeds` nothing is kept.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from analyzer.correlation.all_detectors import DETECTORS, Detector
from gpuvigil.faults import FAULTS, Shows
from simulator.fleet import build

from .fingerprint import is_committed
from .fleets import release_seed
from .replay import Replay
from .run import stamp
from .training_jobs.collectives import Inspectors
from .training_jobs.fleets import HANGS, HOURS, STRAGGLERS, healthy_fleet
from .training_jobs.judging import incident_spans, judged, lines
from .training_jobs.section import totals

RESULT = Path(__file__).with_suffix(".json")
NODES, _BLOCK, _PAUSES = 384, timedelta(hours=1), 10.0
# Mostly jobs that are uneven, or pause often; the others so that there are some of each.
_MIX = (
    ("staged", 0.27), ("unlike", 0.3), ("pipeline parallel", 0.1), ("tensor parallel", 0.05), ("judging", 0.07),
    ("shuffling", 0.07), ("even", 0.04), ("talking", 0.03), ("starved", 0.03), ("saving", 0.02), ("preparing", 0.02),
)  # fmt: skip
# The share of jobs whose collectives are read: reading takes as long as all else.
_READ = 0.2
_TABLES = frozenset({"gpu", "node"})


def detectors() -> list[Detector]:
    """Return the detectors of hanging or slow jobs, and that of silent nodes, which explains many of their findings."""
    of_jobs = {*STRAGGLERS, *HANGS}

    def is_asked(fault: str) -> bool:
        row = FAULTS[fault]
        return row.shows is Shows.UNHEARD or not of_jobs.isdisjoint(row.simulated_as)

    return [it for it in DETECTORS if any(map(is_asked, it.faults))]


def play(seed: int, nodes: int = NODES) -> dict[str, Any]:
    """Play one fleet without a fault: return what was reported about its jobs, and their hours and pauses."""
    begun = time.process_time()
    fleet = build(healthy_fleet(seed, nodes, _MIX))
    replay, inspectors = Replay(None, detectors(), ahead=_BLOCK), Inspectors(fleet, _READ)
    for happening in fleet.happenings():
        if happening.kind == "hub restart":
            replay.hub_away(happening.start, happening.end)
    for block in fleet.blocks(block_seconds=_BLOCK.total_seconds()):
        tables = {name: rows for name, rows in block.tables.items() if name in _TABLES}
        replay.feed(replace(inspectors.heard(block), tables=tables))
    return {
        "seed": seed,
        "node_days": nodes * HOURS / 24.0,
        "read": _READ,
        **judged(fleet, incident_spans(replay.transitions), inspectors.last, _READ),
        "cpu_seconds": round(time.process_time() - begun),
    }


def until(hours: float, plays: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield plays until uneven jobs have so many hours, and all jobs ten times as many pauses."""
    played: list[dict[str, Any]] = []
    for one in plays:
        yield one
        played.append(one)
        total = totals(played)
        if total["uneven"] >= hours and total["pauses"] >= _PAUSES * hours:
            return


def main(arguments: Sequence[str]) -> int:
    """Play, show, and keep results of unchosen seeds; 1 if a job was blamed wrongly, 2 for a tree with changes."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.healthy_jobs")
    parser.add_argument("hours", type=float, nargs="?", default=1000.0)
    parser.add_argument("--seeds", type=int, nargs="+", help="to tune with: nothing is kept")
    chosen = parser.parse_args(arguments)
    stamped = stamp()
    if chosen.seeds is None and not is_committed(stamped["commit"]):
        return 2
    seeds = chosen.seeds or (release_seed(stamped["commit"], it) for it in count())
    fleets = []
    for one in until(chosen.hours, map(play, seeds)):
        fleets.append(one)
        print(
            f"seed {one['seed']}: {one['cpu_seconds']} s of CPU time", file=sys.stderr, flush=True
        )
        print("\n".join(lines(one)))
    command = f"python -m evaluation.healthy_jobs {chosen.hours:g}"
    if chosen.seeds is None:
        RESULT.write_text(
            json.dumps({"command": command, **stamped, "fleets": fleets}, indent=1) + "\n"
        )
    print(totals(fleets))
    return 1 if any(it["loud"] for one in fleets for it in one["wrong"]) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
