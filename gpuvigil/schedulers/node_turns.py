"""Since when nodes are out of service, by one who looks again and again: a scheduler tells only how they are."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from ..model import ScheduledNode, Scheduler
from .out_of_service import SPEAKS_FOR, kept_from_jobs

# Whoever counts a quarter of an hour does so minutes after its end, or not at all by what was said.
KEPT_FOR = SPEAKS_FOR
_MOST = 2000
Word = tuple[frozenset[str], str | None]


class NodeTurns:
    """Remembers the nodes that take no jobs, and for an hour what they were before."""

    def __init__(self) -> None:
        self._looked = False
        self._standing: dict[str, ScheduledNode] = {}
        self._left: tuple[ScheduledNode, ...] = ()

    def resume(self, before: Scheduler, now: datetime) -> None:
        """Go on from what was said before a restart: what is other at the next look turned meanwhile.

        Not from what is so old that nobody could say in which hour it did.
        """
        if before.nodes is not None and now - before.at <= KEPT_FOR:
            self._looked, self._left = True, before.left
            self._standing = {one.name: one for one in before.nodes if _word(one)[0]}

    def take(
        self, nodes: Iterable[ScheduledNode], at: datetime
    ) -> tuple[tuple[ScheduledNode, ...], tuple[ScheduledNode, ...]]:
        """All nodes that are told at one look, with since when they are so; and how others were until lately."""
        told = tuple(self._since(one, at) for one in nodes)
        standing = {one.name: one for one in told if _word(one)[0]}
        gone = [
            replace(one, until=at, gpus_used=None)
            for name, one in self._standing.items()
            if name not in standing or _word(standing[name]) != _word(one)
        ]
        kept = (one for one in self._left if one.until is not None and one.until > at - KEPT_FOR)
        self._left = (*gone, *kept)[:_MOST]
        self._looked, self._standing = True, standing
        return told, self._left

    def _since(self, one: ScheduledNode, at: datetime) -> ScheduledNode:
        before = self._standing.get(one.name)
        if before is not None and _word(before) == _word(one):
            return replace(one, since=before.since)
        return replace(one, since=at if self._looked and _word(one)[0] else None)


def _word(node: ScheduledNode) -> Word:
    """What is new when it changes: which jobs are still there is not."""
    return kept_from_jobs(frozenset(node.states)), node.reason
