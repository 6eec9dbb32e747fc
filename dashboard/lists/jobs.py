"""Running jobs: what bounds each, its pace, what it would lose now, and its incidents."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from accounting.cost.money import Prices, models_of
from accounting.efficiency.on_call import is_on_call
from accounting.jobs.bound import COVERAGE, Activity, Bound, Decision, decide
from accounting.jobs.measured import (
    ASKED,
    ASKED_OF_HOSTS,
    ASKED_OF_PORTS,
    Host,
    Ports,
    Rank,
    activity,
    checkpoint_age,
    hosts_of,
    ports_of,
    rank,
    whole_span,
)
from accounting.jobs.pace import ASKED_BEFORE, pace
from accounting.jobs.reliability import at_risk
from gpuvigil.clock import duration
from gpuvigil.clock import moment as time_of
from gpuvigil.faults import FAULTS, About, Stops, where
from gpuvigil.faults.affected import affected_keys
from gpuvigil.faults.gpu_states import UNHEARD
from gpuvigil.faults.relations import Sign
from gpuvigil.faults.stopping import only_slows, stops_work
from gpuvigil.hub_client import Hub
from gpuvigil.model import (
    Allocation,
    Holder,
    HolderKind,
    Incident,
    Inventory,
    Job,
    Severity,
    Subject,
)
from gpuvigil.numbers_in_words import natural
from gpuvigil.schedulers.jobs import Jobs, job_of, with_job_details
from gpuvigil.silence_conditions import KNOWN_DOWN
from gpuvigil.store.external import store_of
from gpuvigil.store.rows import rows

from .fleet_now import FleetNow

# The span for what a job does now, and the longer one that its pace is compared with.
SPAN, BEFORE = timedelta(minutes=5), timedelta(hours=1)
_SHORTEST = timedelta(minutes=1)
# A pace within these limits, in percent of the earlier one, counts as the same [ours].
SAME_PACE = (95.0, 105.0)
# How long before the span a fault may have begun, so that most of the hour was still without it [ours].
_COMPARED = timedelta(minutes=30)
JOB_KINDS = frozenset({HolderKind.JOB, HolderKind.POD})
Key = tuple[str, Holder]  # cluster, holder
_OF_LINKS = where(lambda row: row.about in {About.PORT, About.SWITCH})
_Rows = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The allocations at one moment, and the open incidents."""

    now: datetime
    allocations: Iterable[Allocation]  # open ones
    inventories: Iterable[Inventory]
    incidents: Iterable[Incident]  # open ones
    jobs: Jobs = field(default_factory=dict)

    @classmethod
    def of(cls, moment: FleetNow) -> "Fleet":
        shown = {one.name for one in moment.clusters}
        return cls(
            now=moment.now,
            allocations=[
                one
                for (cluster, _, _), held in moment.allocations.items()
                for one in held
                if cluster in shown
            ],
            inventories=moment.inventories,
            incidents=[one.incident for one in moment.view.attention],
            jobs=moment.jobs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the store measured in the last minutes, of GPUs, ports and hosts."""

    span: tuple[datetime, datetime]
    gpus: _Rows = field(default_factory=dict)  # by GPU key
    before: _Rows = field(default_factory=dict)  # the hour that ends with the span, by GPU key
    ports: Mapping[tuple[str, str], Ports] = field(default_factory=dict)
    hosts: Mapping[tuple[str, str], Host] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNow:
    """A running job; None is not known or not measured."""

    cluster: str
    holder: Holder
    user: str | None
    name: str | None
    partition: str | None
    account: str | None
    started_at: datetime
    began_before: bool
    gpus: Sequence[Subject]
    nodes: Sequence[str]
    record: Job | None  # the scheduler's record
    shared: bool = False  # whether it shares GPUs with others or has only parts of GPUs
    with_others: Collection[str] = ()  # nodes on which other jobs have GPUs
    on_call: bool = False  # whether it waits for requests or a person, going by its names
    # What bounds it; None if that was not asked for, or if an incident holds the job up.
    decision: Decision | None = None
    activity: Activity | None = None
    ranks: Sequence[Rank] = ()
    ports: Mapping[str, Ports] = field(default_factory=dict)  # by node
    pace_percent: float | None = None
    measured_from: datetime | None = None  # the begin of the span of all that
    checkpoint_age: timedelta | None = None
    cost: float | None = None
    incidents: Sequence[Incident] = ()  # those that hold it up first
    # Its silent nodes, with the time when each was last heard.
    not_reporting: Mapping[str, datetime | None] = field(default_factory=dict)

    @property
    def at_risk_gpu_hours(self) -> float | None:
        age = self.checkpoint_age
        return None if age is None else at_risk(len(self.gpus), age)

    @property
    def advice(self) -> str:
        """Advice on how to make it faster, or ""; none while an incident slows it down."""
        return "" if self.decision is None or self.slowed_by else self.decision.advice

    @property
    def holds_up(self) -> Incident | None:
        """The incident that keeps the job from its work, if any."""
        return next(filter(self._is_kept_by, self.incidents), None)

    @property
    def slowed_by(self) -> Incident | None:
        """The incident that says that the job goes on at less pace, if any."""
        began = (one for one in self.incidents if one.since >= self.started_at)
        known = self.holds_up is None and self.is_known
        return next(filter(slows, began), None) if known else None

    def is_held_up_by(self, one: Incident) -> bool:
        """Return whether this incident, which may be over, keeps or kept the job from its work."""
        own, nodes = {it.key for it in self.gpus}, {it.of_node().key for it in self.gpus}
        hit = map(Subject.parse, affected_keys(one))
        is_hit = str(self.holder) in one.impact.holders or any(
            it.key in own if it.gpu else it.of_node().key in nodes for it in hit
        )
        return is_hit and self._is_kept_by(one)

    @property
    def unheard(self) -> Incident | None:
        """The incident about silent nodes because of which it is not known whether the job computes."""
        return next(filter(is_only_silent, self.incidents), None)

    @property
    def is_known(self) -> bool:
        """Whether all of its nodes are heard; otherwise nobody can say that the job is well."""
        return self.unheard is None and not self.not_reporting

    def _is_kept_by(self, one: Incident) -> bool:
        """Return whether an incident that hits the job keeps it from its work, as far as its pace tells.

        What only slows a GPU holds the job up where its pace has fallen. What stops work does so unless the
        job has gone on at its usual pace since the fault; only within the hour is that pace one before it.
        """
        pace = self.pace_percent
        if only_slows(one):
            slower = pace is not None and pace < SAME_PACE[0]
            return slower and one.severity is Severity.CRITICAL and one.resolved_at is None
        if not stops(one) or not self._reaches(one):
            return False
        start = self.measured_from
        if pace is None or start is None or one.resolved_at is not None:
            return True
        return pace < SAME_PACE[0] or not start - _COMPARED <= one.since <= start

    def _reaches(self, one: Incident) -> bool:
        """Return whether an incident can affect the job: port faults do not affect a job on one node."""
        keys = (one.subject.key, *one.members)
        return len(self.nodes) > 1 or any(Subject.parse(key).kind != "port" for key in keys)


def asked(hub: Hub, now: datetime, nodes: Collection[str] | None = None) -> Measured:
    """Ask the store about these nodes or all. HubError or StoreError without an answer."""
    store, start = store_of(hub), now - SPAN
    gpus = store.window("gpu", ASKED, start, now)
    # A young installation has less than the whole span.
    first = pc.min(gpus["first_at"]).as_py() or start
    ports = store.window("port", ASKED_OF_PORTS, start, now)
    hosts = store.window("node", ASKED_OF_HOSTS, start, now)
    return Measured(
        span=(min(max(start, first), now - _SHORTEST), now),
        gpus=_by_gpu(_rows(gpus, nodes)),
        before=_by_gpu(_rows(store.window("gpu", ASKED_BEFORE, now - BEFORE, now), nodes)),
        ports=ports_of(_rows(ports, nodes)),
        hosts=hosts_of(_rows(hosts, nodes)),
    )


def _rows(found: pa.Table, nodes: Collection[str] | None) -> list[dict[str, Any]]:
    """Return the rows of these nodes; filtered first, since converting rows to Python is what costs time."""
    if nodes is not None:
        found = found.filter(pc.is_in(found["node"], pa.array(nodes, pa.string())))
    return rows(found)


def _by_gpu(rows: Iterable[Mapping[str, Any]]) -> _Rows:
    return {
        Subject(cluster=row["cluster"], node=row["node"], gpu=row["uuid"]).key: row for row in rows
    }


def running(
    fleet: Fleet,
    measured: Measured | None = None,
    prices: Prices = Prices(),  # noqa: B008 - it is frozen
) -> list[JobNow]:
    """Return every job or pod that holds GPUs: first those held up by an incident, then the largest."""
    holders: defaultdict[str, set[Key]] = defaultdict(set)  # by GPU key
    on_node: defaultdict[tuple[str, str], set[Key]] = defaultdict(set)
    held: defaultdict[Key, list[Allocation]] = defaultdict(list)
    for one in fleet.allocations:
        key = one.subject.cluster, one.holder
        holders[one.subject.key].add(key)
        if one.holder.kind in JOB_KINDS:
            on_node[one.subject.cluster, one.subject.node].add(key)
            held[key].append(with_job_details(one, fleet.jobs))
    shared = {key for gpu, keys in holders.items() for key in keys if len(keys) > 1} | {
        key for key, them in held.items() if any(one.part for one in them)
    }
    active = _by_job(
        fleet.incidents, {key: [one.subject for one in them] for key, them in held.items()}
    )
    about = _About(fleet, prices)
    jobs = [about.job(key, them, active.get(key, ())) for key, them in held.items()]
    found = [
        replace(
            job,
            shared=(job.cluster, job.holder) in shared,
            with_others=[it for it in job.nodes if len(on_node[job.cluster, it]) > 1],
        )
        for job in jobs
    ]
    if measured is not None:
        ticks = {one.subject.key: one.tick_seconds for one in fleet.inventories}
        found = [_with_numbers(job, measured, ticks) for job in found]
    return sorted(found, key=_rank)


def _rank(job: JobNow) -> tuple[bool, int, list[tuple[int, str]]]:
    return job.holds_up is None, -len(job.gpus), natural(str(job.holder))


class _About:
    """Makes jobs from records, without measurements."""

    def __init__(self, fleet: Fleet, prices: Prices) -> None:
        self._fleet = fleet
        self._prices = prices
        self._models = models_of(fleet.inventories) if prices else {}

    def job(self, key: Key, held: Sequence[Allocation], incidents: Sequence[Incident]) -> JobNow:
        cluster, holder = key
        first = min(held, key=lambda one: one.started_at)
        told = job_of(first, self._fleet.jobs)
        nodes = sorted({one.subject.node for one in held}, key=natural)
        order = {name: place for place, name in enumerate(nodes)}
        gpus = sorted({one.subject for one in held}, key=lambda it: (order[it.node], it.gpu or ""))
        names = {(one.command, one.pod): one for one in held}
        return JobNow(
            cluster=cluster,
            holder=holder,
            user=next((one.user for one in held if one.user), None),
            name=(told.name if told else None) or first.command,
            partition=first.partition,
            account=first.account,
            started_at=first.started_at,
            began_before=any(one.began_before for one in held),
            gpus=gpus,
            nodes=nodes,
            record=told,
            on_call=any(map(is_on_call, names.values())),
            cost=self._cost(held),
            incidents=incidents,
        )

    def _cost(self, held: Sequence[Allocation]) -> float | None:
        """Return the cost of all its GPUs, each since its start; None if one has no price."""
        costs = [
            self._prices.cost(
                one.subject.cluster,
                self._models.get(one.subject.key),
                one.started_at,
                max(self._fleet.now, one.started_at),
            )
            for one in held
            if self._prices
        ]
        known = [one for one in costs if one is not None]
        return sum(known) if known and len(known) == len(costs) else None


def with_incidents(job: JobNow, incidents: Iterable[Incident]) -> JobNow:
    """Return the job with the incidents of now that affect it; one that is held up is bound by nothing else."""
    key = job.cluster, job.holder
    found = replace(job, incidents=_by_job(incidents, {key: job.gpus}).get(key, ()))
    return found if found.holds_up is None else replace(found, decision=None)


def _by_job(
    incidents: Iterable[Incident], held: Mapping[Key, Sequence[Subject]]
) -> Mapping[Key, Sequence[Incident]]:
    """Return the incidents that affect each job: on its GPUs or nodes, or naming it in their impact.

    Those about ports and switches affect a job on one node only if they name it: it sends nothing over the fabric.
    """
    of_gpu: defaultdict[str, set[Key]] = defaultdict(set)
    of_node: defaultdict[str, set[Key]] = defaultdict(set)
    for key, gpus in held.items():
        for gpu in gpus:
            of_gpu[gpu.key].add(key)
            of_node[gpu.of_node().key].add(key)
    found: defaultdict[Key, list[Incident]] = defaultdict(list)
    for incident in incidents:
        hit = {
            key
            for subject in map(Subject.parse, affected_keys(incident))
            for key in (of_gpu[subject.key] if subject.gpu else of_node[subject.of_node().key])
        }
        if incident.fault in _OF_LINKS:
            hit = {key for key in hit if len({gpu.of_node() for gpu in held[key]}) > 1}
        cluster = incident.subject.cluster
        hit |= {(cluster, Holder.parse(name)) for name in incident.impact.holders}
        for key in hit & held.keys():
            found[key].append(incident)
    return {key: sorted(them, key=_gravity) for key, them in found.items()}


def stops(one: Incident) -> bool:
    """Return whether an incident is known to keep the jobs that it hits from their work."""
    return stops_work(one) and not is_only_silent(one)


def slows(one: Incident) -> bool:
    """Return whether an incident says that a job makes less pace, and not only that one GPU is slow."""
    row = FAULTS.get(one.fault)
    return row is not None and Sign.SLOW_JOB in row.signs and one.severity is not Severity.INFO


def is_only_silent(one: Incident) -> bool:
    """Return whether an incident only says that nodes are not heard, not that they are down."""
    return one.fault in UNHEARD and one.condition not in KNOWN_DOWN


def _halts(one: Incident) -> bool:
    """Return whether an incident's fault stops work, as opposed to being only urgent."""
    row = FAULTS.get(one.fault)
    return row is not None and row.stops is not Stops.NOBODY


def _gravity(one: Incident) -> tuple[bool, bool, int, datetime, str]:
    return not stops(one), not _halts(one), one.severity.rank, one.since, one.id


def _with_numbers(job: JobNow, measured: Measured, ticks: Mapping[str, float]) -> JobNow:
    length = measured.span[1] - measured.span[0]
    ranks = [
        rank(it.key, measured.gpus.get(it.key), length, ticks.get(it.of_node().key, 10.0))
        for it in job.gpus
    ]
    nodes = [(job.cluster, name) for name in job.nodes]
    with_others = [(job.cluster, name) for name in job.with_others]
    did = activity(ranks, nodes, measured.ports, measured.hosts, with_others)
    paced = replace(
        job,
        measured_from=measured.span[0],
        pace_percent=pace(
            [(measured.gpus.get(it.key), measured.before.get(it.key)) for it in job.gpus]
        )
        if not job.shared
        and not job.on_call
        and whole_span(job.started_at, (measured.span[1] - BEFORE, measured.span[1]))
        else None,
    )
    return replace(
        paced,
        ranks=ranks,
        ports={it[1]: measured.ports[it] for it in nodes if it in measured.ports},
        activity=did,
        decision=decided(job, did, measured.span, _watched_since(job, measured))
        if paced.holds_up is None
        else None,
        checkpoint_age=checkpoint_age(ranks),
    )


def _watched_since(job: JobNow, measured: Measured) -> datetime | None:
    """Return the time of the first sample of its GPUs within the span; None without samples."""
    rows = [measured.gpus.get(it.key) for it in job.gpus]
    first = [row["first_at"] for row in rows if row is not None and row["first_at"] is not None]
    return min(first, default=None)


def decided(
    job: JobNow,
    did: Activity,
    span: tuple[datetime, datetime],
    watched_since: datetime | None = None,
) -> Decision:
    """Decide what bounded the job over the span, or why that cannot be told."""
    length = span[1] - span[0]
    if job.shared:
        said = "it shares GPUs with others, and who of them does what was not measured"
        return Decision(bound=Bound.UNKNOWN, text=said, confidence=0.0)
    if not whole_span(job.started_at, span):
        age = duration(max(span[1] - job.started_at, timedelta()))
        said = f"it began {age} ago; an answer needs {duration(length)}"
        return Decision(bound=Bound.EARLY, text=said, confidence=0.0)
    if watched_since is not None and span[1] - watched_since < COVERAGE * length:
        said = (
            f"watched for {duration(span[1] - watched_since)}, since"
            f" {time_of(watched_since)}; an answer needs {duration(COVERAGE * length)}"
        )
        return Decision(bound=Bound.EARLY, text=said, confidence=0.0)
    found = decide(did)
    waits = {Bound.UNKNOWN, Bound.NOTHING}
    if job.on_call and found.bound in waits and did.utilization_percent is not None:
        said = "a server or notebook waits for its users"
        return Decision(bound=Bound.ON_CALL, text=said, confidence=0.0)
    return found


def find(jobs: Iterable[JobNow], cluster: str | None, holder: Holder) -> Iterator[JobNow]:
    """Yield the jobs of that name: one, unless two clusters have the same number."""
    return (one for one in jobs if one.holder == holder and cluster in {None, one.cluster})
