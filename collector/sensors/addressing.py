"""How hosts reach an RDMA port: GIDs of RoCE, partition keys of InfiniBand; read for inventories.

Linux, Documentation/ABI/stable/sysfs-class-infiniband: `ports/N/gids`, `gid_attrs/types` and
`pkeys`. Of GIDs only the kinds are reported, and no address.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from gpuvigil.model import PortIdentity

from . import files

# Tables have up to 256 entries, of which the first few are used: nothing follows so many empty ones.
_MOST, _EMPTY = 128, 16
_NO_GID, _NO_KEY = "0000:0000:0000:0000:0000:0000:0000:0000", "0x0000"
# RFC 4291: link-local, and IPv4 mapped into IPv6, as the kernel writes a GID.
_FAMILIES = (("fe80:", "link-local"), ("0000:0000:0000:0000:0000:ffff:", "IPv4"))


def with_addressing(ports: Iterable[PortIdentity], sysfs_root: Path) -> tuple[PortIdentity, ...]:
    """Return the same ports, each with its addressing; None where the kernel does not give it."""
    return tuple(replace(it, addressing=_addressing(it, sysfs_root)) for it in ports)


def _addressing(port: PortIdentity, sysfs_root: Path) -> tuple[str, ...] | None:
    at = f"{sysfs_root}/class/infiniband/{port.device}/ports/{port.port}"
    if port.kind == "roce":
        return _all(f"{at}/gids", _NO_GID, lambda number, gid: _kind(at, number, gid))
    if port.kind == "infiniband":
        return _all(f"{at}/pkeys", _NO_KEY, lambda _, key: f"partition {key}")
    return None


def _all(table: str, empty: str, told: Callable[[int, str], str | None]) -> tuple[str, ...] | None:
    found, is_read = set(), False
    for number, entry in _entries(table, empty):
        is_read = True
        if entry != empty:
            found.add(told(number, entry))
    # A table that cannot be read to its end does not show what is missing.
    return tuple(sorted(it for it in found if it)) if is_read and None not in found else None


def _entries(table: str, empty: str) -> Iterator[tuple[int, str]]:
    none = 0
    for number in range(_MOST):
        entry = files.read(f"{table}/{number}")
        if entry is None or none == _EMPTY:
            return
        entry = entry.strip()
        none = none + 1 if entry == empty else 0
        yield number, entry


def _kind(at: str, number: int, gid: str) -> str | None:
    """Return a GID's kind, such as `RoCE v2 IPv4`; None when its type cannot be read."""
    version = files.read(f"{at}/gid_attrs/types/{number}")
    if version is None:
        return None
    family = next((name for begins, name in _FAMILIES if gid.startswith(begins)), "IPv6")
    return f"{version.strip().removeprefix('IB/')} {family}"
