"""Network ports and the PCI bus as the kernel shows them under /sys, for tests to bend."""

from pathlib import Path

COUNTERS = (
    "port_rcv_data",
    "port_xmit_data",
    "port_rcv_errors",
    "port_xmit_discards",
    "link_downed",
    "symbol_error",
)


class PortTree:
    """InfiniBand ports under `root`; each file is replaced as a whole, as sysfs reads are."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "class/net").mkdir(parents=True)

    def infiniband(self, device: str, port: str = "1") -> None:
        """Add a port that is up."""
        for name in COUNTERS:
            self._put(device, port, f"counters/{name}", "0")
        self._put(device, port, "link_layer", "InfiniBand")
        self._put(device, port, "rate", "400 Gb/sec (4X NDR)")
        self._put(device, port, "phys_state", "5: LinkUp")
        self._put(device, port, "state", "4: ACTIVE")

    def down(self, device: str, port: str = "1") -> None:
        self._put(device, port, "counters/link_downed", "1")
        self._put(device, port, "phys_state", "2: Polling")
        self._put(device, port, "state", "1: DOWN")

    def up(self, device: str, port: str = "1") -> None:
        self._put(device, port, "phys_state", "5: LinkUp")
        self._put(device, port, "state", "4: ACTIVE")

    def _put(self, device: str, port: str, name: str, text: str) -> None:
        path = self.root / "class/infiniband" / device / "ports" / port / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(text + "\n")
        fresh.replace(path)


class PciTree:
    """GPUs on the PCI bus under `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(
        self,
        name: str,
        *,
        driver: str | None = "nvidia",
        kind: str = "0x030200",
        vendor: str = "0x10de",
    ) -> None:
        folder = self.root / "bus/pci/devices" / name
        folder.mkdir(parents=True)
        (folder / "class").write_text(f"{kind}\n")
        (folder / "vendor").write_text(f"{vendor}\n")
        if driver is not None:
            self.take(name, driver)

    def take(self, name: str, driver: str) -> None:
        """Let a driver hold the device."""
        (self.root / "bus/pci/devices" / name / "driver").symlink_to(f"../drivers/{driver}")

    def remove(self, name: str) -> None:
        folder = self.root / "bus/pci/devices" / name
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
