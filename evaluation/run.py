"""`python -m evaluation.run PART FIRST COUNT`: plays fleets and adds what came out to the results.

A fleet that was played already, by the same fleet, detectors and judge, is not played again: a run
that was cut off goes on where it was, several runs add up, and several may write at a time. The
first run of a part with another fleet or another judge puts what was there into the history, as
the figures that it came to, and begins the part anew.

With `--again` it plays what is in the results once more, writes nothing, and says what comes out
otherwise: anybody can check a row.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import timedelta
from pathlib import Path
from typing import Any

from analyzer.correlation.all_detectors import Detector
from analyzer.detectors import gpu_hung
from gpuvigil.model import Subject
from simulator.fleet import Fleet, build

from .baselines import SETS, SETTINGS
from .fingerprint import ROOT, fleet_hash, judged_hash
from .judge.claims import claims
from .judge.score import Tally, tally
from .replay import Replay
from .results import add, read
from .splits import PARTS

# Memory for an hour of a large fleet is a few hundred MB in each process.
_BLOCK = timedelta(minutes=30)
# What the analyzer itself reads of what our own detectors ask for: an incident of a whole cluster
# tells how many of its GPUs are at work. Others' detectors do not ask for it.
_ASKED = Detector(
    name="analyzer",
    find=lambda _: [],
    faults=(),
    needs=gpu_hung.NEEDS,
    reads_events=False,
    sentence="",
    source="",
)
# Results, and the pages made of them: they are no other code.
_WRITTEN = (":(exclude)evaluation/*.json", ":(exclude)docs")
# Who plays in the slice that the tests play again.
SLICE_SETS = ("gpuvigil", "DCGM health", "Mahalanobis")


def play(fleet: Fleet, sets: Iterable[str]) -> dict[str, Tally]:
    """What each set of detectors did on a fleet."""
    replays = {name: Replay(SETTINGS.get(name), (*SETS[name], _ASKED), _BLOCK) for name in sets}
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


def stamp() -> dict[str, str]:
    """What is going to play; said before, since the sources may change while it does."""
    return {"fleet": fleet_hash(), "judged": judged_hash(), "commit": checked_out()}


def run(part: str, seed: int, sets: Sequence[str], stamped: Mapping[str, str]) -> dict[str, Any]:
    """One fleet's entry of the results."""
    found = play(build(PARTS[part].fleet(seed)), sets)
    number = seed - PARTS[part].first_seed
    return {
        "part": part,
        "seed": seed,
        **stamped,
        "command": f"python -m evaluation.run {shlex.quote(part)} {number} 1",
        "tallies": {name: one.to_json() for name, one in found.items()},
    }


def missing(results: Mapping[str, Any], part: str, seed: int, sets: Iterable[str]) -> list[str]:
    """Who has not played this fleet yet, as the fleet, the detectors and the judge are now."""
    entry = results["runs"].get(f"{part}/{seed}")
    if part == "slice":
        sets = [name for name in sets if name in SLICE_SETS]
    if entry is None or (entry["fleet"], entry["judged"]) != (fleet_hash(), judged_hash()):
        return list(sets)
    return [name for name in sets if name not in entry["tallies"]]


def main(arguments: Sequence[str]) -> int:
    """Play the seeds that are not there yet, or those that are there once more."""
    stamped = stamp()
    chosen = _chosen(arguments)
    parts = list(PARTS) if chosen.part == "all" else [chosen.part]
    wanted = [
        (part, PARTS[part].first_seed + number)
        for number in range(chosen.first, chosen.first + chosen.count)
        for part in parts
    ]
    results = read()
    if chosen.again:
        return 1 if again(results, wanted, chosen.sets, chosen.workers) else 0
    todo = [(*it, them) for it in wanted if (them := missing(results, *it, chosen.sets))]
    print(f"{len(wanted) - len(todo)} of {len(wanted)} fleets are there")
    for entry in _played(todo, chosen.workers, stamped):
        add(entry)
        print(
            f"{entry['part']}/{entry['seed']} played by {', '.join(entry['tallies'])}", flush=True
        )
    return 0


def _chosen(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m evaluation.run", description=__doc__)
    parser.add_argument("part", choices=["all", *PARTS])
    parser.add_argument("first", type=int, help="first seed, counted from the part's own")
    parser.add_argument("count", type=int)
    parser.add_argument("--sets", nargs="*", choices=sorted(SETS), default=list(SETS))
    parser.add_argument("--workers", type=int, default=1, help="fleets played at a time")
    parser.add_argument(
        "--again", action="store_true", help="check what is there; exit code 1 when it differs"
    )
    chosen = parser.parse_args(arguments)
    if not 0 <= chosen.first <= chosen.first + chosen.count <= 1000:
        parser.error("a part has the seeds 0 to 999")
    return chosen


def _played(
    todo: Sequence[tuple[str, int, list[str]]], workers: int, stamped: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """What each of these came to, as soon as it is there."""
    if workers == 1:
        for one in todo:
            yield run(*one, stamped)
        return
    with ProcessPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(run, *one, stamped) for one in todo]):
            yield done.result()


def again(
    results: Mapping[str, Any], wanted: Sequence[tuple[str, int]], sets: Sequence[str], workers: int
) -> int:
    """Plays what is in the results once more, says how it compares, and counts what differs."""
    todo, different = [], 0
    for part, seed in wanted:
        kept = results["runs"].get(f"{part}/{seed}", {"tallies": {}})
        if them := [name for name in sets if name in kept["tallies"]]:
            todo.append((part, seed, them))
        else:
            print(f"{part}/{seed} is not in the results")
            different += 1
    for entry in _played(todo, workers, stamp()):
        key = f"{entry['part']}/{entry['seed']}"
        kept = results["runs"][key]
        as_now = all(kept[it] == entry[it] for it in ("fleet", "judged"))
        whose = "" if as_now else "; the results are of other code"
        for name, found in json.loads(json.dumps(entry["tallies"])).items():
            others = [word for word, it in found.items() if it != kept["tallies"][name].get(word)]
            different += bool(others)
            said = f"other {', '.join(others)}{whose}" if others else "the same numbers"
            print(f"{key} {name}: {said}", flush=True)
    return different


def checked_out(root: Path = ROOT) -> str:
    """The commit, with `-dirty` behind it where files were changed that are not written by runs."""
    found = _git(root, "describe", "--always", "--abbrev=40")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", *_WRITTEN)
    return f"{found}-dirty" if changed else found or "unknown"


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
