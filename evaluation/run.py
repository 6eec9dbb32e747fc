"""`python -m evaluation.run release`: play fleets that nobody has seen, and keep the results.

The seeds are drawn from the hash of the commit, so nobody knows them before the code is final; a tree with changes is
refused. Each fleet is played once, every tenth by all sets, and each play is added to `evaluation/plays.jsonl`, good
or not. `crowded` plays fleets of the commit with a hundred times as many faults, for recall; with `--sets` others
play every tenth, the first one included. `week` plays weeks of a site of 250 nodes and counts what alerts sends.
`tuning` plays seeds of one's choice, which are kept as such.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from datetime import timedelta
from pathlib import Path
from typing import Any

from analyzer.correlation.all_detectors import Detector
from analyzer.detectors import gpu_hung
from gpuvigil.model import Subject
from simulator.fleet import Fleet, FleetSettings, build

from .baselines import ALWAYS, NEVER, OURS, SETS, SETTINGS, variant_of, variants
from .baselines.trivial import always
from .fingerprint import ROOT, checked_out, commit_of_detectors, fleet_hash, judge_hash
from .fleets import crowded, like_the_world, release_seed, site_week
from .judge.claims import Claim, claims
from .judge.tally import Tally, tally
from .plays import CROWDED, RELEASE, TUNING, WEEK, append, read, seen
from .replay import Replay, read_every
from .site_week.account import account
from .workers import pool

# Memory for an hour of a large fleet is a few hundred MB in each process.
_BLOCK = timedelta(minutes=30)
_OTHERS_EVERY = 10
# In a week of a site: seldom enough for thousands of node-days, and as many sites read their nodes.
_TICK_SECONDS = 60.0
_MAKES: Mapping[str, Callable[[int], FleetSettings]] = {CROWDED: crowded, WEEK: site_week}
# What the analyzer itself reads through our own detectors' needs: an incident of a whole cluster shows how many of its
# GPUs are at work. Other detector sets do not ask for it.
_ASKED = Detector(
    name="analyzer",
    find=lambda _: [],
    faults=(),
    needs=gpu_hung.NEEDS,
    reads_events=False,
    sentence="",
    source="",
)


def play(
    fleet: Fleet, sets: Iterable[str], without: frozenset[str] = frozenset()
) -> dict[str, Tally]:
    """Return what each set of detectors did on a fleet, and what a constant alarm and silence would do.

    `without` are the names of detectors to leave out.
    """
    replays = {
        name: Replay(
            SETTINGS.get(name),
            (*(it for it in SETS[name] if it.name not in without), _ASKED),
            _BLOCK,
        )
        for name in sets
    }
    nodes = _fed(fleet, list(replays.values()))
    span = (fleet.settings.start, fleet.settings.end)
    said: dict[str, list[Claim]] = {ALWAYS: list(always(sorted(nodes), span)), NEVER: []}
    for name, replay in replays.items():
        found = defaultdict(list)
        for one in claims(replay.transitions):
            found[variant_of(name, one.fault)].append(one)
        said |= {variant: found[variant] for variant in variants(name)}
    truths = fleet.truths()
    return {name: tally(truths, them, len(nodes), span) for name, them in said.items()}


def _week(fleet: Fleet) -> tuple[dict[str, Tally], dict[str, Any]]:
    """Return what our own detectors did in a week that is read once a minute, and what alerts sent of it."""
    ours = Replay(read_every(_TICK_SECONDS), ahead=_BLOCK)
    nodes = _fed(fleet, [ours], _TICK_SECONDS)
    span, truths = (fleet.settings.start, fleet.settings.end), fleet.truths()
    told = tally(truths, claims(ours.transitions), len(nodes), span)
    return {OURS: told}, {"sent": account(truths, ours.transitions, span[1])}


def _fed(fleet: Fleet, replays: Sequence[Replay], tick_seconds: float = 10.0) -> set[Subject]:
    """Play the whole fleet to these analyzers, and return its nodes."""
    for happening in fleet.happenings():
        if happening.kind == "hub restart":
            for replay in replays:
                replay.hub_away(happening.start, happening.end)
    nodes: set[Subject] = set()
    for block in fleet.blocks(tick_seconds=tick_seconds, block_seconds=_BLOCK.total_seconds()):
        nodes |= {inventory.subject for inventory in block.inventories}
        for replay in replays:
            replay.feed(block)
    return nodes


def stamp(root: Path = ROOT) -> dict[str, str]:
    """Return the versions that are about to play; call it before, since the sources may change meanwhile."""
    return {
        "commit": checked_out(root),
        "detectors": commit_of_detectors(root),
        "fleet": fleet_hash(),
        "judge": judge_hash(),
    }


def run(use: str, seed: int, sets: Sequence[str], stamped: Mapping[str, str]) -> dict[str, Any]:
    """Play one fleet and return its line of the results."""
    begun = time.process_time()
    fleet = build(_MAKES.get(use, like_the_world)(seed))
    found, sent = _week(fleet) if use == WEEK else (play(fleet, sets), {})
    return {
        "use": use,
        "seed": seed,
        **stamped,
        "cpu_seconds": round(time.process_time() - begun),
        "tallies": {name: one.to_json(messages=name == OURS) for name, one in found.items()},
        # By fault: the largest share of its pace that a job lost, where the plan knows it.
        "lost": {it.id: it.pace_lost for it in fleet.truths() if it.pace_lost is not None},
        **sent,
    }


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Play what is asked for and has not been played; return 2 when the tree at `root` has changes."""
    chosen = _chosen(arguments)
    stamped = stamp(root)
    commit = stamped["commit"]
    if chosen.use != TUNING and (commit.endswith("-dirty") or commit == "unknown"):
        print("figures are published of a commit: commit the changes first", file=sys.stderr)
        return 2
    wanted = _wanted(chosen, commit)
    known = seen(read())
    todo = {seed: sets for seed, sets in wanted.items() if seed not in known}
    if len(todo) < len(wanted):
        print(f"{len(wanted) - len(todo)} of {len(wanted)} fleets were played already")
    for entry in _played(chosen.use, todo, chosen.workers, stamped):
        append(entry)
        print(f"{entry['seed']}: {entry['cpu_seconds']} s of CPU time", flush=True)
    return 0


def _wanted(chosen: argparse.Namespace, commit: str) -> dict[int, Sequence[str]]:
    """Return the seeds to play, each with the sets that play it."""
    if chosen.use == TUNING:
        return dict.fromkeys(chosen.seeds, chosen.sets)
    numbers = range(chosen.fleets)
    if chosen.use == CROWDED:
        return {
            release_seed(commit, number, CROWDED): sets_of(number, [OURS, *chosen.sets])
            for number in numbers
        }
    if chosen.use == WEEK:
        return {release_seed(commit, number, WEEK): [OURS] for number in numbers}
    return {release_seed(commit, number): sets_of(number, chosen.sets) for number in numbers}


def _chosen(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m evaluation.run", description=__doc__)
    uses = parser.add_subparsers(dest="use", required=True)
    release = uses.add_parser(RELEASE, help="fleets drawn from the commit, for the page")
    release.add_argument("--fleets", type=int, default=35, help="35 are 1,000 nodes for a week")
    full = uses.add_parser(CROWDED, help="fleets of the commit with many faults, for recall")
    full.add_argument("--fleets", type=int, default=6, help="6 have some 300 inferred faults")
    week = uses.add_parser(WEEK, help="weeks of a site of the commit, for the number of messages")
    week.add_argument("--fleets", type=int, default=6, help="6 are 10,000 node-days")
    tuning = uses.add_parser(TUNING, help="fleets to look at before the code stands")
    tuning.add_argument("seeds", type=int, nargs="+")
    for one in (release, tuning):
        one.add_argument("--sets", nargs="*", choices=list(SETS), default=list(SETS))
    others = [name for name in SETS if name != OURS]
    full.add_argument("--sets", nargs="*", choices=others, default=[], help="beside our own")
    for one in (release, full, week, tuning):
        one.add_argument("--workers", type=int, default=1, help="fleets played at a time")
    return parser.parse_args(arguments)


def sets_of(number: int, sets: Sequence[str]) -> Sequence[str]:
    """Return which sets play a commit's fleet of that number: the others cost far more than they show."""
    return sets if number % _OTHERS_EVERY == 0 else [it for it in sets if it == OURS]


def _played(
    use: str, todo: Mapping[int, Sequence[str]], workers: int, stamped: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the result of each fleet as soon as it is there."""
    with pool(workers) as workplace:
        tasks = [workplace.submit(run, use, seed, sets, stamped) for seed, sets in todo.items()]
        for done in as_completed(tasks):
            yield done.result()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
