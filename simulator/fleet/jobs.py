"""Which jobs run where and when: a queue in front of two parts of the fleet.

Large jobs take whole nodes of one part, adjacent where possible; small ones share the nodes of the other
part, packed tightly. Within a kind of work, no job overtakes another.
"""

import heapq
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from gpuvigil.model import Holder, job_holder

from ..people import NAMES, TEAMS
from .chance import Dice, at_share, key
from .model import FleetSettings
from .topology import Topology
from .trainings import workloads_of
from .workloads import DAY, Ending, Workload, day

_USERS = tuple(f"{name}{number}" for number in ("", "2", "3") for name in NAMES)
# The queue runs before the fleet's first moment, so that the fleet starts fully loaded: for twice as
# long as the longest job of a kind, but no longer than this.
_BEFORE_SECONDS = 8 * DAY
_MOST_WAITING = 200
_WHOLE = "whole nodes"


@dataclass(slots=True, kw_only=True)
class Job:
    """One job as it ran; times in seconds since the fleet's start, the first may be negative."""

    number: int
    workload: Workload
    gpus: tuple[int, ...]
    start: float
    end: float
    ending: Ending
    user: str
    # When its work stopped before its end: its ranks crashed, or its peers wait for a dead one.
    stopped: float | None = None
    struck: frozenset[int] = frozenset()  # GPUs whose fault ended the job

    @property
    def key(self) -> int:
        return key("job", self.number, self.user)

    def sends(self, gpus_per_node: int) -> bool:
        """Return whether its work waits for the network: it is on several nodes and sends between them."""
        nodes = {gpu // gpus_per_node for gpu in self.gpus}
        return self.workload.fabric > 0.0 and len(nodes) > 1

    @property
    def holder(self) -> Holder:
        """The holder as the scheduler names it."""
        return job_holder(10_000 + self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A span in which a node takes no jobs; `kills` ends its jobs at once, else they may finish."""

    node: int
    start: float
    end: float
    kills: bool
    ending: Ending = Ending.PREEMPTED


@dataclass(slots=True)
class _Waiting:
    workload: Workload
    size: int
    seconds: float
    ending: Ending
    user: str


class Schedule:
    """A single run of the queue; `jobs` are those that ran within the horizon."""

    def __init__(
        self, settings: FleetSettings, topology: Topology, outages: Iterable[Outage] = ()
    ) -> None:
        self._settings = settings
        self._topology = topology
        self._horizon = settings.days * DAY
        # Each step has a time, a tie-breaker, an action and its argument.
        self._steps: list[tuple[float, int, str, object]] = []
        self._order = 0
        self._free = [set(self._gpus(node)) for node in range(topology.nodes)]
        self._shut = [0] * topology.nodes
        self._running: dict[int, Job] = {}
        self._queues: dict[str, deque[_Waiting]] = {}
        self._number = 0
        self.jobs: list[Job] = []
        self._users = _USERS if settings.world is None else _strangers(settings.seed)
        self._whole = self._part()
        self._arrivals: dict[str, Dice] = {}
        self._gaps = {workload.key: self._gap(workload) for workload in self._chosen()}
        # Nodes of the part for whole-node jobs on which nothing runs, shut or not.
        self._empty = set(range(self._whole))
        self._heaps: list[list[int]] = [[] for _ in range(topology.per_node + 1)]
        for node in range(self._whole, topology.nodes):
            heapq.heappush(self._heaps[topology.per_node], node)
        for outage in outages:
            self._push(outage.start, "closed", outage)
            self._push(outage.end, "opened", outage)
        self._do = {
            "arrived": self._arrived,
            "ended": self._ended,
            "closed": self._closed,
            "opened": self._opened,
        }
        self._run()

    def _gpus(self, node: int) -> range:
        return range(node * self._topology.per_node, (node + 1) * self._topology.per_node)

    def _chosen(self) -> list[Workload]:
        """Return the workloads of this fleet, with the share of GPU time that each asks for."""
        names, shares = self._settings.workloads, dict(self._settings.mix)
        known = workloads_of(self._settings).values()
        chosen = [w for w in known if names is None or w.key in names]
        if shares:
            chosen = [replace(w, gpu_time=shares.get(w.key, 0.0)) for w in chosen]
        return [w for w in chosen if w.gpu_time > 0.0]

    def _part(self) -> int:
        """Return how many nodes are reserved for whole-node jobs."""
        chosen = self._chosen()
        total = sum(w.gpu_time for w in chosen)
        large = sum(w.gpu_time for w in chosen if w.whole_nodes)
        return round(self._topology.nodes * large / total) if total else 0

    def _push(self, at: float, what: str, value: object) -> None:
        self._order += 1
        heapq.heappush(self._steps, (at, self._order, what, value))

    def _run(self) -> None:
        for workload in self._chosen():
            self._queues[_queue(workload)] = deque()
            self._arrivals[workload.key] = Dice(self._settings.seed, "arrivals", workload.key)
            before = min(_BEFORE_SECONDS, 2.0 * workload.seconds[-1][1])
            self._next_arrival(workload, -before)
        while self._steps and self._steps[0][0] < self._horizon:
            at, _, what, value = heapq.heappop(self._steps)
            self._do[what](at, value)
        self.jobs.sort(key=lambda job: (job.start, job.number))

    def _next_arrival(self, workload: Workload, now: float) -> None:
        gap = self._arrivals[workload.key].gap(self._gaps[workload.key])
        if workload.comes_daily:
            gap /= 1.0 + workload.comes_daily * float(day(np.array([now]))[0])
        self._push(now + gap, "arrived", workload)

    def _gap(self, workload: Workload) -> float:
        """Return the mean time between arrivals that gives the workload its share of GPU time."""
        total = sum(w.gpu_time for w in self._chosen())
        wanted = self._settings.demand * self._topology.gpus * workload.gpu_time / total
        weight = sum(share for _, share in workload.sizes)
        size = sum(n * share for n, share in workload.sizes) / weight
        return size * _mean(workload.seconds) / wanted

    def _arrived(self, now: float, value: object) -> None:
        assert isinstance(value, Workload)
        dice = self._arrivals[value.key]
        waiting = _Waiting(
            workload=value,
            size=self._size(value, dice),
            seconds=max(round(at_share(value.seconds, dice.share())), 5),
            ending=dice.pick(tuple(Ending), value.endings),
            user=dice.pick(self._users),
        )
        queue = self._queues[_queue(value)]
        if len(queue) < _MOST_WAITING:
            queue.append(waiting)
        self._next_arrival(value, now)
        self._serve(now, (_queue(value),))

    def _size(self, workload: Workload, dice: Dice) -> int:
        """Draw a size that the fleet can provide."""
        wanted = int(dice.pick([n for n, _ in workload.sizes], [s for _, s in workload.sizes]))
        per_node = self._topology.per_node
        if workload.whole_nodes:
            most = max(self._whole, 1) * per_node
            return min(max(wanted, per_node), most)
        return min(wanted, per_node)

    def _serve(self, now: float, names: Iterable[str]) -> None:
        for name in names:
            queue = self._queues[name]
            while queue:
                places = self._places(queue[0])
                if not places:
                    break
                self._begin(now, queue.popleft(), places)

    def _places(self, waiting: _Waiting) -> tuple[int, ...]:
        if waiting.workload.whole_nodes:
            return self._whole_nodes(waiting.size // self._topology.per_node)
        return self._share(waiting.size)

    def _whole_nodes(self, count: int) -> tuple[int, ...]:
        """Return the first long enough run of adjacent free nodes, else the first free ones."""
        if len(self._empty) < count:
            return ()
        free = [node for node in sorted(self._empty) if not self._shut[node]]
        if len(free) < count:
            return ()
        chosen = free[:count]
        for first in range(len(free) - count + 1):
            if free[first + count - 1] - free[first] == count - 1:
                chosen = free[first : first + count]
                break
        return tuple(gpu for node in chosen for gpu in self._gpus(node))

    def _share(self, size: int) -> tuple[int, ...]:
        """Return free GPUs on the fullest node that has room."""
        for count in range(size, self._topology.per_node + 1):
            heap = self._heaps[count]
            while heap:
                node = heap[0]
                if len(self._free[node]) != count or self._shut[node]:
                    heapq.heappop(heap)
                    continue
                return tuple(sorted(self._free[node])[:size])
        return ()

    def _begin(self, now: float, waiting: _Waiting, places: tuple[int, ...]) -> None:
        self._number += 1
        job = Job(
            number=self._number,
            workload=waiting.workload,
            gpus=places,
            start=now,
            end=now + waiting.seconds,
            ending=waiting.ending,
            user=waiting.user,
        )
        self._running[job.number] = job
        for gpu in places:
            self._free[gpu // self._topology.per_node].discard(gpu)
        self._refile(places)
        self._push(job.end, "ended", job)
        self.jobs.append(job)

    def _refile(self, gpus: Sequence[int]) -> None:
        for node in {gpu // self._topology.per_node for gpu in gpus}:
            free = len(self._free[node])
            if node < self._whole:
                change = self._empty.add if free == self._topology.per_node else self._empty.discard
                change(node)
            elif not self._shut[node]:
                heapq.heappush(self._heaps[free], node)

    def _ended(self, now: float, value: object) -> None:
        assert isinstance(value, Job)
        if self._running.pop(value.number, None) is None:
            return
        value.end = now
        for gpu in value.gpus:
            self._free[gpu // self._topology.per_node].add(gpu)
        self._refile(value.gpus)
        large = value.workload.whole_nodes
        self._serve(now, [name for name in self._queues if (name == _WHOLE) == large])

    def _closed(self, now: float, value: object) -> None:
        assert isinstance(value, Outage)
        self._shut[value.node] += 1
        if not value.kills:
            return
        mine = self._gpus(value.node)
        if len(self._free[value.node]) == len(mine):
            return
        for job in [j for j in self._running.values() if any(g in mine for g in j.gpus)]:
            job.ending = value.ending
            self._ended(now, job)

    def _opened(self, now: float, value: object) -> None:
        assert isinstance(value, Outage)
        self._shut[value.node] -= 1
        self._refile((value.node * self._topology.per_node,))
        self._serve(now, list(self._queues))


def team_of(user: str) -> str:
    """Return the account of a user's jobs, always the same one."""
    return TEAMS[zlib.crc32(user.encode()) % len(TEAMS)]


def _strangers(seed: int) -> tuple[str, ...]:
    """Return users with meaningless names."""
    dice = Dice(seed, "users")
    return tuple(dict.fromkeys(f"u{dice.below(10**5):05d}" for _ in range(len(_USERS))))


def _queue(workload: Workload) -> str:
    """Return the queue's name; large jobs share one queue, so that the largest get their turn."""
    return _WHOLE if workload.whole_nodes else workload.key


def _mean(points: Sequence[tuple[float, float]]) -> float:
    return sum((right - left) * (low + high) / 2 for (left, low), (right, high) in pairwise(points))
