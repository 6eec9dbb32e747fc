"""The truth about every held GPU of a staged fleet at every tick: its job, whether it computes, and why not."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from accounting.efficiency.idle_reason import Idleness
from simulator.fleet.changes import Change, Quantity, apply
from simulator.fleet.holding import Holding
from simulator.fleet.plan import Plan

from .scenes import DAY, HIDDEN_SCENE, PEER, Staged, boots

TICK_SECONDS = 10.0
# A look meanwhile misses bodies that come later than this.
_UNHEARD_SECONDS = 120.0
# A fault's incident may stand for this long after the fault.
_AFTER_SECONDS = 900.0
_PARKED = 0.1
# Where every counter reads 0, only the board's power tells, if it exceeds an idle board's by this share [chosen].
_TELLABLE = 0.15
Mask = NDArray[np.bool_]


class Right(str, Enum):
    """What should be reported about a GPU at a moment."""

    BUSY = "busy"
    # Idle for about the threshold, or nobody can tell, or there is no such job: either report is right.
    EDGE = "edge"
    OWN = "own"  # idle by its holder's doing
    EXCUSED = "excused"  # idle by nobody's doing
    EITHER = "either"  # its holder's doing, beside a fault: blaming nobody is right, too


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTruth:
    """The truth about one GPU at one moment: the right report, the reason it is idle, and its job."""

    right: Right
    job: int  # row of the plan's jobs
    why: Idleness | None
    name: str


class Truth:
    """Arrays of [ticks x GPUs] over the whole of a staged fleet."""

    def __init__(self, staged: Staged) -> None:
        fleet = staged.fleet
        self.plan: Plan = fleet.plan
        self._staged = staged
        ticks = np.arange(round(fleet.settings.days * DAY / TICK_SECONDS), dtype=np.int64)
        self.seconds = ticks.astype(np.float64) * TICK_SECONDS
        topology = self.plan.topology
        shape = (len(ticks), topology.gpus)
        holding = Holding(self.plan.jobs, topology)
        nobody = np.zeros(shape, dtype=np.uint64)
        asked = holding.ask(self.seconds, ticks, nobody, 0.0)
        self.none = holding.none
        self.jobs = asked.job
        stalled, spinning = self._work(self.plan.changes, shape)
        computing = ((asked.computing | (spinning & asked.held)) & ~stalled) & asked.held
        # The power drawn by the work, as a share of the limit; H100, as in `simulator.fleet.hardware`.
        drawn = asked.sm * 430.0 + asked.tensor * 250.0 + asked.dram * 330.0
        self.drawn = np.where(computing, drawn / 700.0, 0.0)
        self.used = np.where(computing, np.where(spinning, 1.0, asked.utilization), 0.0)
        # A fault is no excuse for a GPU that would not have computed anyway, but may be taken for one.
        unhurt = Holding([replace(job, stopped=None) for job in self.plan.jobs], topology)
        would = unhurt.ask(self.seconds, ticks, nobody, 0.0).computing
        would &= ~self._work(self._scenes(), shape)[0]
        self.blocked = self._blocked(staged.changes, shape, would)
        self.touched = self._touched(staged.changes, shape)
        self._still = _runs(self.jobs, ~computing & asked.held)
        # The same by what was measured: work while nobody reads the node is seen by nobody.
        seen = computing & ~self._unread(shape)
        self._seen_still = _runs(self.jobs, ~seen & asked.held)
        # By rows of the jobs: the first boot that the plan lets it outlive.
        self._booted = [min(boots(self.plan, job), default=np.inf) for job in self.plan.jobs]

    def _work(self, changes: Iterable[Change], shape: tuple[int, ...]) -> tuple[Mask, Mask]:
        stall, spin = np.zeros(shape), np.zeros(shape)
        for change in changes:
            if change.on is Quantity.WORK and change.name in {"stall", "spin"}:
                apply(change, stall if change.name == "stall" else spin, self.seconds)
        return stall > 0.0, spin > 0.0

    def _scenes(self) -> tuple[Change, ...]:
        """Return the changes by holders, without faults: scenes follow the fleet's own changes."""
        return self.plan.changes[len(self._staged.changes) :]

    def _unread(self, shape: tuple[int, ...]) -> Mask:
        """Return where nothing of a GPU's node is measured: its collector or the whole node is down."""
        nodes = np.zeros((shape[0], self.plan.topology.nodes))
        for change in self.plan.changes:
            if change.on is Quantity.DELIVERY and change.name == "silent":
                apply(change, nodes, self.seconds)
        return np.repeat(nodes > 0.0, self.plan.topology.per_node, axis=1)

    def _blocked(self, changes: Iterable[Change], shape: tuple[int, ...], would: Mask) -> Mask:
        """Return where a fault keeps a GPU from computing, or it waits for one that does not."""
        stalled, _ = self._work(changes, shape)
        stops = [np.inf if job.stopped is None else job.stopped for job in self.plan.jobs]
        stopped: Mask = self.seconds[:, None] >= np.array([*stops, np.inf])[self.jobs]
        return (stalled | stopped) & would

    def _touched(self, changes: Iterable[Change], shape: tuple[int, ...]) -> Mask:
        """Return where a fault affects a GPU, or its node is not heard."""
        touched = np.zeros(shape, dtype=bool)
        for gpus, start, end in self._touches(changes):
            first, last = np.searchsorted(self.seconds, [start, end + _AFTER_SECONDS])
            touched[first:last, list(gpus)] = True
        return touched

    def _touches(self, changes: Iterable[Change]) -> Iterator[tuple[Iterable[int], float, float]]:
        """Yield GPUs, with the start and end of what affects them."""
        per_node = self.plan.topology.per_node
        for change in changes:
            if change.on in {Quantity.GPU, Quantity.PHYSICS}:
                yield change.targets, change.start, change.end
            elif change.on is Quantity.DELIVERY and change.end - change.start >= _UNHEARD_SECONDS:
                slots = range(per_node)
                gpus = [node * per_node + slot for node in change.targets for slot in slots]
                yield gpus, change.start, change.end
        for _, site in self.plan.sites:
            for kind, number in (*site.affected, *(one.subject for one in site.planned_events)):
                if kind != "port":  # a port does not matter to a job that needs no other node
                    gpus = [number] if kind == "gpu" else list(site.gpus(number))
                    yield gpus, site.start, site.end
            yield from ((stop.gpus, stop.at, stop.until) for stop in site.stops)

    def at(self, seconds: float, span_seconds: float) -> dict[int, GpuTruth]:
        """Return the truth about every held GPU; one that computed within the span before is busy."""
        tick = int(seconds / TICK_SECONDS) - 1
        span = int(span_seconds / TICK_SECONDS)
        slack = int(_UNHEARD_SECONDS / TICK_SECONDS)
        first = max(tick - span + 1, 0)
        blocked: Mask = np.any(self.blocked[first : tick + 1], axis=0)
        touched: Mask = np.any(self.touched[first : tick + 1], axis=0)
        drawn = self.drawn[first : tick + 1].mean(axis=0)
        found: dict[int, GpuTruth] = {}
        for gpu in np.flatnonzero(self.jobs[tick] != self.none).tolist():
            row = int(self.jobs[tick, gpu])
            still = int(self._still[tick, gpu])
            why, name = self._why(row, gpu, bool(blocked[gpu]))
            peers = list(self.plan.jobs[row].gpus)
            if seconds >= self._booted[row]:
                right = Right.EDGE
            elif still < span - slack:
                hidden = name == HIDDEN_SCENE and drawn[gpu] < _TELLABLE
                unseen = self._seen_still[tick, gpu] >= span - slack
                right = Right.EDGE if hidden or unseen else Right.BUSY
            elif still < span + slack:
                right = Right.EDGE
            elif blocked[gpu] or why is None or why in _NOBODYS:
                right = Right.EXCUSED
            elif touched[peers].any() or blocked[peers].any():
                right = Right.EITHER
            else:
                right = Right.OWN
            found[gpu] = GpuTruth(
                right=right, job=row, why=None if right is Right.BUSY else why, name=name
            )
        return found

    def _why(self, row: int, gpu: int, blocked: bool) -> tuple[Idleness | None, str]:
        """Return why the GPU would be idle, and what its holder does."""
        job = self.plan.jobs[row]
        scene = self._staged.scenes.get(job.number)
        if blocked:
            if job.stopped is not None:
                struck = gpu in job.struck
                return (Idleness.FAULTY if struck else Idleness.WAITS), PEER
            return Idleness.WAITS, "its storage does not answer"
        mine = scene is not None and gpu in self._staged.idle_gpus[job.number]
        if scene is not None and mine and scene.why is not None:
            return scene.why, scene.name
        parked = job.workload.memory >= _PARKED
        why = Idleness.MEMORY_PARKED if parked else Idleness.NOTHING_COMPUTED
        return why, scene.name if scene is not None and mine else job.workload.key

    def used_share(self, row: int, seconds: float) -> float:
        """Return how much of its GPUs a job has used since its start, or since the fleet's."""
        job = self.plan.jobs[row]
        first, last = np.searchsorted(self.seconds, [max(job.start, 0.0), seconds])
        mine = self.used[first:last, list(job.gpus)]
        return float(mine.mean()) if mine.size else 0.0


_NOBODYS = frozenset({Idleness.STANDBY, Idleness.FAULTY, Idleness.WAITS, Idleness.NO_DATA})


def _runs(jobs: NDArray[np.int64], still: Mask) -> NDArray[np.int64]:
    """Return for how many ticks, up to each one, the same job computed nothing."""
    runs = np.zeros(jobs.shape, dtype=np.int64)
    before = np.zeros(jobs.shape[1], dtype=np.int64)
    for tick in range(len(jobs)):
        same = jobs[tick] == jobs[tick - 1] if tick else np.zeros(jobs.shape[1], dtype=bool)
        before = np.where(still[tick], np.where(same, before, 0) + 1, 0)
        runs[tick] = before
    return runs
