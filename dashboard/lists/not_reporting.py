"""Jobs on silent nodes: shown as soon as pages call a node silent, before there is an incident."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from accounting.jobs.bound import Bound, Decision
from gpuvigil.clock import moment as time_of
from gpuvigil.numbers_in_words import capitalized, counted

from ..model.cluster import ClusterView
from .jobs import JobNow


def with_silence(jobs: Iterable[JobNow], clusters: Iterable[ClusterView]) -> list[JobNow]:
    """Return the jobs with their silent nodes; if all of a job's nodes are silent, its bound is not known."""
    silent = {one.name: {it.name: it.heard_at for it in one.silent_nodes} for one in clusters}
    return [_with(job, silent.get(job.cluster, {})) for job in jobs]


def _with(job: JobNow, silent: Mapping[str, datetime | None]) -> JobNow:
    quiet = {name: silent[name] for name in job.nodes if name in silent}
    if not quiet:
        return job
    found = replace(job, not_reporting=quiet)
    if job.decision is None or len(quiet) < len(job.nodes):
        return found
    unknown = Decision(bound=Bound.UNKNOWN, text=_nodes(found), confidence=0.0)
    return replace(found, decision=unknown)


def not_reporting(job: JobNow) -> str:
    """Return `2 of its 4 nodes have not reported since ...`; empty if every node reports."""
    if not job.not_reporting:
        return ""
    said = _nodes(job)
    return f"{capitalized(said)}: whether it runs there is not known."


def _nodes(job: JobNow) -> str:
    names: Sequence[str] = [*job.not_reporting]
    heard = [at for at in job.not_reporting.values() if at is not None]
    has, is_ = ("has", "is") if len(names) == 1 else ("have", "are")
    which = f"{len(names)} of its {counted(len(job.nodes), 'node')}"
    if len(job.nodes) == 1:
        which = f"its node {names[0]}"
    if not heard:
        return f"{which} {is_} not reporting"
    return f"{which} {has} not reported since {time_of(min(heard))}"
