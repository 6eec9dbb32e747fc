"""`gpuvigil play --seed N`: the detectors against a simulated fleet, with faults that anybody may define."""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from simulator.custom_kinds import load
from simulator.fleet import FleetSettings
from simulator.fleet.chance import key
from simulator.fleet.description import read

from ..fingerprint import checked_out, fleet_hash, judge_hash
from ..judge.intervals import wilson
from ..workers import pool
from .fleet_play import Counts, PlayResult, play

# The most for one fleet: small fleets spend time on each pass, large ones need memory.
_NODES, _DAYS = 128, 1.0
_FAULTS, _NODE_DAYS = 80.0, 100.0
# From this length on a fleet says how far it is.
_LONG = timedelta(hours=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What every process needs to plan its fleet again; each reads the kinds from their file."""

    kinds: Path | None
    built_in: bool  # whether the product's own kinds are played too
    rate: float | None  # faults per 1,000 node-days; None: the description's or the default
    fleet: Path | None = None  # a description of the fleet
    hosts_only: bool = False  # keep the switches' counters from the analyzer
    tick_seconds: float = 10.0

    def settings(self, seed: int, nodes: int | None = None) -> FleetSettings:
        """Return the settings of that seed's fleet; ValueError states what is wrong with a file."""
        own = load(self.kinds) if self.kinds is not None else ()
        names = None if self.built_in or not own else tuple(kind.key for kind in own)
        if self.fleet is None:
            assert nodes is not None
            rate = _FAULTS if self.rate is None else self.rate
            return FleetSettings(
                seed=seed, nodes=nodes, days=_DAYS, fault_rate=rate, kinds=names, more_kinds=own
            )
        described = read(self.fleet, seed, own)
        return replace(
            described,
            nodes=described.nodes if nodes is None else nodes,
            kinds=described.kinds if names is None else names,
            fault_rate=described.fault_rate if self.rate is None else self.rate,
        )


def main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil play`: 0 once everything was played, 2 when a file or an option makes no sense."""
    chosen = _parser().parse_args(arguments)
    order = Order(
        kinds=chosen.kinds,
        built_in=chosen.built_in_kinds,
        rate=chosen.faults,
        fleet=chosen.fleet,
        hosts_only=chosen.hosts_only,
        tick_seconds=float(chosen.tick_seconds),
    )
    try:
        wanted = list(_wanted(order, chosen.seed, chosen.node_days))
        fleets = list(_played(order, wanted, chosen.workers))
    except ValueError as error:
        print(f"gpuvigil play: {error}", file=sys.stderr)
        return 2
    for note in unread(fleets):
        print(note, file=sys.stderr)
    counts = Counts.of(fleets)
    if chosen.form == "json":
        print(json.dumps(_json(chosen.seed, counts, fleets), indent=2))
    else:
        print(line(counts))
    return 0


def line(counts: Counts) -> str:
    """Return one line on what was found and what was wrong."""
    of, low_high = counts.faults, wilson(counts.found, counts.faults)
    found = f"{counts.found} of {of} faults found"
    if of:
        found += f" ({100 * counts.found / of:.0f} %, 95 % interval {100 * low_high[0]:.0f} to {100 * low_high[1]:.0f})"
    parts = [
        f"{counts.node_days:g} node-days: {found}",
        f"{counts.right_cause} with the right cause",
        f"{counts.one_incident} in exactly one incident",
    ]
    if counts.seconds:
        parts.append(f"median {statistics.median(counts.seconds):.0f} s")
    wrong = ", ".join(f"{number} {severity}" for severity, number in counts.wrong.items())
    looked = f"; {counts.look_alikes_told} of {counts.look_alikes} look-alikes told as faults"
    unseen = f"; {counts.hidden} more could show nowhere and {'does' if counts.hidden == 1 else 'do'} not count"
    more = f"{looked if counts.look_alikes else ''}{unseen if counts.hidden else ''}"
    return f"{', '.join(parts)}; wrong incidents: {wrong}{more}"


def unread(fleets: Iterable[PlayResult]) -> list[str]:
    """Return a line for each field that kinds change without effect."""
    fields = sorted({field for fleet in fleets for field in fleet.unread})
    words = "gpuvigil play: this fleet does not read {}: what a kind changes there shows nowhere"
    return [words.format(field) for field in fields]


def _wanted(order: Order, seed: int, node_days: float | None) -> Iterator[tuple[int, int]]:
    """Yield seed and nodes of each fleet: together they have the node-days; a described fleet is played once."""
    most, days = _NODES, _DAYS
    if order.fleet is not None:
        described = order.settings(seed)
        most, days = described.nodes, described.days
        node_days = node_days or most * days
    # Rounded first: in floating point, 0.15 / 0.05 is slightly above 3.
    nodes = math.ceil(round((node_days or _NODE_DAYS) / days, 6))
    fleets = math.ceil(nodes / most)
    for number in range(fleets):
        share = nodes // fleets + (number < nodes % fleets)
        # The first fleet has the seed itself, so that a single small fleet is the one that was asked for.
        yield (seed if number == 0 else key(seed, "play", number) >> 1), share


def _played(order: Order, wanted: Sequence[tuple[int, int]], workers: int) -> Iterator[PlayResult]:
    """Yield each fleet in the order of the list; progress goes to standard error."""
    done: dict[int, PlayResult] = {}
    with pool(min(workers, len(wanted))) as workplace:
        running = {workplace.submit(_one, order, *it): place for place, it in enumerate(wanted)}
        for future in as_completed(running):
            done[running[future]] = future.result()
            print(f"gpuvigil play: {len(done)} of {len(wanted)} fleets", file=sys.stderr)
    yield from (done[place] for place in sorted(done))


def _one(order: Order, seed: int, nodes: int) -> PlayResult:
    settings = order.settings(seed, nodes)
    progress = Progress(seed, settings.end - settings.start)
    return play(settings, not order.hosts_only, order.tick_seconds, progress.reached)


@dataclass(slots=True)
class Progress:
    """Says on standard error, at each tenth of a long fleet, how far it is."""

    seed: int
    length: timedelta
    tenths: int = 0

    def reached(self, played: timedelta) -> None:
        """Say it, where another tenth of a fleet of hours was played."""
        tenths = int(10 * played / self.length)
        if self.length >= _LONG and self.tenths < tenths < 10:
            hours, of = (it / timedelta(hours=1) for it in (played, self.length))
            words = f"gpuvigil play: fleet {self.seed}: {hours:g} of {of:g} hours"
            print(words, file=sys.stderr, flush=True)
        self.tenths = tenths


def _json(seed: int, counts: Counts, fleets: Sequence[PlayResult]) -> dict[str, Any]:
    return {
        "seed": seed,
        "fleet": fleet_hash(),
        "judge": judge_hash(),
        "commit": checked_out(),
        "node_days": counts.node_days,
        "faults": counts.faults,
        "found": counts.found,
        "found_interval": wilson(counts.found, counts.faults),
        "right_cause": counts.right_cause,
        "exactly_one_incident": counts.one_incident,
        "wrong_incidents": counts.wrong,
        "hidden": counts.hidden,
        "look_alikes": counts.look_alikes,
        "look_alikes_told": counts.look_alikes_told,
        "median_seconds": statistics.median(counts.seconds) if counts.seconds else None,
        "fleets": [fleet.to_json() for fleet in fleets],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuvigil play",
        description="Play a simulated fleet through the detectors and judge what they say.",
        epilog="docs/play.md says how to write a file of kinds.",
    )
    parser.add_argument(
        "--seed", type=int, required=True, help="any number; each is a different fleet"
    )
    parser.add_argument(
        "--node-days",
        type=_positive,
        help=f"how much is played; if left out {_NODE_DAYS:g}, or the fleet of --fleet once",
    )
    parser.add_argument(
        "--fleet",
        type=Path,
        metavar="FILE.toml",
        help="description of the fleet; docs/fleet.md has its keys",
    )
    parser.add_argument(
        "--kinds",
        type=Path,
        metavar="FILE.py",
        help="kinds of faults to play instead of the built-in ones",
    )
    parser.add_argument(
        "--built-in-kinds", action="store_true", help="also play the built-in kinds"
    )
    parser.add_argument(
        "--faults",
        type=_not_negative,
        metavar="RATE",
        help=f"faults per 1,000 node-days; if left out {_FAULTS:g}, or what --fleet says",
    )
    parser.add_argument(
        "--hosts-only",
        action="store_true",
        help="do not read the fleet's switches",
    )
    parser.add_argument(
        "--tick-seconds",
        type=int,
        choices=(10, 20, 30, 60),
        default=10,
        help="how often nodes are read; default: 10; 60 takes a sixth of the time",
    )
    parser.add_argument(
        "--workers", type=int, default=2, help="fleets played at a time; default: 2"
    )
    parser.add_argument(
        "-o",
        dest="form",
        choices=("line", "json"),
        default="line",
        help="json: every incident and every truth",
    )
    return parser


def _positive(text: str) -> float:
    value = _not_negative(text)
    if value == 0.0:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return value
