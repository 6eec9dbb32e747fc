"""Combines two sources about a job: the node's prolog for its GPUs, Slurm's controller for the rest."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..hub_client import Hub
from ..model import (
    ENDED_STATES,
    Allocation,
    Holder,
    HolderKind,
    Job,
    RecordKind,
    Scheduler,
    Subject,
    readable,
)

# The controller hears of a node's prolog and epilog late, and is asked only now and then.
_SETTLED = timedelta(minutes=3)
_RUNS = "RUNNING"
_GOING_ON = ("RUNNING", "COMPLETING", "SUSPENDED", "PENDING")
# The reader of a scheduler reports at least every ten minutes, even when nothing is new.
_SUCCEEDED = timedelta(minutes=30)
# The most records that the hub gives in one answer.
MOST = 100_000
_FIRST = 500

Jobs = Mapping[tuple[str, Holder], tuple[Job, ...]]  # by cluster and holder, the newest look first


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """Jobs within a span, as far as the hub's answers contain them."""

    jobs: Jobs
    whole_from: datetime | None = None  # before it some ended jobs are missing; None: none are


def by_holder(jobs: Iterable[Job]) -> Jobs:
    """Group jobs by cluster and holder.

    A number that was used twice keeps both jobs; of two readers' looks at a job the newer one
    counts.
    """
    newest: dict[tuple[str, Holder, datetime], Job] = {}
    for job in sorted(jobs, key=lambda one: one.seen_at):
        newest[job.told_by.cluster, job.holder, job.submitted_at] = job
    found: dict[tuple[str, Holder], tuple[Job, ...]] = {}
    for (cluster, holder, _), job in newest.items():
        found[cluster, holder] = (job, *found.get((cluster, holder), ()))
    return found


def jobs_since(hub: Hub, cluster_key: str | None, oldest: datetime) -> Jobs:
    """Return the jobs that had not ended at `oldest`; those of all clusters if none is named.

    HubUnavailable or HubRefused when the hub does not answer.
    """
    return job_history(hub, cluster_key, oldest).jobs


def job_history(
    hub: Hub, cluster_key: str | None, oldest: datetime, most: int = MOST
) -> JobHistory:
    """Return the same jobs, and since when they are complete: only the newest `most` ended ones are read."""
    ended, whole_from = _ended(hub, cluster_key, oldest, most)
    jobs = (*going_on(hub, _GOING_ON, cluster_key), *ended)
    return JobHistory(
        jobs=by_holder(job for job in jobs if job.ended_at is None or job.ended_at >= oldest),
        whole_from=whole_from,
    )


def going_on(hub: Hub, states: Collection[str], cluster_key: str | None = None) -> tuple[Job, ...]:
    """Return jobs in these states, which must not be final states.

    When another machine has taken over as a cluster's reader, the first one's last reports are outdated:
    the second one reports everything that is still going on again.
    """
    records = hub.records(RecordKind.JOB, subject=cluster_key, states=states, limit=MOST)
    jobs = tuple(readable(records, Job.from_record))
    if len({job.told_by for job in jobs}) < 2:
        return jobs
    looks = list(readable(hub.records(RecordKind.SCHEDULER), Scheduler.from_record))
    newest: dict[str, datetime] = {}
    for look in looks:
        cluster = look.told_by.cluster
        newest[cluster] = max(look.at, newest.get(cluster, look.at))
    gone = {it.told_by for it in looks if newest[it.told_by.cluster] - it.at > _SUCCEEDED}
    return tuple(job for job in jobs if job.told_by not in gone)


def _ended(
    hub: Hub, cluster_key: str | None, oldest: datetime, most: int
) -> tuple[tuple[Job, ...], datetime | None]:
    """Return the newest ended jobs, with as many more as it takes to reach `oldest`, not all there were.

    They come in the order in which they were reported, which a cluster that was away for a while upsets:
    therefore a whole half of them has to be older. The second value is None, or, where `most` jobs do
    not reach back, the time from which on they are complete.
    """
    states, limit = sorted(ENDED_STATES), min(_FIRST, most)
    while True:
        records = hub.records(RecordKind.JOB, subject=cluster_key, states=states, limit=limit)
        jobs = tuple(readable(records, Job.from_record))
        old = (job.ended_at is not None and job.ended_at < oldest for job in jobs[: limit // 2])
        if len(records) < limit or all(old):
            return jobs, None
        if limit >= most:
            first = jobs[: limit // 10 + 1]
            return jobs, max((it.ended_at for it in first if it.ended_at is not None), default=None)
        limit = min(8 * limit, most)


def job_of(allocation: Allocation, jobs: Jobs) -> Job | None:
    """Return the job of an allocation: the last one with its number submitted before it began.

    None when there is no such job.
    """
    named = jobs.get((allocation.subject.cluster, allocation.holder), ())
    # Clocks of node and controller may differ by seconds.
    before = allocation.started_at + timedelta(seconds=30)
    fitting = [job for job in named if job.submitted_at <= before]
    return max(fitting, key=lambda job: job.submitted_at) if fitting else None


def with_job_details(allocation: Allocation, jobs: Jobs) -> Allocation:
    """Return the allocation with gaps filled in from its job; what the node knows stays."""
    job = job_of(allocation, jobs)
    if job is None:
        return allocation
    return replace(
        allocation,
        user=allocation.user or job.user,
        command=allocation.command or job.name,
        partition=allocation.partition or job.partition,
        account=allocation.account or job.account,
        array=allocation.array or job.array,
        exit_code=allocation.exit_code or (job.exit_code if allocation.ended_at else None),
    )


def scheduler_disagreements(
    node: Subject, held: Iterable[Allocation], jobs: Jobs, now: datetime
) -> Mapping[Holder, str]:
    """Return, by holder, where Slurm contradicts a node; empty where both agree.

    `held` are the node's open allocations. Changes within the last three minutes are not counted.
    """
    here: dict[Holder, list[Allocation]] = {}
    for one in held:
        if one.holder.kind is HolderKind.JOB:
            here.setdefault(one.holder, []).append(one)
    found = {holder: _against(node.node, them, jobs, now) for holder, them in here.items()}
    for (cluster, holder), of_number in jobs.items():
        job = of_number[0]
        if cluster == node.cluster and holder not in here and _runs_here(job, node.node, now):
            gpus = len(job.numbers[node.node])
            found[holder] = (
                f"Slurm gives it {gpus} GPU{'' if gpus == 1 else 's'} here, and no prolog told of it"
            )
    return {holder: said for holder, said in found.items() if said}


def _runs_here(job: Job, node: str, now: datetime) -> bool:
    settled = job.started_at is not None and now - job.started_at > _SETTLED
    return job.state == _RUNS and settled and bool(job.numbers.get(node))


def _against(node: str, held: list[Allocation], jobs: Jobs, now: datetime) -> str:
    job = job_of(held[0], jobs)
    if job is None:
        return ""
    if job.ended_at is not None:
        gone = now - job.ended_at > _SETTLED
        return f"Slurm says it ended as {job.state}, and no epilog told of it" if gone else ""
    if job.state != _RUNS or now - held[0].started_at <= _SETTLED:
        return ""
    if job.nodes and node not in job.nodes:
        return "Slurm says it is not on this node"
    given = len(job.numbers.get(node, ()))
    if given and given != len(held):
        return f"Slurm gives it {given} GPU{'' if given == 1 else 's'} here, its prolog told of {len(held)}"
    return ""
