"""`python -m evaluation.healthy_network NODE_DAYS`: does anything of a sound network wake somebody?

Fleets without a fault, with all that only looks like one, of which the network's detectors hear nodes and
ports alone, once a minute: so a thousand node-days take about two minutes. Seeds follow from the
commit. What is critical there is wrong; of none in n node-days the rate is below 3/n with 95 % (rule of
three: Hanley and Lippman-Hand, JAMA 1983), of some as Poisson's distribution has it.
"""

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from analyzer.correlation.all_detectors import DETECTORS, Detector
from gpuvigil.faults import FAULTS, About, Shows
from gpuvigil.model import Severity
from simulator.fleet import build
from simulator.fleet.world import world

from .fleets import release_seed
from .judge.claims import Claim, claims
from .replay import Replay, read_every
from .run import stamp

_TICK_SECONDS, _BLOCK = 60.0, timedelta(hours=1)
# A fleet's; with one port of the fabric each, so that one that is lost is graver than of several.
_NODES, _DAYS, _GPUS, _RACK = 1000, 1.0, 1, 8
_MIX = (("data parallel", 0.7), ("ragged training", 0.2), ("notebook", 0.1))
_TABLES = frozenset({"node", "port"})
_DOUBT = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A healthy fleet, and what was said of its network."""

    seed: int
    node_days: float
    cpu_seconds: float
    said: tuple[Claim, ...]

    @property
    def critical(self) -> tuple[Claim, ...]:
        return tuple(it for it in self.said if it.severity is Severity.CRITICAL)


def detectors() -> list[Detector]:
    """Those of ports and switches, and who knows that a node is silent: that explains much of theirs."""

    def is_asked(fault: str) -> bool:
        return is_of_network(fault) or FAULTS[fault].shows is Shows.UNHEARD

    return [it for it in DETECTORS if any(map(is_asked, it.faults))]


def is_of_network(fault: str) -> bool:
    return FAULTS[fault].about in {About.PORT, About.SWITCH}


def play(seed: int, nodes: int = _NODES, days: float = _DAYS) -> Played:
    """One fleet without a fault."""
    begun = time.process_time()
    settings = world(
        seed,
        nodes=nodes,
        days=days,
        faults_per_1000_node_days=0.0,
        gpus_per_node=_GPUS,
        nodes_per_rack=_RACK,
        mix=_MIX,
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
    return Played(
        seed=seed,
        node_days=nodes * days,
        cpu_seconds=time.process_time() - begun,
        said=said,
    )


def lines(played: Sequence[Played], commit: str) -> Iterator[str]:
    """What came of it, for people."""
    node_days = sum(it.node_days for it in played)
    wrong = [claim for it in played for claim in it.critical]
    seconds, seeds = sum(it.cpu_seconds for it in played), ", ".join(str(it.seed) for it in played)
    yield f"commit {commit[:12]}, seeds {seeds}: {node_days:,.0f} healthy node-days in {seconds:.0f} s of CPU time"
    rate = len(wrong) / node_days
    bound = _most(len(wrong)) / node_days
    yield f"wrong criticals: {len(wrong)}, {rate:.4f} per node-day, below {bound:.4f} with 95 %"
    told = Counter((it.fault, it.severity.value) for one in played for it in one.said)
    for (fault, severity), count in sorted(told.items()):
        yield f"  {severity} {fault}: {count}, {1000.0 * count / node_days:.1f} per 1,000 node-days"
    for claim in wrong:
        yield f"  WRONG {claim.opened_at:%d %H:%M:%S} {claim.title}: {claim.subject.key}, {len(claim.members)} members"


def _most(count: int) -> float:
    """The largest mean of which so few are seen at least once in twenty times."""
    low, high = 0.0, 10.0 * (count + 1)
    for _ in range(50):
        mean = (low + high) / 2.0
        seen = math.fsum(
            math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1)
        )
        low, high = (mean, high) if seen > _DOUBT else (low, mean)
    return low


def main(arguments: Sequence[str]) -> int:
    """Play and show; 1 where anything critical was said."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.healthy_network")
    parser.add_argument("node_days", type=int, nargs="?", default=5000)
    parser.add_argument("--seeds", type=int, nargs="+", help="fleets of one's choice")
    chosen = parser.parse_args(arguments)
    commit = stamp()["commit"]
    count = -(-chosen.node_days // round(_NODES * _DAYS))
    seeds = chosen.seeds or [release_seed(commit, it) for it in range(count)]
    played = []
    for seed in seeds:
        played.append(play(seed))
        print(
            f"seed {seed}: {played[-1].cpu_seconds:.0f} s, {len(played[-1].critical)} critical",
            file=sys.stderr,
            flush=True,
        )
    print("\n".join(lines(played, commit)))
    return 1 if any(it.critical for it in played) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
