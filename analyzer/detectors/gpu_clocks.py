"""A GPU whose clocks stay low under load, without anything that explains it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuvigil.clock import micros
from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Incident, Severity, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence.grouping import one_of_node
from ..evidence.job_pace import PEERS, held_since, jobs, stands_out
from ..evidence.node_clocks import NEEDS as OF_NODES
from ..evidence.node_clocks import NodeBelow, nodes_below_their_jobs
from ..evidence.own_steps import runs_lower
from ..evidence.power import limits
from ..evidence.set_clocks import ACTION, CONDITION, HEAT_OR_BRAKE, REASONS, SOMEBODY_SET, TITLE
from ..window.columns import (
    Floats,
    Mask,
    clusters,
    combined_codes,
    models,
    nodes,
    per_group,
    seconds,
    stacked_memory,
)
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

_CAP = Aggregate(function=Function.INCREASE, field="power_cap_seconds")
_WATTS = Aggregate(function=Function.MAX, field="power_watts")
_LIMIT = Aggregate(function=Function.MAX, field="power_limit_watts")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clock:
    """A clock that a GPU under load keeps near its maximum."""

    name: str
    at: Aggregate
    highest: Aggregate
    of_memory: bool  # HBM keeps its clock at any power limit


_CLOCKS = (
    _Clock(
        name="SM clock",
        at=Aggregate(function=Function.MAX, field="sm_clock_hertz"),
        highest=Aggregate(function=Function.MAX, field="sm_clock_max_hertz"),
        of_memory=False,
    ),
    _Clock(
        name="memory clock",
        at=Aggregate(function=Function.MAX, field="memory_clock_hertz"),
        highest=Aggregate(function=Function.MAX, field="memory_clock_max_hertz"),
        of_memory=True,
    ),
)
_BUSY = Aggregate(function=Function.MEAN, field="utilization_percent")
NEEDS = (
    Need(
        measurement="gpu",
        span=Span.STEADY,
        aggregates=(
            *(_BUSY, REASONS, _CAP, _WATTS, _LIMIT, *HEAT_OR_BRAKE),
            *(it for c in _CLOCKS for it in (c.at, c.highest)),
        ),
    ),
    *OF_NODES,
)

_FAULT = FAULTS["gpu_clocks"]
_SEVERAL = "Clocks of several GPUs of the node do not rise under load"
# An idle GPU saves power; one that works now and then reaches its clock in at least one of many samples.
_LOW, _BUSY_PERCENT = 0.9, 10.0
# A clock that somebody set is set on the whole node. So both the cluster's other GPUs of the model and the
# node's other GPUs under load must be higher by this factor.
_PEERS_HIGHER, _PEERS = 1.08, 3
_EXPLAINED_SHARE, _COVERAGE = 0.1, 0.8
# Where nobody reads how long the power limit held a GPU's clock down, as with dcgm-exporter by default, one that
# drew this share of its limit may have been held down all the time (ours).
_AT_LIMIT = 0.95
# A job's GPUs do the same work, so a smaller gap between them is reported; the node's other GPUs must then be
# higher by this factor.
_NODE_HIGHER = 1.04


def would_show_stuck_clocks(window: Window, incident: Incident) -> bool | None:
    """Return whether any GPU of the incident was busy over the steady span; the clocks of an idle one are low anyway.

    None where utilization is not read, as on a GPU that MIG has split.
    """
    rows = window.get("gpu", Span.STEADY)
    gpus = {incident.subject, *map(Subject.parse, incident.members)}
    found = [row for gpu in sorted(gpus) if (row := rows.get(gpu)) is not None]
    if not found:
        return False
    busy = [row[_BUSY.column] for row in found if row[_BUSY.column] is not None]
    return bool(max(busy) >= _BUSY_PERCENT) if busy else None


def stuck_clocks(window: Window) -> list[Finding]:
    """Return one finding per GPU, or per node with several, whose clocks stay low under load without an explanation.

    These GPUs were busy over the whole steady span and never near their maximum clock. A note is added for each
    node whose clocks somebody may have set while a job on other nodes waits for it.
    """
    rows = window.get("gpu", Span.STEADY)
    busy = rows.values(_BUSY.column) >= _BUSY_PERCENT
    busy &= seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    low = [(clock, _stuck(window, rows, busy, clock)) for clock in _CLOCKS]
    found = np.logical_or.reduce([its.stuck for _, its in low])
    stuck = [
        _finding(
            window,
            subject,
            row,
            [(clock, float(its.usual[place])) for clock, its in low if its.stuck[place]],
            is_note=all(its.may_be_set[place] for _, its in low if its.stuck[place]),
        )
        for place, (subject, row) in zip(
            np.flatnonzero(found).tolist(), rows.where(found), strict=True
        )
    ]
    told = one_of_node(stuck, _SEVERAL)
    known = {one.subject.of_node() for one in told}
    below = nodes_below_their_jobs(window, _stand(window))
    return [*told, *(_set(window, one) for one in below if one.node not in known)]


def _stand(window: Window) -> frozenset[Subject]:
    """Return the nodes with an open incident which says that their clocks may have been set."""
    return frozenset(
        one.subject.of_node()
        for one in window.active_incidents
        if one.fault == _FAULT.key and one.condition == CONDITION
    )


def _set(window: Window, one: NodeBelow) -> Finding:
    """Build a note on a node whose clocks may have been set: no hardware is to blame, and whoever set them may
    know why.
    """
    row = Row(window.get("gpu", Span.STEADY), one.row)
    minutes = window.settings.steady_seconds / 60.0
    past = window.settings.trend_seconds / 60.0
    return Finding(
        fault="gpu_clocks",
        subject=one.node,
        severity=Severity.INFO,
        since=row["first_at"],
        evidence=(
            Evidence(name="GPUs", value=f"{len(one.gpus)} of the node"),
            Evidence(
                name="SM clock",
                value=f"{one.hertz / 1e6:.0f} MHz at most in {minutes:g} min",
                peers=f"{one.usual / 1e6:.0f} MHz on {one.others} GPUs of the job on other nodes",
            ),
            *(
                [Evidence(name="before", value=f"{one.before / 1e6:.0f} MHz within {past:g} min")]
                if one.before is not None
                else []
            ),
        ),
        detector="gpu_clocks",
        title=TITLE,
        condition=CONDITION,
        action=ACTION,
        source="ours: its job's GPUs on other nodes, and each GPU's own clock of half an hour",
        own_limit=True,
        members=one.gpus,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Low:
    """How one clock stands on each GPU, one element per row."""

    stuck: Mask
    usual: Floats  # the share of its maximum that the cluster's other GPUs reach
    may_be_set: Mask  # neither the node's other GPUs nor the driver say whether somebody set it


def _stuck(window: Window, rows: Rows, busy: Mask, clock: _Clock) -> _Low:
    """Return on which GPUs this clock is stuck."""
    share = np.divide(rows.values(clock.at.column), rows.values(clock.highest.column))
    share[~busy] = np.nan
    usual, peers = per_group(combined_codes(clusters(rows), models(window, rows)), share)
    of_node, at_work = per_group(combined_codes(nodes(rows), models(window, rows)), share)
    reasons = rows.values(REASONS.column)
    stuck = (share < _LOW) & (share * _PEERS_HIGHER < usual) & (peers >= _PEERS)
    stuck &= (share * _PEERS_HIGHER < of_node) | (at_work < 2)
    of_job, below = _below_its_job(window, rows, share)
    # Not somebody's setting: all GPUs of the node would have that.
    below &= (share * _NODE_HIGHER < of_node) | (at_work < 2)
    below &= ~np.isnan(rows.values(_CAP.column))
    usual = np.where(below, of_job, usual)
    stuck |= below
    stuck &= _explained(window, rows, clock) < _EXPLAINED_SHARE * window.settings.steady_seconds
    stuck &= (np.nan_to_num(reasons).astype(np.int64) & SOMEBODY_SET) == 0
    return _Low(stuck=stuck, usual=usual, may_be_set=(at_work < 2) & np.isnan(reasons))


def _below_its_job(window: Window, rows: Rows, share: Floats) -> tuple[Floats, Mask]:
    """Return the clock share that the other GPUs of each row's job reach, and which rows stay clearly below it.

    A job's GPUs do the same work. Only GPUs that the job has held over the whole steady span count.
    """
    begin = micros(window.now) - window.settings.steady_seconds * 1e6
    held = (jobs(window, rows) != 0) & (window.of_allocations(rows, held_since) <= begin)
    job = combined_codes(jobs(window, rows), models(window, rows))
    clock = np.log(np.where(held & (share > 0.0), share, np.nan))
    usual, count = per_group(job, clock)
    lower = runs_lower(job, clock - usual, count) & (count >= PEERS)
    return np.exp(usual), lower & stands_out(job, clock - usual, lower)


def _explained(window: Window, rows: Rows, clock: _Clock) -> Floats:
    """Return for how many seconds heat, the power brake or the power limit held this clock down.

    The power limit counts only where it lowers this clock.
    """
    capped = rows.values(_CAP.column)
    at_limit = rows.values(_WATTS.column) >= _AT_LIMIT * limits(window, rows, _LIMIT.column)
    unread = np.where(at_limit, window.settings.steady_seconds, 0.0)
    capped = np.where(np.isnan(capped), unread, capped)
    if clock.of_memory:
        capped = np.where(stacked_memory(window, rows), 0.0, capped)
    held: Floats = capped + sum(np.nan_to_num(rows.values(it.column)) for it in HEAT_OR_BRAKE)
    return held


def _finding(
    window: Window,
    subject: Subject,
    row: Row,
    low: Sequence[tuple[_Clock, float]],
    *,
    is_note: bool,
) -> Finding:
    """Build a GPU's finding from its low clocks, each with the share of its maximum that the peers reach."""
    minutes = window.settings.steady_seconds / 60.0
    return Finding(
        fault="gpu_clocks",
        subject=subject,
        severity=Severity.INFO if is_note else _FAULT.severity,
        since=row["first_at"],
        evidence=(
            *(
                Evidence(
                    name=clock.name,
                    value=f"{row[clock.at.column] / 1e6:.0f} MHz at most in {minutes:g} min",
                    limit=f"{row[clock.highest.column] / 1e6:.0f} MHz",
                    peers=f"{usual * row[clock.highest.column] / 1e6:.0f} MHz",
                )
                for clock, usual in low
            ),
            Evidence(name="utilisation", value=f"{row[_BUSY.column]:.0f} %"),
        ),
        detector="gpu_clocks",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


DETECTOR = Detector(
    name="gpu_clocks",
    find=stuck_clocks,
    faults=found_by("gpu_clocks"),
    needs=NEEDS,
    sentence="A GPU whose clocks stay low under load, though neither power nor heat says why.",
    source="clock event counters, and the cluster's other GPUs of the model",
    would_show=would_show_stuck_clocks,
)
