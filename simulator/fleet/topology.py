"""The layout of a fleet: racks, nodes, GPUs, ports, and the leaves and spines between them.

The fabric is rail-optimised (NVIDIA, "DGX SuperPOD reference architecture"): GPU i of every node
has a port of its own, and the i-th ports of a pod of 32 nodes share a leaf; spines join the pods.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpuvigil.model import GpuIdentity, PortIdentity, Subject

from ..fabric.cabling import AT_LEAF, FABRIC_BITS_PER_SECOND, Cabling, guids_of, names_of
from .chance import Bits, Dice, Floats, at_share, key, keys, lane, mix
from .hardware import MODELS, GpuModel
from .model import FleetSettings

NODES_PER_POD = AT_LEAF
MANAGEMENT_BITS_PER_SECOND = 10_000_000_000
# Beside the fabric ports, one per GPU: management, and one that was never plugged in.
OTHER_PORTS = 2
# The most NVLinks of a GPU; a link's number is its GPU's times this, plus its own.
LINKS = 18
# Spread of heatsinks: share by which the resistance differs at one deviation [R: 53 to 68 C].
_HEATSINK_SPREAD = 0.07
# PCI buses of eight GPUs, as in makers' HGX H100 hosts [from memory: unchecked].
_BUSES = (
    (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF),
    (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB),
    (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB),
)
# Where nodes lie between the lowest and the highest presence: half are near the highest [chosen].
_PRESENT = ((0.0, 0.0), (0.2, 0.4), (0.5, 0.9), (1.0, 1.0))
# Most missing samples were never requested, since scrapers come every 10 to 60 s; gaps take this
# share of the worst node's time [chosen].
_MOST_GAPS = 0.08
_PREFIXES = ("gpu", "node", "hgx", "compute", "c", "ml", "worker", "g")

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One node: its place and its hardware."""

    number: int
    name: str
    rack: int
    pod: int
    model: GpuModel


class Topology:
    """The fleet's places; GPU and port numbers run through all nodes."""

    def __init__(self, settings: FleetSettings) -> None:
        self.settings = settings
        racks = [MODELS[name] for name in settings.models]
        self.world = settings.world
        names = [f"sim-{number:05d}" for number in range(settings.nodes)]
        self._racks = [f"rack-{number + 1:03d}" for number in range(settings.nodes)]
        if self.world is not None:
            prefix = Dice(settings.seed, "site").pick(_PREFIXES)
            names = _names(settings, f"{prefix}-", settings.nodes)
            self._racks = _names(settings, "r", settings.nodes)
        self.places = tuple(
            Place(
                number=number,
                name=names[number],
                rack=number // settings.nodes_per_rack,
                pod=number // NODES_PER_POD,
                model=racks[number // settings.nodes_per_rack % len(racks)],
            )
            for number in range(settings.nodes)
        )
        self.per_node = settings.gpus_per_node
        self.ports_per_node = self.per_node + OTHER_PORTS

    @property
    def nodes(self) -> int:
        return len(self.places)

    @cached_property
    def is_roce(self) -> bool:
        """Whether the fabric is Ethernet with RoCE, not InfiniBand."""
        return (
            self.world is not None
            and Dice(self.settings.seed, "fabric").share() < self.world.roce_fleets
        )

    @cached_property
    def scheduler_read(self) -> bool:
        """Whether somebody reads the scheduler, as `gpuvigil slurm` and `gpuvigil kubernetes` do."""
        return (
            self.world is not None
            and Dice(self.settings.seed, "scheduler").share() < self.world.scheduler_read
        )

    @cached_property
    def cabling(self) -> Cabling | None:
        """The switches and their cables; None where nobody reads them."""
        if not self.settings.switches:
            return None
        names = names_of(self.nodes, self.per_node)
        if self.world is not None:
            names = tuple(_names(self.settings, "sw-", len(names)))
        return Cabling(
            cluster=self.settings.cluster,
            names=names,
            guids=guids_of(names),
            hosts=tuple(place.name for place in self.places),
            devices=tuple(it.device for it in self.port_identities()[: self.per_node]),
            bits_per_second=FABRIC_BITS_PER_SECOND,
            is_ethernet=self.is_roce,
        )

    @property
    def gpus(self) -> int:
        return self.nodes * self.per_node

    @property
    def ports(self) -> int:
        return self.nodes * self.ports_per_node

    @cached_property
    def gpu_node(self) -> Index:
        """The node of every GPU."""
        return np.repeat(np.arange(self.nodes, dtype=np.int64), self.per_node)

    @cached_property
    def port_node(self) -> Index:
        return np.repeat(np.arange(self.nodes, dtype=np.int64), self.ports_per_node)

    @cached_property
    def fabric_ports(self) -> Index:
        """The fabric port of every GPU."""
        slot = np.tile(np.arange(self.per_node, dtype=np.int64), self.nodes)
        return self.gpu_node * self.ports_per_node + slot

    @cached_property
    def upstream(self) -> Index:
        """The GPU whose warm air each GPU gets; itself for those in front.

        Two rows of four, the second behind the first, as on an HGX board.
        """
        half = max(self.per_node // 2, 1)
        slots = self.slots.reshape(self.nodes, self.per_node)
        ahead = np.where(slots >= half, slots - half, slots)
        at_slot = np.argsort(slots, axis=1, kind="stable")
        index = np.take_along_axis(at_slot, ahead, axis=1).ravel()
        return self.gpu_node * self.per_node + index

    @cached_property
    def slots(self) -> Index:
        """The physical slot of every GPU: its NVML index, with world settings a different order on each node."""
        if self.world is None:
            return np.tile(np.arange(self.per_node, dtype=np.int64), self.nodes)
        lots = mix(self.gpu_keys, 67).reshape(self.nodes, self.per_node)
        return np.argsort(lots, axis=1, kind="stable").ravel()

    def nodes_with(self, share: float, *words: str) -> NDArray[np.bool_]:
        """Return the nodes that have a property which about that share of nodes has."""
        salt = key("nodes with", *words)
        return lane(mix(self.node_keys, salt & 0xFFFFFFFF), 0) < share

    @cached_property
    def unread(self) -> dict[str, NDArray[np.bool_]]:
        """By group of columns (`sensors.SORTS`): the nodes whose collector does not read them."""
        world = self.world
        if world is None:
            return {}
        shares = {
            "memory utilization": world.no_memory_utilization,
            "clocks": world.no_clocks,
            "profiling": world.no_profiling,
            "error counters": world.no_error_counters,
            "host": 1.0 - world.host_sensors,
        }
        return {sort: self.nodes_with(share, "unread", sort) for sort, share in shares.items()}

    @cached_property
    def silent_log(self) -> NDArray[np.bool_]:
        """The nodes without a kernel log: of their events, only those that the collector makes are reported."""
        return self.nodes_with(0.0 if self.world is None else self.world.no_events, "no events")

    @cached_property
    def gap_share(self) -> Floats:
        """The share of time in which each node is not read, minutes at a time."""
        if self.world is None:
            return np.zeros(self.nodes)
        lots = lane(mix(self.node_keys, 73), 1)
        return np.minimum(_MOST_GAPS * lots * lots, 1.0 - self.presence)

    @cached_property
    def read_share(self) -> Floats:
        """The share of ticks outside of such gaps in which each node is read, spread evenly."""
        share: Floats = self.presence / (1.0 - self.gap_share)
        return share

    @cached_property
    def presence(self) -> Floats:
        """The share of ticks with a sample for each node, when nothing else is wrong."""
        if self.world is None:
            return np.ones(self.nodes)
        low, high = self.world.presence
        lots = lane(mix(self.node_keys, 73), 0)
        return np.array([low + (high - low) * at_share(_PRESENT, lot) for lot in lots.tolist()])

    @cached_property
    def gpu_keys(self) -> Bits:
        return keys(self.gpus, self.settings.seed, "gpu")

    @cached_property
    def node_keys(self) -> Bits:
        return keys(self.nodes, self.settings.seed, "node")

    @cached_property
    def port_keys(self) -> Bits:
        return keys(self.ports, self.settings.seed, "port")

    @cached_property
    def character(self) -> Floats:
        """How each GPU differs from others of its model, -1 to 1: no two boards are alike."""
        return lane(self.gpu_keys, 0) + lane(self.gpu_keys, 1) - 1.0

    @cached_property
    def heatsink(self) -> Floats:
        """Each GPU's thermal resistance, as a factor on that of its model."""
        if self.world is None:
            return 1.0 + _HEATSINK_SPREAD * self.character
        # Most are near the model's, so that the best and the worst of eight differ by some 15 %
        # [seen on 8 x H100].
        lots = mix(self.gpu_keys, 71)
        return 1.0 + self.world.slot_spread * (lane(lots, 0) + lane(lots, 1) - 1.0)

    def model_values(self, name: str) -> Floats:
        """Return a number of each GPU's model."""
        per_node = [float(getattr(place.model, name)) for place in self.places]
        return np.repeat(np.array(per_node, dtype=np.float64), self.per_node)

    def node_subject(self, node: int) -> Subject:
        return Subject(cluster=self.settings.cluster, node=self.places[node].name)

    def gpu_subject(self, gpu: int) -> Subject:
        node = gpu // self.per_node
        return Subject(
            cluster=self.settings.cluster, node=self.places[node].name, gpu=self.uuid(gpu)
        )

    def port_subject(self, port: int) -> Subject:
        node, slot = divmod(port, self.ports_per_node)
        identity = self.port_identities()[slot]
        return Subject(
            cluster=self.settings.cluster,
            node=self.places[node].name,
            device=identity.device,
            port=identity.port,
        )

    def uuid(self, gpu: int) -> str:
        """Return the GPU's UUID, which depends only on the seed and its number."""
        low = key(self.settings.seed, "uuid", gpu)
        text = f"{int(self.gpu_keys[gpu]):016x}{low:016x}"
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    @cached_property
    def uuids(self) -> list[str]:
        """The UUID of every GPU."""
        return [self.uuid(gpu) for gpu in range(self.gpus)]

    def pci_address(self, gpu: int) -> str:
        """Return the GPU's PCI address as the kernel writes it."""
        return f"0000:{self._bus(gpu):02x}:00.0"

    def _bus(self, gpu: int) -> int:
        node, index = divmod(gpu, self.per_node)
        if self.world is None or self.per_node > len(_BUSES[0]):
            return 0x1B + 0x10 * index
        return _BUSES[int(self.node_keys[node] >> np.uint64(20)) % len(_BUSES)][index]

    def _vbios(self, node: int) -> str | None:
        """Return the VBIOS version that the node's rack was delivered with."""
        place = self.places[node]
        version = place.model.vbios
        if self.world is None or version is None:
            return version
        dice = Dice(self.settings.seed, "vbios", place.rack)
        if dice.share() >= self.world.older_firmware:
            return version
        parts = version.split(".")
        parts[2] = f"{int(parts[2], 16) - 0x11:02X}"
        return ".".join(parts)

    def gpu_identities(self, node: int) -> tuple[GpuIdentity, ...]:
        model = self.places[node].model
        first, vbios = node * self.per_node, self._vbios(node)
        return tuple(
            GpuIdentity(
                uuid=self.uuid(first + i),
                index=i,
                pci_address=f"00000000:{self._bus(first + i):02X}:00.0",
                model=model.name,
                serial=f"16{key(self.settings.seed, 'serial', first + i) % 10**11:011d}",
                vbios=vbios,
                part_number=model.part_number,
                memory_total_bytes=model.memory_bytes,
            )
            for i in range(self.per_node)
        )

    def port_identities(self) -> tuple[PortIdentity, ...]:
        """Return the ports of any node: all are cabled alike."""
        fabric = tuple(
            PortIdentity(
                device=f"mlx5_{i}",
                port="1",
                kind="roce" if self.is_roce else "infiniband",
                role="fabric",
                was_up=True,
            )
            for i in range(self.per_node)
        )
        return (
            *fabric,
            PortIdentity(device="eno1", port="1", kind="ethernet", role="management", was_up=True),
            PortIdentity(device="eno2", port="1", kind="ethernet", role="management"),
        )

    def leaf(self, node: int, rail: int) -> str:
        if self.cabling is not None:
            return self.cabling.names[self.cabling.leaf(node, rail)]
        return f"leaf-{self.places[node].pod + 1:02d}-{rail}"

    def nodes_of_rack(self, rack: int) -> list[int]:
        first = rack * self.settings.nodes_per_rack
        return list(range(first, min(first + self.settings.nodes_per_rack, self.nodes)))

    def nodes_of_pod(self, pod: int) -> list[int]:
        return list(range(pod * NODES_PER_POD, min((pod + 1) * NODES_PER_POD, self.nodes)))

    def rack_name(self, rack: int) -> str:
        return self._racks[rack]

    def inlet(self) -> Floats:
        """Return the temperature in °C of the air that enters at each GPU, before the node warms it."""
        low, high = (21.0, 25.0) if self.world is None else self.world.inlet_celsius
        by_rack = [
            low + (high - low) * Dice(self.settings.seed, "inlet", rack).share()
            for rack in range(self.places[-1].rack + 1)
        ]
        racks = np.array([place.rack for place in self.places], dtype=np.int64)
        return np.repeat(np.array(by_rack, dtype=np.float64)[racks], self.per_node)


def _names(settings: FleetSettings, prefix: str, count: int) -> list[str]:
    """Return so many different names that reveal no order or place."""
    dice = Dice(settings.seed, "names", prefix)
    names: dict[str, None] = {}
    while len(names) < count:
        names[f"{prefix}{dice.bits() % 16**5:05x}"] = None
    return list(names)
