"""`gpuvigil why JOB`: how a job ended and why, and what happened on its nodes around then."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType

from accounting.job_ending import BEFORE, Clue, Ending, Verdict, around, verdict
from accounting.usage.model import cluster_key
from dashboard.lists.table import Column, Grid, Value
from gpuvigil.clock import to_text
from gpuvigil.errors import ConfigError
from gpuvigil.faults.affected import struck
from gpuvigil.faults.gpu_states import UNHEARD
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import STANDING
from gpuvigil.model import (
    Allocation,
    Event,
    Holder,
    Incident,
    Inventory,
    Job,
    RecordKind,
    Subject,
    job_holder,
    readable,
)
from gpuvigil.schedulers.jobs import by_holder, job_of

COLUMNS = (
    Column(key="at", title="AT", show=lambda at: to_text(at)[:19].replace("T", " ")),
    Column(key="where", title="WHERE", flexible=True),
    Column(key="what", title="WHAT", flexible=True),
    Column(key="speaks_for", title="SPEAKS FOR"),
    Column(key="job", title="JOB", flexible=True),
    Column(key="why", title="WHY", flexible=True),
    Column(key="said", title="SAID", flexible=True),
    Column(key="state", title="STATE"),
    Column(key="exit_code", title="EXIT CODE"),
    Column(key="user", title="USER", flexible=True),
    Column(key="ended_at", title="ENDED", show=to_text),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_FOR_PEOPLE = 4
_MOST = 100_000
_MOST_EVENTS = 5_000
_SKEW = timedelta(seconds=30)  # of a node's clock against the controller's
_FROM_ITS_OWN = 64  # nodes of one job that are asked about
# A rack that fell silent so long before is looked for.
_RACKS_BEFORE = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One job as its nodes and Slurm told of it."""

    holder: Holder
    cluster: str
    job: Job | None
    allocations: tuple[Allocation, ...]

    @property
    def nodes(self) -> tuple[Subject, ...]:
        names = {one.subject.node for one in self.allocations} | set(
            self.job.nodes if self.job else ()
        )
        return tuple(Subject(cluster=self.cluster, node=name) for name in sorted(names))

    @property
    def ending(self) -> Ending:
        """Slurm's word where there is one; else that of the node where it ended last, and whose epilog told a code."""
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


def look(hub: Hub, wanted: str, cluster: str | None) -> Grid:
    """ConfigError when nobody told of such a job; HubUnavailable or HubRefused when the hub does not answer."""
    told = _told(hub, wanted, cluster)
    events, incidents = _around(hub, told)
    found, standing = verdict(told.ending, events, incidents), _standing(hub, told)
    named = [*(one.where for one in found.clues), *(one.subject.key for one in standing)]
    return grid(told, found, standing, _indices(hub, {Subject.parse(key) for key in named}))


def grid(
    told: Told,
    found: Verdict,
    standing: Sequence[Incident] = (),
    indices: Mapping[str, int] = MappingProxyType({}),
) -> Grid:
    """A row for everything around the end, the first first; for programs each with the verdict.

    `standing`: of a job that has not ended, what stands on its nodes. `indices` of GPUs by UUID are for people.
    """
    ending = told.ending
    user = next(
        (one.user for one in told.allocations if one.user), told.job.user if told.job else None
    )
    of_job: tuple[Value, ...] = (
        str(told.holder),
        found.why.value,
        found.said,
        ending.state,
        ending.exit_code,
        user,
        ending.ended_at,
        told.cluster,
    )
    own: tuple[Value, ...] = (
        ending.ended_at,
        str(told.holder),
        _end(ending) or found.said,
        found.why.value,
    )
    rows = [(*_clue(one), *of_job) for one in found.clues]
    rows += [(one.since, _where(one.subject.key), one.title, None, *of_job) for one in standing]
    earlier = sum(
        1 for one in found.clues if ending.ended_at is not None and one.at <= ending.ended_at
    )
    rows.insert(earlier, (*own, *of_job))
    return Grid(
        columns=[
            replace(one, show=partial(_in_words, indices)) if one.key == "where" else one
            for one in COLUMNS
        ],
        rows=rows,
        for_people=_FOR_PEOPLE,
        head=[_sentence(told, found, user)],
        notes=_notes(told, rows[1:]),
    )


def _notes(told: Told, others: Sequence[Sequence[Value]]) -> Sequence[str]:
    """What it means that nothing stands beside the job's own row."""
    if others or not told.nodes:
        return ()
    if told.ending.ended_at is None:
        return ("Nothing stands on its nodes.",)
    return ("Its nodes told nothing from 10 minutes before its end to 5 after.",)


def _sentence(told: Told, found: Verdict, user: str | None) -> str:
    ending = told.ending
    whose = f" of {user}" if user else ""
    if ending.ended_at is None:
        return f"{told.holder}{whose} has not ended: {found.said}."
    when = to_text(ending.ended_at)[:19].replace("T", " ")
    return (
        f"{told.holder}{whose} ended {when} ({_end(ending)}). Why: {found.why.value}: {found.said}."
    )


def _end(ending: Ending) -> str:
    """How it ended, in Slurm's words."""
    if ending.ended_at is None:
        return ""
    code = f"exit code {ending.exit_code}" if ending.exit_code else ""
    return ", ".join(filter(None, (ending.state, code))) or "no end state was told"


def _clue(one: Clue) -> tuple[Value, ...]:
    return one.at, _where(one.where), one.what, one.speaks_for.value if one.speaks_for else None


def _where(key: str) -> str:
    """A node, and what lies in it, without its cluster."""
    subject = Subject.parse(key)
    return " ".join(filter(None, (subject.node, subject.gpu, subject.device, subject.port)))


def _in_words(indices: Mapping[str, int], where: str) -> str:
    """A GPU by its index, as the other commands name it."""
    node, _, uuid = where.partition(" ")
    return f"{node} GPU {indices[uuid]}" if uuid in indices else where


def _indices(hub: Hub, of: Iterable[Subject]) -> Mapping[str, int]:
    """Of the GPUs of these nodes, by UUID, as far as their inventories tell."""
    records = [hub.inventory(node) for node in sorted({it.of_node() for it in of if it.gpu})]
    known = readable([one for one in records if one is not None], Inventory.from_record)
    return {gpu.uuid: gpu.index for one in known for gpu in one.gpus if gpu.index is not None}


def _told(hub: Hub, wanted: str, cluster: str | None) -> Told:
    number = wanted.removeprefix("job ").strip()
    holder = job_holder(number)
    jobs = [
        job
        for job in readable(hub.records(RecordKind.JOB, parent=str(holder)), Job.from_record)
        if cluster in {None, job.told_by.cluster}
    ]
    held = _allocations(hub, holder, max(jobs, key=lambda job: job.submitted_at, default=None))
    of_cluster = [one for one in held if cluster in {None, one.subject.cluster}]
    names = sorted(
        {job.told_by.cluster for job in jobs} | {one.subject.cluster for one in of_cluster}
    )
    if not names:
        raise ConfigError(
            f"nobody told of a job {number!r}; 'gpuvigil top' names those that hold GPUs"
        )
    if len(names) > 1:
        raise ConfigError(
            f"clusters {', '.join(names)} have a job {number!r} each: add --cluster NAME"
        )
    return _newest(holder, names[0], jobs, of_cluster)


def _newest(holder: Holder, cluster: str, jobs: list[Job], held: list[Allocation]) -> Told:
    """Of a number that was given again the last."""
    told = by_holder(jobs)
    if not jobs:
        last = max(one.started_at for one in held)
        # A job's nodes begin within minutes of each other.
        own = [one for one in held if last - one.started_at <= BEFORE]
        return Told(holder=holder, cluster=cluster, job=None, allocations=tuple(own))
    job = max(told[cluster, holder], key=lambda one: one.submitted_at)
    own = [one for one in held if job_of(one, told) == job]
    return Told(holder=holder, cluster=cluster, job=job, allocations=tuple(own))


def _allocations(hub: Hub, holder: Holder, job: Job | None) -> list[Allocation]:
    """Those of the holder: on the nodes that Slurm named, else wherever there are any.

    The selftest holds GPUs for jobs that nobody has submitted.
    """
    if job is None or not job.nodes:
        records = hub.records(RecordKind.ALLOCATION, limit=_MOST)
    else:
        keys = [
            Subject(cluster=job.told_by.cluster, node=name).key
            for name in job.nodes[:_FROM_ITS_OWN]
        ]
        since = job.submitted_at - _SKEW
        records = tuple(
            one
            for key in keys
            for one in hub.records(RecordKind.ALLOCATION, subject=key, since=since, limit=_MOST)
        )
    held = readable((one for one in records if not one.marked), Allocation.from_record)
    return [one for one in held if one.holder == holder]


def _around(hub: Hub, told: Told) -> tuple[Iterable[Event], Iterable[Incident]]:
    ended_at: datetime | None = told.ending.ended_at
    if ended_at is None:
        return (), ()
    start, end = around(ended_at)
    events: list[Event] = []
    incidents: list[Incident] = []
    for node in told.nodes[:_FROM_ITS_OWN]:
        found = hub.records(
            RecordKind.EVENT, subject=node.key, since=start, until=end, limit=_MOST_EVENTS
        )
        events += readable(found, Event.from_record)
        stood = hub.records(RecordKind.INCIDENT, subject=node.key, until=end, limit=_MOST_EVENTS)
        incidents += readable(stood, Incident.from_record)
    # What is told of a rack has another node for its subject, as a rule.
    of_cluster = hub.records(
        RecordKind.INCIDENT,
        subject=cluster_key(told.cluster),
        since=start - _RACKS_BEFORE,
        until=end,
        limit=_MOST,
    )
    incidents += readable(of_cluster, Incident.from_record)
    return events, of_nodes(incidents, told.nodes)


def _standing(hub: Hub, told: Told) -> Sequence[Incident]:
    """What stands now on the nodes of a job that has not ended, the longest first."""
    if told.ending.ended_at is not None:
        return ()
    states = [state.value for state in STANDING]
    found = hub.records(
        RecordKind.INCIDENT, subject=cluster_key(told.cluster), states=states, limit=_MOST
    )
    mine = of_nodes(readable(found, Incident.from_record), told.nodes)
    return sorted(mine, key=lambda one: (one.since, one.id))


def of_nodes(incidents: Iterable[Incident], nodes: Sequence[Subject]) -> list[Incident]:
    """Those that hit any of the nodes, each once; a rack's silence as that of the first of the nodes that fell silent."""
    mine = {node.key: node for node in nodes}
    found: dict[str, Incident] = {}
    for one in incidents:
        told = {Subject.parse(key).of_node().key for key in struck(one)}
        hit = sorted(told & mine.keys())
        if one.subject.of_node().key in hit:
            found[one.id] = one
        elif hit and one.fault in UNHEARD:
            found[one.id] = replace(one, subject=mine[hit[0]])
    return list(found.values())
