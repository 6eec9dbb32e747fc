"""What a look at this node saw: the one input of all rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpuvigil.model import GpuIdentity, PortIdentity, Unmeasured

from ..aside import Stuck
from ..fieldvalues import Values
from ..sensors.pci import PciGpu
from ..sensors.ports import PortReading
from .kernel import KernelSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """What NVML's initialisation said: a version, or the code and words of its failure."""

    version: str | None = None
    gpus: int = 0
    code: int | None = None
    failure: str = ""
    reason: Unmeasured | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU that NVML lists: its values, or why there are none.

    Neither values nor a failure: it has not answered.
    """

    index: int
    identity: GpuIdentity | None = None
    values: Values | None = None
    failure: str = ""
    reason: Unmeasured | None = None

    @property
    def answered(self) -> bool:
        return self.values is not None or self.reason is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the collector remembers of this node."""

    gpus: tuple[GpuIdentity, ...] = ()
    ports: tuple[PortIdentity, ...] = ()
    missing_since: dict[str, datetime] = field(default_factory=dict)  # by UUID
    released_until: datetime | None = None  # until then nobody may touch the driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The node at one moment; None is what could not be read, and `unread` says why."""

    node: str
    cluster: str
    at: datetime
    uptime_seconds: float = 0.0  # of the machine
    waited_seconds: float = 0.0
    wants_gpus: bool = True  # the setting collector.gpus
    xid_overrides: Mapping[int, str] = field(default_factory=dict)  # analyzer.xid_overrides
    gpus_wanted: int | None = None  # as whoever asks says; None: what is on the bus or remembered
    container: bool = False  # sysfs then shows GPUs that the container was not given
    pci: tuple[PciGpu, ...] | None = None
    driver: DriverFacts | None = None
    gpus: dict[int, GpuFacts] = field(default_factory=dict)
    ports: tuple[PortReading, ...] | None = None
    kernel: tuple[KernelSeen, ...] | None = None
    known: Known = Known()
    stuck: Stuck | None = None
    agent_silent_seconds: float | None = None  # as the collector on this node says
    unread: dict[str, str] = field(default_factory=dict)
