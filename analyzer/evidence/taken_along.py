"""What a node that fell silent had on it: the jobs that it took along, or nothing."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from gpuvigil.model import Allocation, HolderKind, Subject

from ..window.window import Window

_SUCCESS = "0:0"
_OF_SCHEDULERS = frozenset({HolderKind.JOB, HolderKind.POD})


def jobs(window: Window, node: Subject) -> list[Allocation]:
    """What a scheduler has or lately had on the node."""
    return [a for a in _held(window, node) if _is_job(a)]


def held_on(window: Window, node: Subject) -> list[Allocation]:
    """The jobs and pods that have or lately had one of its GPUs: programs that somebody started by hand are none."""
    return [a for a in _held(window, node) if a.holder.kind in _OF_SCHEDULERS]


def lost_jobs(window: Window, node: Subject, went: datetime) -> list[Allocation]:
    """Those of them that the node took along when it went."""
    return [
        a for a in jobs(window, node) if a.started_at <= went and not _was_over(window, a, went)
    ]


def was_free(window: Window, node: Subject, since: datetime) -> bool:
    """Whether nobody held any of its GPUs then, as far as its cluster's holders are told.

    A job that ended between the node's last body and the next one, nobody knows how, may have ended
    with the node: that it was free nobody can say, nor that it lost the job.
    """
    if node.key not in window.inventories:
        return False
    return all(
        a.started_at > since or (_was_over(window, a, since) and not _may_be_lost(a, since))
        for a in _held(window, node)
    )


def was_cut_off(allocation: Allocation) -> bool:
    """Whether it failed: a job whose end nobody tells may have been done."""
    return allocation.exit_code not in {None, _SUCCESS}


def _was_over(window: Window, allocation: Allocation, since: datetime) -> bool:
    """Whether it had ended when the node went, which was between its last body and the next one.

    What a node takes along ends when somebody misses it, mostly after minutes; it fails then.
    """
    ended_at, tick = allocation.ended_at, window.tick_seconds(allocation.subject.of_node())
    if ended_at is None or (ended_at > since and was_cut_off(allocation)):
        return False
    return ended_at <= since + timedelta(seconds=tick)


def _may_be_lost(allocation: Allocation, since: datetime) -> bool:
    """Whether it ended after the node's last body, by a scheduler that does not say how."""
    ended_at = allocation.ended_at
    unknown = _is_job(allocation) and allocation.exit_code is None
    return unknown and ended_at is not None and ended_at > since


def _is_job(allocation: Allocation) -> bool:
    return allocation.holder.kind is HolderKind.JOB


def _held(window: Window, node: Subject) -> Iterator[Allocation]:
    """Who has or lately had one of the node's GPUs."""
    inventory = window.inventories.get(node.key)
    for gpu in () if inventory is None else inventory.gpus:
        key = Subject(cluster=node.cluster, node=node.node, gpu=gpu.uuid).key
        yield from window.allocations.get(key, ())
