"""All jobs at one moment, with what failures cost them: asked of the hub once for page and command."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from accounting.cost.money import Prices
from accounting.jobs.losses import Ended
from gpuvigil.clock import from_text
from gpuvigil.hub_client import Hub
from gpuvigil.schedulers.jobs import by_holder, going_on

from . import job_losses
from .job_list import ended
from .job_losses import Reliability, incidents_of
from .jobs import Fleet, JobNow, asked, running

LATELY = timedelta(days=1)
_RUN = ("RUNNING", "COMPLETING", "SUSPENDED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Those that run, those that ended lately, and how often failures end any; of each cluster."""

    now: datetime
    running: Sequence[JobNow]
    over: Sequence[Ended]
    reliability: Sequence[Reliability]


def board(hub: Hub, fleet: Fleet, prices: Prices, lately: timedelta = LATELY) -> Board:
    """HubError or StoreError when the hub or the store does not answer.

    What schedulers say of jobs that run is asked for where `fleet` does not say it.
    """
    oldest, now = hub.status()["store"].get("oldest_at"), fleet.now
    fleet = fleet if fleet.jobs else replace(fleet, jobs=by_holder(going_on(hub, _RUN)))
    found = running(fleet, asked(hub, now), prices)
    over = ended(hub, now - job_losses.SPAN, found)
    start = now if oldest is None else max(now - job_losses.SPAN, from_text(oldest))
    incidents = incidents_of(hub, now)
    nodes = Counter(one.subject.cluster for one in fleet.inventories if one.gpus)
    return Board(
        now=now,
        running=found,
        over=[one for one in over if one.ended_at >= now - lately],
        reliability=[
            job_losses.reliability(cluster, count, incidents, over, found, (start, now))
            for cluster, count in sorted(nodes.items())
        ],
    )
