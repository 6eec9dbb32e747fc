"""Asks Slurm again and again, and ships what each answer has to tell."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from gpuvigil.clock import Clock
from gpuvigil.log import Log
from gpuvigil.model import Record, RecordKind, ScheduledNode, Scheduler, Subject, readable
from gpuvigil.schedulers.node_turns import NodeTurns

from .changes import Jobs, keep, kept
from .client import AskingError, Slurm
from .nodes import is_odd
from .pace import Pace

log = Log("slurm")

_REPORT_EVERY_SECONDS = 600.0
_MOST_NODES = 2000
_RECORDS_AT_ONCE = 500


class Watch:
    """Keeps the hub's picture of one Slurm cluster."""

    def __init__(
        self, slurm: Slurm, pace: Pace, directory: Path, told_by: Subject, clock: Clock
    ) -> None:
        self._slurm = slurm
        self._pace = pace
        self._jobs = Jobs(told_by, directory / "jobs.json")
        self._nodes_file = directory / "nodes.json"
        self._told_by = told_by
        self._clock = clock
        self._turns = NodeTurns()
        for before in readable(kept(self._nodes_file), Scheduler.from_record):
            if before.told_by == told_by:
                self._turns.resume(before, clock.now())
        self._reported: Scheduler | None = None
        self._reported_at = 0.0

    def run(self, stop: threading.Event, send: Callable[[Sequence[Record]], None]) -> None:
        """Look until `stop`; `send` takes at most 500 records at once."""
        while not stop.is_set():
            self.round(send)
            self._clock.wait(stop, self._pace.wait_seconds(self._clock.monotonic()))

    def round(self, send: Callable[[Sequence[Record]], None]) -> None:
        """One look, told, and only then remembered as told."""
        records = self._poll()
        for start in range(0, len(records), _RECORDS_AT_ONCE):
            send(records[start : start + _RECORDS_AT_ONCE])
        self._jobs.remember()
        said = [
            one
            for one in records
            if one.kind is RecordKind.SCHEDULER and one.body["nodes"] is not None
        ]
        if said:
            with suppress(OSError):  # which is said of the jobs
                keep(self._nodes_file, said)

    def _poll(self) -> list[Record]:
        """What is new of jobs and nodes, or why nothing is known."""
        begun, at = self._clock.monotonic(), self._clock.now()
        self._pace.begin(begun)
        try:
            jobs = self._slurm.jobs(at)
            seconds = self._clock.monotonic() - begun
            nodes = self._slurm.nodes()
        except AskingError as error:
            self._pace.end(answered=False)
            return self._if_changed(self._unknown(str(error), at))
        self._pace.end(answered=True)
        odd, left = self._turns.update(filter(is_odd, nodes), at)
        told = Scheduler(
            told_by=self._told_by,
            at=at,
            answered_at=at,
            nodes=_most(odd),
            query_seconds=round(seconds, 3),
            left=left,
        )
        return [*(job.to_record() for job in self._jobs.update(jobs, at)), *self._if_changed(told)]

    def _unknown(self, why: str, at: datetime) -> Scheduler:
        before = self._reported
        if before is None or before.why != why:
            log.warning("Slurm is unknown", why=why)
        answered_at = None if before is None else before.answered_at
        return Scheduler(told_by=self._told_by, at=at, why=why, answered_at=answered_at)

    def _if_changed(self, one: Scheduler) -> list[Record]:
        """What is as it was is told again now and then, so that its age says that somebody looks."""
        before, self._reported = self._reported, one
        if before is not None and before.why and not one.why:
            log.info("Slurm answers again")
        now = self._clock.monotonic()
        same = (
            before is not None
            and replace(
                before, at=one.at, answered_at=one.answered_at, query_seconds=one.query_seconds
            )
            == one
        )
        if same and now - self._reported_at < _REPORT_EVERY_SECONDS:
            return []
        self._reported_at = now
        return [one.to_record()]


def _most(odd: Sequence[ScheduledNode]) -> tuple[ScheduledNode, ...]:
    """Those with a reason first: where they are too many, what somebody wrote down is told."""
    return tuple(sorted(odd, key=lambda node: node.reason is None)[:_MOST_NODES])
