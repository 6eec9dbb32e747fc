"""The fleets that are played: realistic ones for publication, dense ones to compare code on."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from simulator.fleet import FaultOrder, FleetSettings
from simulator.fleet.kinds import KINDS
from simulator.fleet.model import WorldSettings
from simulator.fleet.world import NATURAL_RATE, WEIGHTS, world

from .judge.inferred import is_inferred

MODEL = "H100"
WORKLOADS = (
    "data parallel",
    "tensor parallel",
    "cpu offload",
    "fine-tuning",
    "steady inference",
    "sweep",
    "notebook",
    "data starved",
)
# Thirty-five of these are a week of 1,000 nodes.
NODES, DAYS = 100, 2.0
# Twice the rate of a cluster of A100s, so that half the node-days do; about four of the faults have to be
# inferred. Faults still touch less than a hundredth of the windows.
FAULTS_PER_1000_NODE_DAYS = 2.0 * NATURAL_RATE
# A hundred times as many faults, on about a sixth of all quarter hours: a handful of these fleets hold hundreds of
# faults, where fleets like the world would need years. What has to be inferred is drawn more often than in life, so
# that both sorts are many; within a sort each kind is as frequent as it is there.
CROWDED_DAYS = 1.0
_CROWDING = 100.0
_MORE_INFERRED = 4.0
_CROWDED_SHARE = 0.5  # no limit: what fits without touching another fault
# A site of the size for which the number of messages is measured, with about as many faults as have to be inferred per
# 1,000 node-days in life. Six of these weeks are 10,000 node-days.
WEEK_NODES, WEEK_DAYS, WEEK_FAULTS = 250, 7.0, 4.0
_NODES_PER_RACK = 4
# Whether a silent node was dead is known for certain once it is back: a play that ends before judges too early.
_QUIET_END_HOURS = 1.0
# Nodes of the reserved cluster that are silent while the hub restarts are not expected any more, real ones are.
_CLUSTER = "played"
# This kind has no beginning: the node was installed that way.
_FROM_THE_START = frozenset({"missing since installation"})


def release_seed(commit: str, number: int, of: str = "") -> int:
    """Return the seed of a commit's fleet of that number: nobody can know it before the code is final.

    `of` are fleets of another make, which get other seeds.
    """
    return int.from_bytes(hashlib.sha256(f"{commit} {of}{number}".encode()).digest()[:4]) // 2


def like_the_world(seed: int) -> FleetSettings:
    """Return a realistic fleet: healthy nearly everywhere, with all that only looks like a fault."""
    found = world(
        seed,
        nodes=NODES,
        days=DAYS,
        faults_per_1000_node_days=FAULTS_PER_1000_NODE_DAYS,
        settings=WorldSettings(quiet_end_hours=_QUIET_END_HOURS),
    )
    return replace(found, cluster=_CLUSTER)


def crowded(seed: int) -> FleetSettings:
    """Return a fleet like the world in all but the number of its faults, for recall alone."""
    found = world(
        seed,
        nodes=NODES,
        days=CROWDED_DAYS,
        faults_per_1000_node_days=_CROWDING * FAULTS_PER_1000_NODE_DAYS,
        weights=tuple(
            (kind, weight * _MORE_INFERRED if is_inferred(kind) else weight)
            for kind, weight in WEIGHTS
        ),
        settings=WorldSettings(faulty_share=_CROWDED_SHARE, quiet_end_hours=_QUIET_END_HOURS),
    )
    return replace(found, cluster=_CLUSTER)


def site_week(seed: int) -> FleetSettings:
    """Return a week of one site like the world, for the number of messages."""
    return world(
        seed,
        nodes=WEEK_NODES,
        days=WEEK_DAYS,
        faults_per_1000_node_days=WEEK_FAULTS,
        settings=WorldSettings(quiet_end_hours=_QUIET_END_HOURS),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EveryKind:
    """Fleets with faults of each kind, each on a node of its own."""

    kinds: tuple[str, ...]
    of_each: int = 1
    model: str = MODEL
    workloads: tuple[str, ...] = WORKLOADS
    # Length of the fleet, the span in which faults begin, and the length of faults.
    hours: float = 3.0
    begin_hours: tuple[float, float] = (0.75, 0.75)
    fault_hours: float = 2.0

    def __call__(self, seed: int) -> FleetSettings:
        chance = Random(seed)
        kinds = [kind for kind in self.kinds for _ in range(self.of_each)]
        nodes = list(range(-(-len(kinds) // _NODES_PER_RACK) * _NODES_PER_RACK))
        places = chance.sample(nodes, len(kinds))
        return FleetSettings(
            seed=seed,
            nodes=len(nodes),
            days=self.hours / 24.0,
            models=(self.model,),
            workloads=self.workloads,
            faults=tuple(self._orders(kinds, places, chance)),
        )

    def _orders(
        self, kinds: Sequence[str], places: Sequence[int], chance: Random
    ) -> list[FaultOrder]:
        orders = [self._order(kind, node, chance) for kind, node in zip(kinds, places, strict=True)]
        first, last = self.begin_hours
        if first == last:
            return orders
        return [
            it
            if it.kind in _FROM_THE_START
            else replace(it, start_seconds=float(round(chance.uniform(first, last) * 3600.0)))
            for it in orders
        ]

    def _order(self, kind: str, node: int, chance: Random) -> FaultOrder:
        known = KINDS[kind]
        where, share = chance.randrange(8), chance.uniform(0.0, 1.0)
        magnitude = None
        if known.discrete:
            magnitude = known.sizes[chance.randrange(len(known.sizes))]
        elif known.sizes:
            low, high = known.sizes[0], known.sizes[-1]
            magnitude = low * (high / low) ** share
        begin = 0.0 if kind in _FROM_THE_START else self.begin_hours[0]
        return FaultOrder(
            kind=kind,
            node=node,
            start_seconds=begin * 3600.0,
            seconds=self.fault_hours * 3600.0,
            gpu=where if known.target == "gpu" else None,
            port=where if known.target == "port" else None,
            magnitude=magnitude,
        )


# Kinds that show within the half hour that they last, if they do at all. Each is there five times:
# with five losses and no gain a test of pairs can just tell them from chance (0.5 ** 5 = 0.03).
# Kinds that touch a whole pod are left out: nothing else could be judged there.
_SLOW = frozenset({"SBE growth", "heatsink", "missing since installation", "stale mount"})
_OF_A_POD = frozenset({"congestion", "leaf down"})
OF_EACH = 5
DENSE_SEED = 1000
dense = EveryKind(
    kinds=tuple(kind for kind in KINDS if kind not in _SLOW | _OF_A_POD),
    of_each=OF_EACH,
    hours=1.25,
    begin_hours=(0.4, 0.7),
    fault_hours=0.5,
)
