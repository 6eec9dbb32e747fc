"""Hardware incidents: how many of each kind, and the worst of them."""

from collections.abc import Iterable
from datetime import datetime
from itertools import count

from accounting.efficiency.idle_reason import IDLE
from gpuvigil.faults import FAULTS
from gpuvigil.faults.gpu_states import STOPPING
from gpuvigil.model import Incident, Severity, Subject

from ..model.content import Trouble
from ..model.rounding import HOUR, near

MOST_TROUBLES = 8
MOST_MARKS = 4
_MOST_EVIDENCE = 2


def is_hardware(incident: Incident) -> bool:
    """Return whether it is neither the idle rule nor of severity info: those are mostly program errors."""
    return incident.fault != IDLE and incident.severity is not Severity.INFO


def troubles(
    incidents: Iterable[Incident], start: datetime, end: datetime
) -> tuple[tuple[Trouble, ...], int]:
    """Return the worst eight incidents, and how many more there are.

    The order is by severity; then what stops work before what may slow it; then GPUs times duration. The
    first four that began within the span are numbered for the chart.
    """
    ordered = sorted(incidents, key=lambda one: _rank(one, start, end))
    first, numbers = ordered[:MOST_TROUBLES], count(1)
    rows = []
    for one in first:
        mark = next(numbers) if one.since >= start else MOST_MARKS + 1
        rows.append(_trouble(one, start, end, mark if mark <= MOST_MARKS else 0))
    return tuple(rows), len(ordered) - len(first)


def _rank(one: Incident, start: datetime, end: datetime) -> tuple[int, bool, float, datetime, str]:
    size = max(_hit(one), 1) * _seconds(one, start, end)
    return one.severity.rank, one.fault not in STOPPING, -size, one.since, one.id


def _trouble(one: Incident, start: datetime, end: datetime, mark: int) -> Trouble:
    evidence = [item.text for item in one.evidence if not item.detail][:_MOST_EVIDENCE]
    fault = FAULTS.get(one.fault)
    return Trouble(
        id=one.id,
        where=one.label or one.subject.key,
        title=one.title,
        severity=one.severity.value,
        since=one.since,
        hours=near(_seconds(one, start, end) / HOUR, 1),
        open=_is_open(one, end),
        gpus=_hit(one),
        evidence="; ".join(evidence),
        action=one.action or (fault.action if fault else ""),
        acknowledged_by=one.acknowledged_by,
        mark=mark,
    )


def fault_title(incident: Incident) -> str:
    """Return the title under which the incident is counted."""
    fault = FAULTS.get(incident.fault)
    return incident.title if fault is None or fault.by_xid else fault.title


def gpus_of(incident: Incident) -> frozenset[str]:
    """Return the keys of the GPUs that the incident covers."""
    return frozenset(key for key in (incident.subject.key, *incident.members) if _is_gpu(key))


def _hit(incident: Incident) -> int:
    """Return the number of GPUs that could not do their work, or that the incident is about."""
    return max(incident.impact.gpus, len(gpus_of(incident)))


def _is_gpu(key: str) -> bool:
    try:
        return Subject.parse(key).kind == "gpu"
    except ValueError:
        return False


def _seconds(one: Incident, start: datetime, end: datetime) -> float:
    until = min(one.resolved_at or end, end)
    return max((until - max(one.since, start)).total_seconds(), 0.0)


def _is_open(one: Incident, end: datetime) -> bool:
    return one.resolved_at is None or one.resolved_at > end
