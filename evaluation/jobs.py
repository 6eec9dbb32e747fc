"""`python -m evaluation.jobs FLEETS`: what steps add to what GPUs show of their jobs.

Fleets of training jobs, some with a slow, stuck, stopped or dead rank, are played through the product's own analyzer.
Most of the jobs report their steps, some report nothing. NCCL Inspector's files are read for some, and NCCL's RAS is
asked in some that stand still. Seeds follow
from the commit, so that nobody knew them before; a tree with changes is refused. The command writes
`evaluation/jobs.json`; `make docs` makes a section of `docs/accuracy.md` from it. With `--seeds`, fleets of one's
choice are played and shown, and nothing is kept.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from simulator.fleet import build

from .fingerprint import is_committed
from .fleets import release_seed
from .replay import Replay
from .run import stamp
from .training_jobs.bounds import hours
from .training_jobs.collectives import Inspectors
from .training_jobs.fleets import HOURS, NODES, fleet_of
from .training_jobs.judging import incident_spans, judged, lines, spans
from .training_jobs.ras import ASKED, RasAnswers
from .training_jobs.section import section

RESULT = Path(__file__).with_suffix(".json")
_BLOCK = timedelta(hours=1)


def played(seed: int) -> dict[str, Any]:
    """Play one fleet and return its faults, its wrong reports, and what bounds its jobs."""
    begun = time.process_time()
    fleet = build(fleet_of(seed))
    replay = Replay(ahead=_BLOCK)
    for happening in fleet.happenings():
        if happening.kind == "hub restart":
            replay.hub_away(happening.start, happening.end)
    sick = spans(fleet, fleet.truths())
    bounds, inspectors, ras = [], Inspectors(fleet), RasAnswers(fleet)
    for block in fleet.blocks(block_seconds=_BLOCK.total_seconds()):
        replay.feed(ras.heard(inspectors.heard(block)))
        bounds += [asdict(it) for it in hours(fleet, block, sick)]
    return {
        "seed": seed,
        "node_days": NODES * HOURS / 24.0,
        **judged(fleet, incident_spans(replay.transitions), inspectors.last, asked=ASKED),
        "bounds": bounds,
        "cpu_seconds": round(time.process_time() - begun),
    }


def main(arguments: Sequence[str]) -> int:
    """Play, show, and keep results of unchosen seeds; return 2 for a tree with changes."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.jobs", description=__doc__)
    parser.add_argument("fleets", type=int, nargs="?", default=6)
    parser.add_argument("--seeds", type=int, nargs="+", help="to tune with: nothing is kept")
    chosen = parser.parse_args(arguments)
    stamped = stamp()
    if chosen.seeds is None and not is_committed(stamped["commit"]):
        return 2
    seeds = chosen.seeds or [release_seed(stamped["commit"], it) for it in range(chosen.fleets)]
    fleets = [played(seed) for seed in seeds]
    result = {"command": f"python -m evaluation.jobs {chosen.fleets}", **stamped, "fleets": fleets}
    if chosen.seeds is None:
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(section(result)))
    for one in fleets:
        print(f"seed {one['seed']}: {one['cpu_seconds']} s of CPU time")
        print("\n".join(lines(one)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
