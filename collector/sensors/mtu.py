"""The largest packet that a port's network interface sends, read for inventories.

Linux, Documentation/ABI/testing/sysfs-class-net: `mtu`. A RoCE port has the interface of its first
GID (sysfs-class-infiniband: `gid_attrs/ndevs`). The largest packet of an InfiniBand port is in no
file: the MTU of IP over InfiniBand is another one.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gpuvigil.model import PortIdentity

from . import files


def with_mtu(ports: Iterable[PortIdentity], sysfs_root: Path) -> tuple[PortIdentity, ...]:
    """Return the same ports, each with its MTU in bytes; None where the kernel does not give it."""
    return tuple(replace(it, mtu=_mtu(it, sysfs_root)) for it in ports)


def _mtu(port: PortIdentity, sysfs_root: Path) -> int | None:
    interface = _interface(port, sysfs_root)
    told = (files.read(f"{sysfs_root}/class/net/{interface}/mtu") or "").strip()
    return int(told) if interface and told.isascii() and told.isdigit() and int(told) else None


def _interface(port: PortIdentity, sysfs_root: Path) -> str:
    if port.kind == "ethernet":
        return port.device
    if port.kind != "roce":
        return ""
    at = f"{sysfs_root}/class/infiniband/{port.device}/ports/{port.port}/gid_attrs/ndevs/0"
    return (files.read(at) or "").strip()
