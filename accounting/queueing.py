"""Why jobs wait, and what keeps free GPUs from them: pure, from what schedulers report.

Slurm's words are the reason codes of squeue(1), those of Kubernetes the message of a pod's condition
`PodScheduled`. For a waiting job a scheduler reports how many GPUs it asks for, but not on how many
nodes. Here it fits where one node has that many free or, if no node is large enough for it, where enough
nodes are entirely free.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from statistics import median, quantiles

from gpuvigil.model import Job


class Wait(str, Enum):
    """The reason why a job waits."""

    QUOTA = "quota"
    RESERVATION = "reservation"
    FAULTY = "faulty nodes"
    FRAGMENTATION = "fragmentation"
    BACKFILL = "backfill"
    ROOM = "no room"
    OWN = "its own wish"
    UNKNOWN = "not told"

    @property
    def wants_gpus(self) -> bool:
        """Whether the job would start now if it had GPUs; false if it is held or waits for another."""
        return self is not Wait.OWN


# The first whose beginning matches, in small letters without spaces, underscores, commas and colons.
_REASONS: Sequence[tuple[Wait, tuple[str, ...]]] = (
    (
        Wait.OWN,
        (
            *("dependency", "jobhelduser", "jobheldadmin", "begintime", "jobarraytasklimit"),
            *("licenses", "badconstraints", "inactivelimit", "deadline", "constraints"),
            *("burstbuffer", "prolog", "cleaning", "schedulinggated", "jobholdmaxrequeue"),
        ),
    ),
    (
        Wait.QUOTA,
        (
            *(
                "assoc",
                "qos",
                "max",
                "partitionnodelimit",
                "partitiontimelimit",
                "accountnotallowed",
            ),
            *("jobspernode", "exceededquota", "couldn'tassignflavors", "insufficientquota"),
        ),
    ),
    (Wait.RESERVATION, ("reservation", "reqnodenotavailmaybereserved", "reqnodenotavailreserved")),
    (
        Wait.FAULTY,
        (
            *("nodedown", "nodesrequired", "reqnodenotavail", "partitiondown", "partitioninactive"),
            *("frontenddown", "launchfailed", "joblaunchfailure", "schednodesfailed"),
        ),
    ),
    (Wait.BACKFILL, ("priority",)),
    (Wait.ROOM, ("resources", "unschedulable", "none")),
)
# States of nodes, in Slurm's and the watcher's words, in which they start no jobs.
_FAULTY = frozenset(
    {
        *("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "NOT_RESPONDING", "ERROR"),
        *("NOT_READY", "UNKNOWN", "CORDONED", "DELETED", "LEAVING", "INVAL", "POWERED_DOWN"),
    }
)
_RESERVED = frozenset({"RESERVED", "MAINT", "MAINTENANCE"})


def reason_of(job: Job) -> Wait:
    """Return the reason that the scheduler gives for the wait."""
    said = job.reason or ""
    if not said:
        return Wait.UNKNOWN
    plain = re.sub(r"[\s_,:]", "", said).lower()
    for wait, beginnings in _REASONS:
        if plain.startswith(beginnings):
            kept = wait is not Wait.ROOM
            return wait if kept or "quota" not in plain else Wait.QUOTA
    return Wait.QUOTA if "quota" in plain else Wait.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The free GPUs and states of a node now."""

    free: int  # GPUs that nobody holds
    gpus: int
    states: tuple[str, ...] = ()  # in the scheduler's words; none: it takes jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The free GPUs of the nodes that take jobs in a cluster: summed up once for all waiting jobs."""

    free: int = 0  # GPUs
    most: int = 0  # free on one node
    largest: int = 0  # GPUs of the largest node, free or not
    whole: int = 0  # free on wholly free nodes of the largest size

    @classmethod
    def of(cls, rooms: Iterable[Room]) -> "Space":
        """Sum up the nodes of a cluster."""
        usable = [room for room in rooms if not blocked(room)]
        largest = max((room.gpus for room in usable), default=0)
        return cls(
            free=sum(room.free for room in usable),
            most=max((room.free for room in usable), default=0),
            largest=largest,
            whole=sum(room.free for room in usable if room.free == room.gpus == largest),
        )

    def fits(self, gpus: int) -> bool:
        """Return whether that many GPUs are free at once for one job."""
        return self.most >= gpus or (gpus > self.largest and self.whole >= gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The waiting jobs of one cluster, and what keeps free GPUs from them."""

    jobs: int
    gpus: int  # asked for by jobs that would start now
    free: int
    waits: Mapping[Wait, int]  # GPUs asked for, by what the jobs wait for
    kept: Mapping[Wait, int]  # free GPUs that jobs cannot get; at most as many as asked for

    @property
    def free_while_queued(self) -> int:
        return sum(self.kept.values())


def queue(jobs: Iterable[Job], nodes: Mapping[str, Room]) -> Queue:
    """Return the queue of a cluster, from its jobs and all its nodes with GPUs."""
    space = Space.of(nodes.values())
    waiting = [(job, tasks(job), wait_of(job, space)) for job in jobs if job.state == "PENDING"]
    waits: Counter[Wait] = Counter()
    for job, count, wait in waiting:
        waits[wait] += (job.gpus or 0) * count
    demand = Counter({wait: gpus for wait, gpus in waits.items() if wait.wants_gpus})
    return Queue(
        jobs=sum(count for _, count, _ in waiting),
        gpus=demand.total(),
        free=sum(room.free for room in nodes.values()),
        waits=dict(waits),
        kept=_kept(demand, nodes),
    )


def wait_of(job: Job, space: Space) -> Wait:
    """Return what a job waits for: the scheduler's word, and where that is room, why there is none."""
    wait = reason_of(job)
    if wait not in {Wait.ROOM, Wait.UNKNOWN} or not job.gpus:
        return wait
    if space.fits(job.gpus):
        return Wait.BACKFILL
    return Wait.FRAGMENTATION if space.free >= job.gpus else wait


def blocked(room: Room) -> Wait | None:
    """Return why a node takes no jobs; None for one that does."""
    if _FAULTY & set(room.states):
        return Wait.FAULTY
    return Wait.RESERVATION if _RESERVED & set(room.states) else None


def _kept(demand: Counter[Wait], nodes: Mapping[str, Room]) -> dict[Wait, int]:
    """Return free GPUs by what keeps them from waiting jobs; each GPU asked for counts once."""
    free: Counter[Wait | None] = Counter()
    for room in nodes.values():
        free[blocked(room)] += room.free
    left, kept = demand.total(), dict[Wait, int]()
    usable = free[None]
    for wait in (Wait.BACKFILL, Wait.FRAGMENTATION, Wait.QUOTA):
        kept[wait] = min(usable, demand[wait], left)
        usable -= kept[wait]
        left -= kept[wait]
    for wait in (Wait.RESERVATION, Wait.FAULTY):
        kept[wait] = min(free[wait], left)
        left -= kept[wait]
    return {wait: gpus for wait, gpus in kept.items() if gpus}


_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def tasks(job: Job) -> int:
    """Return how many jobs a record stands for: the pending tasks of an array are one record.

    >>> tasks_of("17_[4-9,12%2]")
    7
    """
    return tasks_of(job.array or "")


def tasks_of(array: str) -> int:
    """Return the number of tasks in Slurm's array text; 1 where it names none."""
    inside = array.partition("[")[2].partition("]")[0].partition("%")[0]
    count = 0
    for first, last, step in _RANGE.findall(inside):
        count += 1 if not last else max((int(last) - int(first)) // int(step or 1) + 1, 0)
    return count or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """How long the jobs that started in a span waited."""

    jobs: int
    median: timedelta
    p95: timedelta
    longest: timedelta


def waited(jobs: Iterable[Job], start: datetime, end: datetime) -> Waited | None:
    """Return the waits since submission, including those for another job; None without a job."""
    lengths = sorted(
        (job.started_at - job.submitted_at).total_seconds()
        for job in jobs
        if job.started_at is not None and start <= job.started_at < end
    )
    if not lengths:
        return None
    p95 = quantiles(lengths, n=20, method="inclusive")[-1] if lengths[1:] else lengths[0]
    return Waited(
        jobs=len(lengths),
        median=timedelta(seconds=median(lengths)),
        p95=timedelta(seconds=p95),
        longest=timedelta(seconds=lengths[-1]),
    )


def lost_gpu_hours(jobs: Iterable[Job], state: str, start: datetime, end: datetime) -> float:
    """Return the GPU-hours of jobs that ended in that state within a span: their work may be lost."""
    return sum(
        (job.gpus or 0) * (job.ended_at - job.started_at) / timedelta(hours=1)
        for job in jobs
        if job.state == state
        and job.started_at is not None
        and job.ended_at is not None
        and start <= job.ended_at < end
    )
