"""A cluster's jobs and nodes for the hub, from copies of its pods and nodes. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuvigil.config import KubernetesSettings
from gpuvigil.model import (
    ENDED_STATES,
    Allocation,
    Job,
    ScheduledNode,
    Subject,
    job_holder,
    pod_holder,
)

from .objects import Pod
from .workloads import Workload

# A Deployment that is rolled out has no pod for a moment.
_GONE_AFTER = timedelta(minutes=1)
# How long a pod that is gone is remembered: its node may tell late that it holds nothing any more.
_REMEMBERED = timedelta(hours=1)
_DELETED_FOR = timedelta(hours=1)
# A node asks its kubelet once a tick; its clock may be off, too.
_SLACK = timedelta(minutes=1)
_MOST_PODS = 1000
# Of pods that ended in different ways the first of these is how the job did.
_WORST = ("NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "TIMEOUT", "FAILED", "CANCELLED", "COMPLETED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Which label or annotation of a pod says whose it is; empty says none does."""

    user: str = ""
    account: str = ""
    partition: str = ""

    @classmethod
    def of(cls, settings: KubernetesSettings) -> "Labels":
        return cls(
            user=settings.user_label,
            account=settings.account_label,
            partition=settings.partition_label,
        )


@dataclass(frozen=True, slots=True)
class Owned:
    """A pod and whose it is."""

    pod: Pod
    workload: Workload


class JobBook:
    """Keeps a job for each workload that has, or lately had, pods with GPUs."""

    def __init__(self, told_by: Subject, labels: Labels, before: Iterable[Job] = ()) -> None:
        """`before` are jobs that had not ended when this was last known."""
        self._told_by = told_by
        self._labels = labels
        self._jobs = {job.number: job for job in before}
        self._seen: dict[str, datetime] = {}

    def update(
        self, owned: Iterable[Owned], now: datetime, unknown: Collection[str] = ()
    ) -> tuple[Job, ...]:
        """Jobs that are new or have changed. To be called with all pods that there are, or not at all.

        In a namespace of `unknown` there are more, whose workload is not known yet: no job ends there.
        """
        groups: dict[str, list[Owned]] = {}
        for one in owned:
            groups.setdefault(one.workload.number, []).append(one)
        changed = [self._job(number, them, now, unknown) for number, them in sorted(groups.items())]
        for number in groups:
            self._seen[number] = now
        for number in sorted(self._jobs.keys() - groups):
            if _namespace(number) in unknown:
                self._seen[number] = now  # its pods may be among them
            else:
                changed.append(self._gone(number, now))
        told = [job for job in changed if job is not None]
        for job in told:
            self._jobs[job.number] = job
        over = [n for n, job in self._jobs.items() if n not in groups and job.state in ENDED_STATES]
        for number in over:
            del self._jobs[number]
            self._seen.pop(number, None)
        return tuple(told)

    def _job(
        self, number: str, owned: list[Owned], now: datetime, unknown: Collection[str]
    ) -> Job | None:
        before = self._jobs.get(number)
        job = _job(self._told_by, self._labels, owned, before, now)
        same = before is not None and replace(before, seen_at=now) == job
        early = job.state in ENDED_STATES and _namespace(number) in unknown
        return None if same or early else job

    def _gone(self, number: str, now: datetime) -> Job | None:
        """Its pods are no more: it is over, unless they come again at once."""
        job = self._jobs[number]
        seen = self._seen.setdefault(number, now)
        if job.state in ENDED_STATES or now - seen < _GONE_AFTER:
            return None
        # Of pods that ran and were deleted nobody knows whether they were done.
        state = "CANCELLED" if job.state == "PENDING" else "UNKNOWN"
        return replace(job, state=state, reason="its pods were deleted", ended_at=seen, seen_at=now)


def _job(
    told_by: Subject, labels: Labels, owned: list[Owned], before: Job | None, now: datetime
) -> Job:
    workload, pods = owned[0].workload, sorted((o.pod for o in owned), key=lambda p: p.full_name)
    created = workload.created_at or min(pod.created_at for pod in pods)
    alive = [pod for pod in pods if pod.state in {"PENDING", "RUNNING"}]
    state = _state(pods)
    ended = state in ENDED_STATES
    counted = pods if ended else alive
    started = [pod.started_at for pod in pods if pod.started_at and pod.state != "PENDING"]
    return Job(
        told_by=told_by,
        number=workload.number,
        state=state,
        submitted_at=before.submitted_at if before is not None else created,
        seen_at=now,
        started_at=min(started, default=None),
        ended_at=_ended_at(pods, before, now) if ended else None,
        user=_marked(pods, labels.user),
        account=_marked(pods, labels.account) or workload.namespace,
        partition=_marked(pods, labels.partition),
        name=workload.name,
        reason=_reason(pods, state),
        nodes=tuple(sorted({pod.node for pod in counted if pod.node})),
        gpus=sum(pod.gpus for pod in counted),
        exit_code=next((p.exit_code for p in pods if p.state == state and p.exit_code), None),
        pods=tuple(pod.full_name for pod in counted if pod.node)[:_MOST_PODS],
    )


def _namespace(number: str) -> str:
    """Of a workload's number."""
    return number.split("/")[1]


def _ended_at(pods: list[Pod], before: Job | None, now: datetime) -> datetime:
    """When the last of its containers ended; where nobody says so, when it was first seen to have."""
    told = max((pod.ended_at for pod in pods if pod.ended_at), default=None)
    return told or (before.ended_at if before else None) or now


def _state(pods: list[Pod]) -> str:
    states = {pod.state for pod in pods}
    for state in ("RUNNING", "PENDING"):
        if state in states:
            return state
    return next(state for state in (*_WORST, "UNKNOWN") if state in states or state == "UNKNOWN")


def _reason(pods: list[Pod], state: str) -> str | None:
    """Why it waits, or how it ended; of a job that runs with some pods missing, why those wait."""
    waiting = [pod for pod in pods if pod.state == "PENDING"]
    if state == "RUNNING" and waiting:
        why = next((pod.reason for pod in waiting if pod.reason), "no reason given")
        return f"{len(waiting)} of its {len(pods)} pods wait: {why}"
    return next((pod.reason for pod in pods if pod.state == state and pod.reason), None)


def _marked(pods: list[Pod], label: str) -> str | None:
    return next((pod.marks[label] for pod in pods if pod.marks.get(label)), None) if label else None


class NodeBook:
    """Nodes that do not take pods, those that were deleted lately among them."""

    def __init__(self) -> None:
        self._known: dict[str, ScheduledNode] = {}
        self._deleted: dict[str, tuple[ScheduledNode, datetime]] = {}

    def update(
        self, nodes: Iterable[ScheduledNode], pods: Iterable[Pod], now: datetime
    ) -> tuple[ScheduledNode, ...]:
        """By name; to be called with all nodes and pods that there are, or not at all."""
        here = {node.name: node for node in nodes}
        for name in self._known.keys() - here:
            self._deleted[name] = self._known[name], now
        self._known = here
        self._deleted = {
            name: (node, at)
            for name, (node, at) in self._deleted.items()
            if name not in here and now - at < _DELETED_FOR
        }
        used: dict[str, int] = {}
        for pod in pods:
            if pod.node and pod.state == "RUNNING":
                used[pod.node] = used.get(pod.node, 0) + pod.gpus
        gone = [replace(node, states=("DELETED",)) for node, _ in self._deleted.values()]
        told = [
            replace(node, gpus_used=used.get(node.name, 0))
            for node in here.values()
            if node.states or node.reason
        ]
        return tuple(sorted([*told, *gone], key=lambda node: node.name))


class AllocationBook:
    """Gives the allocations that nodes told to the jobs that their pods are of."""

    def __init__(self, cluster: str, labels: Labels, before: Iterable[Job] = ()) -> None:
        """`before` are jobs that had not ended when this was last known, and the pods that they had then."""
        self._cluster = cluster
        self._labels = labels
        self._before = {pod: job for job in before for pod in job.pods}
        self._pods: dict[str, tuple[Owned, datetime]] = {}  # by name, when it was last there
        self._waiting: dict[str, Allocation] = {}
        self._given: dict[str, Allocation] = {}  # with a job already, and not ended

    def add(self, allocation: Allocation) -> None:
        """What a node told, or what was made of it here."""
        if allocation.pod is None or allocation.subject.cluster != self._cluster:
            return
        key = allocation.id
        if allocation.holder == pod_holder(allocation.pod):
            self._waiting[key] = allocation
            return
        self._waiting.pop(key, None)
        self._given[key] = allocation
        if allocation.ended_at is not None:
            del self._given[key]

    def update(self, owned: Iterable[Owned], now: datetime) -> tuple[Allocation, ...]:
        """Those that can be given to a job now."""
        self._pods |= {one.pod.full_name: (one, now) for one in owned}
        self._pods = {n: it for n, it in self._pods.items() if now - it[1] < _REMEMBERED}
        found: dict[str, Allocation] = {}
        for key, allocation in list(self._waiting.items()):
            given = self._of_a_job(key, allocation)
            if given is not None:
                found[key] = given
                self.add(given)
            elif allocation.ended_at is not None and now - allocation.ended_at > _REMEMBERED:
                del self._waiting[key]
        # Many kubelets name a pod that is over until it is deleted, so that its node tells no end.
        for key, allocation in list(self._given.items()):
            over = self._over(allocation, now)
            if over is not None:
                found[key] = over
                self.add(over)
        return tuple(found.values())

    def _over(self, known: Allocation, now: datetime) -> Allocation | None:
        """Ended, when its pod is there now and its containers have all ended."""
        one = self._pods.get(known.pod or "")
        if one is None or one[1] != now:
            return None
        pod = one[0].pod
        if pod.state not in ENDED_STATES or pod.ended_at is None:
            return None
        if pod.created_at > known.started_at + _SLACK:
            return None
        ended = max(pod.ended_at, known.started_at)
        return replace(known, ended_at=ended, exit_code=pod.exit_code)

    def _of_a_job(self, key: str, allocation: Allocation) -> Allocation | None:
        known = self._given.get(key)
        if known is not None:
            return replace(known, ended_at=allocation.ended_at, exit_code=allocation.exit_code)
        one = self._pods.get(allocation.pod or "")
        # A pod of the same name that came later is another.
        if one is None or one[0].pod.created_at > allocation.started_at + _SLACK:
            return self._of_a_job_before(allocation)
        pod, workload = one[0].pod, one[0].workload
        return replace(
            allocation,
            holder=job_holder(workload.number),
            command=workload.name,
            user=_marked([pod], self._labels.user),
            account=_marked([pod], self._labels.account) or pod.namespace,
            partition=_marked([pod], self._labels.partition),
        )

    def _of_a_job_before(self, allocation: Allocation) -> Allocation | None:
        """The same of a pod that went while nobody watched: its node alone has told of its end."""
        job = self._before.get(allocation.pod or "")
        if job is None or job.submitted_at > allocation.started_at + _SLACK:
            return None
        return replace(
            allocation,
            holder=job.holder,
            command=job.name,
            user=job.user,
            account=job.account,
            partition=job.partition,
        )


def alive(pods: Mapping[str, Pod]) -> tuple[Pod, ...]:
    """In the order of their names."""
    return tuple(sorted(pods.values(), key=lambda pod: (pod.full_name, pod.uid)))
