"""A fault at its place: what its kind needs to say what happens there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuvigil.model import EventKind, Holder, Severity

from ..fabric.cabling import Cabling
from . import kernel_log_lines
from .chance import Dice
from .changes import Change, How, On
from .model import FaultOrder
from .topology import Topology

REBOOT_SECONDS = 360.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An event to come; `subject` is (what, number) with what a GPU, a port or a node."""

    at: float
    kind: EventKind
    subject: tuple[str, int]
    xid: int | None = None
    sxid: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Work on these GPUs stops, and the jobs that had them end soon after.

    `shut` keeps new jobs off the GPUs until `until`.
    """

    gpus: tuple[int, ...]
    at: float
    linger: float
    until: float
    shut: bool = True


@dataclass(slots=True)
class Site:
    """Where and when a fault is; its kind writes what happens into the lists."""

    order: FaultOrder
    topology: Topology
    magnitude: float | None
    dice: Dice
    changes: list[Change] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    affected: list[tuple[str, int]] = field(default_factory=list)
    also: list[tuple[str, int]] = field(default_factory=list)  # the same thing by other names
    group: str | None = None
    delay: float = 0.0  # until the first difference that can be seen
    seen: float = 0.0  # when that is: not before there is work, where it takes some
    driver: str | None = None  # of the node's inventory while the fault lasts
    vbios: str | None = None  # of the GPU, likewise
    boots: list[float] = field(default_factory=list)  # when the node comes up again
    # GPUs of the jobs that hold the fault's GPUs at the start, those in other nodes too.
    peers: tuple[int, ...] = ()
    # Share of their pace that the jobs on the fault's GPUs lose; None is not said.
    pace_lost: float | None = None
    # GPU seconds that each job lost, by holder; None where only playing tells.
    costs: tuple[tuple[Holder, float], ...] | None = None
    unlisted: bool = False  # the GPU is not in the node's inventory
    missing: bool = False  # it is, as one that is missing
    moved: bool = False  # so that the GPUs after it have moved up

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
        """The GPU whose rail the port is."""
        return self.node * self.topology.per_node + (self.order.port or 0)

    @property
    def cabling(self) -> Cabling:
        """Of a fleet whose switches are read."""
        assert self.topology.cabling is not None
        return self.topology.cabling

    @property
    def leaf(self) -> int:
        """The switch of the port."""
        return self.cabling.leaf(self.node, self.order.port or 0)

    @property
    def uplink(self) -> int:
        """The leaf's end of a cable to a spine, by its place."""
        return self.cabling.uplink(self.leaf, self.order.uplink or 0)

    @property
    def spine(self) -> int:
        return self.cabling.spine(self.order.spine or 0)

    @property
    def subject(self) -> tuple[str, int]:
        """What the fault is filed under."""
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
        """The magnitude; a kind without one does not ask."""
        assert self.magnitude is not None
        return self.magnitude

    def gpus(self, node: int | None = None) -> tuple[int, ...]:
        """The GPUs of a node, of this one by default."""
        first = (self.node if node is None else node) * self.topology.per_node
        return tuple(range(first, first + self.topology.per_node))

    def rack(self) -> list[int]:
        """The nodes of this node's rack."""
        return self.topology.nodes_of_rack(self.topology.places[self.node].rack)

    def bend(
        self,
        on: On,
        name: str,
        targets: Sequence[int],
        how: How,
        value: float = 1.0,
        span: tuple[float, float] | None = None,
    ) -> None:
        """A change over the whole fault, or over `span`."""
        start, end = span or (self.start, self.end)
        self.changes.append(
            Change(
                on=on, name=name, targets=tuple(targets), start=start, end=end, how=how, value=value
            )
        )

    def tell(
        self,
        kind: EventKind,
        subject: tuple[str, int],
        *,
        at: float | None = None,
        xid: int | None = None,
        sxid: int | None = None,
        message: str = "",
    ) -> None:
        """An event, at the start by default."""
        self.told.append(
            Told(
                at=self.start if at is None else at,
                kind=kind,
                subject=subject,
                xid=xid,
                sxid=sxid,
                message=message,
            )
        )

    def xid(self, code: int, gpu: int | None = None, at: float | None = None, **words: Any) -> None:
        """The driver logs an Xid; `words` are those of `voices.xid`."""
        gpu = self.gpu if gpu is None else gpu
        at = self.start if at is None else at
        dice = Dice(self.topology.settings.seed, "voice", code, gpu, at)
        address, index = self.topology.pci_address(gpu), gpu % self.topology.per_node
        message = kernel_log_lines.xid(code, index, address, dice, **words)
        self.tell(EventKind.XID, ("gpu", gpu), at=at, xid=code, message=message)

    def bus_error(self, severity: str, at: float | None = None) -> None:
        """The kernel reports an error of the GPU's PCIe link."""
        message = kernel_log_lines.bus_error(self.topology.pci_address(self.gpu), severity)
        self.tell(EventKind.PCIE_ERROR, ("gpu", self.gpu), at=at, message=message)

    def reboot(self, at: float) -> None:
        """The node is away, and up again at that moment."""
        span = (at - REBOOT_SECONDS, at)
        self.bend(On.DELIVERY, "silent", (self.node,), How.SET, span=span)
        self.tell(EventKind.BOOT, ("node", self.node), at=at)
        self.boots.append(at)

    def wait(self, seconds: float, besides: Sequence[int] = ()) -> None:
        """The rest of the job spins in its collectives until somebody ends it."""
        rest = tuple(gpu for gpu in self.peers if gpu not in besides)
        if rest:
            self.bend(On.WORK, "spin", rest, How.SET, span=(self.start, self.start + seconds))
            self.affected += [("gpu", gpu) for gpu in rest]

    def stop(self, gpus: Sequence[int], linger: float = 30.0, *, shut: bool = True) -> None:
        """The jobs on these GPUs die."""
        self.stops.append(
            Stop(gpus=tuple(gpus), at=self.start, linger=linger, until=self.end, shut=shut)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One sort of fault, and what is right to say about it."""

    key: str
    target: str  # "gpu", "port", "node", "uplink" or "spine"
    make: Callable[[Site], None]
    severity: Severity
    action: str
    cause: str
    symptoms: tuple[str, ...] = ()
    sizes: tuple[float, ...] = ()  # lowest and highest magnitude, or the ones there are
    unit: str = ""
    # How long: the shortest, the median, the longest [chosen, except where the kind says].
    hours: tuple[float, float, float] = (0.3, 3.0, 30.0)
    nvidia: bool = True  # needs what only NVIDIA's driver tells
    discrete: bool = False  # `sizes` are the only ones
    # Faults and conditions of the product that name it; none is what the judge's own table says.
    named_by: tuple[str, ...] = ()
    names_itself: bool = False  # an event or a counter says what it is: nothing need be inferred
    needs_work: bool = (
        False  # shows only on GPUs that work: it is put there, and asked of nobody elsewhere
    )
