"""The words that services share. Values are frozen: a change is a new value.

Times are aware and in UTC. `None` means "not measured" or "not known", and never becomes 0.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, IntEnum
from typing import Any
from urllib.parse import quote, unquote

from .clock import from_text, to_text

# Every row, event and finding of a simulated node carries this cluster name, and a real collector
# refuses it: simulated and real can then never be mixed up, nor summed.
SIMULATED_CLUSTER = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Subject:
    """What something is said about: a node, one of its GPUs (by UUID), or one of its ports."""

    cluster: str
    node: str
    gpu: str | None = None
    device: str | None = None
    port: str | None = None

    @property
    def kind(self) -> str:
        """`node`, `gpu` or `port`."""
        if self.gpu is not None:
            return "gpu"
        return "node" if self.device is None else "port"

    @property
    def key(self) -> str:
        """A text that names the subject everywhere: `cluster/node[/gpu/uuid | /port/device/port]`."""
        parts = [self.cluster, self.node]
        if self.gpu is not None:
            parts += ["gpu", self.gpu]
        elif self.device is not None:
            parts += ["port", self.device, self.port or ""]
        return "/".join(quote(part, safe=":._-") for part in parts)

    @property
    def simulated(self) -> bool:
        return self.cluster == SIMULATED_CLUSTER

    def of_node(self) -> "Subject":
        """The node this subject belongs to."""
        return Subject(cluster=self.cluster, node=self.node)

    @classmethod
    def parse(cls, key: str) -> "Subject":
        """The subject that `key` names; ValueError when it names none."""
        match [unquote(part) for part in key.split("/")]:
            case [cluster, node]:
                return cls(cluster=cluster, node=node)
            case [cluster, node, "gpu", uuid]:
                return cls(cluster=cluster, node=node, gpu=uuid)
            case [cluster, node, "port", device, port]:
                return cls(cluster=cluster, node=node, device=device, port=port)
        raise ValueError(f"{key!r} names no subject")


class Severity(str, Enum):
    """What people do: wake up now, look in working hours, read it in the digest."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 is the most severe."""
        return list(Severity).index(self)


class GpuState(str, Enum):
    """A GPU is always in exactly one of these."""

    ACTIVE = "active"
    IDLE = "idle"  # held by a process or a job, nothing computed
    FREE = "free"
    UNAVAILABLE = "unavailable"  # faulty, missing, drained, released for maintenance
    UNKNOWN = "unknown"  # no trustworthy data


class Unmeasured(IntEnum):
    """Why a subject's numbers are absent; travels as the number in `unmeasured_reason`."""

    NOT_SUPPORTED = 1
    NO_PERMISSION = 2
    LOST = 3
    DRIVER_NOT_ANSWERING = 4
    DRIVER_NOT_LOADED = 5
    READ_ERROR = 6

    @property
    def text(self) -> str:
        """The reason in words, for people."""
        return self.name.lower().replace("_", " ")


class EventKind(str, Enum):
    """A thing that happened once, reported by a collector when it happened."""

    XID = "xid"
    GPU_LOST = "gpu_lost"
    GPU_BACK = "gpu_back"
    GPU_RESET = "gpu_reset"
    PORT_DOWN = "port_down"
    PORT_UP = "port_up"
    DRIVER_SILENT = "driver_silent"
    DRIVER_BACK = "driver_back"
    BOOT = "boot"


class RecordKind(str, Enum):
    """What the hub keeps beside telemetry."""

    EVENT = "event"
    ALLOCATION = "allocation"
    INVENTORY = "inventory"
    INCIDENT = "incident"
    TRANSITION = "transition"
    NOTICE = "notice"
    PULSE = "pulse"


# What a collector's token may write; everything else is for services.
COLLECTOR_KINDS = frozenset({RecordKind.EVENT, RecordKind.ALLOCATION, RecordKind.INVENTORY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One small, transactional fact as the hub keeps it: `(kind, id)` names it, `body` says it.

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

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; times as RFC 3339 text."""
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
        """The record that `to_json` wrote; ValueError names the key that is missing or wrong."""
        try:
            due_at = value.get("due_at")
            return cls(
                kind=RecordKind(value["kind"]),
                id=_text(value, "id"),
                at=from_text(_text(value, "at")),
                subject=_text(value, "subject"),
                body=_mapping(value.get("body", {})),
                parent=_optional_text(value, "parent"),
                due_at=None if due_at is None else from_text(str(due_at)),
                version=int(value.get("version", 1)),
                sequence=value.get("sequence"),
            )
        except KeyError as error:
            raise ValueError(f"a record needs {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change of state that a collector saw: an Xid, a GPU lost or back, a port down or up."""

    kind: EventKind
    subject: Subject
    at: datetime
    id: str
    xid: int | None = None
    message: str = ""

    def to_record(self) -> Record:
        body: dict[str, Any] = {"event": self.kind.value, "message": self.message}
        if self.xid is not None:
            body["xid"] = self.xid
        return Record(
            kind=RecordKind.EVENT, id=self.id, at=self.at, subject=self.subject.key, body=body
        )

    @classmethod
    def from_record(cls, record: Record) -> "Event":
        """ValueError when the record is not an event or its kind is unknown to this version."""
        xid = record.body.get("xid")
        return cls(
            kind=EventKind(record.body.get("event")),
            subject=Subject.parse(record.subject),
            at=record.at,
            id=record.id,
            xid=None if xid is None else int(xid),
            message=str(record.body.get("message", "")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Who holds one GPU, from when to when; `ended_at` is None while it is held."""

    subject: Subject
    holder: str  # "pid 4711" or "job 1234": unique on its node, or in its cluster
    user: str | None
    command: str | None
    started_at: datetime
    ended_at: datetime | None = None

    @property
    def id(self) -> str:
        return f"{self.subject.key}|{self.holder}|{to_text(self.started_at)}"

    def to_record(self) -> Record:
        """Version 1 while held, 2 when ended."""
        ended = None if self.ended_at is None else to_text(self.ended_at)
        return Record(
            kind=RecordKind.ALLOCATION,
            id=self.id,
            at=self.started_at,
            subject=self.subject.key,
            version=1 if ended is None else 2,
            body={
                "holder": self.holder,
                "user": self.user,
                "command": self.command,
                "ended_at": ended,
            },
        )

    @classmethod
    def from_record(cls, record: Record) -> "Allocation":
        ended = record.body.get("ended_at")
        return cls(
            subject=Subject.parse(record.subject),
            holder=str(record.body["holder"]),
            user=record.body.get("user"),
            command=record.body.get("command"),
            started_at=record.at,
            ended_at=None if ended is None else from_text(ended),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuIdentity:
    """What does not change while a GPU sits in its slot."""

    uuid: str
    index: int | None
    pci_address: str | None
    model: str
    serial: str | None = None
    vbios: str | None = None
    memory_total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortIdentity:
    """One network port of a node."""

    device: str
    port: str
    kind: str  # infiniband, roce, ethernet, efa
    role: str  # fabric, storage, management
    was_up: bool = False  # a port that was never seen up is unprovisioned, not broken


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a node has, and how its collector looks at it; one record per node, newest wins."""

    subject: Subject
    at: datetime
    boot: str
    tick_seconds: float
    version: str
    gpus: tuple[GpuIdentity, ...] = ()
    ports: tuple[PortIdentity, ...] = ()
    driver: str | None = None
    driver_state: str = "no driver"  # "loaded", "no driver", or why it cannot be read
    rack: str | None = None

    def to_record(self) -> Record:
        """The version is the time in microseconds, so that the newest wins."""
        body = {
            "boot": self.boot,
            "tick_seconds": self.tick_seconds,
            "version": self.version,
            "driver": self.driver,
            "driver_state": self.driver_state,
            "rack": self.rack,
            "gpus": [_plain(gpu) for gpu in self.gpus],
            "ports": [_plain(port) for port in self.ports],
        }
        return Record(
            kind=RecordKind.INVENTORY,
            id=self.subject.key,
            at=self.at,
            subject=self.subject.key,
            version=int(self.at.timestamp() * 1_000_000),
            body=body,
        )

    @classmethod
    def from_record(cls, record: Record) -> "Inventory":
        body = record.body
        return cls(
            subject=Subject.parse(record.subject),
            at=record.at,
            boot=str(body["boot"]),
            tick_seconds=float(body["tick_seconds"]),
            version=str(body["version"]),
            gpus=tuple(GpuIdentity(**_known(GpuIdentity, gpu)) for gpu in body["gpus"]),
            ports=tuple(PortIdentity(**_known(PortIdentity, port)) for port in body["ports"]),
            driver=body.get("driver"),
            driver_state=str(body.get("driver_state", "no driver")),
            rack=body.get("rack"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number that a finding rests on, with what it was held against."""

    name: str
    value: str  # with its unit, as people read it
    limit: str | None = None
    peers: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One detector's claim about one subject, with the evidence it rests on."""

    fault: str  # a key of `gpuvigil.faults.FAULTS`
    subject: Subject
    severity: Severity
    since: datetime
    evidence: tuple[Evidence, ...]
    detector: str
    action: str  # first thing to do, in plain words
    source: str  # where the rule comes from

    @property
    def fingerprint(self) -> str:
        """The same fault on the same subject always has the same 16 hex digits."""
        return fingerprint(self.fault, self.subject)


def fingerprint(fault: str, subject: Subject) -> str:
    """16 hex digits that name a fault on a subject, for ever."""
    return hashlib.sha256(f"{fault}|{subject.key}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """Who is hit: GPUs that cannot do their work, and the holders of them."""

    gpus: int = 0
    holders: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    text: str = ""  # one sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Findings with one cause, and a life (`gpuvigil.lifecycle`)."""

    id: str
    fingerprint: str
    fault: str
    subject: Subject
    severity: Severity
    state: str  # a value of `gpuvigil.lifecycle.State`
    title: str
    since: datetime
    updated_at: datetime
    resolved_at: datetime | None = None
    impact: Impact = field(default_factory=Impact)
    evidence: tuple[Evidence, ...] = ()
    action: str = ""
    source: str = ""
    members: tuple[str, ...] = ()  # keys of the subjects it covers, itself included
    covers: tuple[str, ...] = ()  # findings hidden behind this cause, in words
    label: str = ""  # the subject as people call it: "sim-003 GPU 5"
    version: int = 1
    late: bool = False  # rests only on data that came late from a spool: pages nobody

    @property
    def simulated(self) -> bool:
        return self.subject.simulated

    def to_record(self) -> Record:
        """Kind `incident`; `version` must grow with every change."""
        body = _plain(self)
        for key in ("id", "subject", "version"):
            del body[key]
        body["evidence"] = [_plain(item) for item in self.evidence]
        body["impact"] = _plain(self.impact)
        return Record(
            kind=RecordKind.INCIDENT,
            id=self.id,
            at=self.since,
            subject=self.subject.key,
            version=self.version,
            body=body,
        )

    @classmethod
    def from_record(cls, record: Record) -> "Incident":
        body = dict(record.body)
        resolved = body.get("resolved_at")
        body["evidence"] = tuple(Evidence(**_known(Evidence, e)) for e in body["evidence"])
        impact = {**body["impact"]}
        for key in ("holders", "users"):
            impact[key] = tuple(impact.get(key, ()))
        body["impact"] = Impact(**_known(Impact, impact))
        for key in ("members", "covers"):
            body[key] = tuple(body.get(key, ()))
        body["severity"] = Severity(body["severity"])
        body["since"] = from_text(body["since"])
        body["updated_at"] = from_text(body["updated_at"])
        body["resolved_at"] = None if resolved is None else from_text(resolved)
        return cls(
            id=record.id,
            subject=Subject.parse(record.subject),
            version=record.version,
            **_known(cls, body),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One step in an incident's life; alerts claim it and tell people, or say why not."""

    incident: str
    number: int  # 1, 2, 3 ... within the incident
    from_state: str
    to_state: str
    signal: str
    at: datetime
    reason: str
    subject: Subject
    snapshot: Mapping[str, Any]  # `Incident.to_record().to_json()` as it was then

    @property
    def id(self) -> str:
        return f"{self.incident}:{self.number}"

    def to_record(self) -> Record:
        """Due at once: `Hub.claim(RecordKind.TRANSITION, ...)` hands it to one alerts process."""
        return Record(
            kind=RecordKind.TRANSITION,
            id=self.id,
            at=self.at,
            subject=self.subject.key,
            parent=self.incident,
            due_at=self.at,
            body={
                "number": self.number,
                "from_state": self.from_state,
                "to_state": self.to_state,
                "signal": self.signal,
                "reason": self.reason,
                "snapshot": dict(self.snapshot),
            },
        )

    @classmethod
    def from_record(cls, record: Record) -> "Transition":
        body = record.body
        return cls(
            incident=str(record.parent),
            number=int(body["number"]),
            from_state=str(body["from_state"]),
            to_state=str(body["to_state"]),
            signal=str(body["signal"]),
            at=record.at,
            reason=str(body["reason"]),
            subject=Subject.parse(record.subject),
            snapshot=body["snapshot"],
        )


def _plain(value: Any) -> dict[str, Any]:
    """A dataclass's own fields as JSON values: times as text, enums as values, tuples as lists."""
    plain: dict[str, Any] = {}
    for name in value.__dataclass_fields__:
        item = getattr(value, name)
        if isinstance(item, datetime):
            item = to_text(item)
        elif isinstance(item, Enum):
            item = item.value
        elif isinstance(item, tuple):
            item = list(item)
        plain[name] = item
    return plain


def _known(cls: type[Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """Only the keys that `cls` knows: a newer version may have written more."""
    return {key: value[key] for key in value if key in cls.__dataclass_fields__}


def _text(value: Mapping[str, Any], key: str) -> str:
    text = value[key]
    if not isinstance(text, str) or not text:
        raise ValueError(f"a record's {key} must be a text that is not empty")
    return text


def _optional_text(value: Mapping[str, Any], key: str) -> str | None:
    return None if value.get(key) is None else _text(value, key)


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("a record's body must be an object")  # noqa: TRY004 - from a stranger's text
    return value
