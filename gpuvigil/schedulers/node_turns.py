"""Since when nodes are out of service, from repeated looks: a scheduler reports only their current state."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from ..model import ScheduledNode, Scheduler
from .out_of_service import SPEAKS_FOR, kept_from_jobs

# Quarter-hours are counted minutes after their end, or never from these reports.
KEPT_FOR = SPEAKS_FOR
_MOST = 2000
Word = tuple[frozenset[str], str | None]


class NodeTurns:
    """Remembers the nodes that take no jobs, and for an hour their earlier states."""

    def __init__(self) -> None:
        self._looked = False
        self._active: dict[str, ScheduledNode] = {}
        self._left: tuple[ScheduledNode, ...] = ()

    def resume(self, before: Scheduler, now: datetime) -> None:
        """Continue from the last report before a restart: later differences happened in between.

        A report that is too old is ignored, since nobody could say in which hour the change
        happened.
        """
        if before.nodes is not None and now - before.at <= KEPT_FOR:
            self._looked, self._left = True, before.left
            self._active = {one.name: one for one in before.nodes if _word(one)[0]}

    def update(
        self, nodes: Iterable[ScheduledNode], at: datetime
    ) -> tuple[tuple[ScheduledNode, ...], tuple[ScheduledNode, ...]]:
        """Return one look's nodes with since when they are like this, and the recent earlier states of others."""
        told = tuple(self._since(one, at) for one in nodes)
        active = {one.name: one for one in told if _word(one)[0]}
        gone = [
            replace(one, until=at, gpus_used=None)
            for name, one in self._active.items()
            if name not in active or _word(active[name]) != _word(one)
        ]
        kept = (one for one in self._left if one.until is not None and one.until > at - KEPT_FOR)
        self._left = (*gone, *kept)[:_MOST]
        self._looked, self._active = True, active
        return told, self._left

    def _since(self, one: ScheduledNode, at: datetime) -> ScheduledNode:
        before = self._active.get(one.name)
        if before is not None and _word(before) == _word(one):
            return replace(one, since=before.since)
        return replace(one, since=at if self._looked and _word(one)[0] else None)


def _word(node: ScheduledNode) -> Word:
    """Return what makes a node's state new when it changes; whether jobs still run does not."""
    return kept_from_jobs(frozenset(node.states)), node.reason
