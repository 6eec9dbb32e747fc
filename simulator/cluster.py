"""The members of the simulated cluster: its nodes, their hardware, and the jobs that hold it.

Everything is a pure function of the settings and of the seconds since the simulation began.
The hardware is that of an HGX H100 node: NVIDIA, "H100 Tensor Core GPU datasheet" (80 GB).
"""

import hashlib
import math
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.model import (
    SIMULATED_CLUSTER,
    Allocation,
    GpuIdentity,
    PortIdentity,
    Subject,
    job_holder,
)

from .people import NAMES, TEAMS

NODES_PER_RACK = 8
DRIVER = "580.95.05"
KERNEL = "6.8.0-87-generic"
PORT_FIRMWARE = "28.43.2566"

GPU_MEMORY_BYTES = 85_520_809_984
_MODEL = "NVIDIA H100 80GB HBM3"
# PCI buses of the eight GPUs of an HGX H100 board.
_PCI_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One kind of work: how hard it drives a GPU, and how that varies."""

    command: str
    load: float  # mean share of the GPU's power budget above idle, 0 to 1
    swing: float  # amplitude of the slow wave around the mean
    swing_seconds: float
    memory_share: float
    nvlink_bytes_per_second: float = 0.0  # at full load, per GPU and direction
    fabric_bytes_per_second: float = 0.0  # at full load, per GPU and direction
    mean_hours: float = 30.0
    step_seconds: float = 0.0  # of a training that reports its steps


TRAINING = Workload(
    command="torchrun train.py --model llama-70b",
    load=0.91,
    swing=0.03,
    swing_seconds=340.0,
    memory_share=0.88,
    nvlink_bytes_per_second=42e9,
    fabric_bytes_per_second=3.1e9,
    mean_hours=60.0,
    step_seconds=6.4,
)
FINE_TUNING = Workload(
    command="python finetune.py --lora",
    load=0.74,
    swing=0.12,
    swing_seconds=95.0,
    memory_share=0.71,
    nvlink_bytes_per_second=24e9,
    step_seconds=1.1,
)
SERVING = Workload(
    command="python -m vllm.entrypoints.openai.api_server",
    load=0.42,
    swing=0.22,
    swing_seconds=1260.0,
    memory_share=0.9,
)
NOTEBOOK = Workload(
    command="jupyter-lab", load=0.0, swing=0.0, swing_seconds=60.0, memory_share=0.31
)

_FIRST_JOB = 1042


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place where jobs of one workload follow each other without a gap."""

    number: int
    workload: Workload
    places: tuple[tuple[int, int], ...]  # (node number, GPU index)
    period_seconds: float
    age_seconds: float  # age of the job that runs when the simulation begins
    phase: float

    def run(self, elapsed_seconds: float) -> int:
        """Return the number of the job that runs at that moment; 0 is the first."""
        return math.floor((elapsed_seconds + self.age_seconds) / self.period_seconds)

    def started_seconds(self, run: int) -> float:
        """Return when that job starts, in seconds since the simulation began; negative for the first."""
        return run * self.period_seconds - self.age_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One simulated node; `slots[i]` is the slot that holds GPU i, None while the GPU is free.

    The slots of the fleet's nodes are not known.
    """

    subject: Subject
    rack: str
    gpus: tuple[GpuIdentity, ...]
    ports: tuple[PortIdentity, ...]
    slots: tuple[Slot | None, ...]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The whole simulated cluster."""

    nodes: tuple[Node, ...]
    slots: tuple[Slot, ...]


def node_name(number: int) -> str:
    """Return `sim-003` for 3."""
    return f"sim-{number:03d}"


def node_number(name: str) -> int:
    """Return 3 for `sim-003`."""
    return int(name.rpartition("-")[2])


def build(nodes: int, gpus_per_node: int, seed: int) -> Cluster:
    """Build the cluster of these settings; the same settings give the same cluster."""
    slots = _slots(nodes, gpus_per_node, random.Random(f"gpuvigil {seed}"))
    holder = {place: slot for slot in slots for place in slot.places}
    built = []
    for number in range(nodes):
        held = tuple(holder.get((number, gpu)) for gpu in range(gpus_per_node))
        built.append(_node(number, held, seed))
    return Cluster(nodes=tuple(built), slots=slots)


def _node(number: int, slots: tuple[Slot | None, ...], seed: int) -> Node:
    name = node_name(number)
    return Node(
        subject=Subject(cluster=SIMULATED_CLUSTER, node=name),
        rack=f"rack-{number // NODES_PER_RACK + 1:02d}",
        gpus=tuple(_gpu(name, index, seed) for index in range(len(slots))),
        ports=(
            *(
                PortIdentity(
                    device=device,
                    port="1",
                    kind="infiniband",
                    role="fabric",
                    was_up=True,
                    firmware=PORT_FIRMWARE,
                )
                for device in ("mlx5_0", "mlx5_1")
            ),
            PortIdentity(device="eno1", port="1", kind="ethernet", role="management", was_up=True),
        ),
        slots=slots,
        seed=_hash(f"{seed} {name}"),
    )


def _gpu(node: str, index: int, seed: int) -> GpuIdentity:
    digest = _hash(f"{seed} {node} gpu {index}")
    bus = _PCI_BUSES[index] if index < len(_PCI_BUSES) else 0xE0 + index
    return GpuIdentity(
        uuid=f"GPU-{uuid.UUID(int=digest, version=4)}",
        index=index,
        pci_address=f"00000000:{bus:02X}:00.0",
        model=_MODEL,
        serial=f"16{digest % 10**11:011d}",
        vbios="96.00.A5.00.01",
        memory_total_bytes=GPU_MEMORY_BYTES,
    )


def _hash(text: str) -> int:
    """Return 128 bits that depend on the text alone, in every process."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


# The mix repeats every 16 nodes; in a full block about 70 % of the GPUs compute, and 12 % are held
# by notebooks that compute nothing.
_BLOCK_NODES = 16
_ACTIVE_SHARE = 0.70
_NOTEBOOK_SHARE = 0.12
_LARGEST_JOB_NODES = 4


def _slots(nodes: int, gpus: int, chance: random.Random) -> tuple[Slot, ...]:
    slots: list[Slot] = []
    for first in range(0, nodes, _BLOCK_NODES):
        for workload, places in _block(first, min(_BLOCK_NODES, nodes - first), gpus, chance):
            period = workload.mean_hours * 3600.0 * chance.uniform(0.6, 1.4)
            slots.append(
                Slot(
                    number=len(slots),
                    workload=workload,
                    places=tuple(places),
                    period_seconds=round(period),
                    age_seconds=round(period * chance.uniform(0.05, 0.6)),
                    phase=chance.uniform(0.0, math.tau),
                )
            )
    return tuple(slots)


def _block(
    first: int, nodes: int, gpus: int, chance: random.Random
) -> Iterator[tuple[Workload, list[tuple[int, int]]]]:
    """Yield the jobs of a block: large training jobs first, then whole nodes, then single GPUs."""
    places = [(first + node, gpu) for node in range(nodes) for gpu in range(gpus)]
    whole = nodes // 2
    taken = 0
    while taken < whole:
        size = min(_LARGEST_JOB_NODES, math.ceil((whole - taken) / 2))
        yield TRAINING, places[taken * gpus : (taken + size) * gpus]
        taken += size
    for _ in range(nodes // 8):
        yield FINE_TUNING, places[taken * gpus : (taken + 1) * gpus]
        taken += 1
    shared = places[taken * gpus :]
    serving = round(_ACTIVE_SHARE * len(places)) - taken * gpus
    notebooks = round(_NOTEBOOK_SHARE * len(places))
    free = len(shared) - serving - notebooks
    # Nodes at the end stay entirely empty; other free GPUs lie between the held ones.
    mixed = shared[: len(shared) - free // gpus * gpus]
    chance.shuffle(mixed)
    yield from ((SERVING, [place]) for place in mixed[:serving])
    yield from ((NOTEBOOK, [place]) for place in mixed[serving : serving + notebooks])


def allocations(cluster: Cluster, slot: Slot, run: int, origin: datetime) -> list[Allocation]:
    """Return the allocations of a slot in that run; `ended_at` is None."""
    started = origin + timedelta(seconds=slot.started_seconds(run))
    number = _FIRST_JOB + slot.number + run * len(cluster.slots)
    person = (slot.number + run) % len(NAMES)
    return [
        Allocation(
            subject=gpu_subject(cluster.nodes[node], gpu),
            holder=job_holder(number),
            user=NAMES[person],
            account=TEAMS[person % len(TEAMS)],
            command=slot.workload.command,
            started_at=started,
        )
        for node, gpu in slot.places
    ]


def gpu_subject(node: Node, index: int) -> Subject:
    """Return the subject of the GPU with that index, named by its UUID."""
    return Subject(cluster=node.subject.cluster, node=node.subject.node, gpu=node.gpus[index].uuid)


def port_subject(node: Node, port: PortIdentity) -> Subject:
    """Return the subject of one of the node's ports."""
    return Subject(
        cluster=node.subject.cluster,
        node=node.subject.node,
        device=port.device,
        port=port.port,
    )
