"""Jobs that a failure ended in a span, with their GPUs and their last checkpoint."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from accounting.job_ending import around
from accounting.jobs.checkpoints import checkpoints
from accounting.jobs.losses import (
    Begin,
    Ended,
    Loss,
    Restart,
    incidents_by_node,
    losses,
    may_have_failed,
    of_job,
    restarts,
)
from accounting.usage.model import cluster_key
from gpuvigil.errors import HubError, StoreError
from gpuvigil.hub_client import Hub
from gpuvigil.model import Allocation, Incident, Job, RecordKind, Subject, readable

# The GPUs of at most this many of the newest possibly affected jobs are looked up.
MOST_ASKED = 200


def failed(
    hub: Hub, jobs: Iterable[Job], incidents: Sequence[Incident], span: tuple[datetime, datetime]
) -> tuple[Loss, ...] | None:
    """Return the span's jobs that a failure ended, newest first; None if no scheduler reports jobs.

    Their losses are upper bounds.
    """
    told = list(jobs)
    if not told:
        return None
    ended = (it for it in map(of_job, filter(may_have_failed, told)) if it is not None)
    within = [it for it in ended if span[0] <= it.ended_at < span[1]]
    return tuple(losses(_with_gpus(hub, within, incidents), incidents))


def lost(
    hub: Hub,
    found: Iterable[Loss],
    incidents: Sequence[Incident],
    span: tuple[datetime, datetime],
) -> tuple[Loss, ...]:
    """Return those of the span, with what they lost since the last checkpoint where it is known."""
    ended = [one.job for one in found if span[0] <= one.job.ended_at < span[1]]
    try:
        written = checkpoints(hub, ended)
    except (HubError, StoreError):  # the store beside the hub is away: losses stay upper bounds
        written = {}
    return tuple(losses(ended, incidents, written))


def ran_again(found: Iterable[Loss], jobs: Iterable[Job]) -> tuple[Restart, ...]:
    """Return those that the site's failures ended and that ran again, with how long that took."""
    begins = (
        Begin(
            cluster=one.told_by.cluster,
            user=one.user,
            name=one.name,
            at=one.started_at,
            array=one.array,
            submitted_at=one.submitted_at,
        )
        for one in jobs
        if one.started_at is not None
    )
    return tuple(restarts(found, begins))


def _with_gpus(hub: Hub, jobs: Sequence[Ended], incidents: Iterable[Incident]) -> list[Ended]:
    """Return the jobs, with their GPUs added for those on whose nodes something failed at the time."""
    times = incidents_by_node(incidents)
    asked = [one for one in reversed(jobs) if _may_be(one, times)][:MOST_ASKED]
    keys = {one.key: _gpus(hub, one) for one in asked}
    return [replace(one, gpu_keys=keys.get(one.key, one.gpu_keys)) for one in jobs]


def _may_be(job: Ended, times: Mapping[str, Sequence[Incident]]) -> bool:
    start, end = around(job.ended_at)
    nodes = (Subject(cluster=job.cluster, node=name).key for name in job.nodes)
    return any(start <= one.since < end for node in nodes for one in times.get(node, ()))


def _gpus(hub: Hub, job: Ended) -> frozenset[str]:
    records = hub.records(
        RecordKind.ALLOCATION, subject=cluster_key(job.cluster), holder=str(job.holder)
    )
    held = readable(records, Allocation.from_record)
    return frozenset(
        one.subject.key
        for one in held
        if str(one.holder) == str(job.holder)
        and one.started_at <= job.ended_at
        and (one.ended_at is None or one.ended_at >= around(job.ended_at)[0])
    )
