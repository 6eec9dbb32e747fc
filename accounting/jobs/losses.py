"""What ended jobs lost, by cause: pure, from their end states and the incidents on their nodes.

A job that its node or a person ended loses its work since the last checkpoint. Where no checkpoint is
known, the loss is at most all its work, and is reported as an upper bound.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from accounting.job_ending import BEFORE, EndCause, Ending, cause_by_scheduler, verdict
from gpuvigil.faults.affected import affected_keys
from gpuvigil.model import Allocation, Holder, Incident, Job, Subject

Key = tuple[str, Holder, datetime]  # cluster, holder and end: a job that runs again ends again
_HOUR = timedelta(hours=1)
# Other causes lose nothing by a failure: the job is done, was told to stop, or its program is to blame.
_FAILURES = frozenset(
    {EndCause.HARDWARE, EndCause.NODE, EndCause.NETWORK, EndCause.PREEMPTED, EndCause.TIME_LIMIT}
)
# Causes that a site can fix; these count for how long a job takes to come back.
_OF_SITE = frozenset({EndCause.HARDWARE, EndCause.NODE, EndCause.NETWORK})
# A later successor was started by somebody, and is no restart [ours].
_RESTARTS_WITHIN = timedelta(hours=12)
LEAST_RESTARTS = 3  # a median of fewer says little [ours]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A job that has ended, by a scheduler's word or by its nodes' alone; None is not reported."""

    cluster: str
    holder: Holder
    ended_at: datetime
    state: str | None = None  # the scheduler's end state
    user: str | None = None
    name: str | None = None
    partition: str | None = None
    account: str | None = None
    array: str | None = None
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    gpus: int | None = None
    gpu_keys: frozenset[str] = frozenset()
    nodes: tuple[str, ...] = ()
    exit_code: str | None = None
    reason: str | None = None

    @property
    def key(self) -> Key:
        return self.cluster, self.holder, self.ended_at

    @property
    def ending(self) -> Ending:
        return Ending(
            state=None if self.state == "UNKNOWN" else self.state,
            ended_at=self.ended_at,
            exit_code=self.exit_code,
            started_at=self.started_at,
            gpus=self.gpu_keys,
            nodes=len(self.nodes) or 1,
            reason=self.reason,
        )


def may_have_failed(job: Job) -> bool:
    """Return whether a failure may have ended the job; for most jobs the scheduler's word rules that out."""
    why = cause_by_scheduler(job.state)
    return why is None or why in _FAILURES


def of_job(job: Job) -> Ended | None:
    """Return the ended job by its scheduler's word; None for one that goes on."""
    if job.ended_at is None:
        return None
    return Ended(
        cluster=job.told_by.cluster,
        holder=job.holder,
        ended_at=job.ended_at,
        state=job.state,
        user=job.user,
        name=job.name,
        partition=job.partition,
        account=job.account,
        array=job.array,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        gpus=job.gpus,
        nodes=job.nodes,
        exit_code=job.exit_code,
        reason=job.reason,
    )


def runs(held: Iterable[Allocation]) -> Iterator[list[Allocation]]:
    """Yield one holder's allocations run by run: one that begins after an end, or long after the first, is the next."""
    run: list[Allocation] = []
    over: datetime | None = None  # the earliest end in this run
    for one in sorted(held, key=lambda it: it.started_at):
        late = run and not one.began_before and one.started_at - run[0].started_at > BEFORE
        if late or (over is not None and one.started_at >= over):
            yield run
            run, over = [], None
        run.append(one)
        if one.ended_at is not None:
            over = one.ended_at if over is None else min(over, one.ended_at)
    if run:
        yield run


def of_allocations(held: Sequence[Allocation]) -> Ended | None:
    """Return the ended job by its nodes' word, from its GPUs at the same time; None for one that goes on."""
    ends = [one.ended_at for one in held if one.ended_at is not None]
    if not ends or len(ends) < len(held):
        return None
    first = min(held, key=lambda one: one.started_at)
    return Ended(
        cluster=first.subject.cluster,
        holder=first.holder,
        ended_at=max(ends),
        user=next((one.user for one in held if one.user), None),
        name=first.command,
        partition=first.partition,
        account=first.account,
        array=first.array,
        started_at=first.started_at,
        gpus=len({one.subject.key for one in held}),
        gpu_keys=frozenset(one.subject.key for one in held),
        nodes=tuple(sorted({one.subject.node for one in held})),
        exit_code=next((one.exit_code for one in held if one.exit_code), None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One job that ended by a failure."""

    job: Ended
    why: EndCause
    said: str
    gpu_hours: float | None  # None where its GPUs or its start are not known
    since_checkpoint: bool  # otherwise `gpu_hours` is an upper bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """All jobs that ended by one cause."""

    why: EndCause
    jobs: int
    gpu_hours: float  # of the jobs where it is known
    at_most: bool  # for some jobs only an upper bound is known


def losses(
    jobs: Iterable[Ended],
    incidents: Iterable[Incident],
    checkpoints: Mapping[Key, datetime] | None = None,
) -> Sequence[Loss]:
    """Return the jobs that a failure ended, newest first; `checkpoints` has when each wrote its last."""
    by_node = incidents_by_node(incidents)
    found = (_loss(job, by_node, checkpoints or {}) for job in jobs)
    told = [one for one in found if one is not None]
    return sorted(told, key=lambda one: one.job.ended_at, reverse=True)


def incidents_by_node(incidents: Iterable[Incident]) -> Mapping[str, Sequence[Incident]]:
    """Return the incidents that affect each node or anything in it, by the node's key."""
    found: defaultdict[str, list[Incident]] = defaultdict(list)
    for one in incidents:
        for key in {Subject.parse(it).of_node().key for it in affected_keys(one)}:
            found[key].append(one)
    return found


def _loss(
    job: Ended, by_node: Mapping[str, Sequence[Incident]], checkpoints: Mapping[Key, datetime]
) -> Loss | None:
    nodes = [Subject(cluster=job.cluster, node=name) for name in job.nodes]
    near = {one.id: one for node in nodes for one in by_node.get(node.key, ())}
    found = verdict(job.ending, (), near.values())
    if found.why not in _FAILURES:
        return None
    last = checkpoints.get(job.key)
    since = job.started_at if last is None else last
    known = None
    if job.gpus and since is not None:
        known = job.gpus * (max(job.ended_at - since, timedelta()) / _HOUR)
    return Loss(
        job=job, why=found.why, said=found.text, gpu_hours=known, since_checkpoint=last is not None
    )


def by_cause(found: Iterable[Loss]) -> Sequence[Cause]:
    """Return the causes, the most GPU-hours first."""
    groups: defaultdict[EndCause, list[Loss]] = defaultdict(list)
    for one in found:
        groups[one.why].append(one)
    causes = [
        Cause(
            why=why,
            jobs=len(them),
            gpu_hours=sum(one.gpu_hours or 0.0 for one in them),
            at_most=any(not one.since_checkpoint for one in them),
        )
        for why, them in groups.items()
    ]
    return sorted(causes, key=lambda one: (-one.gpu_hours, one.why.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The start of a job: it may be requeued under its own name, or be submitted anew by its user."""

    cluster: str
    user: str | None
    name: str | None
    at: datetime
    array: str | None = None  # "17_3"
    submitted_at: datetime | None = None  # None where no scheduler reported it

    @property
    def of(self) -> tuple[str, str | None, str | None, str]:
        """The identity of the work: jobs with the same are runs of one; each task of an array is its own."""
        return self.cluster, self.user, self.name, (self.array or "").partition("_")[2]


def begin_of(job: Ended) -> Begin | None:
    """Return the start of a job; None where nobody reported it."""
    if job.started_at is None:
        return None
    return Begin(
        cluster=job.cluster,
        user=job.user,
        name=job.name,
        at=job.started_at,
        array=job.array,
        submitted_at=job.submitted_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A job that a failure of the site ended, and that ran again."""

    nodes: int
    after: timedelta


def restarts(found: Iterable[Loss], begins: Iterable[Begin]) -> Sequence[Restart]:
    """Return the jobs that the site's failures ended and that ran again.

    The next job of the same user and name counts (for an array, of the same task) if it was submitted
    after the other had ended.
    """
    begun: defaultdict[tuple[str, str | None, str | None, str], list[Begin]] = defaultdict(list)
    for one in begins:
        begun[one.of].append(one)
    again = []
    for loss in found:
        ended, ran = loss.job.ended_at, begin_of(loss.job)
        if loss.why not in _OF_SITE or loss.job.name is None or ran is None:
            continue
        later = [
            one.at
            for one in begun[ran.of]
            if ended <= one.at <= ended + _RESTARTS_WITHIN and (one.submitted_at or ended) >= ended
        ]
        if later:
            again.append(Restart(nodes=len(loss.job.nodes), after=min(later) - ended))
    return again


def restart(found: Iterable[Restart]) -> timedelta | None:
    """Return the median time until jobs ran again; None where none came back."""
    seconds = [one.after.total_seconds() for one in found]
    return timedelta(seconds=median(seconds)) if seconds else None


def restart_by_size(found: Iterable[Restart], counts: Iterable[int]) -> Mapping[int, timedelta]:
    """Return the median by number of nodes, of the jobs with so many and fewer than the next number.

    Only where enough of them came back.
    """
    known: defaultdict[int, list[Restart]] = defaultdict(list)
    steps = sorted(counts)
    for one in found:
        if place := bisect_right(steps, one.nodes):
            known[steps[place - 1]].append(one)
    return {
        nodes: after
        for nodes, them in known.items()
        if len(them) >= LEAST_RESTARTS and (after := restart(them)) is not None
    }
