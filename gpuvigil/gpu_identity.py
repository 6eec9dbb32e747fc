"""What a GPU is, and why it may not be measured: all that the reader needs of the model.

Apart from `gpuvigil.model`, which would take a tenth of the reader's memory.
"""

from dataclasses import dataclass
from enum import IntEnum


class Unmeasured(IntEnum):
    """Why a subject's metrics are missing; sent as the number in `unmeasured_reason`."""

    NOT_SUPPORTED = 1
    NO_PERMISSION = 2
    LOST = 3
    DRIVER_NOT_ANSWERING = 4
    DRIVER_NOT_LOADED = 5
    READ_ERROR = 6
    RELEASED_FOR_MAINTENANCE = 7

    @property
    def text(self) -> str:
        """The reason in words, for people."""
        return self.name.lower().replace("_", " ")


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
    part_number: str | None = None
    inforom: str | None = None
    gsp_firmware: str | None = None
    minor: int | None = None  # of its device file: 3 of /dev/nvidia3
    # Its NVLink domain across nodes, from NVML's fabric info; None for a GPU that is in no domain.
    fabric_cluster: str | None = None  # clusterUuid
    fabric_clique: int | None = None  # cliqueId

    @property
    def nvlink_domain(self) -> str | None:
        """The domain as `UUID.clique`, as in the label `nvidia.com/gpu.clique`; None for a GPU in no domain."""
        if self.fabric_cluster is None or self.fabric_clique is None:
            return None
        return f"{self.fabric_cluster}.{self.fabric_clique}"
