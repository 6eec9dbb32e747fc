"""The queries to the hub for the page of one job."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.job_ending import Verdict, verdict
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client import Hub
from gpuvigil.metrics import GPU, NODE, PORT
from gpuvigil.model import Incident, Subject
from gpuvigil.store.external import store_of

from ..device.grid import grid
from ..device.window import Window, step
from ..lists.job_losses import incidents_of
from ..lists.one_job import KnownJob, around_its_end, find_job, of_nodes
from .over_time import GPU_FIELDS, HOST_FIELDS, PORT_FIELDS, OverTime, over_time

# The most nodes of a job that are read over time, as each takes three queries to the store.
MOST_NODES = 8
# A quarter of the points of a GPU's page, as each point is a decision over all GPUs.
_COARSER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A job that has ended, with the verdict of `gpuvigil why`."""

    known: KnownJob
    found: Verdict


def ending(hub: Hub, job: str, cluster: str | None) -> Ending | None:
    """Return how a job ended; None for an unknown job. HubUnavailable or HubRefused without an answer."""
    try:
        told = find_job(hub, job, cluster)
    except ConfigError:
        return None
    events, incidents = around_its_end(hub, told)
    return Ending(known=told, found=verdict(told.ending, events, incidents))


def some_of(nodes: Sequence[str], first: Sequence[str]) -> Sequence[str]:
    """Return the nodes that are read over time: some of `first`, and others spread over the rest."""
    known = [node for node in dict.fromkeys(first) if node in set(nodes)][: MOST_NODES // 2]
    rest = [node for node in nodes if node not in set(known)]
    room = MOST_NODES - len(known)
    apart = max(len(rest) / room, 1.0)
    spread = [rest[int(place * apart)] for place in range(min(room, len(rest)))]
    return [*known, *spread]


def apart(span: timedelta, tick: timedelta) -> timedelta:
    """Return the distance between points."""
    return step(_COARSER * span, tick)


def history(
    hub: Hub, cluster: str, nodes: Sequence[str], window: Window, tick: timedelta
) -> OverTime:
    """Return these nodes' numbers in the window. HubError or StoreError without an answer."""
    length = apart(window.span, tick)
    onto, store = grid(window.start, window.end, length), store_of(hub)
    span = (onto.start, window.end)
    wheres = [{"cluster": cluster, "node": node} for node in nodes]
    return over_time(
        onto,
        nodes,
        [store.series(GPU.name, GPU_FIELDS, where, span, length) for where in wheres],
        [store.series(PORT.name, PORT_FIELDS, where, span, length) for where in wheres],
        [store.series(NODE.name, HOST_FIELDS, where, span, length) for where in wheres],
    )


def incidents(
    hub: Hub, cluster: str, nodes: Sequence[str], holder: str, since: datetime, now: datetime
) -> Sequence[Incident]:
    """Return incidents on its nodes, or naming it, since it began; only those of the last 30 days."""
    found = incidents_of(hub, now, cluster)
    mine = of_nodes(found, [Subject(cluster=cluster, node=node) for node in nodes])
    mine += [one for one in found if holder in one.impact.holders]
    return [one for one in mine if one.resolved_at is None or one.resolved_at >= since]


def stood(found: Iterable[Incident], active: Iterable[Incident]) -> Sequence[Incident]:
    """Merge the incidents that were read with all open ones, newest first, each in its newest version."""
    known = {one.id: one for one in sorted((*found, *active), key=lambda one: one.version)}
    return sorted(known.values(), key=lambda one: (one.since, one.id), reverse=True)
