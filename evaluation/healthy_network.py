"""`python -m evaluation.healthy_network NODE_DAYS`: does a healthy network page anybody?

Fleets without a fault, with all that only looks like one; the network's detectors get only nodes and
ports, once a minute, so a thousand node-days take about two minutes. Seeds follow from the
commit. Any critical or warning is wrong; with none in n node-days the rate is below 3/n with 95 %
(rule of three: Hanley and Lippman-Hand, JAMA 1983), with some it follows Poisson's distribution. With
`--switches` the switches are read, too, and are serviced, miscounted and unread as in world settings. Results of
unchosen seeds are kept in `evaluation/healthy_network.json`, from which `make docs` makes a section of
`docs/accuracy.md`.
"""

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from analyzer.correlation.all_detectors import DETECTORS, Detector
from gpuvigil.faults import FAULTS, About, Shows
from gpuvigil.model import Severity
from simulator.fleet import build
from simulator.fleet.world import world

from .fingerprint import is_committed
from .fleets import release_seed
from .judge.claims import Claim, claims
from .replay import Replay, read_every
from .run import stamp

RESULT = Path(__file__).with_suffix(".json")
HEARD = ("hosts", "hosts and switches")
_COMMAND = "python -m evaluation.healthy_network"
_TICK_SECONDS, _BLOCK = 60.0, timedelta(hours=1)
# The size of a fleet; one fabric port per node, since losing the only port is graver than one of several.
_NODES, _DAYS, _GPUS, _RACK = 1000, 1.0, 1, 8
_MIX = (("data parallel", 0.7), ("ragged training", 0.2), ("notebook", 0.1))
_TABLES = frozenset({"node", "port"})
_DOUBT = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthyPlay:
    """A healthy fleet, and what was reported about its network."""

    seed: int
    node_days: float
    cpu_seconds: float
    said: tuple[Claim, ...]

    @property
    def critical(self) -> tuple[Claim, ...]:
        return self.as_grave_as(Severity.CRITICAL)

    def as_grave_as(self, severity: Severity) -> tuple[Claim, ...]:
        """Return the claims whose highest severity was this one."""
        return tuple(it for it in self.said if it.severity is severity)


def detectors() -> list[Detector]:
    """Return the detectors of ports and switches, and that of silent nodes, which explains many of their findings."""

    def is_asked(fault: str) -> bool:
        return is_of_network(fault) or FAULTS[fault].shows is Shows.UNHEARD

    return [it for it in DETECTORS if any(map(is_asked, it.faults))]


def is_of_network(fault: str) -> bool:
    return FAULTS[fault].about in {About.PORT, About.SWITCH}


def play(
    seed: int,
    nodes: int = _NODES,
    days: float = _DAYS,
    *,
    gpus: int = _GPUS,
    switches: bool = False,
) -> HealthyPlay:
    """Play one fleet without a fault, with so many GPUs and fabric ports a node."""
    begun = time.process_time()
    settings = world(
        seed,
        nodes=nodes,
        days=days,
        faults_per_1000_node_days=0.0,
        gpus_per_node=gpus,
        nodes_per_rack=_RACK,
        mix=_MIX,
        switches=switches,
    )
    fleet = build(settings)
    replay = Replay(read_every(_TICK_SECONDS), detectors(), ahead=_BLOCK)
    for happening in fleet.happenings():
        if happening.kind == "hub restart":
            replay.hub_away(happening.start, happening.end)
    for block in fleet.blocks(tick_seconds=_TICK_SECONDS, block_seconds=_BLOCK.total_seconds()):
        tables = {name: rows for name, rows in block.tables.items() if name in _TABLES}
        replay.feed(replace(block, tables=tables))
    said = tuple(it for it in claims(replay.transitions) if is_of_network(it.fault))
    return HealthyPlay(
        seed=seed,
        node_days=nodes * days,
        cpu_seconds=time.process_time() - begun,
        said=said,
    )


def lines(played: Sequence[HealthyPlay], commit: str) -> Iterator[str]:
    """Yield the result for people."""
    node_days = sum(it.node_days for it in played)
    wrong = [claim for it in played for claim in it.critical]
    seconds, seeds = sum(it.cpu_seconds for it in played), ", ".join(str(it.seed) for it in played)
    yield f"commit {commit[:12]}, seeds {seeds}: {node_days:,.0f} healthy node-days in {seconds:.0f} s of CPU time"
    warned = [claim for it in played for claim in it.as_grave_as(Severity.WARNING)]
    for name, them in (("criticals", wrong), ("warnings", warned)):
        rate, bound = len(them) / node_days, _most(len(them)) / node_days
        yield f"wrong {name}: {len(them)}, {rate:.4f} per node-day, below {bound:.4f} with 95 %"
    told = Counter((it.fault, it.severity.value) for one in played for it in one.said)
    for (fault, severity), count in sorted(told.items()):
        yield f"  {severity} {fault}: {count}, {1000.0 * count / node_days:.1f} per 1,000 node-days"
    for claim in (*wrong, *warned):
        yield f"  WRONG {claim.opened_at:%d %H:%M:%S} {claim.title}: {claim.subject.key}, {len(claim.members)} members"


def _most(count: int) -> float:
    """Return the largest mean with which so few are seen at least once in twenty times."""
    low, high = 0.0, 10.0 * (count + 1)
    for _ in range(50):
        mean = (low + high) / 2.0
        seen = math.fsum(
            math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1)
        )
        low, high = (mean, high) if seen > _DOUBT else (low, mean)
    return low


def record(
    played: Sequence[HealthyPlay], stamped: Mapping[str, str], command: str
) -> dict[str, Any]:
    """Return what is kept of plays with unchosen seeds."""
    return {
        "command": command,
        **stamped,
        "fleets": [
            {
                "seed": one.seed,
                "node_days": one.node_days,
                "cpu_seconds": round(one.cpu_seconds),
                "said": dict(Counter(f"{it.severity.value} {it.fault}" for it in one.said)),
            }
            for one in played
        ],
    }


def section(kept: Mapping[str, Any]) -> Iterator[str]:
    """Yield the section on pages without a fault, as a table."""
    yield "## A healthy network"
    yield ""
    yield f"Fleets of {_NODES:,} nodes and {24.0 * _DAYS:g} hours without a fault, but with everything that looks like one: bursts of collectives, discards and pauses, checkpoints, jobs that start and end, ports that are switched off or were never plugged in, maintenance of racks and spines, nodes that are late or reboot. The network's detectors read nodes and ports once a minute, and switches where the row says so. Every report is wrong. *Below*: upper bound at 95 % (Poisson)."
    yield ""
    yield "| reads | node-days | wrong criticals | below, per 1,000 node-days | wrong warnings | below, per 1,000 node-days | notes |"
    yield "|---|---|---|---|---|---|---|"
    for heard in HEARD:
        if heard in kept:
            yield f"| {heard} | {' | '.join(_cells(kept[heard]['fleets']))} |"
    for heard in HEARD:
        if heard in kept:
            one = kept[heard]
            seeds = ", ".join(str(it["seed"]) for it in one["fleets"])
            told = _told(one["fleets"])
            said = ", ".join(f"{what} {count}" for what, count in sorted(told.items()))
            yield ""
            yield f"{heard.capitalize()}: `{one['command']}`, seeds {seeds} are drawn from commit `{one['commit'][:12]}`; fleet `{one['fleet']}`. Reported: {said or 'nothing'}."


def _told(fleets: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return sum((Counter(one["said"]) for one in fleets), Counter[str]())


def _cells(fleets: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    node_days, told = sum(one["node_days"] for one in fleets), _told(fleets)
    counts = {
        it: sum(n for what, n in told.items() if what.startswith(f"{it.value} ")) for it in Severity
    }
    yield f"{node_days:,.0f}"
    for severity in (Severity.CRITICAL, Severity.WARNING):
        yield str(counts[severity])
        yield f"{1000.0 * _most(counts[severity]) / node_days:.2f}"
    yield str(counts[Severity.INFO])


def main(arguments: Sequence[str]) -> int:
    """Play, show, and keep results of unchosen seeds; return 1 if anything critical was reported."""
    parser = argparse.ArgumentParser(prog=_COMMAND)
    parser.add_argument("node_days", type=int, nargs="?", default=5000)
    parser.add_argument("--seeds", type=int, nargs="+", help="fleets of one's choice: none is kept")
    parser.add_argument("--gpus", type=int, help="of a node, and its fabric ports: none is kept")
    parser.add_argument("--switches", action="store_true", help="somebody reads those, too")
    chosen = parser.parse_args(arguments)
    stamped = stamp()
    count = -(-chosen.node_days // round(_NODES * _DAYS))
    seeds = chosen.seeds or [release_seed(stamped["commit"], it) for it in range(count)]
    played = []
    for seed in seeds:
        played.append(play(seed, gpus=chosen.gpus or _GPUS, switches=chosen.switches))
        print(
            f"seed {seed}: {played[-1].cpu_seconds:.0f} s, {len(played[-1].critical)} critical of {len(played[-1].said)}",
            file=sys.stderr,
            flush=True,
        )
    print("\n".join(lines(played, stamped["commit"])))
    if chosen.seeds is None and chosen.gpus is None and is_committed(stamped["commit"]):
        words = f"{chosen.node_days} --switches" if chosen.switches else str(chosen.node_days)
        _keep(HEARD[chosen.switches], record(played, stamped, f"{_COMMAND} {words}"))
    return 1 if any(it.critical for it in played) else 0


def _keep(heard: str, one: Mapping[str, Any]) -> None:
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    RESULT.write_text(json.dumps({**kept, heard: one}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
