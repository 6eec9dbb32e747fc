"""One job as its nodes and its scheduler report it, and what happened on its nodes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from accounting.job_ending import BEFORE, Ending, around
from accounting.usage.model import cluster_key
from gpuvigil.errors import ConfigError
from gpuvigil.faults.affected import affected_keys
from gpuvigil.faults.gpu_states import UNHEARD
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.model import (
    Allocation,
    AllocationState,
    Event,
    Holder,
    HolderKind,
    Incident,
    Job,
    Record,
    RecordKind,
    Subject,
    job_holder,
    readable,
)
from gpuvigil.schedulers.jobs import by_holder, job_of

_MOST = 100_000
_MOST_EVENTS = 5_000
_SKEW = timedelta(seconds=30)  # tolerated between a node's clock and the controller's
_FROM_ITS_OWN = 64  # most nodes of a job that are asked about one by one
# How long before a job's end incidents of racks are looked for.
_RACKS_BEFORE = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """One job as its nodes and its scheduler report it."""

    holder: Holder
    cluster: str
    job: Job | None
    allocations: tuple[Allocation, ...]
    others: tuple[Allocation, ...] = ()  # open allocations of other holders on its GPUs

    @property
    def runs(self) -> bool:
        """Whether the job holds GPUs now."""
        return any(one.ended_at is None for one in self.allocations)

    @property
    def nodes(self) -> tuple[Subject, ...]:
        names = {one.subject.node for one in self.allocations} | set(
            self.job.nodes if self.job else ()
        )
        return tuple(Subject(cluster=self.cluster, node=name) for name in sorted(names))

    @property
    def ending(self) -> Ending:
        """How the job ended: by its scheduler, else the last end and exit code that its nodes report."""
        ends = [one.ended_at for one in self.allocations if one.ended_at is not None]
        over = bool(ends) and len(ends) == len(self.allocations)
        codes = [one.exit_code for one in self.allocations if one.exit_code]
        known = self.job is not None and self.job.state != "UNKNOWN"
        told = self.job.started_at if self.job is not None else None
        begun = [*([told] if told else []), *(one.started_at for one in self.allocations)]
        return Ending(
            state=self.job.state if self.job is not None and known else None,
            ended_at=self.job.ended_at
            if self.job is not None and known
            else (max(ends) if over else None),
            exit_code=(self.job.exit_code if self.job else None) or (codes[0] if codes else None),
            started_at=min(begun, default=None),
            gpus=frozenset(one.subject.key for one in self.allocations),
            nodes=len(self.nodes),
            reason=self.job.reason if self.job else None,
        )


def holder_named(wanted: str) -> Holder:
    """Return the holder for a bare job number or a name as in records: `job 7`, `pod training/llama-0`."""
    found = Holder.parse(wanted.strip())
    return job_holder(wanted.strip()) if found.kind is HolderKind.OTHER else found


def find_job(hub: Hub, wanted: str, cluster: str | None) -> KnownJob:
    """Find a job; ConfigError if it is unknown or ambiguous, HubUnavailable or HubRefused without an answer."""
    holder = holder_named(wanted)
    number = holder.name
    jobs = [
        job
        for job in readable(hub.records(RecordKind.JOB, parent=str(holder)), Job.from_record)
        if cluster in {None, job.told_by.cluster}
    ]
    last = max(jobs, key=lambda job: job.submitted_at, default=None)
    all_of_them = _allocations(hub, holder, last)
    held = [one for one in all_of_them if one.holder == holder]
    of_cluster = [one for one in held if cluster in {None, one.subject.cluster}]
    names = sorted(
        {job.told_by.cluster for job in jobs} | {one.subject.cluster for one in of_cluster}
    )
    if not names:
        raise ConfigError(
            f"no scheduler or node has reported a job {number!r}; 'gpuvigil top' names those that hold GPUs"
        )
    if len(names) > 1:
        raise ConfigError(
            f"clusters {', '.join(names)} have a job {number!r} each: add --cluster NAME"
        )
    found = _newest(holder, names[0], jobs, of_cluster)
    gpus = {one.subject for one in found.allocations}
    others = [one for one in all_of_them if one.holder != holder and one.subject in gpus]
    return replace(found, others=tuple(one for one in others if one.ended_at is None))


def _newest(holder: Holder, cluster: str, jobs: list[Job], held: list[Allocation]) -> KnownJob:
    """Return the last job of that number, since numbers are reused."""
    told = by_holder(jobs)
    if not jobs:
        last = max(one.started_at for one in held)
        # A job's nodes begin within minutes of each other.
        own = [one for one in held if last - one.started_at <= BEFORE]
        return KnownJob(holder=holder, cluster=cluster, job=None, allocations=tuple(own))
    job = max(told[cluster, holder], key=lambda one: one.submitted_at)
    own = [one for one in held if job_of(one, told) == job]
    return KnownJob(holder=holder, cluster=cluster, job=job, allocations=tuple(own))


def _allocations(hub: Hub, holder: Holder, job: Job | None) -> list[Allocation]:
    """Return allocations on the nodes that the scheduler names, else the job's own and open ones beside them."""
    if job is not None and job.nodes:
        nodes = [Subject(cluster=job.told_by.cluster, node=name) for name in job.nodes]
        return _read(_on(hub, nodes, since=job.submitted_at - _SKEW))
    found = hub.records(RecordKind.ALLOCATION, holder=str(holder), limit=_MOST)
    own = [one for one in _read(found) if one.holder == holder]
    nodes = sorted({one.subject.of_node() for one in own if one.ended_at is None})
    beside = held_on(hub, nodes)
    return list({one.id: one for one in (*beside, *own)}.values())


def _on(
    hub: Hub, nodes: Sequence[Subject], since: datetime | None = None, states: Sequence[str] = ()
) -> Iterator[Record]:
    for node in nodes[:_FROM_ITS_OWN]:
        yield from hub.records(
            RecordKind.ALLOCATION, subject=node.key, since=since, states=states, limit=_MOST
        )


def held_on(hub: Hub, nodes: Sequence[Subject]) -> list[Allocation]:
    """Return what holds GPUs of these nodes now; of the first 64 nodes."""
    return _read(_on(hub, nodes, states=[AllocationState.HELD]))


def _read(records: Iterable[Record]) -> list[Allocation]:
    """Parse allocations, without those of the selftest, whose jobs nobody submitted."""
    return list(readable((one for one in records if not one.marked), Allocation.from_record))


def around_its_end(hub: Hub, known: KnownJob) -> tuple[Iterable[Event], Iterable[Incident]]:
    """Return events and incidents of its nodes around its end; none if it has not ended."""
    ended_at: datetime | None = known.ending.ended_at
    if ended_at is None:
        return (), ()
    start, end = around(ended_at)
    events: list[Event] = []
    incidents: list[Incident] = []
    for node in known.nodes[:_FROM_ITS_OWN]:
        found = hub.records(
            RecordKind.EVENT, subject=node.key, since=start, until=end, limit=_MOST_EVENTS
        )
        events += readable(found, Event.from_record)
        stood = hub.records(RecordKind.INCIDENT, subject=node.key, until=end, limit=_MOST_EVENTS)
        incidents += readable(stood, Incident.from_record)
    # An incident about a rack usually has another node as its subject.
    of_cluster = hub.records(
        RecordKind.INCIDENT,
        subject=cluster_key(known.cluster),
        since=start - _RACKS_BEFORE,
        until=end,
        limit=_MOST,
    )
    incidents += readable(of_cluster, Incident.from_record)
    return events, of_nodes(incidents, known.nodes)


def active_incidents(hub: Hub, known: KnownJob) -> Sequence[Incident]:
    """Return open incidents on the nodes of a job that has not ended, or that name it; oldest first."""
    if known.ending.ended_at is not None:
        return ()
    states = [state.value for state in ACTIVE]
    found = hub.records(
        RecordKind.INCIDENT, subject=cluster_key(known.cluster), states=states, limit=_MOST
    )
    them = list(readable(found, Incident.from_record))
    mine = {one.id: one for one in them if str(known.holder) in one.impact.holders}
    mine |= {one.id: one for one in of_nodes(them, known.nodes)}
    return sorted(mine.values(), key=lambda one: (one.since, one.id))


def of_nodes(incidents: Iterable[Incident], nodes: Sequence[Subject]) -> list[Incident]:
    """Return the incidents that hit any of the nodes, each once; a rack's silence is shown as the first node's."""
    mine = {node.key: node for node in nodes}
    found: dict[str, Incident] = {}
    for one in incidents:
        told = {Subject.parse(key).of_node().key for key in affected_keys(one)}
        hit = sorted(told & mine.keys())
        if one.subject.of_node().key in hit:
            found[one.id] = one
        elif hit and one.fault in UNHEARD:
            found[one.id] = replace(one, subject=mine[hit[0]])
    return list(found.values())
