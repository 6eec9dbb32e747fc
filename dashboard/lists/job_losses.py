"""What failures cost the jobs of a cluster, and how often to write checkpoints; for pages and commands."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.jobs.losses import (
    Begin,
    Cause,
    Loss,
    by_cause,
    restart,
    restart_by_size,
    restarts,
)
from accounting.jobs.reliability import (
    RESTART_SECONDS,
    WRITE_SECONDS,
    FailureRate,
    Size,
    best_interval,
    failure_rate,
    mttf,
    mttr,
    sizes,
)
from accounting.usage.model import cluster_key
from gpuvigil.clock import duration
from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, Inventory, RecordKind, readable
from gpuvigil.numbers_in_words import counted

from .table import Column, Grid, length, percents, tenths, whole

SPAN = timedelta(days=30)
MOST_INCIDENTS = 20_000
_DAYS = 1.5
_SIZES = (1, 4, 16, 64, 256, 1024)
SIZES = (
    Column(key="nodes", title="NODES OF A JOB", show=whole, right=True),
    Column(key="mttf_seconds", title="FAILS EVERY", show=length, right=True),
    Column(key="interval_seconds", title="BEST CHECKPOINT INTERVAL", show=length, right=True),
    Column(key="mttr_seconds", title="RUNS AGAIN AFTER (MTTR)", show=length, right=True),
    Column(key="ettr_percent", title="GETS DONE (ETTR)", show=percents, right=True),
)
CAUSES = (
    Column(key="cause", title="ENDED BY"),
    Column(key="jobs", title="JOBS", show=whole, right=True),
    Column(key="gpu_hours", title="GPU-HOURS LOST", show=tenths, right=True),
    Column(key="at_most", title="HOW SURE", show=lambda at_most: "at most" if at_most else "known"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How often failures end jobs of one cluster, and what they cost."""

    cluster: str
    rate: FailureRate
    days: float
    repaired_in: timedelta | None  # median over failures
    restarted_in: timedelta | None  # median over the jobs that failures ended
    sizes: Sequence[Size]
    causes: Sequence[Cause]
    # If more jobs ended than can be read: since when all are, and the losses are of that time.
    lost_from: datetime | None = None

    @property
    def restart_seconds(self) -> float:
        told = self.restarted_in
        return RESTART_SECONDS if told is None else told.total_seconds()


def incidents_of(hub: Hub, now: datetime, cluster: str | None = None) -> list[Incident]:
    """Return incidents of the last 30 days, of one cluster or all. HubUnavailable or HubRefused without an answer."""
    records = hub.records(
        RecordKind.INCIDENT,
        subject=None if cluster is None else cluster_key(cluster),
        since=now - SPAN,
        limit=MOST_INCIDENTS,
    )
    return list(readable(records, Incident.from_record))


def nodes_of(inventories: Iterable[Inventory]) -> Mapping[str, int]:
    """Return the number of nodes with GPUs by cluster, as these can run jobs."""
    return Counter(one.subject.cluster for one in inventories if one.gpus)


def reliability(
    cluster: str,
    nodes: int,
    span: tuple[datetime, datetime],
    incidents: Iterable[Incident],
    lost: Iterable[Loss] = (),
    begins: Iterable[Begin] = (),
) -> Reliability:
    """Return the reliability of a cluster with so many nodes; `span` is what the hub knows, 30 days at most."""
    here = [one for one in incidents if one.subject.cluster == cluster]
    lost = [one for one in lost if one.job.cluster == cluster]
    rate = failure_rate(here, cluster, nodes, span)
    back = restarts(lost, begins)
    again = restart(back)
    seconds = RESTART_SECONDS if again is None else again.total_seconds()
    counts = [count for count in _SIZES if count <= nodes]
    return Reliability(
        cluster=cluster,
        rate=rate,
        days=(span[1] - span[0]) / timedelta(days=1),
        repaired_in=mttr(here, cluster),
        restarted_in=again,
        sizes=sizes(rate, counts, seconds, restart_by_size(back, counts)),
        causes=by_cause(lost),
    )


def sentence(found: Reliability) -> str:
    """Say how often nodes fail, with a 95 % interval, and how soon failures and jobs recover."""
    rate = found.rate
    if not rate.known:
        return (
            f"{found.cluster}: {rate.node_days:.1f} node-days are too few for a failure rate;"
            " it takes a week of one node."
        )
    low, high = (1000.0 * it for it in rate.interval)
    said = (
        f"{found.cluster}: {counted(rate.failures, 'failure')} of nodes in"
        f" {rate.node_days:,.0f} node-days: {1000.0 * (rate.per_node_day or 0.0):.1f} in 1,000"
        f" (95 %: {low:.1f} to {high:.1f})"
    )
    if found.repaired_in is not None:
        said += f"; half were over within {duration(found.repaired_in)}"
    if found.restarted_in is not None:
        said += f"; half of the jobs ran again within {duration(found.restarted_in)}"
    return f"{said}."


def advice(found: Reliability, nodes: int) -> str:
    """Return the advice on checkpoints for a job on so many nodes; empty without known failures."""
    until, every = mttf(found.rate, nodes), best_interval(found.rate, nodes)
    if until is None or every is None:
        return ""
    return (
        f"On {counted(nodes, 'node')} a failure ends a job every {duration(until)}: a checkpoint"
        f" every {duration(every)} loses least, if writing one stops it for {WRITE_SECONDS:.0f} s"
        " (Young/Daly)."
    )


def lost_within(found: Reliability) -> str:
    """Say over which time the costs of failures are."""
    if found.lost_from is not None:
        return f"since {found.lost_from:%Y-%m-%d %H:%M} UTC (more jobs have ended than can be read)"
    return "within a day" if found.days < _DAYS else f"within {found.days:.0f} days"


def size_grid(found: Reliability) -> Grid:
    """Return a row for each job size, in nodes."""
    rows = [
        (
            one.nodes,
            one.mttf,
            one.interval,
            one.mttr,
            None if one.ettr is None else 100.0 * one.ettr,
        )
        for one in found.sizes
    ]
    return Grid(
        columns=SIZES, rows=rows if found.rate.per_node_day else [], empty="No failure yet."
    )


def cause_grid(found: Reliability) -> Grid:
    """Return a row for each cause, the most costly first."""
    rows = [(one.why.value, one.jobs, one.gpu_hours, one.at_most) for one in found.causes]
    return Grid(columns=CAUSES, rows=rows, empty="No job was ended by a failure.")
