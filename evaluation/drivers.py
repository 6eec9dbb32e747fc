"""`python -m evaluation.drivers FLEETS`: what is said while every node gets a new driver.

The fleets of the part *quiet* are a day long, and no driver is rolled out in less than two. These
are two days long, of their own seeds, without a fault: rack by rack nodes are drained, get the
driver and boot. Writes `evaluation/drivers.json`; `make docs` makes a section of
`docs/scoreboard.md` from it.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from gpuvigil.model import Severity
from simulator.fleet import FleetSettings, build

from .figures_text import OURS, rate
from .judge.score import Tally, score
from .run import play, stamp
from .splits import MODEL

RESULT = Path(__file__).with_suffix(".json")
# Those after the seeds of `evaluation.slow`.
FIRST_SEED = 18000
_NODES, _DAYS = 128, 2.0
_TURN = "driver upgrade"


def fleet_of(seed: int) -> FleetSettings:
    """One fleet; everything but its length is as in the part *quiet*."""
    return FleetSettings(seed=seed, nodes=_NODES, days=_DAYS, models=(MODEL,))


def played(seed: int) -> dict[str, Any]:
    """How many nodes got a driver, and what was said in the whole fleet."""
    fleet = build(fleet_of(seed))
    upgrades = sum(one.kind == _TURN for one in fleet.happenings())
    tally = play(fleet, (OURS,))[OURS]
    return {"seed": seed, "upgrades": upgrades, "tally": tally.to_json()}


def section(result: Mapping[str, Any]) -> Iterator[str]:
    """What was said, by severity and by fault."""
    own = [Tally.from_json(one["tally"]) for one in result["fleets"]]
    upgrades = sum(one["upgrades"] for one in result["fleets"])
    claims = score(own)["claims"]["false_by_severity"]
    said: dict[str, int] = {}
    for one in own:
        for fault, verdicts in one.verdicts.items():
            said[fault] = said.get(fault, 0) + sum(verdicts.values())
    whose = ", ".join(f"`{fault}` {count:,}" for fault, count in sorted(said.items()))
    yield "## While drivers are rolled out"
    yield ""
    yield f"`{result['command']}`: {upgrades:,} nodes get a new driver, rack by rack, in {sum(one.node_days for one in own):,.0f} node-days without a fault, of seeds that nothing else has; detectors `{result['judged']}`, fleet `{result['fleet']}`. All that was said, per 1,000 node-days:"
    yield ""
    yield f"| {' | '.join(it.value for it in Severity)} | of these |"
    yield "|---|---|---|---|"
    yield f"| {' | '.join(rate(claims[it.value]) for it in Severity)} | {whose or '-'} |"


def main(arguments: Sequence[str]) -> int:
    """Play the fleets and write the result."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.drivers", description=__doc__)
    parser.add_argument("fleets", type=int)
    parser.add_argument("--workers", type=int, default=2, help="fleets played at a time")
    chosen = parser.parse_args(arguments)
    stamped = stamp()
    seeds = range(FIRST_SEED, FIRST_SEED + chosen.fleets)
    with ProcessPoolExecutor(chosen.workers) as pool:
        fleets = list(pool.map(played, seeds))
    command = f"python -m evaluation.drivers {chosen.fleets}"
    RESULT.write_text(
        json.dumps({"command": command, **stamped, "fleets": fleets}, indent=1) + "\n"
    )
    print("\n".join(section(json.loads(RESULT.read_text()))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
