"""Which job holds which GPU at every tick, and the load that it asks of the GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .chance import Bits, Floats, bell, key, lane, mix
from .jobs import Job
from .topology import Index, Topology
from .workloads import Workload, day

# The numbers of a job, by their names in `Workload`.
_NUMBERS = (
    "sm", "tensor", "dram", "utilization", "swing", "memory", "nvlink", "fabric", "pcie_receive",
    "pcie_transmit", "host", "reads", "startup_seconds", "checkpoint_every", "checkpoint_seconds",
    "evaluate_every", "evaluate_seconds", "duty", "duty_seconds", "daily", "stall_every",
    "stall_seconds", "phase_seconds", "phase_low",
)  # fmt: skip
# An evaluation runs the forward pass only.
_EVALUATION = 0.55
# The share of the swing that is a GPU's own; all GPUs of a job share the rest.
_OWN_SWING = 0.35
_NEARLY_ALWAYS = 0.8
_LITTLE = 0.22  # share of jobs that keep GPUs busy with little [A: the power distribution]
# How far people's day moves the load of an always-on service, as a share of its `daily` [chosen].
_TIDE = 0.6
STAGES = 4
_REMOTE = 0.1  # share of jobs whose input comes from no file system [chosen]
# Indices into `collector.sensors.steps.PHASES`.
WORK, INPUT, COLLECTIVE, CHECKPOINT, EVALUATION, STOPPED = range(6)
SPINNING = (0.16, 0.0, 0.01)  # SM, tensor and DRAM activity of kernels that only wait [chosen]
# Loss and embedding make the last and the first stage differ [chosen].
_STAGE_PACE = np.array([1.04, 1.0, 0.98, 0.93])


@dataclass(slots=True, kw_only=True)
class RequestedLoad:
    """The load that the jobs ask of every GPU: [ticks x GPUs], shares at full clocks."""

    job: Index  # row of the job, the last row is "none"
    held: NDArray[np.bool_]
    computing: NDArray[np.bool_]
    sm: Floats
    tensor: Floats
    dram: Floats
    utilization: Floats
    memory: Floats
    nvlink: Floats
    fabric: Floats
    pcie_receive: Floats
    pcie_transmit: Floats
    host: Floats
    reads: Floats  # bytes a second, from file systems
    pause: Index  # index into `collector.sensors.steps.PHASES` for jobs that pause; else 0


class Holding:
    """The jobs of the fleet as rows of numbers, and their load on the GPUs over time."""

    def __init__(self, jobs: Sequence[Job], topology: Topology) -> None:
        self._jobs = jobs
        self._topology = topology
        sorts = {job.workload.key: job.workload for job in jobs}
        which = {name: number for number, name in enumerate(sorts)}
        rows = [_row(workload) for workload in sorts.values()] + [[0.0] * len(_NUMBERS)]
        of_job = [which[job.workload.key] for job in jobs] + [len(sorts)]
        table = np.array(rows, dtype=np.float64)[of_job]
        self._numbers = {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_NUMBERS)}
        for name in (
            "checkpoint_every",
            "evaluate_every",
            "duty_seconds",
            "stall_every",
            "phase_seconds",
        ):
            self._numbers[name][-1] = 1.0
        self._start = np.array([job.start for job in jobs] + [0.0])
        self._end = np.array([job.end for job in jobs] + [0.0])
        stops = [job.end if job.stopped is None else min(job.stopped, job.end) for job in jobs]
        self._stopped = np.array([*stops, 0.0])
        self._keys = np.array([job.key for job in jobs] + [0], dtype=np.uint64)
        self._first = np.array([job.gpus[0] for job in jobs] + [0], dtype=np.int64)
        self._size = np.array([len(job.gpus) for job in jobs] + [1], dtype=np.int64)
        self._stages = np.array([job.workload.stages for job in jobs] + [False])
        self._together = np.array([job.workload.together for job in jobs] + [True])
        # Most jobs use a GPU as well as their kind can. The others keep it busy and do little: a
        # quarter of AcmeTrace's samples are at 85 to 130 W of 400, half of them at 97 % and more.
        lot = lane(self._keys, 0)
        little = 0.06 + 0.3 * lane(mix(self._keys, 61), 0)
        level = np.where(
            lane(mix(self._keys, 61), 1) < _LITTLE, little, 1.04 - 0.4 * lot * lot * lot
        )
        self._level = np.where([*(bool(job.workload.bound) for job in jobs), False], 1.0, level)
        self._shift = lane(self._keys, 1)
        # Half of the jobs wait in a collective while one rank writes the checkpoint [chosen].
        self._barrier = (lane(self._keys, 2) < 0.5) & (self._size > 1)
        self._barrier[-1] = False
        self._vary_utilization()
        self._phased = bool((self._numbers["phase_low"][:-1] < 1.0).any())
        if not self._phased:
            del self._numbers["phase_low"], self._numbers["phase_seconds"]

    def _vary_utilization(self) -> None:
        """Vary how close to always busy such jobs are: most large ones are at 98 to 100 %."""
        usual = self._numbers["utilization"]
        lot = lane(self._keys, 3)
        own = 1.0 - (1.0 - usual) * (0.02 + 1.2 * lot * lot * lot)
        self._numbers["utilization"] = np.where(usual > _NEARLY_ALWAYS, own, usual)

    @property
    def none(self) -> int:
        """The row that stands for no job."""
        return len(self._jobs)

    def rows(self, seconds: Floats) -> Index:
        """Return [ticks x GPUs]: the row of the job that holds each GPU at these moments."""
        held = np.full((len(seconds), self._topology.gpus), self.none, dtype=np.int64)
        if not len(seconds):
            return held
        here = (self._start[:-1] <= seconds[-1]) & (self._end[:-1] > seconds[0])
        for number in np.flatnonzero(here).tolist():
            job = self._jobs[number]
            first = np.searchsorted(seconds, job.start)
            last = np.searchsorted(seconds, job.end)
            if job.gpus[-1] - job.gpus[0] == len(job.gpus) - 1:
                held[first:last, job.gpus[0] : job.gpus[-1] + 1] = number
            else:
                held[first:last, list(job.gpus)] = number
        return held

    def ask(
        self, seconds: Floats, ticks: NDArray[np.int64], own: Bits, noise: float
    ) -> RequestedLoad:
        """Return the load on every GPU; `own` are the random bits of each GPU at each tick."""
        rows = self.rows(seconds)
        numbers = {name: values[rows] for name, values in self._numbers.items()}
        since = seconds[:, None] - self._start[rows]
        computing = (rows != self.none) & (seconds[:, None] < self._stopped[rows])
        computing &= since >= numbers["startup_seconds"]
        shift = self._shift[rows]
        every = numbers["checkpoint_every"]
        writing = np.mod(since + shift * every, every) < numbers["checkpoint_seconds"]
        barrier = computing & writing & self._barrier[rows]
        barrier &= np.arange(self._topology.gpus) != self._first[rows]
        stalled = np.mod(since + shift * numbers["stall_every"], numbers["stall_every"])
        stalled = stalled < numbers["stall_seconds"]
        computing &= ~writing & ~stalled
        computing &= self._on(rows, since, seconds, numbers)
        common = mix(self._keys[rows] ^ mix(ticks.astype(np.uint64), 17)[:, None])
        swing = (
            noise * numbers["swing"] * ((1.0 - _OWN_SWING) * bell(common) + _OWN_SWING * bell(own))
        )
        tide = 1.0 + _TIDE * numbers["daily"] * day(seconds)[:, None]
        pace = (1.0 + swing) * self._stage(rows) * tide
        if self._phased:
            pace *= self._phase(rows, since, numbers)
        every = numbers["evaluate_every"]
        evaluating = np.mod(since + shift * every, every) < numbers["evaluate_seconds"]
        pace = np.where(evaluating, pace * _EVALUATION, pace)
        pace = np.where(computing, np.maximum(pace, 0.02), 0.0)
        numbers["utilization"] *= pace
        pace *= self._level[rows]
        asked = self._asked(rows, computing, pace, since, numbers)
        asked.pause = np.where(writing, CHECKPOINT, np.where(stalled, INPUT, asked.pause))
        asked.pause = np.where(evaluating & (asked.pause == 0), EVALUATION, asked.pause)
        return _at_barrier(asked, barrier)

    def _on(
        self, rows: Index, since: Floats, seconds: Floats, numbers: dict[str, Floats]
    ) -> NDArray[np.bool_]:
        """Return whether a job computes in the current slot of its duty cycle."""
        slot = np.floor(since / numbers["duty_seconds"]).astype(np.int64).astype(np.uint64)
        apart = np.where(self._together[rows], np.uint64(0), self._topology.gpu_keys[None, :])
        chance = lane(mix(slot ^ self._keys[rows] ^ apart, 29), 2)
        tide = 1.0 + numbers["daily"] * day(seconds)[:, None]
        return chance < numbers["duty"] * tide

    def _phase(self, rows: Index, since: Floats, numbers: dict[str, Floats]) -> Floats:
        """Return the load level of each job's current phase."""
        slot = np.floor(since / numbers["phase_seconds"]).astype(np.int64).astype(np.uint64)
        chance = lane(mix(slot ^ self._keys[rows], 31), 1)
        low = numbers["phase_low"]
        level: Floats = low + (1.0 - low) * chance
        return level

    def _stage(self, rows: Index) -> Floats:
        if not self._stages.any():
            return np.ones(rows.shape)
        place = np.arange(self._topology.gpus, dtype=np.int64)[None, :] - self._first[rows]
        stage = np.clip(place * STAGES // self._size[rows], 0, STAGES - 1)
        return np.where(self._stages[rows], _STAGE_PACE[stage], 1.0)

    def _asked(
        self,
        rows: Index,
        computing: NDArray[np.bool_],
        pace: Floats,
        since: Floats,
        numbers: dict[str, Floats],
    ) -> RequestedLoad:
        """Return the load, where a `pace` of 1 gives the workload's own numbers."""
        held = rows != self.none
        several = self._size[rows] > 1
        away = self._size[rows] > self._topology.per_node
        # A job loads its weights while it starts; from then on its memory use stays.
        loaded = np.minimum(since / np.maximum(numbers["startup_seconds"], 1.0), 1.0)
        loaded = np.where(computing, 1.0, np.where(held, loaded, 0.0))
        # Some read from an object store or the page cache: no file system counts that.
        remote = lane(mix(self._keys, 67), 0) < _REMOTE
        return RequestedLoad(
            job=rows,
            held=held,
            computing=computing,
            sm=np.minimum(numbers["sm"] * pace, 0.97),
            tensor=np.minimum(numbers["tensor"] * pace, 0.9),
            dram=np.minimum(numbers["dram"] * pace, 0.95),
            utilization=np.minimum(numbers["utilization"], 1.0),
            memory=numbers["memory"] * loaded,
            nvlink=np.where(several, numbers["nvlink"] * pace, 0.0),
            fabric=np.where(away, numbers["fabric"] * pace, 0.0),
            pcie_receive=numbers["pcie_receive"] * pace,
            pcie_transmit=numbers["pcie_transmit"] * pace,
            host=np.where(held, numbers["host"], 0.0),
            reads=np.where(held & ~remote[rows], numbers["reads"], 0.0),
            pause=np.zeros(rows.shape, dtype=np.int64),
        )


def _at_barrier(asked: RequestedLoad, barrier: NDArray[np.bool_]) -> RequestedLoad:
    """Set kernels that only wait: busy by utilisation, at low power, without traffic."""
    if barrier.any():
        asked.computing = asked.computing | barrier
        asked.utilization = np.where(barrier, 1.0, asked.utilization)
        for name, value in zip(("sm", "tensor", "dram"), SPINNING, strict=True):
            setattr(asked, name, np.where(barrier, value, getattr(asked, name)))
    return asked


def _row(workload: Workload) -> list[float]:
    return [float(getattr(workload, name)) for name in _NUMBERS]


def salt(*words: object) -> int:
    """Return a salt that keeps one use of a GPU's bits apart from another."""
    return key("salt", *words)
