"""A person's decision that a node was tested and may take jobs again."""

from dataclasses import dataclass
from datetime import datetime

from ..clock import micros
from .record import Record, RecordKind
from .subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """A person's acceptance of a tested node; the latest one of a node counts."""

    node: Subject
    by: str
    note: str  # what was tested, and with what result
    at: datetime
    tested: bool = False  # whether the note is the output of the tests

    def to_record(self) -> Record:
        """Kind `acceptance`, named after its node; the version is its time in microseconds."""
        return Record(
            kind=RecordKind.ACCEPTANCE,
            id=self.node.key,
            at=self.at,
            subject=self.node.key,
            version=micros(self.at),
            body={"by": self.by, "note": self.note, "tested": self.tested},
        )

    @classmethod
    def from_record(cls, record: Record) -> "Acceptance":
        """Parse an acceptance from a record; raise ValueError, KeyError or TypeError if it is not one."""
        return cls(
            node=Subject.parse(record.subject),
            by=str(record.body["by"]),
            note=str(record.body["note"]),
            at=record.at,
            tested=bool(record.body.get("tested", False)),
        )
