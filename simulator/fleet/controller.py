"""What a site's scheduler says about nodes that it does not hear."""

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from gpuvigil.clock import to_text
from gpuvigil.model import ScheduledNode, Scheduler
from gpuvigil.schedulers.out_of_service import NOT_RESPONDING

from .chance import Dice
from .life import AWAY, TAKEN_BACK
from .model import FleetSettings
from .plan import Plan

# The source of the reports; no node has its name.
_CONTROLLER = "controller"
# slurm.conf(5), SlurmdTimeout: a node that does not answer for this long is set down.
_SET_DOWN_SECONDS = 300.0
# `gpuvigil slurm` asks once a minute, and reports every ten minutes even when nothing is new.
_ASKED_EVERY_SECONDS, _REPORTS_EVERY_SECONDS = 60.0, 600.0


class Controller:
    """The reports of a scheduler that is read: dead machines, and in the same way those that only restart.

    A dead collector, or a way to the hub that is cut, does not keep a node from answering its scheduler.
    """

    def __init__(self, settings: FleetSettings, plan: Plan) -> None:
        self._settings, self._topology = settings, plan.topology
        self._unheard: list[tuple[float, float, int]] = []
        if not plan.topology.scheduler_read:
            return
        turns = [it for it in plan.life.life_events if it.kind in AWAY - TAKEN_BACK]
        down = [(it.subject[1], it.start, it.end) for it in turns]
        down += [(site.node, site.start, site.end) for _, site in plan.sites if site.machine_down]
        for node, start, end in down:
            dice = Dice(settings.seed, "asked", node, round(start))
            told, heard = (_ASKED_EVERY_SECONDS * dice.share() for _ in range(2))
            if start + _SET_DOWN_SECONDS < end:
                self._unheard.append((start + _SET_DOWN_SECONDS + told, end + heard, node))

    def reports(self, start: float, end: float) -> Iterator[Scheduler]:
        """Yield its reports of `[start, end)` seconds, in the order of time."""
        if not self._topology.scheduler_read:
            return
        first = math.ceil(start / _REPORTS_EVERY_SECONDS)
        times = {at for span in self._unheard for at in span[:2] if start <= at < end}
        times |= {
            number * _REPORTS_EVERY_SECONDS
            for number in range(first, math.ceil(end / _REPORTS_EVERY_SECONDS))
        }
        for seconds in sorted(times):
            at = self._settings.start + timedelta(seconds=seconds)
            told_by = replace(self._topology.node_subject(0), node=_CONTROLLER)
            yield Scheduler(
                told_by=told_by, at=at, answered_at=at, nodes=tuple(self._nodes(seconds))
            )

    def _nodes(self, seconds: float) -> Iterator[ScheduledNode]:
        for since, until, node in sorted(self._unheard):
            if since <= seconds < until:
                at = to_text(self._settings.start + timedelta(seconds=since))
                yield ScheduledNode(
                    name=self._topology.node_subject(node).node or "",
                    states=("DOWN", NOT_RESPONDING),
                    reason=f"Not responding [slurm@{at}]",
                )
