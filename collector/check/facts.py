"""What one look at this node found: the only input of the rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import GpuIdentity, PortIdentity, Unmeasured

from ..processes.driver_lock import Stuck
from ..samples.field_values import Values
from ..sensors.pci import PciGpu
from ..sensors.ports import PortReading
from .kernel_log import KernelSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """The result of NVML's initialisation: a version, or the code and words of its failure."""

    version: str | None = None
    gpus: int = 0
    code: int | None = None
    failure: str = ""
    reason: Unmeasured | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU that NVML lists: its values, or why there are none.

    With neither values nor a failure, the GPU has not answered.
    """

    index: int
    identity: GpuIdentity | None = None
    values: Values | None = None
    processes: tuple[int, ...] | None = None  # that compute on it
    failure: str = ""
    reason: Unmeasured | None = None
    age_seconds: float = 0.0  # of the values; over 0 where the collector had read them

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
    # The site's severities of Xid and SXid codes, and for how long they stand.
    analyzer: AnalyzerSettings = field(default_factory=AnalyzerSettings)
    gpus_wanted: int | None = None  # as the caller says; None: what is on the bus or remembered
    container: bool = False  # sysfs then shows GPUs that the container was not given
    pci: tuple[PciGpu, ...] | None = None  # NVIDIA's
    unsupported: tuple[PciGpu, ...] = ()  # of other makers, on the same bus
    expects_gpus: bool = (
        False  # Slurm's gres.conf names some, or the job that begins was given some
    )
    driver: DriverFacts | None = None
    gpus: dict[int, GpuFacts] = field(default_factory=dict)
    ports: tuple[PortReading, ...] | None = None
    kernel: tuple[KernelSeen, ...] | None = None
    known: Known = Known()
    stuck: Stuck | None = None
    others_seconds: float = 0.0  # how long this check waited for others that were in the driver
    # How long each of the check's own calls that have not returned has had itself, whatever else
    # this machine was busy with: "driver", "GPU 3". A call not here was not begun, or has returned.
    called: Mapping[str, float] = field(default_factory=dict)
    agent_silent_seconds: float | None = None  # as the collector on this node says
    silent_gpus: Mapping[int, float] = field(default_factory=dict)  # the same by GPU index
    unread: dict[str, str] = field(default_factory=dict)

    @property
    def listed(self) -> list[GpuFacts]:
        """The GPUs that the driver lists, including those that have not answered yet."""
        count = 0 if self.driver is None else self.driver.gpus
        return [self.gpus.get(index, GpuFacts(index=index)) for index in range(count)]

    @property
    def is_released(self) -> bool:
        """Whether somebody has asked for the driver to be left alone, for a reset or a reload."""
        until = self.known.released_until
        return until is not None and self.at < until
