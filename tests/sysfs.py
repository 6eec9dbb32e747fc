"""Network ports and the PCI bus as the kernel shows them under /sys, for tests to change."""

from collections.abc import Mapping
from pathlib import Path

# The counters that Linux shows of InfiniBand's performance management (drivers/infiniband/core/sysfs.c), and
# mlx5 of its queues and of congestion (drivers/infiniband/hw/mlx5/counters.c).
COUNTERS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
)
QUEUE_COUNTERS = (
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "resp_cqe_error",
    "rnr_nak_retry_err",
    "rx_read_requests",
    "rx_write_requests",
)
CONGESTION_COUNTERS = (
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "rp_cnp_handled",
    "rp_cnp_ignored",
)


class PortTree:
    """RDMA ports under `root`; each file is replaced as a whole, as sysfs reads are."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "class/net").mkdir(parents=True)

    def infiniband(self, device: str, port: str = "1") -> None:
        """Add an InfiniBand port of mlx5 that is up."""
        self.counts(device, "counters", dict.fromkeys(COUNTERS, 0), port)
        self.counts(device, "hw_counters", dict.fromkeys(QUEUE_COUNTERS, 0), port)
        self._put(device, port, "hw_counters/lifespan", "10")
        self._put(device, port, "link_layer", "InfiniBand")
        self._put(device, port, "rate", "400 Gb/sec (4X NDR)")
        self._put(device, port, "phys_state", "5: LinkUp")
        self._put(device, port, "state", "4: ACTIVE")

    def roce(self, device: str, port: str = "1") -> None:
        """Add a RoCE port of mlx5 that is up."""
        self.infiniband(device, port)
        self.counts(device, "hw_counters", dict.fromkeys(CONGESTION_COUNTERS, 0), port)
        self._put(device, port, "link_layer", "Ethernet")

    def bare(self, device: str, hw_counters: Mapping[str, int], port: str = "1") -> None:
        """Add a port that is up, of a driver without performance management."""
        self.counts(device, "hw_counters", hw_counters, port)
        self._put(device, port, "hw_counters/lifespan", "10")
        self._put(device, port, "link_layer", "Ethernet")
        self._put(device, port, "rate", "100 Gb/sec (4X EDR)")
        self._put(device, port, "phys_state", "5: LinkUp")
        self._put(device, port, "state", "4: ACTIVE")

    def counts(
        self, device: str, folder: str, counts: Mapping[str, int | str], port: str = "1"
    ) -> None:
        """Set files of `counters` or `hw_counters`."""
        for name, count in counts.items():
            self._put(device, port, f"{folder}/{name}", str(count))

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


class BusTree:
    """Devices at their places on the PCI bus under `root`: a path of bridges, each by its address."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bus/pci/devices").mkdir(parents=True, exist_ok=True)

    def add(self, *path: str, **files: str) -> Path:
        """Add the last device of a path with its files, and missing bridges above it; return its folder."""
        place = self.root.joinpath("devices", f"pci{path[0][:7]}", *path)
        place.mkdir(parents=True, exist_ok=True)
        for name, said in files.items():
            (place / name).write_text(f"{said}\n")
        link = self.root / "bus/pci/devices" / path[-1]
        if not link.is_symlink():
            link.symlink_to(place)
        return place

    def nic(self, name: str, *path: str, link: str, best: str = "16 32.0", **files: str) -> Path:
        """Add a ConnectX-7 with an RDMA device; a link is lanes, and gigatransfers per second per lane."""
        said = {"vendor": "0x15b3", "device": "0x1021", **linked("current", link)}
        place = self.add(*path, **{**said, **linked("max", best), **files})
        self.carries(name, place)
        return place

    def carries(self, name: str, place: Path, folder: str = "infiniband") -> None:
        """Add a port of the device with this name."""
        (self.root / "class" / folder / name).mkdir(parents=True, exist_ok=True)
        (self.root / "class" / folder / name / "device").symlink_to(place)


def linked(which: str, link: str) -> dict[str, str]:
    """Return the files of a link given as lanes and speed, such as `16 32.0`."""
    lanes, speed = link.split()
    return {f"{which}_link_width": lanes, f"{which}_link_speed": f"{speed} GT/s PCIe"}
