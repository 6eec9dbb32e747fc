"""`python -m evaluation.network FLEETS`: what counters of switches add to those of hosts.

Fleets with many network faults are each played once for two analyzers: one reads hosts alone, the other also reads
the switches. Seeds follow from the commit, so that nobody knew them before; a tree with changes is refused. The
command writes `evaluation/network.json`; `make docs` makes a section of `docs/accuracy.md` from it. With `--seeds`,
fleets of one's choice are played and shown, and nothing is kept.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from analyzer.evidence.fabric_links import NOT_OBSERVABLE
from gpuvigil.model import Incident, Record, Transition
from simulator.fabric.cabling import CABLES, SPINES
from simulator.fleet import FaultOrder, Fleet, FleetSettings, Truth, build
from simulator.fleet.jobs import Job
from simulator.fleet.kinds import KINDS, OF_SWITCHES
from simulator.fleet.topology import NODES_PER_POD
from simulator.fleet.world import world

from .fingerprint import is_committed
from .fleets import release_seed
from .judge.claims import claims
from .judge.intervals import wilson
from .judge.matching import Judged, Outcome, Verdict, judge
from .plays import COSTLY
from .replay import Replay
from .run import stamp

RESULT = Path(__file__).with_suffix(".json")
HOSTS, BOTH = "hosts", "hosts and switches"
_NODES, _GPUS, _RACK = 2 * NODES_PER_POD, 4, 8
_HOURS, _BLOCK = 2.5, timedelta(minutes=30)
# Faults of a host's link or a node, and of a whole leaf; the others are between switches.
OF_LINKS = ("port down", "port flap", "bad cable", "slow link", "slow receiver", "lossy path",
            "hot module", "slow node network")  # fmt: skip
OF_LEAVES = ("leaf down", "congestion")
GROUPS: Mapping[str, tuple[str, ...]] = {
    "a host's link": OF_LINKS,
    "a leaf": OF_LEAVES,
    "between switches": tuple(OF_SWITCHES),
}
# Faults that a job over several nodes feels; most of them cannot be seen without such a job.
FELT = ("slow node network", "slow receiver", "lossy path", "slow link", "port down")
_EACH_UPLINK = 2
_BEGIN_HOURS, _LAST_HOURS = (0.6, 1.6), (0.4, 0.7)
# Faults of a whole leaf, one after the other: when each begins, and for how many seconds it lasts.
_LEAF_HOURS, _LEAF_SECONDS = (0.6, 1.5), 1800.0
# Work that spans nodes, and more of it than fits, so that the network is loaded [chosen].
_DEMAND = 1.2
_MIX = (
    ("data parallel", 0.8),
    ("tensor parallel", 0.1),
    ("ragged training", 0.05),
    ("notebook", 0.05),
)
_RIGHT = ("cause", "place", "severity", "one")


def fleet_of(seed: int) -> FleetSettings:
    """Return a realistic fleet whose switches are read: one pod for faults of links, one for faults of leaves.

    Each fault has a node or a cable of its own; the lost spine has no other fault. A fault that a job has to feel is
    left out where there is no such job.
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
        demand=_DEMAND,
        switches=True,
    )
    jobs = [job for job in build(bare).plan.jobs if len(_nodes(job)) > 1]
    orders = (*_of_links(chance, jobs), *_of_leaves(chance, jobs), *_between(chance))
    return replace(bare, faults=orders)


def _nodes(job: Job) -> list[int]:
    return sorted({gpu // _GPUS for gpu in job.gpus})


def _of_links(chance: Random, jobs: Sequence[Job]) -> Iterator[FaultOrder]:
    """Yield faults of the first pod's links, each on its own node; no job feels two of them."""
    free = set(range(NODES_PER_POD))
    left = [job for job in jobs if set(_nodes(job)) <= free]
    for kind in (*FELT, *(it for it in OF_LINKS if it not in FELT)):
        start, seconds = _begin(chance), _length(chance)
        nodes = sorted(free)
        if kind in FELT:
            whole = [job for job in left if job.start < start and job.end > start + seconds]
            if not whole:
                continue
            job = chance.choice(whole)
            nodes = _nodes(job)
            left = [it for it in left if set(nodes).isdisjoint(_nodes(it))]
        node = chance.choice(nodes)
        free.remove(node)
        port = chance.randrange(_GPUS) if KINDS[kind].target == "port" else None
        yield FaultOrder(kind=kind, node=node, port=port, start_seconds=start, seconds=seconds)


def _of_leaves(chance: Random, jobs: Sequence[Job]) -> Iterator[FaultOrder]:
    rails = chance.sample(range(_GPUS), len(OF_LEAVES))
    for kind, hour, port in zip(OF_LEAVES, _LEAF_HOURS, rails, strict=True):
        start = hour * 3600.0
        busy = {node for job in jobs if job.start < start < job.end for node in _nodes(job)}
        node = min(busy - set(range(NODES_PER_POD)), default=NODES_PER_POD)
        yield FaultOrder(
            kind=kind, node=node, port=port, start_seconds=start, seconds=_LEAF_SECONDS
        )


def _between(chance: Random) -> Iterator[FaultOrder]:
    """Yield faults of cables to all spines except the one that is lost."""
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


def heard(fleet: Fleet) -> dict[str, Sequence[Transition]]:
    """Return the transitions of each of the two analyzers on a fleet."""
    replays = {name: Replay(ahead=_BLOCK, switches=name == BOTH) for name in (HOSTS, BOTH)}
    for happening in fleet.happenings():
        if happening.kind == "hub restart":
            for replay in replays.values():
                replay.hub_away(happening.start, happening.end)
    for block in fleet.blocks(block_seconds=_BLOCK.total_seconds()):
        for replay in replays.values():
            replay.feed(block)
    return {name: replay.transitions for name, replay in replays.items()}


def played(seed: int) -> dict[str, Any]:
    """Play one fleet and return its outcomes by what the analyzer read; only messages about the network are kept."""
    begun = time.process_time()
    fleet = build(fleet_of(seed))
    known = [(truth, truth.pace_lost or 0.0) for truth in fleet.truths() if not truth.hidden]
    truths = {truth.id: truth for truth, _ in known}
    found: dict[str, Any] = {}
    for name, steps in heard(fleet).items():
        outcomes, judged = judge(list(truths.values()), claims(steps))
        abstained = abstaining(steps)
        silent = {it.truth for it in judged if it.claim.id in abstained and _is_read(it)}
        found[name] = {
            "faults": [
                {**_fault(it, truth, lost, it.id in silent), "said": _said(judged, it.id)}
                for it, (truth, lost) in zip(outcomes, known, strict=True)
            ],
            "messages": [_message(it, truths.get(it.truth or "")) for it in judged if _is_read(it)],
        }
    return {
        "seed": seed,
        "roce": fleet.plan.topology.is_roce,
        "node_days": _NODES * _HOURS / 24.0,
        "cpu_seconds": round(time.process_time() - begun),
        **found,
    }


def abstaining(steps: Sequence[Transition]) -> frozenset[str]:
    """Return the incidents whose last record states that the cause lies where nobody can look."""
    last = {it.incident: it.snapshot for it in sorted(steps, key=lambda it: it.number)}
    told = {key: Incident.from_record(Record.from_json(it)) for key, it in last.items()}
    return frozenset(key for key, incident in told.items() if NOT_OBSERVABLE in incident.evidence)


def _fault(it: Outcome, truth: Truth, lost: float, abstained: bool) -> dict[str, Any]:
    return {
        "id": it.id,
        "kind": it.fault,
        "magnitude": it.magnitude,
        "lost": round(lost, 4),
        "seconds": it.seconds,
        "cause": it.cause,
        "place": it.place,
        "abstained": abstained,
        "severity": it.told == truth.severity.value,
        "one": it.exactly_one,
        "incidents": it.incidents,
    }


def _said(judged: Iterable[Judged], fault: str) -> list[str]:
    """Return the messages about a fault, including those that are not about the network."""
    own = [it for it in judged if it.truth == fault and it.claim.read_at is not None]
    return [f"{it.claim.title} at {it.claim.subject.key} ({it.verdict.value})" for it in own]


def _is_read(it: Judged) -> bool:
    """Return whether this is a warning or critical about the network, or about a fault of it."""
    about = it.claim.subject
    of_network = about.port is not None or it.verdict is Verdict.RIGHT
    return it.claim.read_at is not None and of_network


def _message(it: Judged, truth: Truth | None) -> dict[str, Any]:
    # For a message about a part or an echo of a fault, another severity may be right.
    named = truth if it.verdict is Verdict.RIGHT else None
    as_grave = named is None or it.claim.severity is named.severity
    return {
        "title": it.claim.title,
        "subject": it.claim.subject.key,
        "at": it.claim.spans[-1][0].isoformat(),
        "verdict": it.verdict.value,
        "truth": it.truth,
        "as_grave": as_grave and it.verdict is not Verdict.FALSE,
    }


def section(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield what each analyzer found, as tables."""
    fleets = result["fleets"]
    node_days = sum(one["node_days"] for one in fleets)
    nodes = round(node_days / len(fleets) / (_HOURS / 24.0))
    seeds = ", ".join(str(one["seed"]) for one in fleets)
    yield "## What switch counters add"
    yield ""
    yield f"`{result['command']}`: {len(fleets)} fleets of {nodes} nodes and {_HOURS:g} hours ({node_days:.0f} node-days, {sum(one['roce'] for one in fleets)} of them RoCE), with many network faults. Each is played twice: to an analyzer that reads only hosts, and to one that also reads [switches](switches.md). Seeds {seeds} are drawn from commit `{result['commit'][:12]}`; fleet `{result['fleet']}`, judge `{result['judge']}`. *Costly*: found, of faults that cost a job at least {COSTLY:.0%} of its pace. Of the faults that were found: *right element*, the very port, cable (by either end) or switch; *right severity*; *says what it cannot see*, that the cause lies beyond a port where nothing is counted. *One incident*: exactly one, with the right cause. *Precision*: the share of warnings and criticals about ports that are about a real fault or its consequences; and the share that also has the right severity. Intervals are 95 % (Wilson)."
    yield ""
    yield "| fault of | reads | found | costly | right cause | right element | right severity | one incident | says what it cannot see | median s |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for group, kinds in GROUPS.items():
        for name in (HOSTS, BOTH):
            yield f"| {group} | {name} | {' | '.join(_cells(fleets, name, kinds))} |"
    yield ""
    yield "| reads | messages about ports | precision | severity included | wrong per node-day |"
    yield "|---|---|---|---|---|"
    for name in (HOSTS, BOTH):
        messages = [it for one in fleets for it in one[name]["messages"]]
        wrong = sum(it["verdict"] == Verdict.FALSE.value for it in messages)
        right = len(messages) - wrong
        yield f"| {name} | {len(messages)} | {_share(right, len(messages))} | {_as_grave(messages)} | {wrong / node_days:.2f} ({wrong}) |"
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


def _as_grave(messages: Sequence[Mapping[str, Any]]) -> str:
    known = [it["as_grave"] for it in messages if "as_grave" in it]
    return _share(sum(known), len(known))


def _cells(fleets: Sequence[Any], name: str, kinds: Sequence[str]) -> Iterator[str]:
    own = [it for one in fleets for it in one[name]["faults"] if it["kind"] in kinds]
    found = [it for it in own if _is_found(it)]
    costly = [it for it in own if it.get("lost", 0.0) >= COSTLY]
    yield _share(len(found), len(own))
    yield _share(sum(map(_is_found, costly)), len(costly))
    asked = {"cause": own, "place": found, "severity": found, "one": own, "abstained": found}
    for what, them in asked.items():
        # Older plays lack some of these fields.
        known = [it[what] for it in them if what in it]
        yield _share(sum(known), len(known))
    seconds = sorted(it["seconds"] for it in found)
    yield f"{seconds[len(seconds) // 2]:.0f}" if seconds else "-"


def _is_found(fault: Mapping[str, Any]) -> bool:
    return fault["seconds"] is not None


def _hits(fleets: Sequence[Any], name: str, kind: str) -> str:
    own = [it for one in fleets for it in one[name]["faults"] if it["kind"] == kind]
    return f"{sum(map(_is_found, own))} of {len(own)}"


def _share(hits: int, of: int) -> str:
    if not of:
        return "-"
    low, high = wilson(hits, of)
    return f"{hits / of:.2f} ({low:.2f} to {high:.2f}, {hits} of {of})"


def details(fleets: Sequence[Any]) -> Iterator[str]:
    """Yield the faults that were missed or reported twice, and the wrong messages, for whoever tunes detectors."""
    for one in fleets:
        yield f"seed {one['seed']}{', RoCE' if one['roce'] else ''}: {one['cpu_seconds']} s of CPU time"
        for name in (HOSTS, BOTH):
            for it in one[name]["faults"]:
                if not (_is_found(it) and all(it.get(what, True) for what in _RIGHT)):
                    yield f"  {name}: {it}"
            for m in one[name]["messages"]:
                if m["verdict"] == Verdict.FALSE.value:
                    yield f"  {name}: WRONG {m}"


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
