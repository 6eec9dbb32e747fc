"""All jobs at one moment and what failures cost them, for both the page and the command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from accounting.cost.money import Prices
from accounting.jobs.checkpoints import checkpoints
from accounting.jobs.losses import Begin, Ended, begin_of, losses
from gpuvigil.clock import from_text
from gpuvigil.hub_client import Hub
from gpuvigil.schedulers.jobs import MOST, by_holder, going_on

from . import job_losses
from .job_list import ended
from .job_losses import Reliability, incidents_of
from .jobs import Fleet, JobNow, asked, running

LATELY = timedelta(days=1)
_RUN = ("RUNNING", "COMPLETING", "SUSPENDED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Running jobs, recently ended jobs, and what failures cost; of all clusters."""

    now: datetime
    running: Sequence[JobNow]
    over: Sequence[Ended]
    over_from: Mapping[str, datetime] = field(
        default_factory=dict
    )  # by cluster: before this time some ended jobs are missing
    reliability: Sequence[Reliability] = ()


def board(hub: Hub, fleet: Fleet, prices: Prices, lately: timedelta = LATELY) -> Board:
    """Return the board without `reliability`. HubError or StoreError if the hub or the store does not answer.

    Running jobs are asked for by the scheduler's records if `fleet` has none.
    """
    fleet = fleet if fleet.jobs else replace(fleet, jobs=by_holder(going_on(hub, _RUN)))
    found = running(fleet, asked(hub, fleet.now), prices)
    over = ended(hub, _clusters(fleet), fleet.now - lately, fleet.allocations)
    return Board(now=fleet.now, running=found, over=over.jobs, over_from=over.whole_from)


def _clusters(fleet: Fleet) -> set[str]:
    known = {one.subject.cluster for one in fleet.inventories}
    return known | {one.subject.cluster for one in fleet.allocations}


def failures(hub: Hub, fleet: Fleet) -> Sequence[Reliability]:
    """Return what failures cost each cluster with GPUs in 30 days; raises the errors of `board`."""
    oldest, now = hub.status()["store"].get("oldest_at"), fleet.now
    found = running(fleet)
    over = ended(hub, _clusters(fleet), now - job_losses.SPAN, fleet.allocations, MOST)
    incidents = incidents_of(hub, now)
    written = checkpoints(hub, [one.job for one in losses(over.jobs, incidents)])
    lost = losses(over.jobs, incidents, written)
    begins = [it for it in map(begin_of, over.jobs) if it is not None]
    begins += [
        Begin(
            cluster=one.cluster,
            user=one.user,
            name=one.name,
            at=one.started_at,
            array=one.record.array if one.record else None,
            submitted_at=one.record.submitted_at if one.record else None,
        )
        for one in found
    ]
    start = now if oldest is None else max(now - job_losses.SPAN, from_text(oldest))
    nodes = job_losses.nodes_of(fleet.inventories)
    return [
        replace(
            job_losses.reliability(cluster, count, (start, now), incidents, lost, begins),
            lost_from=over.whole_from.get(cluster),
        )
        for cluster, count in sorted(nodes.items())
    ]
