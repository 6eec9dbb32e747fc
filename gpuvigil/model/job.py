"""A scheduler's reports on its jobs and on itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..clock import from_text, micros, to_text
from ..plain import known, plain
from .holder import Holder, job_holder
from .record import Record, RecordKind
from .subject import Subject

# The final states of a job (squeue(1), "JOB STATE CODES"), and our word for one that Slurm forgot.
ENDED_STATES = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT", "UNKNOWN"),
    }
)
_TIMES = ("submitted_at", "started_at", "ended_at", "seen_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A GPU job as Slurm's controller reports it; None for what the controller did not report.

    `state` is Slurm's word: PENDING, RUNNING, COMPLETED, FAILED, TIMEOUT, CANCELLED, PREEMPTED, NODE_FAIL, OUT_OF_MEMORY
    and so on; UNKNOWN when Slurm forgot a job without having reported its end.
    """

    told_by: Subject  # the machine that queried the scheduler
    number: str  # "17": for an array's task its own number
    state: str
    submitted_at: datetime
    seen_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    name: str | None = None
    array: str | None = (
        None  # "17_3": the third task of the array job 17; "17_[4-9]" are still to come
    )
    reason: str | None = None  # why it waits, or how it ended
    nodes: tuple[str, ...] = ()
    gpus: int | None = None  # allocated, or requested while it waits
    numbers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # Slurm's numbers, by node
    limit_seconds: int | None = None
    exit_code: str | None = None  # "3:0" is exit(3), "0:9" is SIGKILL
    pods: tuple[str, ...] = ()  # of Kubernetes jobs, as "namespace/name": the first 1,000

    @property
    def holder(self) -> Holder:
        return job_holder(self.number)

    def to_record(self) -> Record:
        """Return a record of kind `job`, below the querying machine.

        Its version is `seen_at` in microseconds.
        """
        body = plain(self)
        for key in ("told_by", "submitted_at"):
            del body[key]
        body["numbers"] = {node: list(found) for node, found in self.numbers.items()}
        return Record(
            kind=RecordKind.JOB,
            id=f"{self.told_by.key}|{self.holder}|{to_text(self.submitted_at)}",
            at=self.submitted_at,
            subject=self.told_by.key,
            parent=str(self.holder),
            version=micros(self.seen_at),
            body={key: value for key, value in body.items() if value is not None},
        )

    @classmethod
    def from_record(cls, record: Record) -> "Job":
        body: dict[str, Any] = known(cls, record.body)
        for key in _TIMES:
            if body.get(key) is not None:
                body[key] = from_text(body[key])
        body["nodes"], body["pods"] = tuple(body.get("nodes", ())), tuple(body.get("pods", ()))
        found = body.get("numbers", {})
        body["numbers"] = {node: tuple(of_node) for node, of_node in found.items()}
        body["told_by"], body["submitted_at"] = Subject.parse(record.subject), record.at
        return cls(**body)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledNode:
    """A node's state in Slurm's words (IDLE, MIXED, DOWN, DRAIN ...) and the reason.

    `since`: when this state was first seen, None if at the first look; `until`: when it was over.
    """

    name: str
    states: tuple[str, ...]
    reason: str | None = None
    gpus: int | None = None
    gpus_used: int | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """The result of one look at a scheduler; `why` says why it gave nothing, and is empty on success.

    `nodes` are those with a reason or a state other than running jobs; None means not known, never "no
    nodes". `left` gives the earlier states of nodes that took no jobs until shortly before.
    """

    told_by: Subject
    at: datetime
    why: str = ""
    answered_at: datetime | None = None  # when it last answered
    nodes: tuple[ScheduledNode, ...] | None = None
    query_seconds: float | None = None
    left: tuple[ScheduledNode, ...] = ()

    def to_record(self) -> Record:
        body = plain(self)
        for key in ("told_by", "at"):
            del body[key]
        body["nodes"] = None if self.nodes is None else [plain(node) for node in self.nodes]
        body["left"] = [plain(node) for node in self.left]
        return Record(
            kind=RecordKind.SCHEDULER,
            id=self.told_by.key,
            at=self.at,
            subject=self.told_by.key,
            version=micros(self.at),
            body=body,
        )

    @classmethod
    def from_record(cls, record: Record) -> "Scheduler":
        body: dict[str, Any] = known(cls, record.body)
        at, nodes = body.get("answered_at"), body.get("nodes")
        body["answered_at"] = None if at is None else from_text(at)
        body["nodes"] = None if nodes is None else tuple(map(_node, nodes))
        body["left"] = tuple(map(_node, body.get("left", ())))
        return cls(**{**body, "told_by": Subject.parse(record.subject), "at": record.at})


def _node(said: Mapping[str, Any]) -> ScheduledNode:
    times = {key: from_text(said[key]) for key in ("since", "until") if said.get(key) is not None}
    return ScheduledNode(**{**known(ScheduledNode, said), **times, "states": tuple(said["states"])})
