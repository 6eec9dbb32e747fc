"""A collector's reports besides metrics: events, allocations of GPUs, and a node's inventory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Any

from ..clock import from_text, micros, to_text
from ..gpu_identity import GpuIdentity
from ..plain import known, plain
from .collective import Collective
from .holder import Holder, pod_holder
from .nic import Nic
from .record import Record, RecordKind
from .subject import Subject


class EventKind(str, Enum):
    """A kind of event that a collector reports when it happens.

    Events are sent and kept under the kind's name in lower case: a renamed kind must keep that
    word.
    """

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[Any]) -> str:
        return name.lower()

    XID = auto()
    GPU_LOST = auto()
    GPU_BACK = auto()
    GPU_RESET = auto()
    PORT_DOWN = auto()
    PORT_UP = auto()
    DRIVER_SILENT = auto()
    DRIVER_BACK = auto()
    SXID = auto()  # an Xid of an NVSwitch
    PCIE_ERROR = auto()
    OOM_KILL = auto()
    MACHINE_CHECK = auto()
    KERNEL_HANG = auto()  # the kernel says that a processor or a task makes no progress
    STORAGE_ERROR = auto()  # a drive of the machine is gone, or a file system on it read-only
    LOGS = auto()  # logs are collected or not: the message says where, or why not
    HOST = auto()  # a supply, fan or mount fails, or has recovered: the message names it
    SHUTDOWN = auto()  # the machine shuts down in order; the message begins with what follows
    STOPPED = auto()  # the collector was stopped in order, and the machine stays up
    BOOT = auto()  # its time is when the machine started, not when the collector did
    COLLECTIVE = auto()  # what a job's NCCL or PyTorch says about its ranks' progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change of state that a collector saw: an Xid, a GPU lost or back, a port down or up.

    `count` is how often the event happened since the previous one of its kind, when it is too frequent
    to be reported each time; then `at` and `message` are those of the last occurrence. A higher
    `version` says the same thing in better words. `gone`: the port is down because its device has left
    the system, as while its driver is reloaded. `crashed`: the kernel that ran before this boot left a
    dump of its end. `collectives`: from one look at one job, one for each
    of its groups that reports something.
    """

    kind: EventKind
    subject: Subject
    at: datetime
    id: str
    xid: int | None = None
    message: str = ""
    sxid: int | None = None
    count: int = 1
    version: int = 1
    gone: bool = False
    crashed: bool = False
    collectives: tuple[Collective, ...] = ()

    @property
    def code(self) -> int:
        """The Xid or SXid that the event reports; 0, which is neither, when it reports none."""
        return self.xid or self.sxid or 0

    def to_record(self) -> Record:
        body: dict[str, Any] = {"event": self.kind.value, "message": self.message}
        if self.xid is not None:
            body["xid"] = self.xid
        if self.sxid is not None:
            body["sxid"] = self.sxid
        if self.count != 1:
            body["count"] = self.count
        if self.gone:
            body["gone"] = True
        if self.crashed:
            body["crashed"] = True
        if self.collectives:
            body["collectives"] = [one.to_json() for one in self.collectives]
        return Record(
            kind=RecordKind.EVENT,
            id=self.id,
            at=self.at,
            subject=self.subject.key,
            version=self.version,
            body=body,
        )

    @classmethod
    def from_record(cls, record: Record) -> "Event":
        """Parse an event from a record; raise ValueError for another record or an unknown kind of event."""
        xid, sxid = record.body.get("xid"), record.body.get("sxid")
        return cls(
            kind=EventKind(record.body.get("event")),
            subject=Subject.parse(record.subject),
            at=record.at,
            id=record.id,
            xid=None if xid is None else int(xid),
            message=str(record.body.get("message", "")),
            sxid=None if sxid is None else int(sxid),
            count=int(record.body.get("count", 1)),
            version=record.version,
            gone=record.body.get("gone") is True,
            crashed=record.body.get("crashed") is True,
            collectives=tuple(map(Collective.from_json, record.body.get("collectives", ()))),
        )


_OF_JOBS = ("partition", "account", "array", "exit_code", "pod", "place", "part")


class AllocationState(str, Enum):
    """The states of an allocation that the hub can be queried by, derived from `Allocation.ended_at`."""

    HELD = "held"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The holder of one GPU over a time; `ended_at` is None while it is held.

    A job's allocation starts when its prolog got the GPU; a pod's and a process's when first seen
    on it.
    """

    subject: Subject
    holder: Holder
    user: str | None
    command: str | None
    started_at: datetime
    ended_at: datetime | None = None
    # Of jobs, as far as the node was told:
    partition: str | None = None
    account: str | None = None
    array: str | None = None  # "17_3": the third task of the array job 17
    exit_code: str | None = None  # "3:0" is exit(3), "0:9" is SIGKILL
    # Of pods, "namespace/name"; it also names the allocation when the holder is the pod's job.
    pod: str | None = None
    # What the holder runs in: a pod's containers, "docker 4f1e0c5b7a92", or a systemd unit.
    place: str | None = None
    # The part of the GPU that is held, if not all of it: MIG devices, or "shared" by time slicing or
    # MPS.
    part: str | None = None
    # The holder had the GPU already at the first look at it, or the first after a gap: the allocation
    # began at `started_at` or earlier.
    began_before: bool = False

    @property
    def id(self) -> str:
        held_by = self.holder if self.pod is None else pod_holder(self.pod)
        return f"{self.subject.key}|{held_by}|{to_text(self.started_at)}"

    @property
    def version(self) -> int:
        """1 while held and 2 when ended; for a pod 1 and 3, plus 1 once its job is known."""
        ended = self.ended_at is not None
        if self.pod is None:
            return 2 if ended else 1
        return (3 if ended else 1) + (self.holder != pod_holder(self.pod))

    def to_record(self) -> Record:
        """Return a record of kind `allocation`; by its `version` an end is newer than any beginning."""
        ended = None if self.ended_at is None else to_text(self.ended_at)
        before = {"began_before": True} if self.began_before else {}
        return Record(
            kind=RecordKind.ALLOCATION,
            id=self.id,
            at=self.started_at,
            subject=self.subject.key,
            version=self.version,
            body={
                "holder": str(self.holder),
                "user": self.user,
                "command": self.command,
                "ended_at": ended,
                **{key: value for key in _OF_JOBS if (value := getattr(self, key)) is not None},
                **before,
            },
        )

    @classmethod
    def from_record(cls, record: Record) -> "Allocation":
        ended = record.body.get("ended_at")
        return cls(
            subject=Subject.parse(record.subject),
            holder=Holder.parse(str(record.body["holder"])),
            user=record.body.get("user"),
            command=record.body.get("command"),
            started_at=record.at,
            ended_at=None if ended is None else from_text(ended),
            began_before=record.body.get("began_before") is True,
            **{key: record.body.get(key) for key in _OF_JOBS},
        )


# Left out of records when empty: most sites have no use for some, or cannot tell the others.
_OPTIONAL = frozenset(
    {
        *("minor", "firmware", "switch", "switch_port", "fabric_cluster", "fabric_clique"),
        *("addresses", "waits_for", "addressing", "mtu"),
    }
)


def _identity_json(identity: "GpuIdentity | PortIdentity") -> dict[str, Any]:
    values = plain(identity).items()
    return {
        key: value
        for key, value in values
        if key not in _OPTIONAL or not (value is None or (value == [] and key != "addressing"))
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PortIdentity:
    """One network port of a node."""

    device: str
    port: str
    kind: str  # infiniband, roce, ethernet, efa
    role: str  # fabric, storage, management
    was_up: bool = False  # a port that was never up is unprovisioned, not broken
    firmware: str | None = None  # of its device
    # The other end of its cable, as the switch last named itself (LLDP):
    switch: str | None = None
    switch_port: str | None = None
    # For plain Ethernet: its own IP addresses, and peers' addresses that answer late.
    addresses: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    # How other hosts reach it over RDMA: kinds of its GIDs (`RoCE v2 IPv4`), or partitions (`partition
    # 0x8001`); None: nobody looked.
    addressing: tuple[str, ...] | None = None
    mtu: int | None = None  # of its network interface, in bytes

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "PortIdentity":
        """Parse a port's identity; fields that this version does not know are ignored."""
        lists = {key: tuple(told.get(key) or ()) for key in ("addresses", "waits_for")}
        reached = told.get("addressing")
        by = {"addressing": None if reached is None else tuple(reached)}
        return cls(**{**known(cls, told), **lists, **by})


@dataclass(frozen=True, slots=True, kw_only=True)
class BusGpu:
    """One GPU on a node's PCI bus, and the kernel driver bound to it; None when none is."""

    address: str  # 0000:9b:00.0
    driver: str | None = None
    vendor: str = "NVIDIA"  # or AMD, Intel

    @property
    def words(self) -> str:
        """The GPU in words: `AMD GPU 0000:43:00.0 (amdgpu)`."""
        return f"{self.vendor} GPU {self.address}" + (f" ({self.driver})" if self.driver else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """A node's hardware, and how its collector reads it; one record per node, the newest wins."""

    subject: Subject
    at: datetime
    boot: str
    tick_seconds: float
    version: str
    gpus: tuple[GpuIdentity, ...] = ()
    ports: tuple[PortIdentity, ...] = ()
    nics: tuple[Nic, ...] = ()  # network cards whose PCIe link speed is known
    driver: str | None = None
    driver_state: str = "no driver"  # "loaded", "no driver", or why it cannot be read
    kernel: str | None = None  # its release, as `uname -r` says it
    rack: str | None = None
    missing: Mapping[str, datetime] = field(default_factory=dict)  # lost GPUs: UUID, and since when
    on_bus: tuple[BusGpu, ...] = ()
    driverless_since: datetime | None = None  # since when NVIDIA GPUs on the bus have no driver
    expects_gpus: bool = False  # GPUs were read here before, or Slurm's gres.conf names some

    @property
    def fabric_role(self) -> str:
        """The role of the ports that its jobs communicate over; without RDMA, its other Ethernet ports."""
        roles = {port.role for port in self.ports}
        return next((role for role in ("fabric", "storage") if role in roles), "management")

    @property
    def unsupported(self) -> tuple[BusGpu, ...]:
        """GPUs on the bus that no collector can read."""
        return tuple(gpu for gpu in self.on_bus if gpu.vendor != "NVIDIA")

    @property
    def collected(self) -> bool:
        """Whether one of our collectors wrote it; otherwise it is derived from others' data."""
        return bool(self.version)

    def to_record(self) -> Record:
        """Return a record of kind `inventory`; its version is the time in microseconds: the newest wins."""
        body = {
            "boot": self.boot,
            "tick_seconds": self.tick_seconds,
            "version": self.version,
            "driver": self.driver,
            "driver_state": self.driver_state,
            "rack": self.rack,
            "gpus": [_identity_json(gpu) for gpu in self.gpus],
            "ports": [_identity_json(port) for port in self.ports],
            "missing": {uuid: to_text(since) for uuid, since in self.missing.items()},
            "on_bus": [plain(gpu) for gpu in self.on_bus],
            "driverless_since": self.driverless_since and to_text(self.driverless_since),
            "expects_gpus": self.expects_gpus,
            **({} if self.kernel is None else {"kernel": self.kernel}),
            **({"nics": [nic.to_json() for nic in self.nics]} if self.nics else {}),
        }
        return Record(
            kind=RecordKind.INVENTORY,
            id=self.subject.key,
            at=self.at,
            subject=self.subject.key,
            version=micros(self.at),
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
            gpus=tuple(GpuIdentity(**known(GpuIdentity, gpu)) for gpu in body["gpus"]),
            ports=tuple(map(PortIdentity.from_json, body["ports"])),
            nics=tuple(map(Nic.from_json, body.get("nics", ()))),
            driver=body.get("driver"),
            driver_state=str(body.get("driver_state", "no driver")),
            kernel=body.get("kernel"),
            rack=body.get("rack"),
            missing={uuid: from_text(at) for uuid, at in body.get("missing", {}).items()},
            on_bus=tuple(BusGpu(**known(BusGpu, gpu)) for gpu in body.get("on_bus", ())),
            driverless_since=from_text(since) if (since := body.get("driverless_since")) else None,
            expects_gpus=bool(body.get("expects_gpus", False)),
        )
