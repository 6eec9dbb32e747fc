"""Whether the jobs behind a port that lost its link stopped with it.

A link may be back within seconds, and then nobody need be told. Where a job over several nodes stands still
since, people already wait: its GPUs, on other nodes as well, draw less than before, since they only spin in a
collective.
"""

from collections.abc import Iterator
from datetime import timedelta

import numpy as np

from gpuvigil.clock import micros
from gpuvigil.model import EventKind, Evidence, Subject
from gpuvigil.numbers_in_words import counted
from gpuvigil.store import Aggregate, Function

from ..window.holdings import Holding, holder_key
from ..window.window import Need, Span, Window
from .port_drops import SAME_NAME, Drop, drop_of, may_share_switch, racks_of
from .power import least_at_work, limits

_WATTS = Aggregate(function=Function.MEAN, field="power_watts")
_LIMIT = "power_limit_watts"
NEEDS = (
    Need(measurement="gpu", span=Span.NOW, fields=(_WATTS.field, _LIMIT)),
    Need(measurement="gpu", span=Span.STEADY, aggregates=(_WATTS,)),
)
# A GPU that spins draws at most this share of what it drew while it worked; this share of the job's GPUs that
# were read since the loss do so, on two nodes at least [ours].
_SPINS, _MOST, _NODES = 0.7, 0.8, 2
# NVML's power is a mean over the last second (nvml.h, nvmlDeviceGetPowerUsage).
_MEAN = timedelta(seconds=1)


def stopped_jobs(window: Window, drop: Drop) -> Evidence | None:
    """Return evidence that a job stopped when the port lost its link, None where nothing says so."""
    whole = window.whole or window
    told = [it for job in _jobs(whole, drop.port.of_node()) if (it := _stopped(whole, job, drop))]
    return Evidence(name="its job stopped", value="; ".join(told)) if told else None


def is_alone(window: Window, drop: Drop) -> bool:
    """Tell whether no port of another node, which one switch may share, went down at about the same time."""
    whole = window.whole or window
    racks = racks_of(whole)
    others = (
        drop_of(whole, event)
        for event in whole.all_events(EventKind.PORT_DOWN)
        if event.subject.of_node() != drop.port.of_node()
    )
    return not any(
        abs(it.at - drop.at) <= SAME_NAME and may_share_switch(drop.port, it.port, racks)
        for it in others
    )


def _jobs(window: Window, node: Subject) -> Iterator[Holding]:
    """Yield the jobs over several nodes that have GPUs on a node."""
    inventory = window.inventories.get(node.key)
    keys = {
        holder_key(held)
        for known in (() if inventory is None else inventory.gpus)
        for held in window.held(Subject(cluster=node.cluster, node=node.node, gpu=known.uuid))
    }
    jobs = (window.holdings[key] for key in sorted(keys) if key in window.holdings)
    return (job for job in jobs if len(job.nodes) > 1)


def _stopped(window: Window, job: Holding, drop: Drop) -> str:
    """Say how many of a job's GPUs stopped working with the link; empty where not nearly all did."""
    rows = window.get("gpu", Span.NOW)
    places = [rows.index.number(gpu) for gpu in job.gpus] if len(rows) else []
    mine = np.array([place for place in places if place is not None], dtype=np.int64)
    steady = window.get("gpu", Span.STEADY)
    before = steady.beside(rows, _WATTS.column)[mine]
    limit = limits(window, rows, _LIMIT)[mine]
    watts = rows.values(_WATTS.field)[mine]
    read = (before >= least_at_work(limit)) & ~np.isnan(watts)
    read &= rows.values("at")[mine] >= micros(drop.at + _MEAN)
    spins = mine[read & (watts <= _SPINS * before)]
    nodes = {rows.subjects[number].of_node() for number in spins.tolist()}
    if len(nodes) < _NODES or len(spins) < _MOST * np.count_nonzero(read):
        return ""
    return f"{job.name}: {len(spins)} of its {counted(len(job.gpus), 'GPU')} draw at least 30 % less power"
