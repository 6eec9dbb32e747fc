"""The content of an incident, from what looks at the fleet find. Nothing here does I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from gpuvigil.faults import FAULTS
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.lifecycle import State
from gpuvigil.model import Impact, Incident, Severity
from gpuvigil.silence_conditions import PLAIN

from ..correlation.breaker import is_cluster_wide
from ..correlation.observation import Candidate
from ..window.fault_kinds import SLOW_JOBS
from .returning import is_repaired

# More covered incidents would make the record of a large outage unreadable.
_MOST_COVERS = 100
# Nobody reads more dates of earlier failures than that.
_MOST_EARLIER = 20


def suspect(candidate: Candidate, now: datetime) -> Incident:
    """Return a new incident that one look has found."""
    finding = candidate.finding
    opened = now.astimezone(timezone.utc).strftime("%Y%m%dT%H%M%S%fZ")
    return Incident(
        id=f"{finding.fingerprint}-{opened}",
        fingerprint=finding.fingerprint,
        fault=finding.fault,
        subject=finding.subject,
        severity=candidate.severity,
        state=State.SUSPECT.value,
        title=candidate.title,
        since=finding.since,
        updated_at=now,
        version=0,
        late=finding.late,
        condition=finding.condition,
        xid=finding.xid,
        sxid=finding.sxid,
        group=finding.group,
    )


def urgency(severity: Severity, impact: Impact) -> tuple[bool, bool]:
    """Tell whether an incident stops jobs now, and whether it is critical."""
    critical = severity is Severity.CRITICAL
    return critical and impact.running, critical


def _who_is_hit(incident: Incident) -> Any:
    """Return who is hit, for comparison; None for a whole cluster, whose jobs change every minute."""
    hit = incident.impact
    return None if is_cluster_wide(incident) else (hit.gpus, hit.holders, hit.users)


# The change that its nodes went out of service, or are back.
SERVICE = "service"

# Changes that make a transition; numbers in the evidence drift without one.
_MATERIAL: Mapping[str, Any] = {
    "severity": lambda incident: incident.severity,
    "title": lambda incident: incident.title,
    "impact": _who_is_hit,
    "members": lambda incident: incident.members,
    "covers": lambda incident: incident.covers,
    "lateness": lambda incident: incident.late,
    SERVICE: lambda incident: incident.out_of_service,
}


def changed(old: Incident, new: Incident) -> list[str]:
    """Return the names of what changed so much that it makes a transition."""
    return [name for name, read in _MATERIAL.items() if read(old) != read(new)]


def reason_of(names: Iterable[str], new: Incident) -> str:
    """Return the reason of a change in words; `names` are what changed."""
    others = [name for name in names if name != SERVICE]
    parts = [", ".join(others) + " changed"] if others else []
    if SERVICE in names:
        out = new.out_of_service
        parts.append("in service again" if out is None else f"out of service: {out.reason}")
    return "; ".join(parts)


def with_earlier(old: Incident, new: Incident) -> Incident:
    """Add the previous time it began to `earlier`, if it is a fault that a repair was to end."""
    if not is_repaired(old):
        return new
    return replace(new, earlier=(*old.earlier, old.since)[-_MOST_EARLIER:])


def by_its_name(old: Incident, candidate: Candidate) -> Candidate:
    """Keep the known reason of a slow job that comes back, unless the new finding names another."""
    unnamed = candidate.finding.condition in PLAIN
    if old.fault not in SLOW_JOBS or old.condition in PLAIN or not unnamed:
        return candidate
    return in_words_of(old, candidate)


def in_words_of(old: Incident, candidate: Candidate) -> Candidate:
    """Return the candidate with the verdict of the incident as it stands."""
    finding = replace(
        candidate.finding,
        condition=old.condition,
        action=old.action,
        source=old.source,
        own_limit=old.own_limit,
    )
    return replace(candidate, title=old.title, finding=finding)


def verdict(condition: str) -> str:
    """Return the verdict in a condition, empty where it only says that the fault is there."""
    return "" if condition in PLAIN else condition


def _rank_of_words(incident: Incident) -> int:
    """Return the severity rank of the incident's words: its own may come from what it covers."""
    row = CONDITIONS.get(incident.condition) or FAULTS.get(incident.condition)
    if incident.condition in PLAIN and (incident.xid, incident.sxid) == (None, None):
        row = FAULTS.get(incident.fault)
    return max(incident.severity.rank, 0 if row is None else row.severity.rank)


def updated(incident: Incident, candidate: Candidate) -> Incident:
    """Return the incident in the candidate's words; the same object if nothing changes.

    While an incident stands, its severity only rises and what it covers only grows, as covered
    faults can often not be seen any more. So the graver words stay, too: a memory with a storm of
    corrected errors and then fewer is not one with only a few. `late` ends for good with the first
    data that is in time.
    """
    finding = candidate.finding
    said: dict[str, Any] = {
        "severity": min(incident.severity, candidate.severity, key=lambda s: s.rank),
        "since": min(incident.since, finding.since),
        "impact": candidate.impact,
        "evidence": finding.evidence,
        "members": _with(incident.members, candidate.members),
        "covers": _with(incident.covers, candidate.covers)[:_MOST_COVERS],
        "label": candidate.label,
        "gpus": candidate.gpus,
        "late": incident.late and finding.late,
        "out_of_service": candidate.out_of_service,
    }
    if min(candidate.severity.rank, finding.severity.rank) <= _rank_of_words(incident):
        said |= {"title": candidate.title, "action": finding.action, "source": finding.source}
        said["own_limit"] = finding.own_limit
        said |= {"condition": finding.condition, "xid": finding.xid, "sxid": finding.sxid}
        said["fault"] = finding.fault  # a port's may have become that of its leaf
    # Most active incidents say the same at every look.
    if all(getattr(incident, name) == value for name, value in said.items()):
        return incident
    return replace(incident, **said)


def _with(names: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return the union of two sorted tuples of names, sorted."""
    return names if names == more else tuple(sorted({*names, *more}))
