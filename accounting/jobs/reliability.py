"""How often failures of a site end jobs, and what follows for checkpoints: pure arithmetic.

With N nodes and r failures per node and day a job fails every 1 / (N r) days (MTTF). A job that writes a
checkpoint every t and is stopped by the writing for w does best with t = sqrt(2 w / (N r)) (Young, CACM
17, 1974; Daly, FGCS 22, 2006, to first order). A job that restarts within u then works for
(1 - N r (u + t / 2)) / (1 + w / t) of its time (ETTR): Kokolis et al., "Revisiting Reliability in
Large-Scale Machine Learning Research Clusters", 2024, who found it within 5 % of simulation, with a short
queue.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from types import MappingProxyType

from accounting.chance import exact_rate
from accounting.hardware.repeat_offenders import SAME_FAILURE
from gpuvigil.faults import FAULTS
from gpuvigil.faults.affected import affected_keys
from gpuvigil.lifecycle import State
from gpuvigil.model import Incident, Severity, Subject

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
# A rate from fewer node-days is a guess.
LEAST_NODE_DAYS = 7.0
# Defaults where nobody measured them: writing a checkpoint stops a job for so long [ours], and a failed job is
# back after so long (Kokolis et al.: 5 to 20 minutes).
WRITE_SECONDS, RESTART_SECONDS = 60.0, 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    """The failures that end jobs, on all nodes of a cluster over a span."""

    failures: int
    node_days: float

    @property
    def known(self) -> bool:
        return self.node_days >= LEAST_NODE_DAYS

    @property
    def per_node_day(self) -> float | None:
        """The failures per node and day; None where too little time was seen, 0.0 where nothing failed in it."""
        return self.failures / self.node_days if self.known else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the rate, also where nothing failed."""
        return exact_rate(self.failures, self.node_days)


def mttf(rate: FailureRate, nodes: int) -> timedelta | None:
    """Return the mean time until a failure ends a job on so many nodes; None where no failure is known."""
    daily = rate.per_node_day
    return None if not daily or nodes < 1 else _DAY / (daily * nodes)


def best_interval(
    rate: FailureRate, nodes: int, write_seconds: float = WRITE_SECONDS
) -> timedelta | None:
    """Return the best interval between checkpoints whose writing stops the job that long; None as `mttf`."""
    until = mttf(rate, nodes)
    if until is None:
        return None
    return timedelta(seconds=math.sqrt(2.0 * write_seconds * until.total_seconds()))


def ettr(
    rate: FailureRate,
    nodes: int,
    interval: timedelta,
    write_seconds: float = WRITE_SECONDS,
    restart_seconds: float = RESTART_SECONDS,
) -> float | None:
    """Return the share of its time in which a job makes progress, 0 to 1; None as `mttf`."""
    until = mttf(rate, nodes)
    every = interval.total_seconds()
    if until is None or every <= 0.0:
        return None
    lost = (restart_seconds + every / 2.0) / until.total_seconds()
    return max((1.0 - lost) / (1.0 + write_seconds / every), 0.0)


def at_risk(gpus: int, age: timedelta) -> float:
    """Return the GPU-hours that a failure now would cost."""
    return gpus * (max(age, timedelta()) / _HOUR)


def ends_jobs(incident: Incident) -> bool:
    """Return whether this failure ends the jobs on its node: no selftest, program or suspicion."""
    row = FAULTS.get(incident.fault)
    ends = None if row is None else row.ends_job
    return (
        ends is not None
        and (ends.always or incident.severity is Severity.CRITICAL)
        and not incident.marked
        and incident.state not in {State.SUSPECT.value, State.DISMISSED.value}
    )


def failure_rate(
    incidents: Iterable[Incident], cluster: str, nodes: int, span: tuple[datetime, datetime]
) -> FailureRate:
    """Return the rate of a cluster with so many nodes over the span.

    Failures of one node within an hour of each other count as one. A rack that falls silent is as many
    failures as it has nodes.
    """
    found: dict[str, list[datetime]] = {}
    for one in incidents:
        if one.subject.cluster == cluster and span[0] <= one.since < span[1] and ends_jobs(one):
            for node in {Subject.parse(key).of_node().key for key in affected_keys(one)}:
                found.setdefault(node, []).append(one.since)
    failures = sum(len(_separate(times)) for times in found.values())
    return FailureRate(failures=failures, node_days=nodes * ((span[1] - span[0]) / _DAY))


def _separate(times: Iterable[datetime]) -> list[datetime]:
    """Return the first of each run of failures within an hour of each other."""
    kept: list[datetime] = []
    before: datetime | None = None
    for at in sorted(times):
        if before is None or at - before > SAME_FAILURE:
            kept.append(at)
        before = at
    return kept


def mttr(incidents: Iterable[Incident], cluster: str) -> timedelta | None:
    """Return the median duration of a cluster's failures; None where none is over."""
    lasted = [
        (one.resolved_at - one.since).total_seconds()
        for one in incidents
        if one.subject.cluster == cluster and one.resolved_at is not None and ends_jobs(one)
    ]
    return timedelta(seconds=median(lasted)) if lasted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a job on so many nodes can expect; None where no failure is known."""

    nodes: int
    mttf: timedelta | None
    interval: timedelta | None
    ettr: float | None
    mttr: timedelta | None = None  # until jobs of this size ran again


def sizes(
    rate: FailureRate,
    counts: Iterable[int],
    restart_seconds: float,
    again: Mapping[int, timedelta] = MappingProxyType({}),
) -> Sequence[Size]:
    """Return the expectations for these numbers of nodes, each with its best checkpoint interval.

    `again` is how long jobs on so many nodes took to run again, where that is known; else
    `restart_seconds`.
    """
    found = []
    for nodes in sorted(set(counts)):
        every, back = best_interval(rate, nodes), again.get(nodes)
        seconds = restart_seconds if back is None else back.total_seconds()
        share = None if every is None else ettr(rate, nodes, every, WRITE_SECONDS, seconds)
        found.append(
            Size(nodes=nodes, mttf=mttf(rate, nodes), interval=every, ettr=share, mttr=back)
        )
    return found
