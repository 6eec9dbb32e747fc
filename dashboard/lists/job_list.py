"""`gpuvigil jobs` and the page of jobs: one table of running and recently ended jobs."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from accounting.cost.money import Prices
from accounting.jobs.losses import Ended, of_allocations, of_job, runs
from accounting.usage.model import cluster_key
from gpuvigil.clock import moment as time_of
from gpuvigil.hub_client import Hub
from gpuvigil.model import Allocation, AllocationState, RecordKind, readable
from gpuvigil.numbers_in_words import HOLDERS_UNKNOWN
from gpuvigil.schedulers.jobs import Jobs, job_history, job_of

from .jobs import JOB_KINDS, JobNow, Key
from .table import Column, Grid, Value, held_for, length, percents, tenths, whole

RUNS, OVER = "running", "ended"
COLUMNS = (
    Column(key="job", title="JOB", flexible=True),
    Column(key="user", title="USER", flexible=True),
    Column(key="state", title="STATE"),
    Column(key="gpus", title="GPUS", show=whole, right=True),
    Column(key="ran_for_seconds", title="FOR", show=length, right=True),
    Column(key="bound", title="BOUND BY", flexible=True),
    Column(key="pace_percent", title="PACE", show=percents, right=True),
    Column(key="sm_activity_percent", title="SM", show=percents, right=True),
    Column(key="checkpoint_age_seconds", title="CHECKPOINT", show=length, right=True),
    Column(key="at_risk_gpu_hours", title="AT RISK", show=tenths, right=True),
    Column(key="cost", title="COST", show=whole, right=True),
    Column(key="held_up_by", title="HELD UP BY", flexible=True),
    Column(key="incident", title="INCIDENT"),
    Column(key="cluster", title="CLUSTER", flexible=True),
    Column(key="nodes", title="NODES", flexible=True),
    Column(key="incidents", title="INCIDENTS", show=whole, right=True),
    Column(key="said", title="BECAUSE", flexible=True),
    Column(key="missing", title="NOT MEASURED", flexible=True),
    Column(key="confidence", title="CONFIDENCE", show="{:.2f}".format, right=True),
    Column(key="step_seconds", title="STEP, S", show="{:.2f}".format, right=True),
    Column(key="utilization_percent", title="USED", show=percents, right=True),
    Column(key="name", title="NAME", flexible=True),
    Column(key="partition", title="PARTITION", flexible=True),
    Column(key="account", title="ACCOUNT", flexible=True),
    Column(key="started_at", title="STARTED", show=time_of),
    Column(key="ended_at", title="ENDED", show=time_of),
    Column(key="exit_code", title="EXIT CODE"),
)
PLACES = {column.key: place for place, column in enumerate(COLUMNS)}
_FOR_PEOPLE = 10
_PIPED = PLACES["nodes"] + 1  # columns for people; the others are for programs
# The most recently ended jobs per cluster: more than anybody reads, and little for a hub to send.
MOST_LATELY = 5_000
# A node may report the end of a job so long after the scheduler does.
_EPILOG = timedelta(hours=1)
NOTE = (
    "BOUND BY, PACE and SM cover the last 5 minutes; PACE is in percent of the hour before. AT RISK:"
    " GPU-hours since the last checkpoint; -: the job does not report checkpoints."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Ended jobs, newest end first; `whole_from` has the time of clusters that lack older ones."""

    jobs: Sequence[Ended] = ()
    whole_from: Mapping[str, datetime] = field(default_factory=dict)


def ended(
    hub: Hub,
    clusters: Iterable[str],
    since: datetime,
    open_: Iterable[Allocation],
    most: int = MOST_LATELY,
) -> Over:
    """Return jobs that ended since then, by schedulers or else by nodes; the newest `most` per cluster.

    Raises HubUnavailable or HubRefused if the hub does not answer.
    """
    going_on: defaultdict[str, list[Allocation]] = defaultdict(list)
    for one in open_:
        going_on[one.subject.cluster].append(one)
    found: list[Ended] = []
    whole_from: dict[str, datetime] = {}
    for cluster in sorted(set(clusters)):
        jobs, first = _of_cluster(hub, cluster, since, going_on[cluster], most)
        found += jobs
        if first is not None and first > since:
            whole_from[cluster] = first
    found.sort(key=lambda one: one.ended_at, reverse=True)
    return Over(jobs=found, whole_from=whole_from)


def _of_cluster(
    hub: Hub, cluster: str, since: datetime, going_on: Iterable[Allocation], most: int
) -> tuple[list[Ended], datetime | None]:
    """Return a cluster's ended jobs, and since when none is missing; None if none is at all."""
    key = cluster_key(cluster)
    told = job_history(hub, key, since - _EPILOG, most)
    found = [one for them in told.jobs.values() for job in them if (one := of_job(job)) is not None]
    records = hub.records(
        RecordKind.ALLOCATION, subject=key, states=[AllocationState.ENDED], limit=most
    )
    held = list(readable((one for one in records if not one.marked), Allocation.from_record))
    alone = [one for one in by_nodes((*held, *going_on), told.jobs) if one.ended_at >= since]
    first = told.whole_from
    # If schedulers report all jobs, missing allocations do not mean missing jobs.
    if alone and len(records) == most:
        ends = [one.ended_at for one in held[: most // 10 + 1] if one.ended_at is not None]
        first = max((at for at in (first, max(ends, default=None)) if at is not None), default=None)
    oldest = since if first is None else max(since, first)
    return [one for one in (*found, *alone) if one.ended_at >= oldest], first


def by_nodes(held: Iterable[Allocation], jobs: Jobs) -> Iterator[Ended]:
    """Yield ended jobs that no scheduler reports; each run under the same name is one job."""
    of_holder: defaultdict[Key, list[Allocation]] = defaultdict(list)
    for one in held:
        if one.holder.kind in JOB_KINDS and job_of(one, jobs) is None:
            of_holder[one.subject.cluster, one.holder].append(one)
    for them in of_holder.values():
        yield from filter(None, map(of_allocations, runs(them)))


def missing(whole_from: Mapping[str, datetime]) -> str:
    """Say which clusters lack older ended jobs; empty if none does."""
    if not whole_from:
        return ""
    told = ", ".join(f"{name} before {at:%Y-%m-%d %H:%M} UTC" for name, at in whole_from.items())
    return f"More jobs have ended than can be read: some are missing for {told}."


def grid(
    running: Iterable[JobNow],
    over: Iterable[Ended],
    now: datetime,
    prices: Prices = Prices(),  # noqa: B008 - it is frozen
    *,
    holders_known: bool = True,
) -> Grid:
    """Return a row for each job: running ones in the given order, then ended ones."""
    jobs = list(running)
    rows = [_row(job, now) for job in jobs]
    rows += [_over(job) for job in over]
    columns, piped = list(COLUMNS), _PIPED
    place = PLACES["cost"]
    if prices:
        columns[place] = replace(columns[place], title=f"COST {prices.currency}")
    else:
        del columns[place]
        piped -= 1
        rows = [(*row[:place], *row[place + 1 :]) for row in rows]
    return Grid(
        columns=columns,
        rows=rows,
        for_people=_FOR_PEOPLE,
        piped=piped,
        notes=[NOTE] if jobs else [],
        empty="No job is running." if holders_known else HOLDERS_UNKNOWN,
    )


def _row(job: JobNow, now: datetime) -> tuple[Value, ...]:
    found, did, up = job.decision, job.activity, job.holds_up
    steps = None if did is None else did.steps
    return (
        str(job.holder),
        job.user,
        RUNS,
        len(job.gpus),
        held_for(job.started_at, now, began_before=job.began_before),
        None if found is None else found.bound.value,
        job.pace_percent,
        None if did is None else did.sm_percent,
        job.checkpoint_age,
        job.at_risk_gpu_hours,
        job.cost,
        None if up is None else up.title,
        None if up is None else up.id,
        job.cluster,
        " ".join(job.nodes),
        len(job.incidents),
        None if found is None else found.text,
        None if found is None else ", ".join(found.missing) or None,
        None if found is None else found.confidence,
        None if steps is None else steps.seconds,
        None if did is None else did.utilization_percent,
        job.name,
        job.partition,
        job.account,
        job.started_at,
        None,
        None,
    )


def _over(job: Ended) -> tuple[Value, ...]:
    """Return the row of an ended job, with the scheduler's end state; `gpuvigil why` says why it ended."""
    known: dict[str, Value] = {
        "job": str(job.holder),
        "user": job.user,
        "state": OVER if job.state is None else job.state.lower().replace("_", " "),
        "gpus": job.gpus,
        "ran_for_seconds": _ran(job),
        "name": job.name,
        "partition": job.partition,
        "account": job.account,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "exit_code": job.exit_code,
        "nodes": " ".join(job.nodes) or None,
        "cluster": job.cluster,
    }
    return tuple(known.get(column.key) for column in COLUMNS)


def _ran(job: Ended) -> timedelta | None:
    return None if job.started_at is None else max(job.ended_at - job.started_at, timedelta())


def sorted_rows(grid_: Grid, by: str, *, down: bool, text: str = "") -> Sequence[Sequence[Value]]:
    """Return the rows that contain every word of `text`, sorted by a column; unknown values come last."""
    words = text.casefold().split()
    rows = [row for row in grid_.rows if _has(row, words)]
    places = [place for place, column in enumerate(grid_.columns) if column.key == by]
    if not places:
        return rows
    (place,) = places
    known = [row for row in rows if row[place] is not None]
    known.sort(key=lambda row: _order(row[place]), reverse=down)
    return [*known, *(row for row in rows if row[place] is None)]


def _has(row: Sequence[Value], words: Sequence[str]) -> bool:
    said = "\n".join(cell for cell in row if isinstance(cell, str)).casefold()
    return all(word in said for word in words)


def _order(value: Value) -> tuple[float, str]:
    if isinstance(value, timedelta):
        return value.total_seconds(), ""
    if isinstance(value, datetime):
        return value.timestamp(), ""
    return (float(value), "") if isinstance(value, int | float) else (0.0, str(value).casefold())
