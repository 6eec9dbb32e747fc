"""What needs a person, first things first, and whether anybody was told."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.faults.gpu_states import STOPPING
from gpuvigil.lifecycle import State
from gpuvigil.model import Evidence, Incident, Record, Severity, Subject
from gpuvigil.numbers_in_words import counted

from ..model.delivery_status import Told, told_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One standing incident, as the list shows it."""

    id: str
    title: str
    severity: Severity
    state: str
    simulated: bool
    subject: Subject
    label: str  # "sim-003 GPU 5"
    impact: str
    action: str
    source: str
    since: datetime
    evidence: tuple[Evidence, ...]
    covers: tuple[str, ...]
    told: tuple[Told, ...]
    incident: Incident
    now: str = ""  # how it goes, where that changes by the minute


def attention(
    incidents: Iterable[Incident],
    notices: Iterable[Record],
    now: datetime,
    states: Mapping[str, str] | None = None,
) -> tuple[Attention, ...]:
    """What stands, in the order in which people should go about it; `states` say how each goes.

    Real before simulated. Then by severity: no warning stands above a critical, however many GPUs it
    blocks. Within a severity GPUs that cannot work come before those that only may suffer, then more
    GPUs before fewer, and those that nobody has taken before those that somebody has. Of equals the
    oldest is first: it has waited longest, the first of a burst is most often its cause, and no
    entry moves away under the pointer because a new one came.
    """
    told: dict[str, list[Record]] = {}
    for notice in notices:
        told.setdefault(notice.parent or "", []).append(notice)
    return tuple(
        _attention(one, told_of(told.get(one.id, []), now), (states or {}).get(one.id, ""))
        for one in sorted(incidents, key=_rank)
    )


def _rank(incident: Incident) -> tuple[bool, int, bool, int, bool, datetime, str]:
    severity, gpus = incident.severity.rank, incident.impact.gpus
    may_work = incident.fault not in STOPPING
    taken = incident.state == State.ACKNOWLEDGED.value
    return incident.simulated, severity, may_work, -gpus, taken, incident.since, incident.id


def _attention(incident: Incident, told: tuple[Told, ...], now: str) -> Attention:
    return Attention(
        id=incident.id,
        title=incident.title,
        severity=incident.severity,
        state=incident.state,
        simulated=incident.simulated,
        subject=incident.subject,
        label=incident.label or incident.subject.key,
        impact=incident.impact.text or _impact(incident),
        action=incident.action,
        source=incident.source,
        since=incident.since,
        evidence=incident.evidence,
        covers=incident.covers,
        told=told,
        incident=incident,
        now=now,
    )


def _impact(incident: Incident) -> str:
    gpus = incident.impact.gpus
    if gpus == 0:
        return "no GPU is blocked"
    return f"{counted(gpus, 'GPU')} blocked"
