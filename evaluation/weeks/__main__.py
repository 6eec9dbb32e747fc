"""`python -m evaluation.weeks --seeds SEED ...`: compare the report on invented days with the truth.

A cluster with random teams, jobs, idle spells, faults, repairs and maintenance is sent to a real hub as collectors
would, with a tick of ten seconds. The product's own counter and judge go through it quarter by quarter, and the report
is made. Compared are each team's idle, broken and inefficient GPU-hours, the hours out of service by reason, and the
ten worst jobs. Without `--seeds`, seeds follow from the commit, so that nobody knew them before; a tree with changes
is refused. Nothing is kept.
"""

import argparse
import sys
from collections.abc import Sequence

from ..fingerprint import is_committed
from ..fleets import release_seed
from ..run import stamp
from .comparing import CLOSE, lines, played


def main(arguments: Sequence[str]) -> int:
    """Play and show; return 1 where anything is off, 2 for a tree with changes."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.weeks", description=__doc__)
    parser.add_argument("weeks", type=int, nargs="?", default=3)
    parser.add_argument("--seeds", type=int, nargs="+", help="to tune with")
    parser.add_argument("--nodes", type=int, default=8, help="of eight GPUs each")
    parser.add_argument("--hours", type=float, default=24.0)
    chosen = parser.parse_args(arguments)
    commit = stamp()["commit"]
    if chosen.seeds is None and not is_committed(commit):
        return 2
    seeds = chosen.seeds or [release_seed(commit, it) for it in range(chosen.weeks)]
    off = False
    for seed in seeds:
        found = played(seed, chosen.nodes, chosen.hours)
        print("\n".join(lines(found)), flush=True)
        hits, of = found["worst"]
        off |= of - hits > 1 or any(it.counts and abs(it.off) > CLOSE for it in found["rows"])
    return int(off)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
