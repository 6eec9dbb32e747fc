"""What a fault cost the jobs: their lost GPU time, as far as the plan knows it."""

from collections.abc import Iterable

import numpy as np

from gpuvigil.model import Holder

from .chance import lane
from .changes import Change, Quantity
from .jobs import Job
from .site import Site

_NO_CHECKPOINTS = 1e12
# The physical effect of these is known only when the fleet is played.
_PLAYED = frozenset({"resistance", "inlet", "limit_watts", "ceiling", "brake"})


def costs(site: Site, jobs: Iterable[Job]) -> tuple[tuple[Holder, float], ...] | None:
    """Return the GPU-seconds that each job lost, by holder; None when only playing would tell.

    A job that the fault ended loses its work since the last checkpoint, and the time for which the dead
    job still held its GPUs. A job that it slowed down loses the share of its pace, on all its GPUs alike,
    while both lasted.
    """
    if any(change.on is Quantity.PHYSICS and change.name in _PLAYED for change in site.changes):
        return None
    lost = {}
    for job in jobs:
        if job.start < site.end and job.end > site.start:
            seconds = _ended(site, job) if _is_ended_by(site, job) else _slowed(site, job)
            if seconds > 0.0:
                lost[job.holder] = round(seconds * len(job.gpus), 3)
    return tuple(lost.items())


def pace_taken(site: Site, jobs: Iterable[Job]) -> float | None:
    """Return the largest share of its pace that a job loses to the fault; None when only playing would tell.

    A job that the fault ends loses all of it; without a job to strike it takes nothing.
    """
    if not site.costs:
        return site.pace_lost if site.costs is None else 0.0
    if site.stops:
        return 1.0
    jobs = [job for job in jobs if job.start < site.end and job.end > site.start]
    struck = ((it, job) for it in site.changes for job in jobs if _overlap(it, job) > 0.0)
    return max([*(_share(it, site, job) for it, job in struck), site.pace_lost or 0.0])


def _is_ended_by(site: Site, job: Job) -> bool:
    return any(
        job.stopped == stop.at and not job.struck.isdisjoint(stop.gpus) for stop in site.stops
    )


def _ended(site: Site, job: Job) -> float:
    """Return the seconds lost by a job that the fault ended; every GPU loses these."""
    assert job.stopped is not None
    held = job.end - job.stopped
    work = job.workload
    since = job.stopped - job.start
    if not work.redone or since <= work.startup_seconds:
        return held
    if work.checkpoint_every >= _NO_CHECKPOINTS:
        return held + since
    # As in `holding.Holding`: each job's checkpoints are shifted by its own random number.
    shift = float(lane(np.array([job.key], dtype=np.uint64), 1)[0]) * work.checkpoint_every
    return held + min(since, (since + shift) % work.checkpoint_every)


def _slowed(site: Site, job: Job) -> float:
    """Return the seconds that a change of the job's work, or of the pace of one GPU, cost; every GPU loses these."""
    parts = [_share(change, site, job) * _overlap(change, job) for change in site.changes]
    if site.pace_lost is not None and not set(job.gpus).isdisjoint(site.peers):
        parts.append(site.pace_lost * (min(site.end, job.end) - max(site.start, job.start)))
    return max(parts, default=0.0)


def _share(change: Change, site: Site, job: Job) -> float:
    """Return the share of the job's pace that the change takes from all of its GPUs."""
    if set(job.gpus).isdisjoint(change.targets):
        return 0.0
    waits = change.on is Quantity.WORK and change.name == "wait"
    if waits and not job.sends(site.topology.per_node):
        return 0.0
    return _taken(change, job)


def _taken(change: Change, job: Job) -> float:
    """Return the share of its pace that a change takes from a job on its targets."""
    if (change.on, change.name) == (Quantity.PHYSICS, "speed"):
        return _slower(change.value, job.workload.gpu_bound)
    if change.on is not Quantity.WORK:
        return 0.0
    if change.name == "wait":
        return change.value
    return 1.0 if change.name in {"spin", "stall"} else 0.0


def _slower(speed: float, bound: float) -> float:
    """Return the share of its pace that work loses to a GPU of this speed.

    `bound`: the share of its time in which it goes as fast as its GPUs. The rest takes as long as before.
    """
    longer = bound * (1.0 - speed)
    return longer / (speed + longer) if longer else 0.0


def _overlap(change: Change, job: Job) -> float:
    return max(min(change.end, job.end) - max(change.start, job.start), 0.0)
