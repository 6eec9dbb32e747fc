"""What goes into a fleet, what comes out of it, and what is true about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from gpuvigil.clock import from_text, to_text
from gpuvigil.model import Allocation, Event, Inventory, Severity, Subject

# A Monday, so that weeks and days of the plots begin where people expect them.
BEGINNING = datetime(2026, 1, 5, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOrder:
    """A fault that shall happen at a place; `kind` is a key of `kinds.KINDS`.

    `gpu` and `port` are indices within the node; a fault of another sort of subject leaves them
    out. Without a magnitude the kind's own range decides by the seed.
    """

    kind: str
    node: int
    start_seconds: float
    seconds: float
    gpu: int | None = None
    port: int | None = None
    magnitude: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """Everything that a fleet is made from; the same settings give the same bytes."""

    seed: int
    nodes: int
    days: float = 7.0  # the horizon: nothing happens after it
    gpus_per_node: int = 8
    nodes_per_rack: int = 4
    # Keys of `hardware.MODELS`; racks take them in turn.
    models: tuple[str, ...] = ("H100",)
    start: datetime = BEGINNING
    demand: float = 0.8  # GPU time that jobs ask for, of what there is
    # Workloads that may run, keys of `workloads.WORKLOADS`; None is all of them.
    workloads: tuple[str, ...] | None = None
    noise: float = 1.0  # times the natural noise of sensors and of work
    missing: float = 0.0  # share of samples that get lost, beyond what life loses
    life: bool = True  # reboots, upgrades, drains, users' Xids, late data ...
    fault_rate: float = 0.0  # random faults per 1,000 node-days
    kinds: tuple[str, ...] | None = None  # that random faults are drawn from; None is all
    faults: tuple[FaultOrder, ...] = ()  # beside the random ones

    @property
    def end(self) -> datetime:
        return self.start + timedelta(days=self.days)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """One fault as it really was: what a perfect watcher would say about it."""

    id: str
    fault: str  # a key of `kinds.KINDS`
    subject: Subject  # the one to act on; of a rack, its first node
    start: datetime
    end: datetime
    # The first moment at which any number or event differs enough: the end when there is none.
    detectable_from: datetime
    cause: str
    symptoms: tuple[str, ...]  # what follows from it and is not to be reported on its own
    severity: Severity
    action: str
    magnitude: float | None = None
    unit: str = ""
    affected: tuple[Subject, ...] = ()  # others that show it: the GPUs of a node, a job's peers
    group: str | None = None  # the rack or switch, where the cause is one

    @property
    def hidden(self) -> bool:
        """Whether nobody can find it: it needs work to show itself, and there was none."""
        return self.detectable_from >= self.end

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "fault": self.fault,
            "subject": self.subject.key,
            "start": to_text(self.start),
            "end": to_text(self.end),
            "detectable_from": to_text(self.detectable_from),
            "cause": self.cause,
            "symptoms": list(self.symptoms),
            "severity": self.severity.value,
            "action": self.action,
            "magnitude": self.magnitude,
            "unit": self.unit,
            "affected": [subject.key for subject in self.affected],
            "group": self.group,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Truth":
        return cls(
            **{
                **values,
                "subject": Subject.parse(values["subject"]),
                "start": from_text(values["start"]),
                "end": from_text(values["end"]),
                "detectable_from": from_text(values["detectable_from"]),
                "symptoms": tuple(values["symptoms"]),
                "severity": Severity(values["severity"]),
                "affected": tuple(Subject.parse(key) for key in values["affected"]),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something of life that is no fault, though it may look like one."""

    kind: str  # "reboot", "drain", "user xid", ...
    subject: Subject
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What the fleet's collectors measured and told from `start` on and before `end`."""

    start: datetime
    end: datetime
    tables: Mapping[str, pa.Table]
    arrivals: Mapping[str, pa.Array]
    events: tuple[Event, ...] = ()
    event_arrivals: tuple[datetime, ...] = ()
    inventories: tuple[Inventory, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    happenings: tuple[Happening, ...] = field(default=())  # of life that began in the block
