"""Network ports from sysfs: InfiniBand, RoCE, EFA, and physical Ethernet interfaces.

Files and units: Linux kernel, Documentation/ABI/stable/sysfs-class-infiniband and
Documentation/ABI/testing/sysfs-class-net.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuvigil.model import PortIdentity

from . import files, module_temperature
from .connections import Connections
from .link_statistics import Links, Read, reader_of
from .queues import WRAPS_AT, Queues
from .rdma_counters import CounterFiles, interface_counters, limits, rdma_counters

_IB_ACTIVE = 4
_IB_DISABLED = 3  # of phys_state
_IFF_UP = 0x1  # of an interface's flags, linux/if.h: it is administratively up
# The layout (ports and roles) is determined anew after this many reads, and when devices or routes
# change: state and counters are read each time.
_READS_OF_A_LAYOUT = 10

_Folder = tuple[int, int]  # the device and inode numbers of a folder in sysfs
_TYPE_INFINIBAND = "32"  # ARPHRD_INFINIBAND: IP over InfiniBand, the same port once more
_RATE = re.compile(r"([0-9.]+)\s*Gb/sec(?:\s*\((\d+)X)?")  # 400 Gb/sec (4X NDR)
_KINDS = {"InfiniBand": "infiniband", "Ethernet": "roce"}
# These are read for every row; the others, which cost a driver more, this often.
_QUICK = frozenset(
    {
        "receive_bytes",
        "transmit_bytes",
        "receive_errors",
        "transmit_discards",
        "link_downed",
        "symbol_errors",
    }
)
_SLOW_SECONDS = 10.0
_EARLY = 0.9  # a tick may come this much sooner
# Symbols that FEC did not correct are another count than InfiniBand's: it starts when first seen, or
# the first version of the collector that reads it would report a port's whole past as growth.
_COUNTED_SINCE_SEEN = frozenset({"symbol_errors"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PortReading:
    """One port at one moment; raw values by metric name, those that could be read.

    Full counters stay at `stays_at` or go on from 0 at `wraps_at`. Of those in `since_seen` only
    the growth counts.
    """

    identity: PortIdentity
    values: Mapping[str, float | int]
    stays_at: Mapping[str, int] = field(default_factory=dict)
    wraps_at: Mapping[str, int] = field(default_factory=dict)
    since_seen: frozenset[str] = frozenset()

    @property
    def up(self) -> bool | None:
        """Whether the link is up; None when its state cannot be read."""
        up = self.values.get("up")
        return None if up is None else up == 1


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a port is read, and its role."""

    kind: str
    device: str
    port: str
    path: str
    role: str
    interface: str | None = None  # the network interface of the same hardware
    links: tuple[str, ...] = ()  # the interfaces that its cables are in
    layer: str = ""  # an RDMA port's link layer, by sysfs


class _Port:
    """One port, and the files and statistics to read for it."""

    def __init__(
        self,
        place: _Place,
        device: str,
        reader_of: Callable[[str], Read],
        monotonic: Callable[[], float],
        queues: Queues,
        connections: Connections,
    ) -> None:
        self._place = place
        self._queues, self._connections = queues, connections
        infiniband = place.kind == "rdma" and place.layer != "Ethernet"
        found = (
            interface_counters(place.path)
            if place.kind == "net"
            else rdma_counters(place.path, device)
        )
        counters = [it for it in found if infiniband or it.counter.metric != "symbol_errors"]
        self._quick = [it for it in counters if it.counter.metric in _QUICK]
        self._slow = [it for it in counters if it.counter.metric not in _QUICK]
        self._of_files = frozenset(it.counter.metric for it in counters)
        self._stays_at, wraps_at = limits(counters)
        self._wraps_at = {**wraps_at, "transmit_held_back": WRAPS_AT}
        self._since_seen = frozenset() if infiniband else _COUNTED_SINCE_SEEN
        readers = {os.path.basename(it): reader_of(it) for it in place.links}
        self.links = Links(readers, monotonic)
        self._temperatures = module_temperature.inputs((device, *place.links))
        self._counts: dict[str, float | int] = {}
        self._slow_values: dict[str, float | int] | None = None
        self._addresses: tuple[str, ...] = ()
        self._waits_for: tuple[str, ...] = ()

    def read(self, counters: bool, slow: bool) -> PortReading:
        """Return its state now and its counters as last read; with `counters` the quick ones anew.

        With `slow` the slow counters are read anew, too.
        """
        kind, state = _STATE[self._place.kind](self._place)
        if counters:
            self._counts = {**_counts(self._quick), **self._queued()}
            if slow or self._slow_values is None:
                self._slow_values = self._read_slow()
        place = self._place
        return PortReading(
            identity=PortIdentity(
                device=place.device,
                port=place.port,
                kind=kind,
                role=place.role,
                addresses=self._addresses,
                waits_for=self._waits_for,
            ),
            values={**(self._slow_values or {}), **self._counts, **_measured(state)},
            stays_at=self._stays_at,
            wraps_at=self._wraps_at,
            since_seen=self._since_seen,
        )

    def _queued(self) -> Mapping[str, int]:
        """Return the queues of what the kernel itself sends; RDMA bypasses them and counts apart."""
        return self._queues.of(self._place.links) if self._place.kind == "net" else {}

    def _read_slow(self) -> dict[str, float | int]:
        """Return the slow counters; a metric with a file has no other source: counts would differ."""
        told = self.links.read().items()
        found = {metric: count for metric, count in told if metric not in self._of_files}
        celsius = module_temperature.hottest_celsius(self._temperatures)
        warm = {} if celsius is None else {"module_celsius": celsius}
        return {**found, **_counts(self._slow), **warm, **self._on_its_way()}

    def _on_its_way(self) -> Mapping[str, float]:
        """Return how late the answers to what the port sends are, and note from whom."""
        if self._place.kind != "net":
            return {}
        self._addresses, sent = self._connections.of(self._place.path)
        self._waits_for = () if sent is None else sent.waits_for
        return {} if sent is None else {"round_trip_delay_seconds": sent.delay_seconds}


class PortSensor:
    """Reads the ports under one sysfs; half of the files may be missing.

    A port's role: `management` for whatever carries the default route (also below a bond, a bridge
    or a VLAN), `fabric` for every other port that does RDMA, `storage` for every other Ethernet.
    """

    def __init__(
        self,
        sysfs_root: Path,
        proc_root: Path,
        monotonic: Callable[[], float] = time.monotonic,
        reader_of: Callable[[str], Read] = reader_of,
    ) -> None:
        """Set up; `reader_of` makes the reader of an interface's statistics, from its sysfs folder."""
        self._infiniband = f"{sysfs_root}/class/infiniband"
        self._net = f"{sysfs_root}/class/net"
        self._routes = f"{proc_root}/net/route"
        self._monotonic, self._reader_of = monotonic, reader_of
        self._queues, self._connections = Queues(), Connections()
        self._ports: dict[_Place, _Port] = {}
        self._found_for: tuple[object, ...] = ()
        self._reads = 0
        self._slow_read_at: float | None = None

    def read(self, *, counters: bool = True) -> tuple[PortReading, ...]:
        """Return every port that exists now, ordered by device and port.

        Without `counters` only the state is read, and the counters are the previous ones.
        """
        devices, interfaces = files.names(self._infiniband), files.names(self._net)
        routes = files.read(self._routes) or ""
        now = (devices, interfaces, routes)
        if now != self._found_for or self._reads % _READS_OF_A_LAYOUT == 0:
            self._ports = {
                place: self._ports.get(place) or self._port(place)
                for place in self._find_ports(devices, interfaces, routes)
            }
            self._found_for = now
        self._reads += 1
        slow = counters and self._is_slow_due()
        # RDMA bypasses what the kernel knows of queues and connections.
        if any(place.kind == "net" for place in self._ports):
            if counters:
                self._queues.read()
            if slow:
                self._connections.read()
        return tuple([port.read(counters, slow) for port in self._ports.values()])

    def unread_statistics(self) -> Mapping[str, str]:
        """Return the interfaces whose driver's statistics could not be read last time, and why."""
        return {name: why for it in self._ports.values() for name, why in it.links.unread.items()}

    def _is_slow_due(self) -> bool:
        now, last = self._monotonic(), self._slow_read_at
        if last is not None and now - last < _EARLY * _SLOW_SECONDS:
            return False
        self._slow_read_at = now
        return True

    def _port(self, place: _Place) -> _Port:
        folder = self._net if place.kind == "net" else self._infiniband
        device = f"{folder}/{place.device}"
        return _Port(
            place, device, self._reader_of, self._monotonic, self._queues, self._connections
        )

    def _find_ports(
        self, devices: list[str], interfaces: list[str], routes: str
    ) -> Iterator["_Place"]:
        """Yield the places of ports among the devices and interfaces, with their roles."""
        management = self._management(routes)
        rdma = {_hardware(f"{self._infiniband}/{device}"): device for device in devices}
        of_device = {
            name: f"{self._net}/{net}"
            for net in (interfaces if rdma else ())
            if (name := self._rdma_name(net, rdma)) is not None
        }
        counted: set[str] = set()
        for device in devices:
            carries = any(self._rdma_name(net, rdma) == device for net in management)
            role = "management" if carries else "fabric"
            ports = f"{self._infiniband}/{device}/ports"
            interface = of_device.get(device)
            links = self._cables(interface, rdma)
            counted |= set(links)
            kind = "efa" if self._is_efa(device) else "rdma"
            for port in files.names(ports):
                path = f"{ports}/{port}"
                layer = _text(f"{path}/link_layer")
                yield _Place(kind, device, port, path, role, interface, links, layer)
        for interface in interfaces:
            if self._is_ethernet(interface, rdma):
                role = "management" if interface in management else "storage"
                path = f"{self._net}/{interface}"
                links = () if path in counted else (path,)
                yield _Place("net", interface, "1", path, role, path, links)

    def _is_efa(self, device: str) -> bool:
        """Return whether the device is Amazon's EFA.

        Named `efa_0`, or by its PCI address where rdma-core names devices, `rdmap16s27`.
        """
        try:
            driver = os.readlink(f"{self._infiniband}/{device}/device/driver")
        except OSError:
            driver = ""
        return device.startswith("efa") or os.path.basename(driver) == "efa"

    def _cables(self, interface: str | None, rdma: Mapping[_Folder | None, str]) -> tuple[str, ...]:
        """Return the interface of an RDMA device; where that is in a bond, those of the bond.

        mlx5 makes one RDMA device of a bond, on the hardware of its first port: the others have
        none of their own. Their counts are added to that device only.
        """
        if interface is None or _text(f"{interface}/type") == _TYPE_INFINIBAND:
            return ()
        slaves = _text(f"{interface}/master/bonding/slaves").split()
        others = [it for it in slaves if self._rdma_name(it, rdma) is None]
        return (interface, *(f"{self._net}/{it}" for it in others))

    def _is_ethernet(self, interface: str, rdma: Mapping[_Folder | None, str]) -> bool:
        """Return whether it is hardware of its own that no RDMA device stands for already."""
        device = f"{self._net}/{interface}/device"
        return (
            os.path.exists(device)
            and not os.path.exists(f"{device}/physfn")  # a virtual function of another port
            and _text(f"{self._net}/{interface}/type") != _TYPE_INFINIBAND
            and self._rdma_name(interface, rdma) is None
        )

    def _rdma_name(self, interface: str, rdma: Mapping[_Folder | None, str]) -> str | None:
        """Return the RDMA device on the same hardware as a network interface; None without one."""
        hardware = _hardware(f"{self._net}/{interface}") if rdma else None
        return None if hardware is None else rdma.get(hardware)

    def _management(self, routes: str) -> set[str]:
        """Return the interfaces of the default route, and those that they consist of."""
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


def _hardware(entry: str) -> _Folder | None:
    """Return the id of the device's folder, the same by any path; None where it has none."""
    try:
        found = os.stat(f"{entry}/device")
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _counts(counters: Iterable[CounterFiles]) -> dict[str, float | int]:
    return {it.counter.metric: count for it in counters if (count := it.read()) is not None}


def _rdma_state(place: _Place) -> tuple[str, dict[str, int | None]]:
    port = place.path
    kind = "efa" if place.kind == "efa" else _KINDS.get(place.layer, "infiniband")
    state = _leading_number(_text(f"{port}/state"))
    rate = _RATE.match(_text(f"{port}/rate"))
    up = None if state is None else int(state == _IB_ACTIVE)
    physical = _leading_number(_text(f"{port}/phys_state"))
    enabled = _is_enabled(place.interface, up)
    if place.layer == "InfiniBand":  # RoCE says "disabled" of every port without a link
        enabled = None if physical is None else int(physical != _IB_DISABLED)
    return kind, {
        "up": up,
        "enabled": enabled,
        "physical_state": physical,
        "speed_bits_per_second": None if rate is None else round(float(rate[1]) * 1e9),
        "width_lanes": None if rate is None or rate[2] is None else int(rate[2]),
    }


def _ethernet_state(place: _Place) -> tuple[str, dict[str, int | None]]:
    interface = place.path
    speed = _whole(f"{interface}/speed")  # -1, or no answer at all, while the link is down
    up = _ethernet_up(interface)
    return "ethernet", {
        "up": up,
        "enabled": _is_enabled(place.interface, up),
        "speed_bits_per_second": None if speed is None else speed * 1_000_000,
    }


_STATE = {"rdma": _rdma_state, "efa": _rdma_state, "net": _ethernet_state}


def _ethernet_up(interface: str) -> int | None:
    """Return whether the link is up.

    A driver that keeps no operstate reports `unknown`; then the carrier counts.
    """
    state = _text(f"{interface}/operstate")
    if state in {"", "unknown"}:
        return _whole(f"{interface}/carrier")
    return int(state == "up")


def _is_enabled(interface: str | None, up: int | None) -> int | None:
    """Return whether the link is administratively up; None where there is no interface to ask.

    The flags change only after the link; the carrier cannot be read as soon as the interface is
    taken down (Linux, net/core/net-sysfs.c, `carrier_show`).
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
    """Yield the names of interfaces with a default route, from /proc/net/route."""
    for line in routes.splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[1] == "00000000" and words[7] == "00000000":
            yield words[0]


def _text(file: str) -> str:
    """Return the text of a sysfs file, empty when it cannot be read."""
    try:
        return files.attribute(file).strip()
    except OSError:
        return ""


def _whole(file: str) -> int | None:
    """Return the file's number if it is one, and not negative; else None."""
    text = _text(file)
    return int(text) if text.isascii() and text.isdigit() else None


def _leading_number(text: str) -> int | None:
    """Return the number before the colon, such as 4 for `4: ACTIVE`; else None."""
    head = text.partition(":")[0]
    return int(head) if head.isascii() and head.isdigit() else None
