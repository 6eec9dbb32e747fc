"""What powers and cools a node or a rack, as the site's own Prometheus reports it."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from ..clock import from_text, micros, to_text
from ..plain import known
from .record import Record, RecordKind
from .subject import Subject

# The device of a rack's subject: a node may have the same name.
RACK_DEVICE = "rack"


class PartKind(str, Enum):
    """What a mapping file can say of a node or a rack."""

    POWER_SUPPLY = "power supply"
    FAN = "fan"
    POWER_FEED = "power feed"
    COOLANT = "coolant"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPart:
    """A part that its exporter reports as failed; `said` is the value, in words for people."""

    kind: PartKind
    name: str
    said: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """The parts of one node or rack at one look; those that are well are not listed."""

    subject: Subject
    at: datetime
    failed: tuple[FailedPart, ...] = ()

    @property
    def is_rack(self) -> bool:
        return self.subject.device == RACK_DEVICE

    def to_record(self) -> Record:
        """Return a record of kind `equipment`; its version is the time in microseconds."""
        return Record(
            kind=RecordKind.EQUIPMENT,
            id=self.subject.key,
            at=self.at,
            subject=self.subject.key,
            version=micros(self.at),
            body={
                "failed": [
                    {
                        "kind": part.kind.value,
                        "name": part.name,
                        "said": part.said,
                        "since": to_text(part.since),
                    }
                    for part in self.failed
                ]
            },
        )

    @classmethod
    def from_record(cls, record: Record) -> "Equipment":
        return cls(
            subject=Subject.parse(record.subject),
            at=record.at,
            failed=tuple(map(_part, record.body["failed"])),
        )


def rack_subject(cluster: str, rack: str) -> Subject:
    """Return the subject under which a rack's equipment is kept."""
    return Subject(cluster=cluster, node=rack, device=RACK_DEVICE, port="")


def _part(said: Any) -> FailedPart:
    fields = known(FailedPart, said)
    return FailedPart(
        kind=PartKind(fields["kind"]),
        name=str(fields["name"]),
        said=str(fields["said"]),
        since=from_text(fields["since"]),
    )
