"""`python -m evaluation.network FLEETS`: what counters of switches add to those of hosts.

Fleets dense in faults of the network, each played once and told to two analyzers: one hears hosts alone,
the other also who reads the switches. Seeds follow from the commit, so that nobody knew them before; a tree
with changes is refused. Writes `evaluation/network.json`; `make docs` makes a section of
`docs/accuracy.md` from it. With `--seeds` fleets of one's choice are played and shown, and nothing is kept.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from simulator.fabric.cabling import CABLES, SPINES
from simulator.fleet import FaultOrder, Fleet, FleetSettings, build
from simulator.fleet.kinds import KINDS, OF_SWITCHES
from simulator.fleet.plan import peers
from simulator.fleet.topology import NODES_PER_POD
from simulator.fleet.world import world

from .fingerprint import is_committed
from .fleets import release_seed
from .judge.claims import Claim, claims
from .judge.intervals import wilson
from .judge.matching import Judged, Outcome, Verdict, judge
from .replay import Replay
from .run import stamp

RESULT = Path(__file__).with_suffix(".json")
HOSTS, BOTH = "hosts", "hosts and switches"
_NODES, _GPUS, _RACK = NODES_PER_POD + 16, 4, 8
_HOURS, _BLOCK = 2.5, timedelta(minutes=30)
# Of a host's link or a node, and of a whole leaf; the others are between switches.
OF_LINKS = ("port down", "port flap", "bad cable", "slow link", "slow receiver", "lossy path",
            "hot module", "slow node network")  # fmt: skip
OF_LEAVES = ("leaf down", "congestion")
GROUPS: Mapping[str, tuple[str, ...]] = {
    "a host's link": OF_LINKS,
    "a leaf": OF_LEAVES,
    "between switches": tuple(OF_SWITCHES),
}
# Those that nobody sees without a job over several nodes.
_NEED_JOBS = frozenset({"slow receiver", "lossy path", "slow node network", "congestion"})
_EACH_LINK, _EACH_UPLINK = 1, 2
_BEGIN_HOURS, _LAST_HOURS = (0.6, 1.6), (0.4, 0.7)
# Faults of a whole leaf, one after the other: when each begins, and for how many seconds it stays.
_LEAF_HOURS, _LEAF_SECONDS = (0.6, 1.5), 1800.0
# Work that spans nodes, so that the network has something to carry [chosen].
_MIX = (
    ("data parallel", 0.5),
    ("tensor parallel", 0.2),
    ("ragged training", 0.2),
    ("notebook", 0.1),
)


def fleet_of(seed: int) -> FleetSettings:
    """A fleet like the world whose switches are read: a pod for faults of leaves, and half another one.

    Elsewhere each kind is on a node, or a cable, of its own; the lost spine has no other fault.
    """
    chance = Random(seed)
    bare = world(
        seed,
        nodes=_NODES,
        days=_HOURS / 24.0,
        faults_per_1000_node_days=0.0,
        gpus_per_node=_GPUS,
        nodes_per_rack=_RACK,
        mix=_MIX,
        switches=True,
    )
    jobs = build(bare).plan.jobs
    nodes = chance.sample(range(NODES_PER_POD, _NODES), _NODES - NODES_PER_POD)

    def busy(node: int, port: int, start: float) -> bool:
        gpus = peers(jobs, (_GPUS * node + port,), start)
        return len({gpu // _GPUS for gpu in gpus}) > 1

    orders = []
    for kind in [it for it in OF_LINKS for _ in range(_EACH_LINK)]:
        start, port = _begin(chance), chance.randrange(_GPUS)
        node = next(
            (it for it in nodes if kind not in _NEED_JOBS or busy(it, port, start)), nodes[0]
        )
        nodes.remove(node)
        target = KINDS[kind].target
        order = FaultOrder(kind=kind, node=node, start_seconds=start, seconds=_length(chance))
        orders.append(replace(order, port=port if target == "port" else None))
    rails = chance.sample(range(_GPUS), len(OF_LEAVES))
    for kind, hour, port in zip(OF_LEAVES, _LEAF_HOURS, rails, strict=True):
        start = hour * 3600.0
        node = next((it for it in range(NODES_PER_POD) if busy(it, port, start)), 0)
        order = FaultOrder(kind=kind, node=node, start_seconds=start, seconds=_LEAF_SECONDS)
        orders.append(replace(order, port=port))
    return replace(bare, faults=(*orders, *_between(chance)))


def _between(chance: Random) -> Iterator[FaultOrder]:
    """Faults of cables to all spines but the one that is lost."""
    lost = chance.randrange(SPINES)
    left = [it for it in range(SPINES * CABLES) if it // CABLES != lost]
    uplinks = iter(chance.sample(left, _EACH_UPLINK * (len(OF_SWITCHES) - 1)))
    for kind, it in OF_SWITCHES.items():
        for _ in range(1 if it.target == "spine" else _EACH_UPLINK):
            order = FaultOrder(
                kind=kind,
                node=chance.randrange(_NODES),
                start_seconds=_begin(chance),
                seconds=_length(chance),
            )
            if it.target == "spine":
                yield replace(order, spine=lost)
            else:
                yield replace(order, port=chance.randrange(_GPUS), uplink=next(uplinks))


def _begin(chance: Random) -> float:
    return float(round(chance.uniform(*_BEGIN_HOURS) * 3600.0))


def _length(chance: Random) -> float:
    return float(round(chance.uniform(*_LAST_HOURS) * 3600.0))


def heard(fleet: Fleet) -> dict[str, list[Claim]]:
    """What each of the two analyzers said of a fleet."""
    replays = {name: Replay(ahead=_BLOCK, switches=name == BOTH) for name in (HOSTS, BOTH)}
    for happening in fleet.happenings():
        if happening.kind == "hub restart":
            for replay in replays.values():
                replay.hub_away(happening.start, happening.end)
    for block in fleet.blocks(block_seconds=_BLOCK.total_seconds()):
        for replay in replays.values():
            replay.feed(block)
    return {name: claims(replay.transitions) for name, replay in replays.items()}


def played(seed: int) -> dict[str, Any]:
    """One fleet's outcomes, by what the analyzer heard; messages are of the network alone."""
    begun = time.process_time()
    fleet = build(fleet_of(seed))
    truths = [truth for truth in fleet.truths() if not truth.hidden]
    found: dict[str, Any] = {}
    for name, said in heard(fleet).items():
        outcomes, judged = judge(truths, said)
        found[name] = {
            "faults": [_fault(it) for it in outcomes],
            "messages": [_message(it) for it in judged if _is_read(it)],
        }
    return {
        "seed": seed,
        "roce": fleet.plan.topology.is_roce,
        "node_days": _NODES * _HOURS / 24.0,
        "cpu_seconds": round(time.process_time() - begun),
        **found,
    }


def _fault(it: Outcome) -> dict[str, Any]:
    return {
        "id": it.id,
        "kind": it.fault,
        "seconds": it.seconds,
        "cause": it.cause,
        "place": it.place,
        "one": it.exactly_one,
        "incidents": it.incidents,
    }


def _is_read(it: Judged) -> bool:
    """A warning or a critical that is about the network, or about a fault of it."""
    about = it.claim.subject
    of_network = about.port is not None or it.verdict is Verdict.RIGHT
    return it.claim.read_at is not None and of_network


def _message(it: Judged) -> dict[str, Any]:
    return {
        "title": it.claim.title,
        "subject": it.claim.subject.key,
        "at": it.claim.spans[-1][0].isoformat(),
        "verdict": it.verdict.value,
        "truth": it.truth,
    }


def section(result: Mapping[str, Any]) -> Iterator[str]:
    """What was found by whom, as tables."""
    fleets = result["fleets"]
    node_days = sum(one["node_days"] for one in fleets)
    seeds = ", ".join(str(one["seed"]) for one in fleets)
    yield "## What switch counters add"
    yield ""
    yield f"`{result['command']}`: {len(fleets)} fleets of {_NODES} nodes and {_HOURS:g} hours ({node_days:.0f} node-days, {sum(one['roce'] for one in fleets)} of them RoCE), dense in faults of the network, each told to an analyzer that hears hosts alone and to one that hears also [who reads the switches](switches.md). Seeds {seeds} follow from commit `{result['commit'][:12]}`; fleet `{result['fleet']}`, judge `{result['judge']}`. *Right element*: the very port, cable or switch, by either end. *One incident*: exactly one, of the right cause. *Precision*: of warnings and criticals about ports, those that are about a fault that is there, what follows from it included. Intervals are of 95 % (Wilson)."
    yield ""
    yield "| fault of | heard | found | right cause | right element | one incident | median s |"
    yield "|---|---|---|---|---|---|---|"
    for group, kinds in GROUPS.items():
        for name in (HOSTS, BOTH):
            yield f"| {group} | {name} | {' | '.join(_cells(fleets, name, kinds))} |"
    yield ""
    yield "| heard | messages about ports | precision | wrong per node-day |"
    yield "|---|---|---|---|"
    for name in (HOSTS, BOTH):
        verdicts = [it["verdict"] for one in fleets for it in one[name]["messages"]]
        wrong = verdicts.count(Verdict.FALSE.value)
        right = _share(len(verdicts) - wrong, len(verdicts))
        yield f"| {name} | {len(verdicts)} | {right} | {wrong / node_days:.2f} ({wrong}) |"
    yield ""
    yield (
        "Fault by fault, found of all, by hosts alone and with switches: "
        + ", ".join(
            f"{kind} {_hits(fleets, HOSTS, kind)} and {_hits(fleets, BOTH, kind)}"
            for kinds in GROUPS.values()
            for kind in kinds
        )
        + "."
    )


def _cells(fleets: Sequence[Any], name: str, kinds: Sequence[str]) -> Iterator[str]:
    own = [it for one in fleets for it in one[name]["faults"] if it["kind"] in kinds]
    found = [it for it in own if it["seconds"] is not None]
    yield _share(len(found), len(own))
    for what in ("cause", "place", "one"):
        yield _share(sum(it[what] for it in own), len(own))
    seconds = sorted(it["seconds"] for it in found)
    yield f"{seconds[len(seconds) // 2]:.0f}" if seconds else "-"


def _hits(fleets: Sequence[Any], name: str, kind: str) -> str:
    own = [it for one in fleets for it in one[name]["faults"] if it["kind"] == kind]
    return f"{sum(it['seconds'] is not None for it in own)} of {len(own)}"


def _share(hits: int, of: int) -> str:
    if not of:
        return "-"
    low, high = wilson(hits, of)
    return f"{hits / of:.2f} ({low:.2f} to {high:.2f}, {hits} of {of})"


def details(fleets: Sequence[Any]) -> Iterator[str]:
    """What was missed, said twice or wrong: for who tunes."""
    for one in fleets:
        yield f"seed {one['seed']}{', RoCE' if one['roce'] else ''}: {one['cpu_seconds']} s of CPU time"
        for name in (HOSTS, BOTH):
            for it in one[name]["faults"]:
                if it["seconds"] is None or not (it["cause"] and it["place"] and it["one"]):
                    said = Counter(
                        f"{m['title']} at {m['subject']} ({m['verdict']})"
                        for m in one[name]["messages"]
                        if m["truth"] == it["id"]
                    )
                    yield f"  {name}: {it} {dict(said)}"
            for m in one[name]["messages"]:
                if m["verdict"] == Verdict.FALSE.value:
                    yield f"  {name}: WRONG {m}"


def main(arguments: Sequence[str]) -> int:
    """Play, show, and keep what was not of one's own choice; 2 for a tree with changes."""
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
