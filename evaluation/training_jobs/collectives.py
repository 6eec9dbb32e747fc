"""What NCCL Inspector's files report about a fleet's jobs, by the collector's rule: the rank that waits least.

Each step has some all-reduces, as for gradients in buckets. A rank's time in one lasts from the end of its own work
until the slowest rank has joined and the data is sent. Which jobs write these files, and which of these jobs write
them where all of their nodes can read them, is chosen.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector.nccl.awaited_rank import AwaitedRank, awaited_ranks, with_earlier_cost
from collector.nccl.inspector import TAIL_BYTES, Op, earlier
from collector.nccl.ranks_supervisor import INSPECTOR_SECONDS
from collector.nccl.repeat_filter import RepeatFilter
from gpuvigil.model import Event, EventKind, Subject
from simulator.fleet import Block, Fleet
from simulator.fleet.chance import Dice, lane
from simulator.fleet.changes import FOREVER, Change, Quantity
from simulator.fleet.holding import STAGES
from simulator.fleet.jobs import Job
from simulator.fleet.steps import makes_steps_from, step_seconds

Floats = NDArray[np.float64]
_Line = tuple[int, int, list[int]]
Last = tuple[datetime, Subject]  # when a rank's GPU was reported as the last to join, and that GPU
# The share of training jobs whose files are read, and of these the share that write to a shared file system [chosen].
READ, _SHARED = 0.4, 0.5
# How much the collector reads of a file; the size of a line is from the product's page.
_LINE_BYTES = 450
_KEPT = TAIL_BYTES // _LINE_BYTES
_TICK_SECONDS = 10.0
_OF_A_STEP = 8  # collectives [chosen]
_WAIT_FOR_CHECKPOINTS = 0.5  # share of jobs whose GPUs draw power meanwhile
# Deviations of a rank's own work and of its input, the same as for the steps it reports [chosen].
_OWN_SPREAD, _INPUT_SPREAD = 0.006, 0.08
_HOLDS = {(Quantity.WORK, "spin"), (Quantity.WORK, "stall"), (Quantity.STEPS, "phase")}


def is_read(job: Job, share: float = READ) -> bool:
    """Return whether a job's nodes read what NCCL Inspector writes, as those of this share of jobs do."""
    trains = job.workload.rhythm is not None and len(job.gpus) > 1
    return trains and Dice("inspector", job.key).share() < share


def _waits_for_checkpoints(job: Job) -> bool:
    """Return whether ranks wait in a collective while the first saves; only in jobs with no other pauses."""
    work = job.workload
    saves = min(work.evaluate_every, work.stall_every) >= FOREVER > work.checkpoint_every
    return saves and bool(lane(np.array([job.key], dtype=np.uint64), 2)[0] < _WAIT_FOR_CHECKPOINTS)


@dataclass(slots=True, kw_only=True)
class _Reader:
    """One node's collector: what it has told, and when it reads next."""

    told: RepeatFilter = field(default_factory=RepeatFilter)
    due: float = 0.0


@dataclass(slots=True, kw_only=True)
class _Files:
    """The files that one job's ranks wrote, with the newest lines."""

    job: Job
    shared: bool
    waits: bool  # in collectives, while the first rank saves
    chance: np.random.Generator
    dealt: Floats
    changes: Sequence[Change]
    # Each collective's number, when it was written, and the microseconds that each rank spent in it.
    lines: deque[_Line] = field(default_factory=lambda: deque(maxlen=_KEPT))
    begin: list[_Line] = field(default_factory=list)
    count: int = 0  # of all lines
    steps: float = 0.0
    readers: dict[int, _Reader] = field(default_factory=dict)  # by node
    saved: float = 0.0  # seconds that all ranks but the first have waited

    def work(self, at: float, clock: Floats) -> None:
        """Write the collectives of one tick's steps."""
        job, rhythm, length = self.job, self.job.workload.rhythm, step_seconds(self.job)
        first = job.start + job.workload.startup_seconds
        over = job.end if job.stopped is None else min(job.end, job.stopped)
        if rhythm is None or length is None or not first <= at < over:
            return
        if self._is_held(at) or makes_steps_from(job, at) > at:
            self.saved += _TICK_SECONDS * (self.waits and not self._is_held(at))
            return
        before, begun = int(self.steps), at - _TICK_SECONDS - self.steps * length
        self.steps += _TICK_SECONDS / length
        size = (int(self.steps) - before, len(job.gpus))
        own = length * rhythm.own * self.dealt * (1.0 + self._scatter(size, _OWN_SPREAD))
        own *= np.maximum(1.0 + self._scatter(size, rhythm.uneven), 0.4) / (clock * self._speed(at))
        comes = rhythm.passes * own
        comes += length * rhythm.input * (1.0 + self._scatter(size, _INPUT_SPREAD))
        sent = length * max(1.0 - rhythm.passes * rhythm.own - rhythm.input, 0.03)
        waits = comes.max(axis=1, keepdims=True) - comes + sent
        whole = np.repeat((1e6 * waits / _OF_A_STEP).astype(np.int64), _OF_A_STEP, axis=0)
        if len(whole):
            whole[0, 1:] += int(1e6 * self.saved)
            self.saved = 0.0
        lines = [
            (number, int(1e6 * np.ceil(begun + (number // _OF_A_STEP + 1) * length)), times)
            for number, times in enumerate(whole.tolist(), start=before * _OF_A_STEP)
        ]
        self.lines.extend(lines)
        self.begin.extend(lines[: 2 * _KEPT - len(self.begin)])
        self.count += len(lines)

    def _scatter(self, size: tuple[int, int], deviation: float) -> Floats:
        return deviation * self.chance.standard_normal(size)

    def _speed(self, at: float) -> Floats:
        found = np.ones(len(self.job.gpus))
        for change in self.changes:
            if (change.on, change.name) == (
                Quantity.PHYSICS,
                "speed",
            ) and change.start <= at < change.end:
                found[np.isin(self.job.gpus, change.targets)] *= change.value
        return found

    def _is_held(self, at: float) -> bool:
        return any((it.on, it.name) in _HOLDS and it.start <= at < it.end for it in self.changes)

    def earlier(self) -> Sequence[_Line]:
        """Return the much earlier lines that the collector reads for comparison."""
        begin = earlier(self.count, _KEPT)
        return () if begin is None else self.begin[begin : begin + _KEPT]

    def ops(
        self, lines: Iterable[_Line], ranks: Sequence[int], hosts: Sequence[str]
    ) -> Iterator[Op]:
        name, size = f"{self.job.key:x}", len(self.job.gpus)
        for number, written, times in lines:
            for rank in ranks:
                yield Op(
                    communicator=name,
                    size=size,
                    rank=rank,
                    host=hosts[rank],
                    pid=1000 + rank,
                    operation="AllReduce",
                    number=number,
                    microseconds=times[rank],
                    clock="kernel_gpu",
                    owner=1000,
                    written=written,
                )

    def awaited_ranks(self, ranks: Sequence[int], hosts: Sequence[str]) -> list[AwaitedRank]:
        ones = awaited_ranks(self.ops(self.lines, ranks, hosts))
        return ones and list(with_earlier_cost(ones, self.ops(self.earlier(), ranks, hosts)))


class Inspectors:
    """NCCL Inspector on one fleet; feed it the blocks in order."""

    def __init__(self, fleet: Fleet, share: float = READ) -> None:
        self._fleet = fleet
        self._files = [self._new(job) for job in fleet.plan.jobs if is_read(job, share)]
        self.last: list[Last] = []

    def _new(self, job: Job) -> _Files:
        rhythm, mine = job.workload.rhythm, set(job.gpus)
        cut = np.array((rhythm.dealt if rhythm else ()) or (1.0,) * STAGES)
        stage = np.arange(len(job.gpus)) * STAGES // len(job.gpus)
        return _Files(
            job=job,
            shared=Dice("inspector's files", job.key).share() < _SHARED,
            waits=_waits_for_checkpoints(job),
            chance=np.random.default_rng((self._fleet.settings.seed, job.number)),
            dealt=cut[np.clip(stage, 0, STAGES - 1)],
            changes=[it for it in self._fleet.plan.changes if not mine.isdisjoint(it.targets)
                     and it.on in {Quantity.PHYSICS, Quantity.WORK, Quantity.STEPS}],
        )  # fmt: skip

    def heard(self, block: Block) -> Block:
        """Return the block with the collectors' events about its collectives added."""
        origin = self._fleet.settings.start
        start, end = ((it - origin).total_seconds() for it in (block.start, block.end))
        clocks = _clocks(block.tables["gpu"], origin)
        events: list[Event] = []
        here = [it for it in self._files if it.job.start < end and it.job.end > start]
        for at in np.arange(start, end, _TICK_SECONDS).tolist():
            for files in here:
                files.work(at, self._clock(files.job, clocks, at))
                if files.job.start <= at < files.job.end:
                    events += self._look(files, at)
        return replace(
            block,
            events=(*block.events, *events),
            event_arrivals=(*block.event_arrivals, *(it.at for it in events)),
        )

    def _clock(self, job: Job, clocks: Mapping[str, tuple[Floats, Floats]], at: float) -> Floats:
        """Return each GPU's clock as a share of its highest; 1.0 where it is not read."""
        found = []
        for gpu in job.gpus:
            times, shares = clocks.get(
                self._fleet.plan.topology.uuids[gpu], (np.empty(0), np.empty(0))
            )
            place = int(np.searchsorted(times, at, side="right")) - 1
            found.append(1.0 if place < 0 else float(shares[place]))
        return np.array(found)

    def _look(self, files: _Files, at: float) -> Iterator[Event]:
        topology, job = self._fleet.plan.topology, files.job
        nodes = [int(topology.gpu_node[gpu]) for gpu in job.gpus]
        hosts = [f"10.0.{node // 250}.{node % 250}" for node in nodes]
        seen = {0: range(len(nodes))} if files.shared else {
            node: [rank for rank, it in enumerate(nodes) if it == node] for node in nodes
        }  # fmt: skip
        for node, ranks in seen.items():
            reader = files.readers.setdefault(node, _Reader())
            if at < reader.due:
                continue
            ones = {it.op.rank: it for it in files.awaited_ranks(ranks, hosts)}
            news = reader.told.news(ones, at)
            read = max((it.seconds for it in ones.values()), default=0)
            reader.due = at + reader.told.rest(INSPECTOR_SECONDS, read)
            for rank in sorted(news):
                gpu = topology.gpu_subject(job.gpus[rank])
                self.last.append((self._fleet.at(at), gpu))
                yield self._event(gpu, ones[rank], str(job.holder), at)

    def _event(self, gpu: Subject, one: AwaitedRank, holder: str, at: float) -> Event:
        return Event(
            kind=EventKind.COLLECTIVE,
            subject=gpu.of_node(),
            at=self._fleet.at(at),
            id=f"collective:{gpu.key}:{at:g}",
            message="ranks first, by inspector (simulated)",
            collectives=(one.collective(holder, gpu.gpu),),
        )


def _clocks(table: pa.Table, origin: datetime) -> Mapping[str, tuple[Floats, Floats]]:
    """Return, by the UUID of each GPU whose clock is read, the times in seconds and shares of the highest clock."""
    known = {"sm_clock_hertz", "sm_clock_max_hertz"} <= set(table.column_names)
    if not known:
        return {}
    share = pc.divide(
        table["sm_clock_hertz"].cast(pa.float64()), table["sm_clock_max_hertz"].cast(pa.float64())
    )
    read = pa.table(
        {
            "uuid": table["uuid"].cast(pa.string()),
            "at": table["at"].cast(pa.int64()),
            "share": share,
        }
    )
    read = read.filter(pc.is_finite(read["share"])).sort_by(
        [("uuid", "ascending"), ("at", "ascending")]
    )
    uuids = read["uuid"].to_numpy(zero_copy_only=False)
    at = read["at"].to_numpy() / 1e6 - origin.timestamp()
    shares = np.maximum(read["share"].to_numpy(), 0.05)
    begins = (
        np.flatnonzero(np.r_[True, uuids[1:] != uuids[:-1]]) if len(uuids) else np.empty(0, int)
    )
    ends = np.r_[begins[1:], len(uuids)]
    return {
        str(uuids[low]): (at[low:high], shares[low:high])
        for low, high in zip(begins.tolist(), ends.tolist(), strict=True)
    }
