"""The times when incidents held up a job, laid over what bounded it; pure.

A job with a lost GPU waits in its collectives, so it looks as if the network bounded it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from gpuvigil.model import Incident

from ..device.window import Window
from ..lists.jobs import JobNow
from .over_time import Run


def with_held_up(
    runs: Sequence[Run], incidents: Iterable[Incident], job: JobNow, window: Window, now: datetime
) -> Sequence[Run]:
    """Return the runs with the times when an incident held up the job replaced by runs of their own."""
    held = list(_held(incidents, job, window, now))
    left = list(runs)
    for one in held:
        left = [part for run in left for part in _without(run, one.start, one.end)]
    return sorted((*left, *held), key=lambda run: run.start)


def _held(
    incidents: Iterable[Incident], job: JobNow, window: Window, now: datetime
) -> Iterable[Run]:
    """Yield the times when incidents held up the job; where they overlap, the earlier one counts."""
    until = max(job.started_at, window.start)
    end = min(now, window.end)
    for one in sorted(filter(job.is_held_up_by, incidents), key=lambda it: (it.since, it.id)):
        begin, over = max(one.since, until), min(one.resolved_at or now, end)
        if over > begin:
            yield Run(start=begin, end=over, bound=None, text=one.title, held_by=one)
            until = over


def _without(run: Run, start: datetime, end: datetime) -> Iterable[Run]:
    """Yield the parts of a run before and after that span."""
    before, after = min(run.end, start), max(run.start, end)
    if run.start < before:
        yield replace(run, end=before)
    if after < run.end:
        yield replace(run, start=after)
