"""How far a part's return to its maker is: as a person said, or as its slot shows."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from ..clock import micros
from .record import Record, RecordKind
from .subject import Subject


class RmaState(str, Enum):
    """The steps of a return to the maker."""

    OPEN = "open"  # a case is open with the maker
    SHIPPED = "shipped"  # the part, or its replacement, is on its way
    REPLACED = "replaced"  # another one sits in the slot


# Who says so where a serial number in the slot has changed.
SEEN = "gpuvigil"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rma:
    """One step, said of one incident: the newest counts, the others stay, and a step said again is the last word."""

    incident: str
    subject: Subject
    state: RmaState
    by: str
    at: datetime
    note: str = ""
    serial: str = ""  # of the part that goes back
    slot: str = ""

    @property
    def id(self) -> str:
        """One record for each state: the same one said again replaces what was said of it."""
        return f"{self.incident}:rma:{self.state.value}"

    def to_record(self) -> Record:
        """Kind `rma`; its parent is the incident, the version its time in microseconds."""
        return Record(
            kind=RecordKind.RMA,
            id=self.id,
            at=self.at,
            subject=self.subject.key,
            parent=self.incident,
            version=micros(self.at),
            body={
                "state": self.state.value,
                "by": self.by,
                "note": self.note,
                "serial": self.serial,
                "slot": self.slot,
            },
        )

    @classmethod
    def from_record(cls, record: Record) -> "Rma":
        body = record.body
        return cls(
            incident=str(record.parent),
            subject=Subject.parse(record.subject),
            state=RmaState(body["state"]),
            by=str(body["by"]),
            at=record.at,
            note=str(body.get("note", "")),
            serial=str(body.get("serial", "")),
            slot=str(body.get("slot", "")),
        )
