"""The input and output of a fleet, and the truth about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gpuvigil.clock import from_text, to_text
from gpuvigil.model import (
    SIMULATED_CLUSTER,
    Allocation,
    Event,
    Holder,
    Inventory,
    Scheduler,
    Severity,
    Subject,
    Switch,
)

if TYPE_CHECKING:
    from .site import FaultKind

# A Monday, so that weeks and days of the plots begin where people expect them.
BEGINNING = datetime(2026, 1, 5, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOrder:
    """A fault that is to happen at a place; `kind` is a key of `kinds.KINDS`, or of its `OF_SWITCHES`.

    `gpu` and `port` are indices within the node; faults of other subjects leave them out. Without a
    magnitude, one is drawn from the kind's range by the seed.
    """

    kind: str
    node: int
    start_seconds: float
    seconds: float
    gpu: int | None = None
    port: int | None = None
    # One of the cables from the leaf of that port to spines, or one of the spines; counted from 0.
    uplink: int | None = None
    spine: int | None = None
    magnitude: float | None = None


Range = tuple[float, float]
Shares = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSettings:
    """How closely the nodes, telemetry, normal operation and faults of a fleet resemble real ones; shares are 0 to 1.

    `description.KEYS` has the range of each, and the source of its default.
    """

    slot_spread: float = 0.15  # largest permanent deviation of a slot's °C/W from its model's
    inlet_celsius: Range = (18.0, 27.0)  # of the coldest and the warmest rack
    locked_clocks: float = 0.15  # share of nodes whose idle GPUs keep their highest clock
    older_firmware: float = 0.25  # share of racks delivered with an older VBIOS
    presence: Range = (0.3, 1.0)  # lowest and highest share of a node's ticks that have a sample
    bursty: float = 0.1  # share of nodes whose collector sends minutes at once
    busy_hub: float = 1.0  # times a day that most nodes are late at once
    # Shares of nodes that lack columns, as with other exporters.
    no_memory_utilization: float = 0.2
    no_clocks: float = 0.15
    no_profiling: float = 0.4
    no_error_counters: float = 0.1  # events only
    no_events: float = 0.1  # counters only
    host_sensors: float = (
        0.6  # share of nodes with host memory errors, supplies, fans, mounts, disk
    )
    scheduler_read: float = 0.5  # share of fleets whose scheduler is read
    roce_fleets: float = 0.4  # share of fleets whose fabric is RoCE; the others have InfiniBand
    look_alikes: float = 1.0  # factor on the usual rate of events that only look like a fault
    maintenance: float = 2.0  # times in 1,000 days that a rack is down for planned work
    driver_rollouts: float = 2.0  # in 30 days
    faulty_share: float = 0.01  # largest share of all nodes' quarter hours that faults may touch
    # At the end, which no fault reaches: only then what comes to light once it is over is played, too.
    quiet_end_hours: float = 0.0


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
    demand: float = 0.8  # GPU time that jobs ask for, as a share of what there is
    # Workloads that may run, keys of `workloads.WORKLOADS`; None is all of them.
    workloads: tuple[str, ...] | None = None
    noise: float = 1.0  # factor on the natural noise of sensors and of work
    missing: float = 0.0  # share of samples lost, beyond the losses of normal operation
    life: bool = True  # reboots, upgrades, drains, users' Xids, late data ...
    fault_rate: float = 0.0  # random faults per 1,000 node-days
    kinds: tuple[str, ...] | None = None  # that random faults are drawn from; None is all
    faults: tuple[FaultOrder, ...] = ()  # in addition to the random ones
    more_kinds: tuple["FaultKind", ...] = ()  # in addition to `kinds.KINDS`
    # Whether somebody reads the switches: adds their faults, and records of what is seen.
    switches: bool = False
    # Whether training jobs report their steps: adds trainings and faults of jobs.
    steps: bool = False
    teams: bool = False  # whether each user's jobs run under an account
    # None is a laboratory fleet: all nodes alike, every sample there, faults well apart.
    world: WorldSettings | None = None
    mix: Shares = ()  # GPU time by workload, of any sum; empty: the workloads' own
    fault_weights: Shares = ()  # frequency by kind in world settings; others get the mean
    # A node of the reserved name that is silent while the hub restarts is not expected any more.
    cluster: str = SIMULATED_CLUSTER

    @property
    def end(self) -> datetime:
        return self.start + timedelta(days=self.days)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """One fault as it really was: what a perfect observer would report about it."""

    id: str
    fault: str  # a key of `kinds.KINDS`
    subject: Subject  # the one to act on; for a rack, its first node
    start: datetime
    end: datetime
    # The first moment at which any number or event differs enough; the end when there is none.
    detectable_from: datetime
    cause: str
    symptoms: tuple[str, ...]  # follow from the fault, and are not to be reported on their own
    severity: Severity
    action: str
    magnitude: float | None = None
    unit: str = ""
    affected: tuple[Subject, ...] = ()  # others that show it: the GPUs of a node, a job's peers
    group: str | None = None  # the rack or switch, where that is the cause
    also: tuple[Subject, ...] = ()  # other names of the same thing: the other end of its cable
    # Faults and conditions of the product that name it, for kinds missing in the judge's own table.
    named_by: tuple[str, ...] = ()
    # Largest share of its pace that a job lost; None where only playing would tell.
    pace_lost: float | None = None
    # Lost GPU-seconds of each job, by holder; None where only playing would tell.
    costs: tuple[tuple[Holder, float], ...] | None = None

    @property
    def hidden(self) -> bool:
        """Whether the fault cannot be detected: it shows only under work, and there was none."""
        return self.detectable_from >= self.end

    @property
    def cost_gpu_seconds(self) -> float | None:
        """The lost GPU-seconds of all jobs; None is not known."""
        return None if self.costs is None else sum(seconds for _, seconds in self.costs)

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
            "also": [subject.key for subject in self.also],
            "named_by": list(self.named_by),
            "pace_lost": self.pace_lost,
            "costs": None
            if self.costs is None
            else [[str(holder), seconds] for holder, seconds in self.costs],
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
                "named_by": tuple(values.get("named_by", ())),
                "severity": Severity(values["severity"]),
                "affected": tuple(Subject.parse(key) for key in values["affected"]),
                "also": tuple(Subject.parse(key) for key in values.get("also", ())),
                "costs": _costs(values.get("costs")),
            }
        )


def _costs(values: Any) -> tuple[tuple[Holder, float], ...] | None:
    return None if values is None else tuple((Holder.parse(it), cost) for it, cost in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """An event of normal operation that is no fault, though it may look like one."""

    kind: str  # "reboot", "drain", "user xid", ...
    subject: Subject
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What the fleet's collectors measured and reported from `start` on and before `end`."""

    start: datetime
    end: datetime
    tables: Mapping[str, pa.Table]
    arrivals: Mapping[str, pa.Array]
    events: tuple[Event, ...] = ()
    event_arrivals: tuple[datetime, ...] = ()
    inventories: tuple[Inventory, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    schedulers: tuple[Scheduler, ...] = ()
    switches: tuple[Switch, ...] = ()
    happenings: tuple[Happening, ...] = field(default=())  # those that began in the block
