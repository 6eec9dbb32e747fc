"""How often failures of a site end jobs, and what follows for checkpoints: pure arithmetic.

With N nodes and r failures of a node a day a job fails every 1 / (N r) days (MTTF). Who writes a
checkpoint every t and is stopped by writing for w does best with t = sqrt(2 w / (N r)) (Young, CACM 17,
1974; Daly, FGCS 22, 2006, to first order). Of its time a job that restarts within u then gets
(1 - N r (u + t / 2)) / (1 + w / t) done (ETTR): Kokolis et al., "Revisiting Reliability in Large-Scale
Machine Learning Research Clusters", 2024, who found it within 5 % of simulation, with a short queue.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from accounting.chance import exact_rate
from accounting.hardware.repeat_offenders import SAME_FAILURE
from gpuvigil.faults import FAULTS
from gpuvigil.faults.affected import struck
from gpuvigil.lifecycle import State
from gpuvigil.model import Incident, Severity, Subject

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
# A rate from less is a guess; so is one from fewer days of one node.
LEAST_NODE_DAYS = 7.0
# Where nobody measured them: writing one stops a job for so long [ours], and a job that fails is back
# after so long (Kokolis et al.: 5 to 20 minutes).
WRITE_SECONDS, RESTART_SECONDS = 60.0, 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    """Failures that end jobs, of all nodes of a cluster over a span."""

    failures: int
    node_days: float

    @property
    def known(self) -> bool:
        return self.node_days >= LEAST_NODE_DAYS

    @property
    def per_node_day(self) -> float | None:
        """None where too little time was seen, and 0.0 where nothing failed in it."""
        return self.failures / self.node_days if self.known else None

    @property
    def interval(self) -> tuple[float, float]:
        """Where the rate lies with 95 %: also of none in all that time."""
        return exact_rate(self.failures, self.node_days)


def mttf(rate: FailureRate, nodes: int) -> timedelta | None:
    """How long a job on so many nodes runs until a failure ends it; None where none is known of."""
    daily = rate.per_node_day
    return None if not daily or nodes < 1 else _DAY / (daily * nodes)


def best_interval(
    rate: FailureRate, nodes: int, write_seconds: float = WRITE_SECONDS
) -> timedelta | None:
    """How often to write a checkpoint that stops the job for so long; None as `mttf`."""
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
    """The share of its time in which a job gets on, 0 to 1; None as `mttf`."""
    until = mttf(rate, nodes)
    every = interval.total_seconds()
    if until is None or every <= 0.0:
        return None
    lost = (restart_seconds + every / 2.0) / until.total_seconds()
    return max((1.0 - lost) / (1.0 + write_seconds / every), 0.0)


def at_risk(gpus: int, age: timedelta) -> float:
    """GPU-hours that a failure now would take."""
    return gpus * (max(age, timedelta()) / _HOUR)


def ends_jobs(incident: Incident) -> bool:
    """Whether it is a failure that ends the jobs on its node: no selftest, no program, no suspicion."""
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
    """Of a cluster that had so many nodes over the span. What one node fails with within an hour is one.

    A rack that falls silent is as many failures as it has nodes.
    """
    found: dict[str, list[datetime]] = {}
    for one in incidents:
        if one.subject.cluster == cluster and span[0] <= one.since < span[1] and ends_jobs(one):
            for node in {Subject.parse(key).of_node().key for key in struck(one)}:
                found.setdefault(node, []).append(one.since)
    failures = sum(len(_separate(times)) for times in found.values())
    return FailureRate(failures=failures, node_days=nodes * ((span[1] - span[0]) / _DAY))


def _separate(times: Iterable[datetime]) -> list[datetime]:
    """The first of each run of failures that follow each other within an hour."""
    kept: list[datetime] = []
    before: datetime | None = None
    for at in sorted(times):
        if before is None or at - before > SAME_FAILURE:
            kept.append(at)
        before = at
    return kept


def mttr(incidents: Iterable[Incident], cluster: str) -> timedelta | None:
    """Half of the failures of a cluster were over within so long; None where none is over."""
    lasted = [
        (one.resolved_at - one.since).total_seconds()
        for one in incidents
        if one.subject.cluster == cluster and one.resolved_at is not None and ends_jobs(one)
    ]
    return timedelta(seconds=median(lasted)) if lasted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a job of so many nodes has to expect; None where no failure is known of."""

    nodes: int
    mttf: timedelta | None
    interval: timedelta | None
    ettr: float | None


def sizes(rate: FailureRate, counts: Iterable[int], restart_seconds: float) -> Sequence[Size]:
    """For jobs of these numbers of nodes, each with the interval that is best for it."""
    found = []
    for nodes in sorted(set(counts)):
        every = best_interval(rate, nodes)
        share = None if every is None else ettr(rate, nodes, every, WRITE_SECONDS, restart_seconds)
        found.append(Size(nodes=nodes, mttf=mttf(rate, nodes), interval=every, ettr=share))
    return found
