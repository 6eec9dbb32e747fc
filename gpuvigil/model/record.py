"""The small, transactional facts that the hub keeps beside telemetry."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

from ..clock import from_text, to_text
from .subject import SELFTEST_CLUSTER

Value = TypeVar("Value")


class RecordKind(str, Enum):
    """The kinds of records that the hub keeps beside telemetry."""

    EVENT = "event"
    ALLOCATION = "allocation"
    INVENTORY = "inventory"
    INCIDENT = "incident"
    TRANSITION = "transition"
    NOTICE = "notice"
    PULSE = "pulse"
    ACKNOWLEDGEMENT = "acknowledgement"
    USAGE = "usage"
    USAGE_SPAN = "usage_span"  # hours and days of usage, added up
    WASTE = "waste"  # one hour's holders who got little out of their GPUs
    SILENCE = "silence"
    OPINION = "opinion"
    JOB = "job"
    SCHEDULER = "scheduler"
    RMA = "rma"  # a return to the manufacturer
    ACTION = "action"  # something done to a node
    ACCEPTANCE = "acceptance"  # that a node was tested and may take jobs again
    ANNOTATION = "annotation"  # something that a person says happened
    RETIREMENT = "retirement"  # a node is not expected any more
    SETUP = "setup"  # a node's versions, model and place, from a time on
    AUDIT = "audit"  # an audit entry: sign-ins, acknowledgements, silences, changes of people
    REPORT = "report"  # a report made on schedule
    LETTER = "letter"  # the delivery of a report to one receiver
    SWITCH = "switch"  # a switch's ports, as the reader of the fabric sees them
    EQUIPMENT = "equipment"  # failed power supplies, fans, feeds and cooling of a node or a rack
    USUAL = "usual"  # the usual deviation of a node's GPUs from their peers


# Kinds that a node may write about itself, and kinds that a reader of a scheduler or a fabric may
# write about a cluster; all others are for services.
COLLECTOR_KINDS = frozenset({RecordKind.EVENT, RecordKind.ALLOCATION, RecordKind.INVENTORY})
SCHEDULER_KINDS = frozenset(
    {RecordKind.JOB, RecordKind.SCHEDULER, RecordKind.SWITCH, RecordKind.EQUIPMENT}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One small, transactional fact as the hub keeps it: `(kind, id)` names it, `body` holds it.

    Writing the same `(kind, id, version)` again changes nothing; a higher version replaces the
    lower. `sequence` is the hub's commit order. A record with `due_at` is work that a service
    claims (`Hub.claim`) once that time has come.
    """

    kind: RecordKind
    id: str
    at: datetime
    subject: str
    body: Mapping[str, Any] = field(default_factory=dict)
    parent: str | None = None
    due_at: datetime | None = None
    version: int = 1
    sequence: int | None = None

    @property
    def marked(self) -> bool:
        """Whether the record is about the selftest's nodes (`Subject.marked`)."""
        return self.subject.partition("/")[0] == SELFTEST_CLUSTER

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; times are RFC 3339 text."""
        return {
            "kind": self.kind.value,
            "id": self.id,
            "at": to_text(self.at),
            "subject": self.subject,
            "body": dict(self.body),
            "parent": self.parent,
            "due_at": None if self.due_at is None else to_text(self.due_at),
            "version": self.version,
            "sequence": self.sequence,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Record":
        """Parse the record that `to_json` wrote; raise ValueError that names a missing or wrong key."""
        try:
            due_at = value.get("due_at")
            return cls(
                kind=RecordKind(value["kind"]),
                id=_text(value, "id"),
                at=from_text(_text(value, "at")),
                subject=_text(value, "subject"),
                body=_mapping(value.get("body", {})),
                parent=None if value.get("parent") is None else _text(value, "parent"),
                due_at=None if due_at is None else from_text(str(due_at)),
                version=int(value.get("version", 1)),
                sequence=value.get("sequence"),
            )
        except KeyError as error:
            raise ValueError(f"a record needs {error}") from error


# What reading may raise for a record that another version wrote differently.
UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)


def readable(records: Iterable[Record], read: Callable[[Record], Value]) -> Iterator[Value]:
    """Yield the values of the records that this version can read, skipping those that it cannot."""
    for record in records:
        try:
            value = read(record)
        except UNREADABLE:
            continue
        yield value


def _text(value: Mapping[str, Any], key: str) -> str:
    text = value[key]
    if not isinstance(text, str) or not text:
        raise ValueError(f"a record's {key} must be a text that is not empty")
    return text


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("a record's body must be an object")  # noqa: TRY004 - from a stranger's text
    return value
