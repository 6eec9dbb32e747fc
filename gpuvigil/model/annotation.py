"""Notes by people on what happened in a cluster, shown on charts of that time."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..clock import from_text, to_text
from .record import Record, RecordKind
from .subject import Subject

# Longer maintenance needs several annotations; charts look this far back for one that still lasts.
LONGEST = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A deploy, a roll-out or maintenance, in somebody's words; without nodes it is about the whole cluster."""

    id: str
    cluster: str
    note: str
    by: str
    at: datetime  # when it happened, began or will begin, not when it was written
    until: datetime | None = None  # when it was over; None: a single moment
    nodes: tuple[str, ...] = ()
    deleted: bool = False
    version: int = 1

    def is_of(self, node: Subject) -> bool:
        """Return whether the annotation is about that node."""
        return self.cluster == node.cluster and (not self.nodes or node.node in self.nodes)

    def without(self) -> "Annotation":
        """Return the next version, marked as deleted, which no chart shows."""
        return replace(self, deleted=True, version=self.version + 1)

    def to_record(self) -> Record:
        """Return a record of kind `annotation`; its subject is the cluster, quoted as in nodes' subjects."""
        from urllib.parse import quote  # noqa: PLC0415 - as in `subject.py`

        return Record(
            kind=RecordKind.ANNOTATION,
            id=self.id,
            at=self.at,
            subject=quote(self.cluster, safe=":._-"),
            version=self.version,
            body={
                "note": self.note,
                "by": self.by,
                "nodes": list(self.nodes),
                **({} if self.until is None else {"until": to_text(self.until)}),
                "deleted": self.deleted,
            },
        )

    @classmethod
    def from_record(cls, record: Record) -> "Annotation":
        """Parse an annotation from a record; raise ValueError, KeyError or TypeError if it is not one."""
        from urllib.parse import unquote  # noqa: PLC0415 - as above

        until = record.body.get("until")
        return cls(
            id=record.id,
            cluster=unquote(record.subject),
            note=str(record.body["note"]),
            by=str(record.body["by"]),
            at=record.at,
            until=None if until is None else from_text(until),
            nodes=tuple(map(str, record.body["nodes"])),
            deleted=bool(record.body.get("deleted", False)),
            version=record.version,
        )
