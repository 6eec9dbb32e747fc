"""GPUs as the kernel's PCI bus lists them, even when the driver does not answer.

Only `vendor`, `class` and the `driver` link are read, which the kernel has in memory: nothing here
asks the device. Linux kernel, Documentation/ABI/testing/sysfs-bus-pci; classes: PCI Code and ID
Assignment, base class 03.
"""

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpuvigil.model import BusGpu

from . import files

# The PCI ID Repository (pci.ids). VGA and 3D controller; the audio function is 0x0403.
_NVIDIA, _DISPLAY = "0x10de", ("0x0300", "0x0302")
# AMD's Instinct are "display controllers" up to MI200 and "processing accelerators" since MI300; Intel's
# Data Center GPUs are display controllers.
_OTHERS = {"0x1002": "AMD", "0x8086": "Intel"}
_OTHER_CLASSES = (*_DISPLAY, "0x0380", "0x1200")
_INTEGRATED = "00:02.0"  # where Intel's processors have their graphics


@dataclass(frozen=True, slots=True, kw_only=True)
class PciGpu(BusGpu):
    """One GPU on the bus of this node."""

    @property
    def for_nvidia(self) -> bool:
        """Whether NVIDIA's driver holds it or should: false for one given to a virtual machine."""
        return self.vendor == "NVIDIA" and self.driver in {"nvidia", "nouveau", None}

    @property
    def is_unbound(self) -> bool:
        """Whether NVIDIA's driver should hold it and does not, as the kernel says."""
        return self.for_nvidia and self.driver != "nvidia"


def all_gpus(sysfs_root: Path) -> tuple[PciGpu, ...]:
    """Return every GPU on the bus, by address; OSError when the bus cannot be listed."""
    bus = f"{sysfs_root}/bus/pci/devices"
    found = (gpu_at(f"{bus}/{name}") for name in sorted(os.listdir(bus)))
    return tuple(gpu for gpu in found if gpu is not None)


def gpu_at(device: str) -> PciGpu | None:
    """Return the GPU whose folder this is; None when it is another device, or there is none."""
    kind = files.stripped(f"{device}/class")
    if not kind.startswith(_OTHER_CLASSES):
        return None
    vendor, address = _vendor(kind, files.stripped(f"{device}/vendor")), os.path.basename(device)
    if vendor is None or (vendor == "Intel" and address.endswith(_INTEGRATED)):
        return None
    try:
        driver = os.path.basename(os.readlink(f"{device}/driver"))
    except OSError:
        driver = None
    return PciGpu(address=address, driver=driver, vendor=vendor)


def _vendor(kind: str, number: str) -> str | None:
    """Return the vendor; None for a device that is no GPU, such as NVIDIA's bridges and switches."""
    if number == _NVIDIA:
        return "NVIDIA" if kind.startswith(_DISPLAY) else None
    return _OTHERS.get(number)


_ADDRESS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(\.[0-7])?")


@lru_cache(maxsize=256)
def same_form(address: str) -> str:
    """Return `0000:9b:00.0` for NVML's `00000000:9B:00.0`; other text stays as it is."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return address
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}{function or '.0'}".lower()
