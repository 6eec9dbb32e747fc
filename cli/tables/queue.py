"""`gpuvigil queue`: what waits and for what, what is free meanwhile, and how long jobs waited."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from accounting.cost.money import Price, Prices
from accounting.queueing import Space, Wait, lost_gpu_hours, tasks, wait_of, waited
from accounting.usage.model import cluster_key
from dashboard.data.job_queue import queue_of, rooms, sentence, unknown
from dashboard.lists.fleet_now import FleetNow
from dashboard.lists.table import Column, Grid, Value, length, tenths, whole
from gpuvigil.clock import duration
from gpuvigil.hub_client import Hub
from gpuvigil.model import Job, RecordKind, Scheduler, readable
from gpuvigil.schedulers.jobs import MOST, JobHistory, job_history

COLUMNS = (
    Column(key="account", title="ACCOUNT", flexible=True),
    Column(key="waiting_jobs", title="WAITING", show=whole, right=True),
    Column(key="waiting_gpus", title="GPUS", show=whole, right=True),
    Column(key="longest_wait_seconds", title="LONGEST", show=length, right=True),
    Column(key="why", title="MOSTLY FOR", flexible=True),
    Column(key="started_jobs", title="STARTED", show=whole, right=True),
    Column(key="median_wait_seconds", title="MEDIAN WAIT", show=length, right=True),
    Column(key="p95_wait_seconds", title="P95", show=length, right=True),
    Column(key="preempted_gpu_hours", title="PREEMPTED H", show=tenths, right=True),
    Column(key="node_lost_gpu_hours", title="LOST H", show=tenths, right=True),
    Column(key="spot_lost_gpu_hours", title="SPOT H", show=tenths, right=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_FOR_PEOPLE = 8
_Span = tuple[datetime, datetime]


def fetch(hub: Hub, moment: FleetNow, span: _Span, prices: Prices) -> Grid:
    """Return the table of accounts; HubUnavailable or HubRefused if the hub does not answer."""
    told = {one.name: job_history(hub, cluster_key(one.name), span[0]) for one in moment.clusters}
    jobs = [job for one in told.values() for many in one.jobs.values() for job in many]
    schedulers = tuple(readable(hub.records(RecordKind.SCHEDULER), Scheduler.from_record))
    found = grid(moment, jobs, schedulers, span, prices)
    return replace(found, notes=[*found.notes, *missing(told)])


def missing(told: Mapping[str, JobHistory]) -> Iterable[str]:
    """Yield a line for each cluster whose older jobs are missing from the numbers."""
    for cluster, one in told.items():
        if one.whole_from is not None:
            yield (
                f"{cluster}: the newest {MOST:,} jobs that ended are read; some from before"
                f" {one.whole_from:%Y-%m-%d %H:%M} UTC are missing: ask for less with --last."
            )


def grid(
    moment: FleetNow,
    jobs: Sequence[Job],
    schedulers: Sequence[Scheduler],
    span: _Span,
    prices: Prices,
) -> Grid:
    """Return a row per account, those that wait for most GPUs first."""
    rows: list[tuple[Value, ...]] = []
    head: list[str] = []
    silent = unknown(schedulers)
    for cluster in moment.clusters:
        queue = queue_of(cluster, jobs, schedulers)
        if queue is None:
            continue
        head.append(f"{cluster.name}: {sentence(queue)}.")
        if cluster.name in silent:
            head.append(
                f"  its scheduler does not answer; this is its last known state: {silent[cluster.name]}"
            )
        own = [job for job in jobs if job.told_by.cluster == cluster.name]
        spot = _Spot(cluster=cluster.name, models=_models(cluster.name, moment), prices=prices)
        space = Space.of(rooms(cluster, schedulers).values())
        asking = (one.row(span, moment.now) for one in _accounts(own, space, spot))
        rows += [row for row in asking if row is not None]
        head += _lost(own, span, spot)
    rows.sort(key=lambda row: (-_number(row[2]), -_number(row[5]), str(row[0])))
    asked = bool(head)
    if not asked:
        head = ["No scheduler is read: run 'gpuvigil slurm' or 'gpuvigil kubernetes'."]
    return Grid(
        columns=COLUMNS,
        rows=rows,
        for_people=_FOR_PEOPLE,
        head=head,
        notes=[f"Waits: of jobs that began in the last {duration(span[1] - span[0])}."]
        if rows
        else [],
        # Without a scheduler it is not known whether a job waits.
        empty="No job waits, and none began in this time." if asked else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Account:
    """All jobs of one account, and the free space in its cluster."""

    name: str
    jobs: Sequence[Job]
    space: Space
    spot: "_Spot"

    def row(self, span: _Span, now: datetime) -> tuple[Value, ...] | None:
        """Return the account's row; None if no job waits, started or was lost in the span."""
        waiting = [job for job in self.jobs if job.state == "PENDING"]
        why = Counter[Wait]()
        for job in waiting:
            why[wait_of(job, self.space)] += (job.gpus or 0) * tasks(job)
        began = waited(self.jobs, *span)
        preempted = lost_gpu_hours(self.jobs, "PREEMPTED", *span)
        lost = lost_gpu_hours(self.jobs, "NODE_FAIL", *span)
        if not waiting and began is None and not preempted + lost:
            return None
        oldest = min((job.submitted_at for job in waiting), default=None)
        return (
            self.name,
            sum(map(tasks, waiting)),
            why.total(),
            None if oldest is None else max(now - oldest, timedelta()),
            why.most_common(1)[0][0].value if why else None,
            0 if began is None else began.jobs,
            None if began is None else began.median,
            None if began is None else began.p95,
            preempted,
            lost,
            lost_gpu_hours(map(self.spot.part, self.jobs), "NODE_FAIL", *span)
            if self.spot.prices.has_spot_prices
            else None,
            self.spot.cluster,
        )


def _accounts(jobs: Iterable[Job], space: Space, spot: "_Spot") -> Iterable[_Account]:
    """Yield one cluster's accounts, sorted by name."""
    found: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        found[job.account or "unknown"].append(job)
    for name, them in sorted(found.items()):
        yield _Account(name=name, jobs=them, space=space, spot=spot)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spot:
    """Finds a cluster's spot nodes, which their owner may take back: by name, partition or price."""

    cluster: str
    models: Mapping[str, str]  # by node: the model of its GPUs
    prices: Prices

    def price(self, job: Job) -> Price | None:
        """Return the price at the job's end of its first spot node; None without such a node or a price."""
        return next((self._price(node, job) for node in self._nodes(job)), None)

    def part(self, job: Job) -> Job:
        """Return the job with only the GPUs of its spot nodes."""
        share = len(self._nodes(job)), len(job.nodes or ("",))
        return replace(job, gpus=(job.gpus or 0) * share[0] // share[1])

    def _nodes(self, job: Job) -> Sequence[str]:
        """Return the job's spot nodes."""
        labels = {
            "cluster": (self.cluster,),
            "partition": (job.partition or "",),
            "account": (job.account or "",),
            "owner": (job.user or "",),
        }
        return [
            node
            for node in job.nodes or ("",)
            if self.prices.is_spot({**labels, "node": (node,)}, self._price(node, job))
        ]

    def _price(self, node: str, job: Job) -> Price | None:
        at = job.ended_at or job.seen_at
        return self.prices.price(self.cluster, self.models.get(node), at)


def _models(cluster: str, moment: FleetNow) -> dict[str, str]:
    """Return the GPU model by node, as long as the node's inventory is remembered."""
    known = (one for one in moment.inventories if one.subject.cluster == cluster)
    return {one.subject.node: one.gpus[0].model for one in known if one.gpus}


def _lost(jobs: Sequence[Job], span: _Span, spot: _Spot) -> Sequence[str]:
    """Say how many GPU-hours were lost by preemption and by node failures; empty if none."""
    preempted = lost_gpu_hours(jobs, "PREEMPTED", *span)
    lost = lost_gpu_hours(jobs, "NODE_FAIL", *span)
    said = [
        *([f"{preempted:,.1f} GPU-hours of jobs were preempted"] if preempted else ()),
        *([f"{lost:,.1f} went with a node"] if lost else ()),
    ]
    rented = [
        (spot.price(job), hours)
        for job in jobs
        if (hours := lost_gpu_hours([spot.part(job)], "NODE_FAIL", *span))
    ]
    if rented:
        priced = [(price, hours) for price, hours in rented if price is not None]
        owners = ", ".join(sorted({price.owner for price, _ in priced})) or "spot nodes"
        cost = sum(price.per_gpu_hour * hours for price, hours in priced)
        money = f" = {spot.prices.formatted(cost)}" if priced else ""
        said[-1] += f", {sum(hours for _, hours in rented):,.1f} of them of {owners}{money}"
    return (f"  In this time {', '.join(said)}.",) if said else ()


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
