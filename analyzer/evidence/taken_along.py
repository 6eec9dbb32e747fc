"""What ran on a node that fell silent: the jobs that ended with it, or nothing."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from gpuvigil.model import Allocation, HolderKind, Subject

from ..window.window import Window

_SUCCESS = "0:0"
_OF_SCHEDULERS = frozenset({HolderKind.JOB, HolderKind.POD})


def jobs(window: Window, node: Subject) -> list[Allocation]:
    """Return the jobs that a scheduler has or recently had on a node."""
    return [a for a in _held(window, node) if _is_job(a)]


def held_on(window: Window, node: Subject) -> list[Allocation]:
    """Return the jobs and pods that have or recently had GPUs of a node, without bare programs."""
    return [a for a in _held(window, node) if a.holder.kind in _OF_SCHEDULERS]


def lost_jobs(window: Window, node: Subject, went: datetime) -> list[Allocation]:
    """Return the jobs that were running on a node when it went, and so were lost with it."""
    return [
        a for a in jobs(window, node) if a.started_at <= went and not _was_over(window, a, went)
    ]


def was_free(window: Window, node: Subject, since: datetime) -> bool:
    """Tell whether nobody held a node's GPUs at `since`, as far as its cluster's holders are known.

    A job that ended between the node's last body and the next one, in an unknown way, may have
    ended with the node: then the node is neither known to be free nor to have lost the job.
    """
    if node.key not in window.inventories:
        return False
    return all(
        a.started_at > since or (_was_over(window, a, since) and not _may_be_lost(a, since))
        for a in _held(window, node)
    )


def got_work(window: Window, node: Subject, since: datetime, until: datetime) -> bool:
    """Tell whether a scheduler gave a node a job between these times, so that it was there for it."""
    return any(since < a.started_at <= until for a in _held(window, node))


def was_cut_off(allocation: Allocation) -> bool:
    """Tell whether an allocation failed; a job with an unknown exit code may have been done."""
    return allocation.exit_code not in {None, _SUCCESS}


def _was_over(window: Window, allocation: Allocation, since: datetime) -> bool:
    """Tell whether an allocation had ended when its node went, between its last body and the next.

    A job that is lost with its node fails, mostly minutes later, when somebody misses it.
    """
    ended_at, tick = allocation.ended_at, window.tick_seconds(allocation.subject.of_node())
    if ended_at is None or (ended_at > since and was_cut_off(allocation)):
        return False
    return ended_at <= since + timedelta(seconds=tick)


def _may_be_lost(allocation: Allocation, since: datetime) -> bool:
    """Tell whether a job ended after its node's last body without an exit code."""
    ended_at = allocation.ended_at
    unknown = _is_job(allocation) and allocation.exit_code is None
    return unknown and ended_at is not None and ended_at > since


def _is_job(allocation: Allocation) -> bool:
    return allocation.holder.kind is HolderKind.JOB


def _held(window: Window, node: Subject) -> Iterator[Allocation]:
    """Yield the current and recent allocations of a node's GPUs."""
    inventory = window.inventories.get(node.key)
    for gpu in () if inventory is None else inventory.gpus:
        key = Subject(cluster=node.cluster, node=node.node, gpu=gpu.uuid).key
        yield from window.allocations.get(key, ())
