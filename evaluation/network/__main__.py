"""`python -m evaluation.network FLEETS`: what counters of switches add to those of hosts.

Fleets with many network faults are each played once for two analyzers: one reads hosts alone, the other also reads
the switches. Seeds follow from the commit, so that nobody knew them before; a tree with changes is refused. The
command writes `evaluation/network.json`; `make docs` makes a section of `docs/accuracy.md` from it. With `--seeds`,
fleets of one's choice are played and shown, and nothing is kept.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from ..fingerprint import is_committed
from ..fleets import release_seed
from ..run import stamp
from .playing import played
from .section import RESULT, details, section


def main(arguments: Sequence[str]) -> int:
    """Play, show, and keep results of unchosen seeds; return 2 for a tree with changes."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.network", description=__doc__)
    parser.add_argument("fleets", type=int, nargs="?", default=3)
    parser.add_argument("--seeds", type=int, nargs="+", help="to tune with: nothing is kept")
    chosen = parser.parse_args(arguments)
    stamped = stamp()
    if chosen.seeds is None and not is_committed(stamped["commit"]):
        return 2
    seeds = chosen.seeds or [release_seed(stamped["commit"], it) for it in range(chosen.fleets)]
    fleets = [played(seed) for seed in seeds]
    command = f"python -m evaluation.network {chosen.fleets}"
    result = {"command": command, **stamped, "fleets": fleets}
    if chosen.seeds is None:
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join((*section(result), *details(fleets))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
