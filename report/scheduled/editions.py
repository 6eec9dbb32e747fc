"""A team's edition: what the team held, and nothing about anybody else."""

from dataclasses import replace

import pyarrow.compute as pc

from accounting.efficiency.inefficient_hours import WasteHour
from accounting.jobs.losses import Loss
from accounting.usage import Bucket, Seconds, Usage
from accounting.usage.columns import SHARES, Rows, shares_of, table_of
from gpuvigil.model import Incident

from ..inputs.facts import Facts, SpanData, Week
from ..model.content import Capacity, Report

_FIGURES = ("used_of_allocated_percent", "idle_held_gpu_hours", "energy_kwh")
_SUMMED = ("allocated", "measured", "used", "idle", "energy_joules")
_SHEETS = ("users", "projects", "partitions", "jobs", "energy", "work_lost", "network")


def of_team(facts: Facts, team: str) -> Facts:
    """Return the facts as if nobody but the team had been there."""
    return replace(
        facts,
        team=team,
        now=_past(facts.now, team),
        earlier=_past(facts.earlier, team),
        lately=_theirs(facts.lately, team),
        opinions=(),
        lost=None if facts.lost is None else _lost(facts.lost, team),
        ran_again=(),
        returns=(),
        inventories=(),
        history=tuple(_week(one, team) for one in facts.history),
    )


def only_theirs(report: Report) -> Report:
    """Return the parts of a report on a team's facts that are about the team."""
    return replace(
        report,
        figures=tuple(one for one in report.figures if one.key in _FIGURES),
        sheets=tuple(one for one in report.sheets if one.key in _SHEETS),
        points=(),
        hours=(),
        days=(),
        parts=(),
        capacity=Capacity(),
        scattered_gpu_hours=0.0,
        troubles=(),
        more_troubles=0,
    )


def _past(past: SpanData, team: str) -> SpanData:
    buckets = tuple(_bucket(one, team) for one in past.usage.buckets)
    usage = past.usage
    return SpanData(
        usage=Usage(cluster=usage.cluster, start=usage.start, end=usage.end, buckets=buckets),
        incidents=_theirs(past.incidents, team),
        wastes=tuple(_waste(one, team) for one in past.wastes),
    )


def _bucket(bucket: Bucket, team: str) -> Bucket:
    everybody = table_of(bucket.shares, SHARES)
    theirs = everybody.filter(pc.equal(everybody["account"], team))
    # Of most quarters nobody looks at a single holder.
    shares = Rows(theirs, shares_of)
    gpus, *sums = (pc.sum(theirs[name]).as_py() or 0 for name in ("gpus", *_SUMMED))
    told = {name: float(value) for name, value in zip(_SUMMED, sums, strict=True)}
    held = told["allocated"]
    seconds = Seconds(installed=held, active=held - told["idle"], powered=held, **told)
    return replace(bucket, gpus=gpus, nodes=0, seconds=seconds, shares=shares, places=(), out=None)


def _theirs(found: tuple[Incident, ...], team: str) -> tuple[Incident, ...]:
    """Return the incidents that hit this team alone, so that no other names are disclosed."""
    return tuple(one for one in found if set(one.impact.accounts) == {team})


def _lost(found: tuple[Loss, ...], team: str) -> tuple[Loss, ...]:
    return tuple(one for one in found if one.job.account == team)


def _waste(hour: WasteHour, team: str) -> WasteHour:
    wastes = tuple(one for one in hour.wastes if one.account == team)
    return replace(hour, wastes=wastes, scattered_gpus=0)


def _week(week: Week, team: str) -> Week:
    """Return an earlier span with the team's percent alone: which of its users it was is not known."""
    own = week.get("account", {}).get(team)
    return {"": {"": own}} if own is not None else {}
