"""A decision, by a person or a scheduler, that a node is no longer expected."""

from dataclasses import dataclass
from datetime import datetime

from ..clock import micros
from .record import Record, RecordKind
from .subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """A node's retirement; the latest one counts, until the node is heard again."""

    node: Subject
    by: str
    note: str
    at: datetime

    def to_record(self) -> Record:
        """Return a record of kind `retirement`, named after its node.

        Its version is the time in microseconds.
        """
        return Record(
            kind=RecordKind.RETIREMENT,
            id=self.node.key,
            at=self.at,
            subject=self.node.key,
            version=micros(self.at),
            body={"by": self.by, "note": self.note},
        )

    @classmethod
    def from_record(cls, record: Record) -> "Retirement":
        """Parse a retirement from a record; raise ValueError, KeyError or TypeError if it is not one."""
        return cls(
            node=Subject.parse(record.subject),
            by=str(record.body["by"]),
            note=str(record.body["note"]),
            at=record.at,
        )
