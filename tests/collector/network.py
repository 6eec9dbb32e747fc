"""A machine with network ports of any kind: a sysfs and a procfs of its own."""

from collections.abc import Mapping
from pathlib import Path

from collector.sensors.ports import PortReading, PortSensor
from tests.sysfs import PortTree

ROUTES = """Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
{interface}\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
{interface}\t0000A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
"""


class Machine:
    """A sysfs and a procfs of one's own."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc = root / "sys", root / "proc"
        self.tree = PortTree(self.sys)

    def files(self, folder: str, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            path = self.sys / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")

    def ethernet(self, name: str, pci: str | None, **texts: str) -> None:
        """An interface; one without a PCI address is not hardware."""
        self.files(f"class/net/{name}", {"operstate": "up", "type": "1", **texts})
        if pci is not None:
            self.attach(f"class/net/{name}", pci)

    def attach(self, folder: str, pci: str) -> None:
        hardware = self.sys / "devices" / pci
        hardware.mkdir(parents=True, exist_ok=True)
        (self.sys / folder / "device").symlink_to(hardware)

    def route(self, interface: str) -> None:
        (self.proc / "net").mkdir(parents=True, exist_ok=True)
        (self.proc / "net/route").write_text(ROUTES.format(interface=interface))

    def bond(self, *slaves: str) -> None:
        """Make bond0 of these interfaces."""
        self.files("class/net/bond0", {"type": "1", "bonding/slaves": " ".join(slaves)})
        for name in slaves:
            (self.sys / f"class/net/{name}/master").symlink_to(self.sys / "class/net/bond0")

    def temperatures(self, pci: str, **labels: int) -> None:
        """What hwmon shows of a device, by label, in thousandths of a degree."""
        folder = f"devices/{pci}/hwmon/hwmon3"
        for number, (label, value) in enumerate(labels.items(), 1):
            texts = {f"temp{number}_label": label, f"temp{number}_input": str(value)}
            self.files(folder, {**texts, f"temp{number}_crit": "105000"})

    def read(self) -> dict[str, PortReading]:
        found = PortSensor(self.sys, self.proc).read()
        return {f"{r.identity.device}/{r.identity.port}": r for r in found}
