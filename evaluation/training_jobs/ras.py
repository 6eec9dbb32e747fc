"""What NCCL's RAS answers about a fleet's jobs that stand still, when the collectors ask by their own rules.

Whose jobs may be asked is chosen. A node asks as its collector would: by the steps and spins of its GPUs, twice, at
its pace. The answers are made from the truth, and the collector's own verdict on two of them is what is reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector.nccl.ranks_supervisor import PACE, spread
from collector.nccl.ras_status import FINE, Communicator, Missing, Place, Rank, Status
from collector.nccl.ras_verdict import verdict
from collector.nccl.stalled import Fields, OnGpu, stalled
from collector.nccl.turn import FEW
from collector.rows.spin_times import Spins
from gpuvigil.model import Allocation, Collective, Event, EventKind, RankState, Source
from simulator.fleet import Block, Fleet
from simulator.fleet.chance import Dice
from simulator.fleet.changes import Change, Quantity
from simulator.fleet.holding import STOPPED
from simulator.fleet.jobs import Job
from simulator.fleet.steps import makes_steps_from, step_seconds

# The share of training jobs that may be asked [chosen].
ASKED = 0.4
_TICK_SECONDS = 10.0
_LATE_SECONDS = 15.0  # an older row is of another tick
_OPERATION, _OF_A_STEP, _PID = "AllReduce", 8, 1000
_OF_STEPS = ("step_age_seconds", "step_p99_seconds", "step_phase", "step_phase_seconds")
_OF_SPINS = (
    "power_watts", "power_limit_watts", "utilization_percent", "memory_utilization_percent",
    "pcie_receive_bytes_per_second", "nvlink_receive_bytes",
)  # fmt: skip


def is_asked(job: Job, share: float = ASKED) -> bool:
    """Return whether a job's nodes may ask its NCCL, as those of this share of jobs may."""
    trains = job.workload.rhythm is not None and len(job.gpus) > 1
    return trains and Dice("ras", job.key).share() < share


@dataclass(slots=True, kw_only=True)
class _Node:
    """A node of a job that asks it: what it saw, and when it asks next."""

    number: int
    spins: Spins = field(default_factory=Spins)
    due: float | None = None
    rest: float = PACE.rest_seconds / 2
    before: Status | None = None  # the first answer of a look

    def asks(self, at: float, is_still: bool, begins_after: float) -> bool:
        """Return whether a look begins now, by the pace of `Ranks`; the first one waits for the node's turn."""
        if not is_still:
            if self.due is not None and at >= self.due:
                self.due = None
            return False
        if self.due is None:
            self.due, self.rest = at + begins_after, PACE.rest_seconds / 2
        if at < self.due:
            return False
        self.rest = min(2 * self.rest, PACE.longest_rest_seconds)
        self.due = at + PACE.pause_seconds + self.rest
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A job that may be asked, the changes of its ranks, and its nodes that ask."""

    job: Job
    changes: Sequence[Change]
    hosts: Sequence[str]  # by rank
    devices: Sequence[int]  # by rank
    nodes: Sequence[_Node]

    def ranks_with(self, name: str, at: float, value: float | None = None) -> set[int]:
        """Return the ranks with such a change at that moment."""
        gpus = {
            gpu
            for it in self.changes
            if it.name == name and it.start <= at < it.end and value in {None, it.value}
            for gpu in it.targets
        }
        return {rank for rank, gpu in enumerate(self.job.gpus) if gpu in gpus}

    def status(self, at: float) -> Status:
        """Return what RAS answers: who is silent, and how many collectives each other rank has launched."""
        size, launched = len(self.job.gpus), self._launched(at)
        idle, gone = self.ranks_with("stall", at), self.ranks_with("gone", at)
        silent = gone | self.ranks_with("phase", at, STOPPED + 1.0)
        # Ranks that are all idle wait for something else, at the same point.
        behind = idle if len(idle) < size else set()
        places = [
            Place(host, _PID + rank, device)
            for rank, (host, device) in enumerate(zip(self.hosts, self.devices, strict=True))
        ]
        ranks = [
            Rank(
                rank=rank, place=places[rank], init_state=FINE, async_error=FINE, ending=False,
                aborted=False, counts={_OPERATION: launched - (rank in behind)},
            )
            for rank in range(size) if rank not in silent
        ]  # fmt: skip
        missing = [
            Missing(rank=rank, place=places[rank], unresponsive=True, dead=rank in gone)
            for rank in sorted(silent)
        ]
        of = Communicator(
            key=f"{self.job.key:x} 0", size=size, ranks=tuple(ranks), missing=tuple(missing)
        )
        return Status(version="2.30.7", communicators=(of,), timeouts=len(missing))

    def _launched(self, at: float) -> int:
        """Return how many collectives were launched, which grows with neither a pause nor a rank that is held."""
        holds = [it.start for it in self.changes if it.name in _HOLDS and it.start <= at < it.end]
        works = makes_steps_from(self.job, min(holds, default=at))
        return 1 + _OF_A_STEP * int((works - self.job.start) / (step_seconds(self.job) or 1.0))


_HOLDS = frozenset({"spin", "stall", "phase"})


class RasAnswers:
    """NCCL's RAS on one fleet; feed it the blocks in order."""

    def __init__(self, fleet: Fleet, share: float = ASKED) -> None:
        self._fleet = fleet
        self._asked = [self._new(it) for it in fleet.plan.jobs if is_asked(it, share)]

    def _new(self, job: Job) -> _Asked:
        mine, nodes = (
            set(job.gpus),
            [int(self._fleet.plan.topology.gpu_node[it]) for it in job.gpus],
        )
        few = {nodes[len(nodes) * number // FEW] for number in range(FEW)}
        return _Asked(
            job=job,
            changes=[it for it in self._fleet.plan.changes if not mine.isdisjoint(it.targets)
                     and it.on in {Quantity.WORK, Quantity.STEPS}],
            hosts=[f"10.0.{node // 250}.{node % 250}" for node in nodes],
            devices=[gpu % self._fleet.plan.topology.per_node for gpu in job.gpus],
            nodes=[_Node(number=it) for it in sorted(few)],
        )  # fmt: skip

    def heard(self, block: Block) -> Block:
        """Return the block with the collectors' events about its jobs added."""
        origin = self._fleet.settings.start
        start, end = ((it - origin).total_seconds() for it in (block.start, block.end))
        here = [it for it in self._asked if it.job.start < end and it.job.end > start]
        topology = self._fleet.plan.topology
        uuids = {topology.uuids[gpu] for it in here for gpu in it.job.gpus}
        rows = _rows(block.tables["gpu"], origin, uuids)
        events = [
            event
            for at in np.arange(start, end, _TICK_SECONDS).tolist()
            for one in here
            if one.job.start <= at < one.job.end
            for node in one.nodes
            if (event := self._look(one, node, rows, at)) is not None
        ]
        return replace(
            block,
            events=(*block.events, *events),
            event_arrivals=(*block.event_arrivals, *(it.at for it in events)),
        )

    def _look(
        self, one: _Asked, node: _Node, rows: Mapping[str, "_Rows"], at: float
    ) -> Event | None:
        """Look at a node's GPUs, ask if that is due, and return what two answers say."""
        gpus = self._on_gpus(one, node, rows, at)
        is_still = bool(stalled(gpus))
        if node.before is not None:
            if not is_still:
                node.before = None  # the collector ends its child
            elif node.due is not None and at >= node.due - node.rest:
                before, node.before = node.before, None
                return self._event(one, node, before, at)
            return None
        name = self._fleet.plan.topology.node_subject(node.number).key
        is_old = at - one.job.start >= PACE.youngest_seconds
        if is_old and node.asks(at, is_still, PACE.spread_seconds * spread(name)):
            node.before = one.status(at)
        return None

    def _on_gpus(
        self, one: _Asked, node: _Node, rows: Mapping[str, "_Rows"], at: float
    ) -> list[OnGpu]:
        topology, found = self._fleet.plan.topology, []
        for gpu in one.job.gpus:
            if int(topology.gpu_node[gpu]) != node.number:
                continue
            subject = topology.gpu_subject(gpu)
            fields = rows[topology.uuids[gpu]].at(at) if topology.uuids[gpu] in rows else None
            if fields is None:
                continue
            pid = _PID + one.job.gpus.index(gpu)
            held = Allocation(
                subject=subject, holder=one.job.holder, user=None, command=None,
                started_at=self._fleet.at(one.job.start),
            )  # fmt: skip
            spins = node.spins.update(topology.uuids[gpu], fields.get, (pid,), at)
            found.append(
                OnGpu(
                    uuid=topology.uuids[gpu], index=gpu % topology.per_node,
                    fields={**fields, **spins}, pids=frozenset((pid,)), held=(held,),
                )
            )  # fmt: skip
        return found

    def _event(self, one: _Asked, node: _Node, before: Status, at: float) -> Event | None:
        """Return the report; None where the job goes on, or nobody listens at the port any more."""
        topology, holder = self._fleet.plan.topology, str(one.job.holder)
        own = [
            rank
            for rank, gpu in enumerate(one.job.gpus)
            if int(topology.gpu_node[gpu]) == node.number
        ]
        found: Collective | None
        # One process of a node has the port, here its first.
        if own[0] in one.ranks_with("gone", at):
            return None
        if own[0] in one.ranks_with("phase", at, STOPPED + 1.0):
            found = Collective(by=Source.RAS, holder=holder, stand=RankState.SILENT)
        else:
            found = verdict(
                before,
                one.status(at),
                holder,
                lambda place: (
                    topology.uuids[one.job.gpus[place.device]] if place.device in own else None
                ),
                {one.hosts[own[0]]},
            )
        if found is None:
            return None
        subject = topology.node_subject(node.number)
        return Event(
            kind=EventKind.COLLECTIVE,
            subject=subject,
            at=self._fleet.at(at),
            id=f"ras:{subject.key}:{holder}:{at:g}",
            message=f"ranks {found.stand.value}, by ras (simulated)",
            collectives=(found,),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """One GPU's rows of a block: their times in seconds, and the fields that a collector looks at."""

    times: NDArray[np.float64]
    fields: Mapping[str, NDArray[np.float64]]

    def at(self, seconds: float) -> Fields | None:
        """Return the fields of the last row up to then; None where that is of an earlier tick."""
        place = int(np.searchsorted(self.times, seconds, side="right")) - 1
        if place < 0 or seconds - self.times[place] > _LATE_SECONDS:
            return None
        values = {name: float(it[place]) for name, it in self.fields.items()}
        return {name: None if np.isnan(value) else value for name, value in values.items()}


def _rows(table: pa.Table, origin: datetime, uuids: set[str]) -> Mapping[str, _Rows]:
    """Return the rows of these GPUs by UUID."""
    names = [it for it in (*_OF_STEPS, *_OF_SPINS) if it in table.column_names]
    uuid = table["uuid"].cast(pa.string())
    table = table.filter(pc.is_in(uuid, pa.array(sorted(uuids), pa.string())))
    order = {"uuid": table["uuid"].cast(pa.string()), "at": table["at"].cast(pa.int64())}
    columns = {name: table[name].cast(pa.float64()) for name in names}
    read = pa.table({**order, **columns}).sort_by([("uuid", "ascending"), ("at", "ascending")])
    of = read["uuid"].to_numpy(zero_copy_only=False)
    if not len(of):
        return {}
    times = read["at"].to_numpy() / 1e6 - origin.timestamp()
    values = {name: read[name].to_numpy(zero_copy_only=False) for name in names}
    begins = np.flatnonzero(np.r_[True, of[1:] != of[:-1]]).tolist()
    return {
        str(of[low]): _Rows(
            times=times[low:high], fields={name: it[low:high] for name, it in values.items()}
        )
        for low, high in zip(begins, [*begins[1:], len(of)], strict=True)
    }
