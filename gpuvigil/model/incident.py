"""The analyzer's results: findings, incidents, and the transitions of incidents."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any

from ..clock import from_text, to_text
from ..plain import known, plain
from .cause import Cause, cause_from_json, cause_to_json
from .older import cause_in_words, values_in_words
from .record import Record, RecordKind
from .subject import Severity, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One measured value that a finding rests on, and what it was compared with."""

    name: str
    value: str  # with its unit, as people read it
    limit: str | None = None  # what would be normal: "8", "fewer than 3"
    peers: str | None = None
    detail: bool = False  # details for a closer look: on the page, not in messages

    @property
    def text(self) -> str:
        """The evidence in one line: `rate: 3 Gbit/s (normal: 80, peers 91 Gbit/s)`."""
        held_against = [f"normal: {self.limit}"] if self.limit else []
        held_against += [f"peers {self.peers}"] if self.peers else []
        return f"{self.name}: {self.value}" + (
            f" ({', '.join(held_against)})" if held_against else ""
        )


@dataclass(frozen=True, slots=True)
class OutOfService:
    """Why somebody keeps a node from taking work."""

    # The scheduler's word for it: DRAIN, REBOOT, CORDONED. Not compared: a change such as DRAINING to
    # DRAINED tells people nothing new.
    state: str = field(compare=False)
    reason: str  # as people read it: "drained: fan [ada@now]"


def with_kind(kind: str, name: str) -> str:
    """Return a name for people: `rack r1`, but `rack-004` alone, as it says itself what it is."""
    said = rf"(?<![a-z]){re.escape(kind)}(?![a-z])"
    return name if re.search(said, name, re.IGNORECASE) else f"{kind} {name}"


class GroupKind(str, Enum):
    """The thing that the nodes of a group have in common."""

    RACK = "rack"
    CLUSTER = "cluster"
    NVLINK_DOMAIN = "NVLink domain"


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that share what fails; a finding about a group has one of the nodes as its subject."""

    kind: GroupKind
    name: str

    @property
    def key(self) -> str:
        """The group's permanent key in fingerprints."""
        return (
            "the whole cluster"
            if self.kind is GroupKind.CLUSTER
            else f"{self.kind.value} {self.name}"
        )

    @property
    def label(self) -> str:
        """The group's name for people: `rack r1`."""
        return with_kind(self.kind.value, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One detector's claim about one subject, with the evidence for it."""

    fault: str  # a key of `gpuvigil.faults.FAULTS`
    subject: Subject
    severity: Severity
    since: datetime
    evidence: tuple[Evidence, ...]
    detector: str
    action: str  # first thing to do, in plain words
    source: str  # where the rule comes from
    own_limit: bool = False  # a limit in it is gpuvigil's own, not a vendor's
    certain: bool = False  # true at first sight: needs no second look
    late: bool = False  # rests only on events that came late from a spool
    title: str = ""  # replaces the fault's own title where that says too little
    # What that title says, as a value: a key of `gpuvigil.faults.conditions.CONDITIONS` or of
    # `gpuvigil.silence_conditions`, a reason why a GPU is slow, or one of the detector's own.
    condition: str = ""
    xid: int | None = None  # the code in its title
    sxid: int | None = None
    members: tuple[Subject, ...] = ()  # the GPUs that it is about, if several
    holder: str = ""  # who holds those GPUs: each holder has a finding of its own
    group: Group | None = None  # the nodes, where it is about what they share
    confined: bool = False  # to one program: the rest of its holder's work goes on
    lost: float = 0.0  # for a port: share of its jobs' traffic that no longer gets through
    halted: bool = False  # a job behind the port is known to stand still since
    # The fingerprint of the incident that this continues, if that began as another fault.
    goes_on: str = ""
    # Cached: each step of a look asks for it.
    _fingerprint: str = field(default="", init=False, repr=False, compare=False)

    @property
    def fingerprint(self) -> str:
        """16 hex digits, always the same for the same fault on the same subject."""
        if not self._fingerprint:
            own = self.group.key if self.group else self.holder
            print_ = self.goes_on or fingerprint(self.fault, self.subject, own)
            object.__setattr__(self, "_fingerprint", print_)
        return self._fingerprint


@lru_cache(maxsize=65_536)
def fingerprint(fault: str, subject: Subject, holder: str = "") -> str:
    """Return 16 hex digits that name a fault on a subject for ever; `holder` may also be a group's key."""
    import hashlib  # noqa: PLC0415 - loads OpenSSL, which the reader on a node does not need

    named = f"{fault}|{subject.key}" + (f"|{holder}" if holder else "")
    return hashlib.sha256(named.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """The impact of an incident: the number of GPUs that cannot do their work, and their holders."""

    gpus: int = 0
    holders: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    text: str = ""  # one sentence
    accounts: tuple[str, ...] = ()  # of the holders that are jobs, where their nodes know them
    partitions: tuple[str, ...] = ()
    running: bool = False  # whether any holder had not ended when last heard
    # How many jobs may send over a link between switches, whose holders nobody knows; None: not known.
    jobs_across: int | None = 0
    # Whether the work of the running holders is known to be held up or slower, or to go on as before; None:
    # neither is known.
    slower: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Findings with one cause, and a state (`gpuvigil.lifecycle`)."""

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
    own_limit: bool = False  # see `Finding`
    members: tuple[str, ...] = ()  # keys of the subjects it covers, its own included
    covers: tuple[str, ...] = ()  # findings hidden behind this cause, in words
    label: str = ""  # the subject's name for people: "sim-003 GPU 5"
    gpus: str = ""  # for a node's incident, its affected GPUs: "8 GPUs (GPU 0-7)"
    version: int = 1
    late: bool = False  # rests only on data that came late from a spool: pages nobody
    acknowledged_by: str = ""  # the person who took it, while it is open
    # For one GPU's incident: which GPU it was, and where it sat then.
    serial: str = ""
    slot: str = ""  # its PCI address
    # When it began the times before, where a repair did not hold.
    earlier: tuple[datetime, ...] = ()
    # Why all its nodes are out of service on purpose, so that nobody is notified; None in service.
    out_of_service: OutOfService | None = None
    covered_by: str = ""  # the fingerprint of the incident that explains it, if that ended it
    condition: str = ""  # see `Finding` for these three: what the title says, as values
    xid: int | None = None
    sxid: int | None = None
    group: Group | None = None

    @property
    def simulated(self) -> bool:
        return self.subject.simulated

    @property
    def marked(self) -> bool:
        return self.subject.marked

    def to_record(self) -> Record:
        """Return a record of kind `incident`; `version` must grow with every change."""
        body = plain(self)
        for key in ("id", "subject", "version"):
            del body[key]
        body["evidence"] = [plain(item) for item in self.evidence]
        body["impact"] = plain(self.impact)
        body["group"] = None if self.group is None else plain(self.group)
        body["earlier"] = [to_text(at) for at in self.earlier]
        out = body.pop("out_of_service")
        body["held"], body["held_state"] = ("", "") if out is None else (out.reason, out.state)
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
        if "condition" not in body:
            body |= values_in_words(body, record.subject)
        resolved = body.get("resolved_at")
        body["evidence"] = tuple(Evidence(**known(Evidence, e)) for e in body["evidence"])
        impact = {**body["impact"]}
        for key in ("holders", "users", "accounts", "partitions"):
            impact[key] = tuple(impact.get(key, ()))
        body["impact"] = Impact(**known(Impact, impact))
        body["group"] = _group(body["group"])
        body["out_of_service"] = _out_of_service(body)
        for key in ("members", "covers"):
            body[key] = tuple(body.get(key, ()))
        body["severity"] = Severity(body["severity"])
        body["since"] = from_text(body["since"])
        body["earlier"] = tuple(map(from_text, body.get("earlier", ())))
        body["updated_at"] = from_text(body["updated_at"])
        body["resolved_at"] = None if resolved is None else from_text(resolved)
        return cls(
            id=record.id,
            subject=Subject.parse(record.subject),
            version=record.version,
            **known(cls, body),
        )


def _group(value: Mapping[str, Any] | None) -> Group | None:
    return None if value is None else Group(GroupKind(value["kind"]), str(value["name"]))


def _out_of_service(body: Mapping[str, Any]) -> OutOfService | None:
    reason = str(body.get("held", ""))
    return OutOfService(str(body.get("held_state", "")), reason) if reason else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One step in an incident's life; alerts claims it and notifies people, or records why not."""

    incident: str
    number: int  # 1, 2, 3 ... within the incident
    from_state: str
    to_state: str
    signal: str
    at: datetime
    reason: str  # for people
    subject: Subject
    snapshot: Mapping[str, Any]  # `Incident.to_record().to_json()` as it was then
    cause: Cause | None = None

    @property
    def id(self) -> str:
        return f"{self.incident}:{self.number}"

    def to_record(self) -> Record:
        """Return a record that is due at once:

        `Hub.claim(RecordKind.TRANSITION, ...)` gives it to one process.
        """
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
                "cause": cause_to_json(self.cause),
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
            cause=cause_from_json(body["cause"])
            if "cause" in body
            else cause_in_words(str(body["reason"])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A person took an incident, or added a note to one already taken."""

    id: str  # the record's id, made up once by its writer
    incident: str
    subject: Subject
    by: str
    note: str
    at: datetime
    to: str = ""  # the person it was handed over to

    def to_record(self) -> Record:
        """Return a record of kind `acknowledgement`; its parent is the incident."""
        return Record(
            kind=RecordKind.ACKNOWLEDGEMENT,
            id=self.id,
            at=self.at,
            subject=self.subject.key,
            parent=self.incident,
            body={"by": self.by, "note": self.note, **({"to": self.to} if self.to else {})},
        )

    @classmethod
    def from_record(cls, record: Record) -> "Acknowledgement":
        return cls(
            id=record.id,
            incident=str(record.parent),
            subject=Subject.parse(record.subject),
            by=str(record.body["by"]),
            note=str(record.body.get("note") or ""),
            at=record.at,
            to=str(record.body.get("to") or ""),
        )
