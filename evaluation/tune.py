"""`python -m evaluation.tune`: the limits of the library's detectors that are best where one may tune.

Each estimator looks at the tuning fleets, and at a quiet one of a seed of its own, with every limit
of a grid; the one with the best F1 per machine and quarter of an hour is printed, to be written
into `evaluation/baselines/peers.py` by hand.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from simulator.fleet import build

from .baselines.peers import ESTIMATORS, SETTINGS, Matrix, Scores, outliers
from .judge.claims import claims
from .judge.score import Tally, score, tally
from .replay import Replay
from .splits import PARTS

GRID = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 50.0, 80.0)
_FLEETS, _BLOCK = 2, timedelta(hours=1)


def remembered(scores: Scores) -> Scores:
    """The same scores, worked out once for all limits."""
    known: dict[bytes, Matrix] = {}

    def scored(rows: Matrix) -> Matrix:
        key = rows.tobytes()
        if key not in known:
            known.clear()
            known[key] = scores(rows)
        return known[key]

    return scored


def tuned(name: str) -> Mapping[float, list[Tally]]:
    """By limit, what came out on each fleet."""
    settings = [PARTS["tuning"].fleet(PARTS["tuning"].first_seed + n) for n in range(_FLEETS)]
    quiet = PARTS["quiet"].fleet(PARTS["tuning"].first_seed + 900)
    settings.append(replace(quiet, nodes=40, days=0.25))
    found: dict[float, list[Tally]] = {far: [] for far in GRID}
    scores = remembered(ESTIMATORS[name])
    for them in settings:
        fleet = build(them)
        replays = {far: Replay(SETTINGS, (outliers(name, scores, far),), _BLOCK) for far in GRID}
        nodes = set()
        for block in fleet.blocks(block_seconds=300.0):
            nodes |= {inventory.subject for inventory in block.inventories}
            for replay in replays.values():
                replay.feed(block)
        span = (them.start, them.end)
        for far, replay in replays.items():
            said = claims(replay.transitions)
            found[far].append(tally(fleet.truths(), said, sorted(nodes), span))
    return found


def main() -> int:
    """Print F1, precision and recall for each limit, and the best one."""
    for name in sys.argv[1:] or ESTIMATORS:
        best = (0.0, GRID[0])
        for far, them in tuned(name).items():
            machines = score(them)["machines"]
            f1 = machines["f1"]["value"]
            best = max(best, (f1, far))
            shares = [machines[it]["value"] or 0.0 for it in ("precision", "recall")]
            print(f"{name} {far:g}: F1 {f1:.3f}, precision {shares[0]:.3f}, recall {shares[1]:.3f}")
        print(f"{name}: {best[1]:g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
