"""A person's decision that a node was tested and may take jobs again."""

from dataclasses import dataclass
from datetime import datetime

from ..clock import micros
from .record import Record, RecordKind
from .subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The last one of a node counts."""

    node: Subject
    by: str
    note: str  # what was tested, and with what result
    at: datetime
    tested: bool = False  # whether the note is what the output of the tests says

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
        """ValueError, KeyError or TypeError when it is none."""
        return cls(
            node=Subject.parse(record.subject),
            by=str(record.body["by"]),
            note=str(record.body["note"]),
            at=record.at,
            tested=bool(record.body.get("tested", False)),
        )
