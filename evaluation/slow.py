"""`python -m evaluation.slow FLEETS`: how slow a GPU must be to be found, and how long that takes.

Each fleet has a slow GPU on every third node, with magnitudes spread evenly over the decades of the kind, and all
detectors run. A slow GPU is detectable if its job had at least four GPUs for ten minutes before and after. Seeds follow
from the commit, so that nobody knew them before; a tree with changes is refused. The command writes `evaluation/slow.json`; `make docs` makes a section of `docs/accuracy.md` from it.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from accounting.chance import exact_rate
from gpuvigil.faults import where
from gpuvigil.model import Allocation
from simulator.fleet import FaultOrder, FleetSettings, Truth, build
from simulator.fleet.kinds import KINDS

from .fingerprint import is_committed
from .fleets import MODEL, WORKLOADS, release_seed
from .judge.claims import Claim, claims
from .judge.intervals import wilson
from .judge.measures import PER_NODE_DAYS
from .replay import Replay
from .run import stamp

RESULT = Path(__file__).with_suffix(".json")
_NODES, _HOURS, _BLOCK = 48, 3.0, timedelta(minutes=30)
_KIND = "slow GPU"
_PEERS, _BEFORE = 4, timedelta(minutes=10)
# The loss of a GPU's pace, in percent.
BINS = (2.0, 4.0, 6.0, 10.0, 16.0, 25.0)
# A loss this large should be reported within a minute, by the number of the job's GPUs.
_PLAIN, _SOON = 10.0, 60.0
SIZES = (_PEERS, 8, 16, 100_000)


def fleet_of(seed: int) -> FleetSettings:
    """Return one fleet; its workloads are those for tuning."""
    chance = Random(seed)
    low, high = KINDS[_KIND].sizes[0], KINDS[_KIND].sizes[-1]
    orders = [
        FaultOrder(
            kind=_KIND,
            node=node,
            start_seconds=(1.0 + 0.2 * chance.random()) * 3600.0,
            seconds=(_HOURS - 1.3) * 3600.0,
            gpu=chance.randrange(8),
            port=None,
            magnitude=low * (high / low) ** chance.random(),
        )
        for node in range(0, _NODES, 3)
    ]
    return FleetSettings(
        seed=seed,
        nodes=_NODES,
        days=_HOURS / 24.0,
        models=(MODEL,),
        workloads=WORKLOADS,
        faults=tuple(orders),
    )


def played(seed: int) -> dict[str, Any]:
    """Play one fleet and return each slow GPU's outcome, and the false reports."""
    fleet, replay = build(fleet_of(seed)), Replay(None, ahead=_BLOCK)
    held: dict[str, Allocation] = {}
    for block in fleet.blocks(block_seconds=_BLOCK.total_seconds()):
        held |= {one.id: one for one in block.allocations}
        replay.feed(block)
    slow = where(lambda row: _KIND in row.simulated_as)
    said = [one for one in claims(replay.transitions) if one.fault in slow]
    truths = [one for one in fleet.truths() if one.fault == _KIND and not one.hidden]
    sick = {one.subject for one in truths}
    return {
        "seed": seed,
        "node_days": _NODES * _HOURS / 24.0,
        "false": sum(one.subject not in sick for one in said),
        "faults": [
            {
                "percent": round(100.0 * (one.magnitude or 0.0), 2),
                "seconds": _seconds(one, said),
                "gpus": _gpus(one, held.values()),
            }
            for one in truths
        ],
    }


def _seconds(truth: Truth, said: Iterable[Claim]) -> float | None:
    """Return how many seconds after its start the fault was reported; None when it never was."""
    times = [
        (one.opened_at - truth.start).total_seconds()
        for one in said
        if one.subject == truth.subject and truth.start <= one.opened_at <= truth.end
    ]
    return min(times, default=None)


def _gpus(truth: Truth, held: Iterable[Allocation]) -> int:
    """Return how many GPUs the job had that held this GPU long enough before and after the start; 0: none."""
    jobs = [
        one.holder
        for one in held
        if one.started_at <= truth.start - _BEFORE
        and (one.ended_at is None or one.ended_at >= truth.start + _BEFORE)
        and one.subject == truth.subject
    ]
    return sum(one.holder == jobs[0] for one in held) if jobs else 0


def section(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the curve as a table."""
    faults = [fault for fleet in result["fleets"] for fault in fleet["faults"]]
    node_days = sum(fleet["node_days"] for fleet in result["fleets"])
    false = sum(fleet["false"] for fleet in result["fleets"])
    yield "## How slow a GPU must be"
    yield ""
    yield f"`{result['command']}`: {len(faults)} slow GPUs at work, in {len(result['fleets'])} fleets. Seeds are drawn from commit `{result['commit'][:12]}`; fleet `{result['fleet']}`. *Detectable* are those that a job of four GPUs or more held for ten minutes before and after. For the others there is nothing to compare with."
    yield ""
    yield "| loses | found of all | found of the detectable | median s | p95 s |"
    yield "|---|---|---|---|---|"
    for low, high in pairwise(BINS):
        own = [it for it in faults if low <= it["percent"] < high or it["percent"] == high == 25.0]
        seconds = [it["seconds"] for it in own if it["seconds"] is not None]
        cells = (
            _share(own),
            _share([it for it in own if it["gpus"] >= _PEERS]),
            *(f"{np.percentile(seconds, it):.0f}" if seconds else "-" for it in (50, 95)),
        )
        yield f"| {low:g} to {high:g} % | {' | '.join(cells)} |"
    yield ""
    yield from _by_size([it for it in faults if it["percent"] >= _PLAIN])
    yield ""
    low, high = (PER_NODE_DAYS * it for it in exact_rate(false, node_days))
    yield f"Healthy GPUs called slow in these {node_days:g} node-days: {false} (per 1,000 {low:.1f} to {high:.1f})."


def _by_size(faults: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how soon large losses are found, by how many GPUs could be compared."""
    told = [it for it in faults if it["gpus"] >= _PEERS]
    soon = sum(it["seconds"] is not None and it["seconds"] <= _SOON for it in told)
    met = "holds" if soon == len(told) else "**missed**"
    yield f"The more GPUs a job has, the sooner a slow one shows. For GPUs that lose {_PLAIN:g} % or more (goal: each detectable one within {_SOON:g} s; {soon} of {len(told)}: {met}, since one-minute means of few GPUs vary by as much):"
    yield ""
    yield f"| GPUs of the job | found | within {_SOON:g} s | median s |"
    yield "|---|---|---|---|"
    for low, high in pairwise(SIZES):
        own = [it for it in faults if low <= it["gpus"] < high]
        seconds = [it["seconds"] for it in own if it["seconds"] is not None]
        soon = _share(own, _SOON)
        median = f"{np.median(seconds):.0f}" if seconds else "-"
        name = f"{low} to {high - 1}" if high < SIZES[-1] else f"{low} and more"
        yield f"| {name} | {_share(own)} | {soon} | {median} |"


def _share(of: Sequence[Mapping[str, Any]], within: float = float("inf")) -> str:
    hits = sum(it["seconds"] is not None and it["seconds"] <= within for it in of)
    if not of:
        return "-"
    low, high = wilson(hits, len(of))
    return f"{hits / len(of):.2f} ({low:.2f} to {high:.2f}, {hits} of {len(of)})"


def main(arguments: Sequence[str]) -> int:
    """Play the fleets and write the result; return 2 for a tree with changes."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.slow", description=__doc__)
    parser.add_argument("fleets", type=int)
    count = parser.parse_args(arguments).fleets
    stamped = stamp()
    if not is_committed(stamped["commit"]):
        return 2
    fleets = [played(release_seed(stamped["commit"], number, "slow")) for number in range(count)]
    command = f"python -m evaluation.slow {count}"
    RESULT.write_text(
        json.dumps({"command": command, **stamped, "fleets": fleets}, indent=1) + "\n"
    )
    print("\n".join(section(json.loads(RESULT.read_text()))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
