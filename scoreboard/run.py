"""`python -m scoreboard.run PART FIRST COUNT`: plays fleets and adds what came out to the results.

A fleet that was played already, by the same fleet, detectors and judge, is not played again: a run
that was cut off goes on where it was, and several runs add up.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from collector.simulator.fleet import Fleet, build
from gpuvigil.model import Subject

from .baselines import SETS
from .baselines.peers import PEERS
from .baselines.peers import SETTINGS as PEERS_SETTINGS
from .fingerprint import ROOT, fleet_hash, judged_hash
from .judge.claims import claims
from .judge.score import Tally, tally
from .replay import Replay
from .splits import PARTS

RESULTS = ROOT / "scoreboard/results.json"
_BLOCK = timedelta(hours=1)
# Who plays in the slice that the tests play again.
SLICE_SETS = ("gpuvigil", "DCGM health", "Mahalanobis")


def play(fleet: Fleet, sets: Iterable[str]) -> dict[str, Tally]:
    """What each set of detectors did on a fleet."""
    replays = {
        name: Replay(PEERS_SETTINGS if name in PEERS else None, SETS[name], _BLOCK) for name in sets
    }
    for happening in fleet.happenings():
        if happening.kind == "hub restart":
            for replay in replays.values():
                replay.hub_away(happening.start, happening.end)
    nodes: set[Subject] = set()
    for block in fleet.blocks(block_seconds=_BLOCK.total_seconds()):
        nodes |= {inventory.subject for inventory in block.inventories}
        for replay in replays.values():
            replay.feed(block)
    span = (fleet.settings.start, fleet.settings.end)
    return {
        name: tally(fleet.truths(), claims(replay.transitions), sorted(nodes), span)
        for name, replay in replays.items()
    }


def run(part: str, seed: int, sets: Sequence[str]) -> dict[str, Any]:
    """One fleet's entry of the results."""
    found = play(build(PARTS[part].fleet(seed)), sets)
    chosen = "" if list(sets) == list(SETS) else f" --sets {shlex.join(sets)}"
    number = seed - PARTS[part].first_seed
    return {
        "part": part,
        "seed": seed,
        "fleet": fleet_hash(),
        "judged": judged_hash(),
        "commit": _commit(),
        "command": f"python -m scoreboard.run {shlex.quote(part)} {number} 1{chosen}",
        "tallies": {name: one.to_json() for name, one in found.items()},
    }


def read(path: Path = RESULTS) -> dict[str, Any]:
    """The results; empty when there are none yet."""
    if not path.exists():
        return {"runs": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def is_current(entry: dict[str, Any], sets: Iterable[str]) -> bool:
    """Whether an entry is of the fleet, the detectors and the judge as they are."""
    same = entry["fleet"] == fleet_hash() and entry["judged"] == judged_hash()
    return same and set(sets) <= set(entry["tallies"])


def write(results: dict[str, Any], path: Path = RESULTS) -> None:
    """All of it or nothing; a run's numbers in one line."""
    rows = ",\n".join(
        f"{json.dumps(key)}: {json.dumps(entry, sort_keys=True)}"
        for key, entry in sorted(results["runs"].items())
    )
    aside = path.with_suffix(".part")
    aside.write_text(f'{{"runs": {{\n{rows}\n}}}}\n', encoding="utf-8")
    os.replace(aside, path)


def main(arguments: Sequence[str]) -> int:
    """Play the seeds that are not there yet."""
    parser = argparse.ArgumentParser(prog="python -m scoreboard.run", description=__doc__)
    parser.add_argument("part", choices=["all", *PARTS])
    parser.add_argument("first", type=int, help="first seed, counted from the part's own")
    parser.add_argument("count", type=int)
    parser.add_argument("--sets", nargs="*", choices=sorted(SETS), default=list(SETS))
    chosen = parser.parse_args(arguments)
    if not 0 <= chosen.first <= chosen.first + chosen.count <= 1000:
        parser.error("a part has the seeds 0 to 999")
    parts = list(PARTS) if chosen.part == "all" else [chosen.part]
    for number in range(chosen.first, chosen.first + chosen.count):
        for part in parts:
            _add(part, PARTS[part].first_seed + number, chosen.sets)
    return 0


def _add(part: str, seed: int, sets: Sequence[str]) -> None:
    """Play one fleet, unless it is there, and keep what came out before the next one is begun."""
    key, results = f"{part}/{seed}", read()
    if part == "slice":
        sets = [name for name in sets if name in SLICE_SETS]
    if key in results["runs"] and is_current(results["runs"][key], sets):
        print(f"{key} is there")
        return
    results["runs"][key] = run(part, seed, sets)
    write(results)
    print(f"{key} played")


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
