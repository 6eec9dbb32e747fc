"""A network card's place on the PCI bus, and the speed of its link there."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..plain import known, plain

# Share of a lane's bits that encoding leaves: Linux, drivers/pci/pci.h, `PCIE_SPEED2MBS_ENC`.
_ENCODED = {2.5: 8 / 10, 5.0: 8 / 10, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 1.0}
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieLink:
    """A PCIe link: its lanes, and each lane's speed in gigatransfers per second."""

    lanes: int
    gigatransfers: float

    @property
    def bits_per_second(self) -> float:
        """Bits per second in each direction after encoding; packet headers take some of it."""
        encoded = _ENCODED.get(self.gigatransfers, 1.0)
        return self.lanes * self.gigatransfers * 1e9 * encoded

    @property
    def words(self) -> str:
        """The link in words: `x16 Gen5`."""
        generation = _GENERATIONS.get(self.gigatransfers)
        speed = f"{self.gigatransfers:g} GT/s" if generation is None else f"Gen{generation}"
        return f"x{self.lanes} {speed}"


class Beside(str, Enum):
    """What a network card shares with the GPUs nearest to it."""

    SWITCH = "PCIe switch"
    NUMA_NODE = "NUMA node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """One network card, or one function of it, as sysfs describes it."""

    address: str  # 0000:9b:00.0
    devices: tuple[str, ...]  # names of its ports' devices: mlx5_0, eth0
    model: str  # PCI vendor and device: 15b3:1021
    link: PcieLink  # as currently trained
    best: PcieLink  # the most that both ends, card and slot, support
    beside: Beside | None = None  # None when no GPU is known to be near
    gpus: tuple[str, ...] = ()  # PCI addresses of the GPUs that share it

    @property
    def is_degraded(self) -> bool:
        """Whether the link is trained below what both of its ends support."""
        fewer = self.link.lanes < self.best.lanes
        return fewer or self.link.gigatransfers < self.best.gigatransfers

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; what is not known is left out."""
        near = {"beside": self.beside.value, "gpus": list(self.gpus)} if self.beside else {}
        return {
            "address": self.address,
            "devices": list(self.devices),
            "model": self.model,
            "link": plain(self.link),
            "best": plain(self.best),
            **near,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Nic":
        """Parse what `to_json` wrote; raise KeyError or ValueError for anything else."""
        beside = value.get("beside")
        return cls(
            address=str(value["address"]),
            devices=tuple(value["devices"]),
            model=str(value["model"]),
            link=PcieLink(**known(PcieLink, value["link"])),
            best=PcieLink(**known(PcieLink, value["best"])),
            beside=None if beside is None else Beside(beside),
            gpus=tuple(value.get("gpus", ())),
        )
