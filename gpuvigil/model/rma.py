"""The progress of a part's return to its manufacturer, as a person reports it or its slot shows it."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from ..clock import micros
from .record import Record, RecordKind
from .subject import Subject


class RmaState(str, Enum):
    """The steps of a return to the manufacturer."""

    OPEN = "open"  # a case is open with the manufacturer
    SHIPPED = "shipped"  # the part, or its replacement, is on its way
    REPLACED = "replaced"  # another part sits in the slot


# The author of a step that gpuvigil saw by a changed serial number in the slot.
SEEN = "gpuvigil"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rma:
    """One step for one incident: the newest step counts, earlier ones are kept, repeating one replaces it."""

    incident: str
    subject: Subject
    state: RmaState
    by: str
    at: datetime
    note: str = ""
    serial: str = ""  # of the part that is returned
    slot: str = ""

    @property
    def id(self) -> str:
        """The record's id, one per state: repeating a state replaces its record."""
        return f"{self.incident}:rma:{self.state.value}"

    def to_record(self) -> Record:
        """Return a record of kind `rma`; its parent is the incident, its version the time in microseconds."""
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
