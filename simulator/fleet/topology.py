"""Where everything is: racks, nodes, GPUs, ports, the leaves and spines between them.

The fabric is rail-optimised (NVIDIA, "DGX SuperPOD reference architecture"): GPU i of every node
has a port of its own, and the i-th ports of a pod of 32 nodes share a leaf; spines join the pods.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpuvigil.model import SIMULATED_CLUSTER, GpuIdentity, PortIdentity, Subject

from .chance import Bits, Dice, Floats, key, keys, lane
from .hardware import MODELS, GpuModel
from .model import FleetSettings

NODES_PER_POD = 32
FABRIC_BITS_PER_SECOND = 400_000_000_000  # NDR InfiniBand
MANAGEMENT_BITS_PER_SECOND = 10_000_000_000
# Beside the fabric ports, one per GPU: management, and one that nobody ever plugged in.
OTHER_PORTS = 2
# NVLinks that a GPU has at most; a link's number is its GPU's times this, plus its own.
LINKS = 18

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One node: where it stands and what it has."""

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
        self.places = tuple(
            Place(
                number=number,
                name=f"sim-{number:05d}",
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
        slot = np.tile(np.arange(self.per_node, dtype=np.int64), self.nodes)
        half = max(self.per_node // 2, 1)
        ahead = np.where(slot >= half, slot - half, slot)
        return self.gpu_node * self.per_node + ahead

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
        """How each GPU differs from its kin, -1 to 1: no two boards are alike."""
        return lane(self.gpu_keys, 0) + lane(self.gpu_keys, 1) - 1.0

    def model_values(self, name: str) -> Floats:
        """A number of each GPU's model."""
        per_node = [float(getattr(place.model, name)) for place in self.places]
        return np.repeat(np.array(per_node, dtype=np.float64), self.per_node)

    def node_subject(self, node: int) -> Subject:
        return Subject(cluster=SIMULATED_CLUSTER, node=self.places[node].name)

    def gpu_subject(self, gpu: int) -> Subject:
        node = gpu // self.per_node
        return Subject(cluster=SIMULATED_CLUSTER, node=self.places[node].name, gpu=self.uuid(gpu))

    def port_subject(self, port: int) -> Subject:
        node, slot = divmod(port, self.ports_per_node)
        identity = self.port_identities()[slot]
        return Subject(
            cluster=SIMULATED_CLUSTER,
            node=self.places[node].name,
            device=identity.device,
            port=identity.port,
        )

    def uuid(self, gpu: int) -> str:
        """The same as long as the seed and the GPU's number are."""
        low = key(self.settings.seed, "uuid", gpu)
        text = f"{int(self.gpu_keys[gpu]):016x}{low:016x}"
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    @cached_property
    def uuids(self) -> list[str]:
        """Of every GPU."""
        return [self.uuid(gpu) for gpu in range(self.gpus)]

    def pci_address(self, gpu: int) -> str:
        """As the kernel writes it."""
        return f"0000:{0x1B + 0x10 * (gpu % self.per_node):02x}:00.0"

    def gpu_identities(self, node: int) -> tuple[GpuIdentity, ...]:
        model = self.places[node].model
        first = node * self.per_node
        return tuple(
            GpuIdentity(
                uuid=self.uuid(first + i),
                index=i,
                pci_address=f"00000000:{0x1B + 0x10 * i:02X}:00.0",
                model=model.name,
                serial=f"16{key(self.settings.seed, 'serial', first + i) % 10**11:011d}",
                vbios=model.vbios,
                part_number=model.part_number,
                memory_total_bytes=model.memory_bytes,
            )
            for i in range(self.per_node)
        )

    def port_identities(self) -> tuple[PortIdentity, ...]:
        """Of any node: they are all cabled alike."""
        fabric = tuple(
            PortIdentity(
                device=f"mlx5_{i}", port="1", kind="infiniband", role="fabric", was_up=True
            )
            for i in range(self.per_node)
        )
        return (
            *fabric,
            PortIdentity(device="eno1", port="1", kind="ethernet", role="management", was_up=True),
            PortIdentity(device="eno2", port="1", kind="ethernet", role="management"),
        )

    def leaf(self, node: int, rail: int) -> str:
        return f"leaf-{self.places[node].pod + 1:02d}-{rail}"

    def nodes_of_rack(self, rack: int) -> list[int]:
        first = rack * self.settings.nodes_per_rack
        return list(range(first, min(first + self.settings.nodes_per_rack, self.nodes)))

    def nodes_of_pod(self, pod: int) -> list[int]:
        return list(range(pod * NODES_PER_POD, min((pod + 1) * NODES_PER_POD, self.nodes)))

    def rack_name(self, rack: int) -> str:
        return f"rack-{rack + 1:03d}"

    def inlet(self) -> Floats:
        """Degrees Celsius of the air that enters at each GPU, before the node warms it."""
        by_rack = [
            21.0 + 4.0 * Dice(self.settings.seed, "inlet", rack).share()
            for rack in range(self.places[-1].rack + 1)
        ]
        racks = np.array([place.rack for place in self.places], dtype=np.int64)
        return np.repeat(np.array(by_rack, dtype=np.float64)[racks], self.per_node)
