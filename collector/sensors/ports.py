"""Network ports from sysfs: InfiniBand, RoCE, EFA, and physical Ethernet interfaces.

Files and units: Linux kernel, Documentation/ABI/stable/sysfs-class-infiniband and
Documentation/ABI/testing/sysfs-class-net.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuvigil.model import PortIdentity

from . import files

_IB_WORD_BYTES = 4  # port_rcv_data and port_xmit_data count words of four bytes
_IB_ACTIVE = 4
_IB_DISABLED = 3  # of phys_state
_IFF_UP = 0x1  # of an interface's flags, linux/if.h: somebody wants it up
# What a port is for is looked at again after so many reads, and when there are others, or other
# routes: its state and counters are read each time.
_READS_OF_A_LAYOUT = 10
_TYPE_INFINIBAND = "32"  # ARPHRD_INFINIBAND: IP over InfiniBand, the same port once more
_KINDS = {"InfiniBand": "infiniband", "Ethernet": "roce"}
_IB_COUNTERS = {
    "receive_bytes": ("port_rcv_data", _IB_WORD_BYTES),
    "transmit_bytes": ("port_xmit_data", _IB_WORD_BYTES),
    "receive_errors": ("port_rcv_errors", 1),
    "transmit_discards": ("port_xmit_discards", 1),
    "link_downed": ("link_downed", 1),
    "symbol_errors": ("symbol_error", 1),
}
_NET_COUNTERS = {
    "receive_bytes": "statistics/rx_bytes",
    "transmit_bytes": "statistics/tx_bytes",
    "receive_errors": "statistics/rx_errors",
    "transmit_discards": "statistics/tx_dropped",
    "link_downed": "carrier_down_count",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PortReading:
    """One port at one moment; raw values by metric name, those that could be read."""

    identity: PortIdentity
    values: dict[str, int]

    @property
    def up(self) -> bool | None:
        """None when its state cannot be read."""
        up = self.values.get("up")
        return None if up is None else up == 1


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a port is read, and what it is for."""

    kind: str
    device: str
    port: str
    path: str
    role: str
    interface: str | None = None  # the network interface of the same hardware


class PortSensor:
    """Reads the ports under one sysfs; half of the files may be missing.

    A port's role: `management` for whatever carries the default route (also below a bond, a bridge
    or a VLAN), `fabric` for every other port that does RDMA, `storage` for every other Ethernet.
    """

    def __init__(self, sysfs_root: Path, proc_root: Path) -> None:
        self._infiniband = f"{sysfs_root}/class/infiniband"
        self._net = f"{sysfs_root}/class/net"
        self._routes = f"{proc_root}/net/route"
        self._layout: tuple[_Place, ...] = ()
        self._laid_out_for: tuple[object, ...] = ()
        self._reads = 0

    def read(self) -> tuple[PortReading, ...]:
        """Every port that there is now, ordered by device and port."""
        devices, interfaces = files.names(self._infiniband), files.names(self._net)
        routes = _text(self._routes)
        now = (devices, interfaces, routes)
        if now != self._laid_out_for or self._reads % _READS_OF_A_LAYOUT == 0:
            self._layout = tuple(self._lay_out(devices, interfaces, routes))
            self._laid_out_for = now
        self._reads += 1
        return tuple([_READ[place.kind](place) for place in self._layout])

    def _lay_out(
        self, devices: list[str], interfaces: list[str], routes: str
    ) -> Iterator["_Place"]:
        """Which of them are ports, and what each is for."""
        management = self._management(routes)
        rdma = {_hardware(f"{self._infiniband}/{device}"): device for device in devices}
        of_device = {
            name: f"{self._net}/{net}"
            for net in (interfaces if rdma else ())
            if (name := self._rdma_name(net, rdma)) is not None
        }
        for device in devices:
            carries = any(self._rdma_name(net, rdma) == device for net in management)
            role = "management" if carries else "fabric"
            ports = f"{self._infiniband}/{device}/ports"
            interface = of_device.get(device)
            for port in files.names(ports):
                yield _Place("rdma", device, port, f"{ports}/{port}", role, interface)
        for interface in interfaces:
            if self._is_ethernet(interface, rdma):
                role = "management" if interface in management else "storage"
                path = f"{self._net}/{interface}"
                yield _Place("net", interface, "1", path, role, path)

    def _is_ethernet(self, interface: str, rdma: dict[str | None, str]) -> bool:
        """Whether it is hardware of its own that no RDMA device stands for already."""
        device = f"{self._net}/{interface}/device"
        return (
            os.path.exists(device)
            and not os.path.exists(f"{device}/physfn")  # a virtual function of another port
            and _text(f"{self._net}/{interface}/type") != _TYPE_INFINIBAND
            and self._rdma_name(interface, rdma) is None
        )

    def _rdma_name(self, interface: str, rdma: dict[str | None, str]) -> str | None:
        """The RDMA device on the same hardware as a network interface."""
        hardware = _hardware(f"{self._net}/{interface}") if rdma else None
        return None if hardware is None else rdma.get(hardware)

    def _management(self, routes: str) -> set[str]:
        """The interfaces that the default route goes through, and what they are made of."""
        found: set[str] = set()
        waiting = list(_default_interfaces(routes))
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                lower = [
                    entry for entry in files.names(f"{self._net}/{name}") if entry[:6] == "lower_"
                ]
                waiting += [entry.removeprefix("lower_") for entry in lower]
        return found


def _hardware(entry: str) -> str | None:
    device = f"{entry}/device"
    return os.path.realpath(device) if os.path.exists(device) else None


def _read_rdma(place: _Place) -> PortReading:
    device, port = place.device, place.path
    layer = _text(f"{port}/link_layer")
    kind = "efa" if device.startswith("efa") else _KINDS.get(layer, "infiniband")
    state = _leading_number(_text(f"{port}/state"))
    rate = re.match(r"([0-9.]+)\s*Gb/sec", _text(f"{port}/rate"))
    up = None if state is None else int(state == _IB_ACTIVE)
    physical = _leading_number(_text(f"{port}/phys_state"))
    enabled = _is_enabled(place.interface, up)
    if layer == "InfiniBand":  # RoCE says "disabled" of every port without a link
        enabled = None if physical is None else int(physical != _IB_DISABLED)
    values = {
        "up": up,
        "enabled": enabled,
        "physical_state": physical,
        "speed_bits_per_second": None if rate is None else round(float(rate[1]) * 1e9),
    }
    for name, (file, unit) in _IB_COUNTERS.items():
        count = _whole(f"{port}/counters/{file}")
        values[name] = None if count is None else count * unit
    identity = PortIdentity(device=device, port=place.port, kind=kind, role=place.role)
    return PortReading(identity=identity, values=_measured(values))


def _read_ethernet(place: _Place) -> PortReading:
    interface = place.path
    speed = _whole(f"{interface}/speed")  # -1, or no answer at all, while the link is down
    up = _ethernet_up(interface)
    values: dict[str, int | None] = {
        "up": up,
        "enabled": _is_enabled(place.interface, up),
        "speed_bits_per_second": None if speed is None else speed * 1_000_000,
    }
    for metric, file in _NET_COUNTERS.items():
        values[metric] = _whole(f"{interface}/{file}")
    identity = PortIdentity(device=place.device, port=place.port, kind="ethernet", role=place.role)
    return PortReading(identity=identity, values=_measured(values))


_READ = {"rdma": _read_rdma, "net": _read_ethernet}


def _ethernet_up(interface: str) -> int | None:
    """A driver that does not keep an operstate says `unknown`; then the carrier counts."""
    state = _text(f"{interface}/operstate")
    if state in {"", "unknown"}:
        return _whole(f"{interface}/carrier")
    return int(state == "up")


def _is_enabled(interface: str | None, up: int | None) -> int | None:
    """Whether somebody wants a link there; None where there is no interface to ask.

    The flags fall only after the link; the carrier cannot be read from the moment on in which the
    interface is taken down (Linux, net/core/net-sysfs.c, `carrier_show`).
    """
    if up == 1:
        return 1
    if interface is None:
        return None
    carrier = f"{interface}/carrier"
    if os.path.exists(carrier) and files.read(carrier) is None:
        return 0
    flags = _text(f"{interface}/flags")
    try:
        return None if not flags else int(flags, 16) & _IFF_UP
    except ValueError:
        return None


def _measured(values: dict[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in values.items() if value is not None}


def _default_interfaces(routes: str) -> Iterator[str]:
    """Names of interfaces with a default route, from /proc/net/route."""
    for line in routes.splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[1] == "00000000" and words[7] == "00000000":
            yield words[0]


def _text(file: str) -> str:
    """The file's text, or nothing when it cannot be read."""
    return (files.read(file) or "").strip()


def _whole(file: str) -> int | None:
    """The file's number if it is one, and not negative."""
    text = _text(file)
    return int(text) if text.isascii() and text.isdigit() else None


def _leading_number(text: str) -> int | None:
    """4 of `4: ACTIVE`."""
    head = text.partition(":")[0]
    return int(head) if head.isascii() and head.isdigit() else None
