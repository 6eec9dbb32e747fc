"""A fault at its place, with the methods by which its kind describes what happens there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuvigil.model import EventKind, Holder, Severity

from ..fabric.cabling import Cabling
from . import kernel_log_lines
from .chance import Dice
from .changes import Change, Operation, Quantity
from .model import FaultOrder
from .topology import Topology

REBOOT_SECONDS = 360.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvent:
    """A planned event; `subject` is (kind, number), the kind being a GPU, a port or a node."""

    at: float
    kind: EventKind
    subject: tuple[str, int]
    xid: int | None = None
    sxid: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A stop of work on these GPUs; the jobs that hold them end soon after.

    `shut` keeps new jobs off the GPUs until `until`.
    """

    gpus: tuple[int, ...]
    at: float
    linger: float
    until: float
    shut: bool = True


@dataclass(slots=True)
class Site:
    """The place and time of a fault; its kind adds what happens to the lists."""

    order: FaultOrder
    topology: Topology
    magnitude: float | None
    dice: Dice
    changes: list[Change] = field(default_factory=list)
    planned_events: list[PlannedEvent] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    affected: list[tuple[str, int]] = field(default_factory=list)
    also: list[tuple[str, int]] = field(default_factory=list)  # other names of the same thing
    group: str | None = None
    delay: float = 0.0  # seconds until the first visible difference
    seen: float = 0.0  # when it is first visible: not before there is work, if it needs work
    driver: str | None = None  # in the node's inventory while the fault lasts
    vbios: str | None = None  # of the GPU, in the same inventory
    hangs: tuple[int, ...] = ()  # GPUs whose jobs do not end by themselves while the fault lasts
    machine_down: bool = False  # nothing on the machine answers anybody
    boots: list[float] = field(default_factory=list)  # when the node comes up again
    # GPUs of the jobs that hold the fault's GPUs at the start, also those on other nodes.
    peers: tuple[int, ...] = ()
    # Whether one of these jobs is on several nodes and sends between them.
    sends: bool = False
    # Share of pace that the jobs on the fault's GPUs lose; None where the kind does not say.
    pace_lost: float | None = None
    # Lost GPU-seconds of each job, by holder; None where only playing tells.
    costs: tuple[tuple[Holder, float], ...] | None = None
    unlisted: bool = False  # the node's inventory does not list the GPU
    missing: bool = False  # the inventory lists the GPU as missing
    moved: bool = False  # the GPU has no index, and those after it have moved up

    @property
    def start(self) -> float:
        return self.order.start_seconds

    @property
    def end(self) -> float:
        return self.order.start_seconds + self.order.seconds

    @property
    def node(self) -> int:
        return self.order.node

    @property
    def gpu(self) -> int:
        return self.node * self.topology.per_node + (self.order.gpu or 0)

    @property
    def port(self) -> int:
        return self.node * self.topology.ports_per_node + (self.order.port or 0)

    @property
    def gpu_of_port(self) -> int:
        """The GPU on the port's rail."""
        return self.node * self.topology.per_node + (self.order.port or 0)

    @property
    def cabling(self) -> Cabling:
        """The cabling; only for a fleet whose switches are read."""
        assert self.topology.cabling is not None
        return self.topology.cabling

    @property
    def leaf(self) -> int:
        """The leaf of the port."""
        return self.cabling.leaf(self.node, self.order.port or 0)

    @property
    def uplink(self) -> int:
        """The place of the leaf's end of a cable to a spine."""
        return self.cabling.uplink(self.leaf, self.order.uplink or 0)

    @property
    def spine(self) -> int:
        return self.cabling.spine(self.order.spine or 0)

    @property
    def subject(self) -> tuple[str, int]:
        """The subject that the fault is filed under."""
        order = self.order
        if order.spine is not None:
            return "switch", self.spine
        if order.uplink is not None:
            return "switch port", self.uplink
        if order.port is not None:
            return "port", self.port
        return ("node", self.node) if order.gpu is None else ("gpu", self.gpu)

    @property
    def size(self) -> float:
        """The magnitude; only for kinds that have one."""
        assert self.magnitude is not None
        return self.magnitude

    def gpus(self, node: int | None = None) -> tuple[int, ...]:
        """Return the GPUs of a node, by default of this one."""
        first = (self.node if node is None else node) * self.topology.per_node
        return tuple(range(first, first + self.topology.per_node))

    def rack(self) -> list[int]:
        """Return the nodes of this node's rack."""
        return self.topology.nodes_of_rack(self.topology.places[self.node].rack)

    def add_change(
        self,
        on: Quantity,
        name: str,
        targets: Sequence[int],
        how: Operation,
        value: float = 1.0,
        span: tuple[float, float] | None = None,
    ) -> None:
        """Add a change over the whole fault, or over `span`."""
        start, end = span or (self.start, self.end)
        self.changes.append(
            Change(
                on=on, name=name, targets=tuple(targets), start=start, end=end, how=how, value=value
            )
        )

    def report_event(
        self,
        kind: EventKind,
        subject: tuple[str, int],
        *,
        at: float | None = None,
        xid: int | None = None,
        sxid: int | None = None,
        message: str = "",
    ) -> None:
        """Add an event, at the start by default."""
        self.planned_events.append(
            PlannedEvent(
                at=self.start if at is None else at,
                kind=kind,
                subject=subject,
                xid=xid,
                sxid=sxid,
                message=message,
            )
        )

    def xid(self, code: int, gpu: int | None = None, at: float | None = None, **words: Any) -> None:
        """Let the driver log an Xid; `words` are those of `kernel_log_lines.xid`."""
        gpu = self.gpu if gpu is None else gpu
        at = self.start if at is None else at
        dice = Dice(self.topology.settings.seed, "voice", code, gpu, at)
        address, index = self.topology.pci_address(gpu), gpu % self.topology.per_node
        message = kernel_log_lines.xid(code, index, address, dice, **words)
        self.report_event(EventKind.XID, ("gpu", gpu), at=at, xid=code, message=message)

    def bus_error(self, severity: str, at: float | None = None) -> None:
        """Let the kernel report an error of the GPU's PCIe link."""
        message = kernel_log_lines.bus_error(self.topology.pci_address(self.gpu), severity)
        self.report_event(EventKind.PCIE_ERROR, ("gpu", self.gpu), at=at, message=message)

    def reboot(self, at: float) -> None:
        """Reboot the node, so that it is up again at that moment."""
        span = (at - REBOOT_SECONDS, at)
        self.add_change(Quantity.DELIVERY, "silent", (self.node,), Operation.SET, span=span)
        self.report_event(EventKind.BOOT, ("node", self.node), at=at)
        self.boots.append(at)

    def wait(self, seconds: float, besides: Sequence[int] = ()) -> None:
        """Let the rest of the job spin in its collectives until somebody ends it."""
        rest = tuple(gpu for gpu in self.peers if gpu not in besides)
        if rest:
            self.add_change(
                Quantity.WORK, "spin", rest, Operation.SET, span=(self.start, self.start + seconds)
            )
            self.affected += [("gpu", gpu) for gpu in rest]

    def stop(self, gpus: Sequence[int], linger: float = 30.0, *, shut: bool = True) -> None:
        """End the jobs on these GPUs."""
        self.stops.append(
            Stop(gpus=tuple(gpus), at=self.start, linger=linger, until=self.end, shut=shut)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One kind of fault, and what is right to report about it."""

    key: str
    target: str  # "gpu", "port", "node", "uplink" or "spine"
    make: Callable[[Site], None]
    severity: Severity
    action: str
    cause: str
    symptoms: tuple[str, ...] = ()
    sizes: tuple[float, ...] = ()  # lowest and highest magnitude, or all of them if `discrete`
    unit: str = ""
    # The shortest, the median and the longest duration [chosen, except where the kind says].
    hours: tuple[float, float, float] = (0.3, 3.0, 30.0)
    nvidia: bool = True  # needs reports that only NVIDIA's driver makes
    discrete: bool = False  # `sizes` are the only magnitudes
    # Faults and conditions of the product that name it; if empty, the judge's own table decides.
    named_by: tuple[str, ...] = ()
    # A sort of fields (`sensors.SORTS`), and the kinds that it cannot be told from where a node does not read these.
    unread: tuple[str, tuple[str, ...]] | None = None
    names_itself: bool = False  # an event or a counter identifies it: nothing has to be inferred
    needs_work: bool = (
        False  # shows only on GPUs that work: it is put there, and need not be found elsewhere
    )
