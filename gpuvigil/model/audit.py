"""The audit trail: who did what, and when. It never holds a secret."""

import os
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from ..clock import to_text
from .record import Record, RecordKind


class AuditedAction(str, Enum):
    """A deed that is recorded in the audit trail."""

    SIGN_IN = "sign-in"
    WRONG_SIGN_IN = "wrong sign-in"
    SIGN_OUT = "sign-out"
    ACKNOWLEDGE = "acknowledge"
    SILENCE = "silence"
    OPINION = "opinion"
    RMA = "rma"
    ANNOTATION = "annotation"
    PERSON = "person"  # added, removed, or changed role or password
    REPORT = "report"  # one was written: names leave the system in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """One audit entry; it is written once and never replaced."""

    deed: AuditedAction
    person: str  # who did it, empty without a name; for a wrong sign-in the name given
    about: str = ""  # an incident, a silence, another person
    detail: str = ""
    address: str = ""  # the client's network address
    at: datetime

    def to_record(self) -> Record:
        """Return a record of kind `audit`; its subject is the word `audit`, since it may be about anything."""
        return Record(
            kind=RecordKind.AUDIT,
            id=f"{to_text(self.at)}|{os.urandom(8).hex()}",
            at=self.at,
            subject="audit",
            body={
                "deed": self.deed.value,
                "person": self.person,
                "about": self.about,
                "detail": self.detail,
                "address": self.address,
            },
        )

    @classmethod
    def from_record(cls, record: Record) -> "Audit":
        """Parse an audit entry from a record; raise ValueError, KeyError or TypeError if it is not one."""
        body = record.body
        return cls(
            deed=AuditedAction(body["deed"]),
            person=str(body["person"]),
            about=str(body.get("about", "")),
            detail=str(body.get("detail", "")),
            address=str(body.get("address", "")),
            at=record.at,
        )
