"""A person's vote on a message: useful, or noise."""

from dataclasses import dataclass
from datetime import datetime

from ..clock import micros
from .incident import Incident
from .record import Record, RecordKind
from .subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """One person's vote on one incident; a later vote replaces it."""

    id: str  # the record's id: one per person and incident
    incident: str
    fault: str
    subject: Subject
    by: str
    useful: bool
    at: datetime

    @classmethod
    def given(cls, incident: Incident, by: str, *, useful: bool, at: datetime) -> "Opinion":
        """Return a person's vote at `at`; their next vote on the incident replaces it, wherever given."""
        import hashlib  # noqa: PLC0415 - as in `incident.py`

        named = "\0".join((incident.id, by))
        return cls(
            id=f"{incident.id}:{hashlib.sha256(named.encode()).hexdigest()[:24]}",
            incident=incident.id,
            fault=incident.fault,
            subject=incident.subject,
            by=by,
            useful=useful,
            at=at,
        )

    def to_record(self) -> Record:
        """Return a record of kind `opinion`.

        Its parent is the incident, its version the time in microseconds.
        """
        return Record(
            kind=RecordKind.OPINION,
            id=self.id,
            at=self.at,
            subject=self.subject.key,
            parent=self.incident,
            version=micros(self.at),
            body={"fault": self.fault, "by": self.by, "useful": self.useful},
        )

    @classmethod
    def from_record(cls, record: Record) -> "Opinion":
        return cls(
            id=record.id,
            incident=str(record.parent),
            fault=str(record.body["fault"]),
            subject=Subject.parse(record.subject),
            by=str(record.body["by"]),
            useful=bool(record.body["useful"]),
            at=record.at,
        )
