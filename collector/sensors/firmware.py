"""The firmware of a node's network ports, read for inventories.

For an RDMA device from sysfs (Linux, Documentation/ABI/stable/sysfs-class-infiniband, `fw_ver`),
for another Ethernet interface as `ethtool -i` asks it (Linux, include/uapi/linux/ethtool.h).
"""

import array
import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from gpuvigil.model import PortIdentity

from . import ethtool, files

_GET_DRIVER_INFO = 0x3
# cmd, driver, version, fw_version, bus_info, and members that are not used here.
_DRIVER_INFO = struct.Struct("=I32s32s32s32s64x")
# What drivers report when they have none.
_NONE = frozenset({"", "N/A"})


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """What an interface's kernel driver reports of it."""

    firmware: str
    place: str  # on its bus: 0000:9b:00.0


def driver_info(interface: str) -> DriverInfo | None:
    """Ask the kernel; None where there is no such interface, or its driver does not answer."""
    answer = array.array("B", _DRIVER_INFO.pack(_GET_DRIVER_INFO, b"", b"", b"", b""))
    try:
        ethtool.ask(interface, answer)
    except OSError:
        return None
    _, _, _, firmware, place = _DRIVER_INFO.unpack(answer)
    return DriverInfo(_word(firmware), _word(place))


def with_firmware(
    ports: Iterable[PortIdentity],
    sysfs_root: Path,
    ask: Callable[[str], DriverInfo | None] = driver_info,
) -> tuple[PortIdentity, ...]:
    """Return the same ports, each with its firmware; None where it is not known."""
    return tuple(replace(port, firmware=_firmware(port, sysfs_root, ask)) for port in ports)


def _firmware(
    port: PortIdentity, sysfs_root: Path, ask: Callable[[str], DriverInfo | None]
) -> str | None:
    if port.kind != "ethernet":
        return _some(files.stripped(f"{sysfs_root}/class/infiniband/{port.device}/fw_ver"))
    found = ask(port.device)
    device = os.path.realpath(f"{sysfs_root}/class/net/{port.device}/device")
    # In a container another interface may have the name of one of the host's.
    if found is None or found.place != os.path.basename(device):
        return None
    return _some(found.firmware)


def _some(text: str) -> str | None:
    return None if text in _NONE else text


def _word(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode(errors="replace").strip()
