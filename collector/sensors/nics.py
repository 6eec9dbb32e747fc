"""Network cards on the PCI bus: the speed of their links and the GPUs near them, for inventories.

Speed and width are registers of the card and of the port above it, which the kernel reads for each
look: Linux, drivers/pci/pci-sysfs.c, `current_link_speed` and its neighbours. `numa_node` and a
device's place are in the kernel's memory: Documentation/ABI/testing/sysfs-bus-pci.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from gpuvigil.model import Beside, BusGpu, Nic, PcieLink, PortIdentity

from . import files

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SPEED = re.compile(r"([0-9.]+) GT/s")
_EVERY_SECONDS = 60.0
_MOST_LANES = (
    32  # a width above stands for "not known": PCI Express Base Specification, link capabilities
)


class NicSensor:
    """Reads the cards once a minute at most, however often it is asked."""

    def __init__(self, sysfs_root: Path, monotonic: Callable[[], float]) -> None:
        self._root, self._monotonic = sysfs_root, monotonic
        self._read_at: float | None = None
        self._asked: object = None
        self._found: tuple[Nic, ...] = ()

    def read(self, ports: Iterable[PortIdentity], gpus: Iterable[BusGpu]) -> tuple[Nic, ...]:
        """Return the cards as `nics` does, from a cache of up to a minute."""
        now, asked = self._monotonic(), (tuple(ports), tuple(gpu.address for gpu in gpus))
        late = self._read_at is None or now - self._read_at >= _EVERY_SECONDS
        if late or asked != self._asked:
            self._read_at, self._asked = now, asked
            self._found = nics(*asked, self._root)
        return self._found


def nics(ports: Iterable[PortIdentity], gpus: Iterable[str], sysfs_root: Path) -> tuple[Nic, ...]:
    """Return the cards of these ports whose PCIe links can be read, by PCI address.

    `gpus`: PCI addresses of the node's GPUs, as sysfs writes them. A virtual function has no link
    of its own, and many hypervisors report none: such cards are absent.
    """
    devices: dict[str, list[str]] = defaultdict(list)
    for port in ports:
        folder = "net" if port.kind == "ethernet" else "infiniband"
        place = os.path.realpath(f"{sysfs_root}/class/{folder}/{port.device}/device")
        if _ADDRESS.fullmatch(os.path.basename(place)) and port.device not in devices[place]:
            devices[place].append(port.device)
    near = {gpu: os.path.realpath(f"{sysfs_root}/bus/pci/devices/{gpu}") for gpu in gpus}
    found = (_nic(place, names, near) for place, names in devices.items() if names)
    return tuple(sorted((nic for nic in found if nic is not None), key=lambda nic: nic.address))


def _nic(place: str, devices: Sequence[str], gpus: Mapping[str, str]) -> Nic | None:
    link, best = _link(place, "current"), _best(place)
    vendor, device = files.stripped(f"{place}/vendor"), files.stripped(f"{place}/device")
    if link is None or best is None or not vendor or os.path.exists(f"{place}/physfn"):
        return None
    beside, shared = _beside(place, gpus)
    return Nic(
        address=os.path.basename(place),
        devices=tuple(sorted(devices)),
        model=f"{vendor.removeprefix('0x')}:{device.removeprefix('0x')}",
        link=link,
        best=best,
        beside=beside,
        gpus=shared,
    )


def _best(place: str) -> PcieLink | None:
    """Return the most that the card can do, limited by the port above it where that is known."""
    own, above = _link(place, "max"), os.path.dirname(place)
    other = _link(above, "max") if _ADDRESS.fullmatch(os.path.basename(above)) else None
    if own is None or other is None:
        return own
    return PcieLink(
        lanes=min(own.lanes, other.lanes),
        gigatransfers=min(own.gigatransfers, other.gigatransfers),
    )


def _link(place: str, which: str) -> PcieLink | None:
    speed = _SPEED.match(files.stripped(f"{place}/{which}_link_speed"))
    width = files.stripped(f"{place}/{which}_link_width")
    lanes = int(width) if width.isascii() and width.isdigit() else 0
    if speed is None or not 0 < lanes <= _MOST_LANES:
        return None
    return PcieLink(lanes=lanes, gigatransfers=float(speed[1]))


def _beside(place: str, gpus: Mapping[str, str]) -> tuple[Beside | None, tuple[str, ...]]:
    """Return the GPUs behind the lowest switch shared with any; else those of the same NUMA node."""
    depths = {gpu: _shared_depth(place, other) for gpu, other in gpus.items()}
    deepest = max(depths.values(), default=0)
    if deepest:
        return Beside.SWITCH, tuple(sorted(gpu for gpu, it in depths.items() if it == deepest))
    own = files.stripped(f"{place}/numa_node")
    if not own.isdigit():  # -1 where the machine does not give it
        return None, ()
    near = sorted(gpu for gpu, it in gpus.items() if files.stripped(f"{it}/numa_node") == own)
    return (Beside.NUMA_NODE, tuple(near)) if near else (None, ())


def _shared_depth(one: str, other: str) -> int:
    """Return how many bridges both are behind: one port leads to several devices only by a switch."""
    depth = 0
    for mine, its in zip(
        os.path.dirname(one).split("/"), os.path.dirname(other).split("/"), strict=False
    ):
        if mine != its:
            break
        depth += _ADDRESS.fullmatch(mine) is not None
    return depth
