"""Facts made by hand, for the rules and for who is told."""

from datetime import datetime, timezone
from typing import Any

from collector.check.facts import DriverFacts, Facts, GpuFacts
from collector.sensors.pci import PciGpu
from gpuvigil.model import GpuIdentity

HEALTHY: dict[str, int | float] = {
    "ecc_uncorrected_errors": 0,
    "clock_event_reasons": 1,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "utilization_percent": 90,
    "temperature_celsius": 60,
    "nvlink_links_up": 18,
}


def identity(index: int) -> GpuIdentity:
    address = f"00000000:{0x10 + index:02X}:00.0"
    return GpuIdentity(uuid=f"GPU-{index}", index=index, pci_address=address, model="H100")


def on_bus(index: int, driver: str | None = "nvidia") -> PciGpu:
    return PciGpu(address=f"0000:{0x10 + index:02x}:00.0", driver=driver)


def a_node(count: int = 4, **changes: Any) -> Facts:
    """A node all of whose GPUs are well."""
    facts: dict[str, Any] = {
        "node": "n1",
        "cluster": "c",
        "at": datetime(2026, 1, 1, tzinfo=timezone.utc),
        "uptime_seconds": 86400.0,
        "waited_seconds": 4.0,
        "pci": tuple(map(on_bus, range(count))),
        "driver": DriverFacts(version="570", gpus=count),
        "gpus": {
            index: GpuFacts(index=index, identity=identity(index), values=dict(HEALTHY))
            for index in range(count)
        },
        "ports": (),
    }
    return Facts(**{**facts, **changes})
