"""Who did what, and when: kept beside what they did, and never with a secret."""

import os
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from ..clock import to_text
from .record import Record, RecordKind


class Deed(str, Enum):
    """What can be done that is worth an entry."""

    SIGN_IN = "sign-in"
    WRONG_SIGN_IN = "wrong sign-in"
    SIGN_OUT = "sign-out"
    ACKNOWLEDGE = "acknowledge"
    SILENCE = "silence"
    OPINION = "opinion"
    RMA = "rma"
    ANNOTATION = "annotation"
    PERSON = "person"  # added, removed, another role or password
    REPORT = "report"  # one was written: names leave in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """One entry; it is written once and never replaced."""

    deed: Deed
    person: str  # who did it, empty for who has no name; of a wrong sign-in the name that was given
    about: str = ""  # an incident, a silence, another person
    detail: str = ""
    address: str = ""  # where they came from
    at: datetime

    def to_record(self) -> Record:
        """Kind `audit`; its subject is the word itself, since it may be about anything."""
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
        """ValueError, KeyError or TypeError when it is none."""
        body = record.body
        return cls(
            deed=Deed(body["deed"]),
            person=str(body["person"]),
            about=str(body.get("about", "")),
            detail=str(body.get("detail", "")),
            address=str(body.get("address", "")),
            at=record.at,
        )
