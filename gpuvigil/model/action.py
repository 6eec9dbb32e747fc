"""What `gpuvigil act` did to a node, for an incident: so that every process knows it, and people see it."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from ..clock import micros
from .record import Record, RecordKind
from .subject import Subject


class Act(str, Enum):
    """What was done."""

    DRAIN = "drain"  # in Kubernetes: cordon
    RESUME = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAction:
    """One thing done; the newest of an incident and its node counts, and the one before stays."""

    incident: str
    node: Subject
    act: Act
    at: datetime
    undo: str  # the command that takes it back

    def to_record(self) -> Record:
        """Kind `action`; its parent is the incident, the version its time in microseconds."""
        return Record(
            kind=RecordKind.ACTION,
            id=f"{self.incident}:{self.act.value}",
            at=self.at,
            subject=self.node.key,
            parent=self.incident,
            version=micros(self.at),
            body={"state": self.act.value, "undo": self.undo},
        )

    @classmethod
    def from_record(cls, record: Record) -> "NodeAction":
        """ValueError, KeyError or TypeError when it is none."""
        return cls(
            incident=str(record.parent),
            node=Subject.parse(record.subject),
            act=Act(record.body["state"]),
            at=record.at,
            undo=str(record.body["undo"]),
        )
