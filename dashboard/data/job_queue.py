"""A cluster's job queue, made from what the scheduler reports and what the nodes show."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from accounting.queueing import Queue, Room, Wait, queue
from gpuvigil.model import GpuState, Job, Scheduler
from gpuvigil.numbers_in_words import counted

from ..model.cluster import ClusterView
from ..model.gpus import STATES, DisplayState

_ORDER = (Wait.BACKFILL, Wait.FRAGMENTATION, Wait.QUOTA, Wait.RESERVATION, Wait.FAULTY)


def rooms(cluster: ClusterView, schedulers: Iterable[Scheduler]) -> dict[str, Room]:
    """Return every node's free GPUs and the scheduler's states for the node."""
    states: dict[str, tuple[str, ...]] = {}
    for one in schedulers:
        if one.told_by.cluster == cluster.name:
            states |= {node.name: node.states for node in one.nodes or ()}
    # Computed with columns, since it is done for each open page.
    # Free GPUs of nodes that are out of service count too, so that the sentence can name them.
    nobodys = (cluster.gpus.state == STATES.index(GpuState.FREE)) | (
        (cluster.gpus.look == DisplayState.OUT) & (cluster.gpus.held == 0)
    )
    before = np.concatenate([[0], np.cumsum(nobodys)])
    return {
        node.node: Room(
            free=int(before[span.stop] - before[span.start]),
            gpus=span.stop - span.start,
            states=states.get(node.node, ()),
        )
        for node, span in zip(cluster.layout.nodes, cluster.layout.spans, strict=True)
        if span.stop > span.start
    }


def queue_of(
    cluster: ClusterView, jobs: Iterable[Job], schedulers: Sequence[Scheduler]
) -> Queue | None:
    """Return a cluster's queue; None if no scheduler is asked."""
    if not any(one.told_by.cluster == cluster.name for one in schedulers):
        return None
    own = [job for job in jobs if job.told_by.cluster == cluster.name and job.state == "PENDING"]
    return queue(own, rooms(cluster, schedulers))


def sentence(found: Queue) -> str:
    """Return a text like `14 jobs wait for 96 GPUs while nobody holds 24: 16 fragmentation, 8 faulty nodes`.

    GPUs of nodes that are out of service are among the 24 and are not called free.
    """
    if not found.jobs:
        return "no job waits"
    jobs = f"{found.jobs:,} job{' waits' if found.jobs == 1 else 's wait'}"
    said = f"{jobs} for {counted(found.gpus, 'GPU')}"
    if not found.free:
        return f"{said}; no GPU is free"
    if not found.free_while_queued:
        return f"{said}; {found.free:,} unallocated, all usable"
    why = ", ".join(f"{found.kept[it]:,} {it.value}" for it in _ORDER if found.kept.get(it))
    return f"{said} while nobody holds {found.free:,}; queued but free: {why}"


def unknown(schedulers: Iterable[Scheduler]) -> Mapping[str, str]:
    """Return by cluster why its scheduler does not answer; its queue is then an old one."""
    return {one.told_by.cluster: one.why for one in schedulers if one.why}
