"""Actions of `gpuvigil act` on a node for an incident, recorded for all processes and people."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from ..clock import micros
from .record import Record, RecordKind
from .subject import Subject


class Act(str, Enum):
    """The kind of action taken on a node."""

    DRAIN = "drain"  # in Kubernetes: cordon
    RESUME = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAction:
    """One action taken; the newest for an incident and its node counts, and earlier ones are kept."""

    incident: str
    node: Subject
    act: Act
    at: datetime
    undo: str  # the command that reverts it

    def to_record(self) -> Record:
        """Return a record of kind `action`.

        Its parent is the incident, its version the time in microseconds.
        """
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
        """Parse an action from a record; raise ValueError, KeyError or TypeError if it is not one."""
        return cls(
            incident=str(record.parent),
            node=Subject.parse(record.subject),
            act=Act(record.body["state"]),
            at=record.at,
            undo=str(record.body["undo"]),
        )
