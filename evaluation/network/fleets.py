"""Fleets with many network faults, of which each has a node or a cable of its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from simulator.fabric.cabling import CABLES, SPINES
from simulator.fleet import FaultOrder, FleetSettings, build
from simulator.fleet.jobs import Job
from simulator.fleet.kinds import KINDS, OF_SWITCHES
from simulator.fleet.topology import NODES_PER_POD
from simulator.fleet.world import world

NODES, HOURS = 2 * NODES_PER_POD, 2.5
_GPUS, _RACK = 4, 8
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


def fleet_of(seed: int) -> FleetSettings:
    """Return a realistic fleet whose switches are read: one pod for faults of links, one for faults of leaves.

    Each fault has a node or a cable of its own; the lost spine has no other fault. A fault that a job has to feel is
    left out where there is no such job.
    """
    chance = Random(seed)
    bare = world(
        seed,
        nodes=NODES,
        days=HOURS / 24.0,
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
                node=chance.randrange(NODES),
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
