"""The open incidents that need a person, most urgent first, and whether anybody was told."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.faults.gpu_states import STOPPING
from gpuvigil.lifecycle import State
from gpuvigil.model import Evidence, Incident, Record, Severity, Subject
from gpuvigil.numbers_in_words import counted

from ..fleet import IdentityCache
from ..model.delivery_status import DeliveryStatus, delivery_statuses


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One open incident as lists show it. Texts are made on access, since of thousands only a few are shown."""

    incident: Incident
    notices: Sequence[Record]  # of this incident
    at: datetime
    now: str = ""  # how a flapping incident stands right now

    @property
    def id(self) -> str:
        return self.incident.id

    @property
    def title(self) -> str:
        return self.incident.title

    @property
    def severity(self) -> Severity:
        return self.incident.severity

    @property
    def state(self) -> str:
        return self.incident.state

    @property
    def simulated(self) -> bool:
        return self.incident.simulated

    @property
    def subject(self) -> Subject:
        return self.incident.subject

    @property
    def label(self) -> str:
        """What the incident is about, as `sim-003 GPU 5`."""
        return self.incident.label or self.subject.key

    @property
    def impact(self) -> str:
        gpus = self.incident.impact.gpus
        blocked = f"{counted(gpus, 'GPU')} blocked" if gpus else "no GPU is blocked"
        return self.incident.impact.text or blocked

    @property
    def action(self) -> str:
        return self.incident.action

    @property
    def since(self) -> datetime:
        return self.incident.since

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return self.incident.evidence

    @property
    def delivery(self) -> tuple[DeliveryStatus, ...]:
        """The delivery status of each channel."""
        return delivery_statuses(self.notices, self.at)


def attention(
    incidents: Sequence[Incident],
    notices: Sequence[Record],
    now: datetime,
    states: Mapping[str, str] | None = None,
    kept: IdentityCache | None = None,
) -> tuple[Attention, ...]:
    """Return open incidents in the order in which people should handle them; `states` are texts by ID.

    Real clusters come before the simulated one. Then severity decides: no warning stands above a critical,
    however many GPUs it blocks. Within a severity, faults that stop work come before those that may not,
    then more blocked GPUs before fewer, then unacknowledged before acknowledged. Of equals the oldest is
    first: it has waited longest, the first of a burst is most often its cause, and no entry moves away
    under the pointer because a new one came.
    """
    kept, said = kept or IdentityCache(), states or {}
    told = kept.get("told", (notices,), lambda: _by_incident(notices))
    ordered = kept.get("order", (incidents,), lambda: sorted(incidents, key=_rank))
    return tuple(
        Attention(incident=one, notices=told.get(one.id, ()), at=now, now=said.get(one.id, ""))
        for one in ordered
    )


def _by_incident(notices: Iterable[Record]) -> dict[str, list[Record]]:
    told: dict[str, list[Record]] = {}
    for notice in notices:
        told.setdefault(notice.parent or "", []).append(notice)
    return told


def _rank(incident: Incident) -> tuple[bool, int, bool, int, bool, datetime, str]:
    severity, gpus = incident.severity.rank, incident.impact.gpus
    may_work = incident.fault not in STOPPING
    taken = incident.state == State.ACKNOWLEDGED.value
    return incident.simulated, severity, may_work, -gpus, taken, incident.since, incident.id
