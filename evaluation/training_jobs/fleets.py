"""Fleets of training jobs that report their steps, with faults of jobs; everything else is healthy.

The nodes run gpuvigil's own collector, which misses few samples: no other collector reports steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from simulator.fleet import FaultOrder, FleetSettings, build
from simulator.fleet.jobs import Job
from simulator.fleet.model import WorldSettings
from simulator.fleet.world import world

NODES, GPUS, HOURS = 24, 4, 4.0
_MIX = (
    ("even", 0.17), ("memory", 0.08), ("talking", 0.1), ("talking inside", 0.08), ("starved", 0.1),
    ("saving", 0.08), ("preparing", 0.07), ("held", 0.04), ("staged", 0.1), ("unlike", 0.08),
    ("judging", 0.05), ("shuffling", 0.05),
)  # fmt: skip
_WORLD = WorldSettings(
    presence=(0.97, 1.0), bursty=0.0, no_clocks=0.02, no_profiling=0.05, no_memory_utilization=0.02,
    maintenance=0.0, driver_rollouts=0.0,
)  # fmt: skip
STRAGGLERS = ("slow rank", "slow GPU", "stuck clocks")
DEAD, ASYMMETRIC = ("dead process",), ("stopped rank", "stuck rank")
SYMMETRIC, CHECKPOINTS = ("stuck collective",), ("stuck checkpoint",)
HANGS = (*DEAD, *ASYMMETRIC, *SYMMETRIC, *CHECKPOINTS)
# Nobody is at fault for how their work was divided, or for their data.
UNEVEN = frozenset({"staged", "unlike", "pipeline parallel"})
# The kinds of fault that jobs get, each as often as it is listed here.
_DEALT = (*STRAGGLERS * 2, "slow rank", "from the start", "from the start",
          "dead process", *HANGS[:4], "stuck checkpoint")  # fmt: skip
_SICK = 0.75
# The share by which a rank's own work grows; the share of the clocks that is left.
_SLOWER, _CLOCK = (0.05, 0.4), (0.65, 0.94)
_BEFORE, _AFTER = 780.0, 240.0
_LASTS = {"slow": (1100.0, 2000.0), "hang": (500.0, 800.0), "stuck checkpoint": (2600.0, 3000.0)}


def healthy_fleet(
    seed: int, nodes: int = NODES, mix: Sequence[tuple[str, float]] = _MIX
) -> FleetSettings:
    """Return a fleet of training jobs without any fault."""
    bare = world(
        seed, nodes=nodes, days=HOURS / 24.0, faults_per_1000_node_days=0.0, gpus_per_node=GPUS,
        mix=tuple(mix), settings=_WORLD,
    )  # fmt: skip
    return replace(bare, steps=True)


def fleet_of(seed: int) -> FleetSettings:
    """Return a fleet whose jobs have faults chosen by the seed."""
    chance, bare = Random(seed), healthy_fleet(seed)
    jobs = [it for it in build(bare).plan.jobs if it.workload.rhythm and len(it.gpus) >= GPUS]
    return replace(bare, faults=tuple(_orders(jobs, chance)))


def _orders(jobs: Sequence[Job], chance: Random) -> Iterator[FaultOrder]:
    for job in jobs:
        if chance.random() >= _SICK:
            continue
        kind = chance.choice(_DEALT)
        begun = max(job.start + job.workload.startup_seconds, 0.0)
        end = min(job.end, HOURS * 3600.0)
        if kind == "from the start":
            if job.start <= 0.0 or end - begun < 2.0 * _BEFORE:
                continue
            kind, start = chance.choice(STRAGGLERS), job.start - 1.0
            length = min(end - start, 5400.0)
        else:
            low, high = _LASTS.get(kind, _LASTS["slow" if kind in STRAGGLERS else "hang"])
            length = chance.uniform(low, high)
            if end - begun < _BEFORE + length + _AFTER:
                continue
            start = chance.uniform(begun + _BEFORE, end - length - _AFTER)
        gpu = chance.choice(job.gpus)
        yield FaultOrder(
            kind=kind,
            node=gpu // GPUS,
            gpu=gpu % GPUS,
            start_seconds=float(round(start)),
            seconds=float(round(length)),
            magnitude=_magnitude(kind, chance),
        )


def _magnitude(kind: str, chance: Random) -> float | None:
    if kind not in STRAGGLERS:
        return None
    slower = chance.uniform(*_SLOWER)
    if kind == "stuck clocks":
        return round(chance.uniform(*_CLOCK), 3)
    return round(slower if kind == "slow rank" else 1.0 - 1.0 / (1.0 + slower), 3)
