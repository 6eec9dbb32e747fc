"""`gpuvigil queue`: what waits and for what, what is free meanwhile, and how long jobs waited."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.clock import duration
from gpuvigil.hub import Hub
from gpuvigil.jobs import jobs_since
from gpuvigil.model import Job, RecordKind, Scheduler, readable
from gpuvigil.money import Prices
from gpuvigil.queueing import Room, Wait, lost_gpu_hours, tasks, wait_of, waited

from ..queued import queue_of, rooms, sentence, unknown
from .fleet import Moment
from .grid import Column, Grid, Value, length, tenths, whole

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
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_FOR_PEOPLE = 8
_Span = tuple[datetime, datetime]


def look(hub: Hub, moment: Moment, span: _Span, prices: Prices) -> Grid:
    """HubUnavailable or HubRefused when the hub does not answer."""
    found = jobs_since(hub, None, span[0])
    schedulers = tuple(readable(hub.records(RecordKind.SCHEDULER), Scheduler.from_record))
    return grid(moment, [job for many in found.values() for job in many], schedulers, span, prices)


def grid(
    moment: Moment,
    jobs: Sequence[Job],
    schedulers: Sequence[Scheduler],
    span: _Span,
    prices: Prices,
) -> Grid:
    """A row per account, those that ask for most first."""
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
                f"  its scheduler does not answer, this is of before: {silent[cluster.name]}"
            )
        own = [job for job in jobs if job.told_by.cluster == cluster.name]
        nodes = rooms(cluster, schedulers)
        for account in sorted({job.account or "unknown" for job in own}):
            one = _Account(
                name=account,
                cluster=cluster.name,
                jobs=[job for job in own if (job.account or "unknown") == account],
                nodes=nodes,
            )
            row = one.row(span, moment.now)
            if row is not None:
                rows.append(row)
        models = {
            gpu.model
            for one in moment.inventories
            if one.subject.cluster == cluster.name
            for gpu in one.gpus
        }
        head += _spot(cluster.name, own, span, prices, models)
    rows.sort(key=lambda row: (-_number(row[2]), -_number(row[5]), str(row[0])))
    if not head:
        head = ["No scheduler is asked: 'gpuvigil slurm' or 'gpuvigil kubernetes' does that, once."]
    return Grid(
        columns=COLUMNS,
        rows=rows,
        for_people=_FOR_PEOPLE,
        head=head,
        notes=[f"Waits are of jobs that began in the last {duration(span[1] - span[0])}."]
        if rows
        else [],
        empty="No job waits, and none began in this time.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Account:
    """All jobs of one account, and the nodes of its cluster."""

    name: str
    cluster: str
    jobs: Sequence[Job]
    nodes: Mapping[str, Room]

    def row(self, span: _Span, now: datetime) -> tuple[Value, ...] | None:
        """None for an account of which nothing is to be said."""
        waiting = [job for job in self.jobs if job.state == "PENDING"]
        why = Counter[Wait]()
        for job in waiting:
            why[wait_of(job, self.nodes)] += (job.gpus or 0) * tasks(job)
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
            self.cluster,
        )


def _spot(
    cluster: str, jobs: Iterable[Job], span: _Span, prices: Prices, models: Iterable[str]
) -> Sequence[str]:
    """What was lost with rented nodes that their owner took back, at the mean of their models' prices."""
    found = [prices.price(cluster, model, span[1]) for model in sorted(models)]
    spot = [price for price in found if price is not None and "spot" in price.owner.lower()]
    hours = lost_gpu_hours(jobs, "NODE_FAIL", *span)
    if not spot or not hours:
        return ()
    cost = prices.said(hours * sum(price.per_gpu_hour for price in spot) / len(spot))
    return (f"  {hours:,.1f} GPU-hours of jobs went with nodes of {spot[0].owner} = {cost}",)


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
