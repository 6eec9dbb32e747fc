"""What the overview shows of one cluster, as frozen values; a number that is None was not measured."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from gpuvigil.model import GpuState, Subject
from gpuvigil.states import HUNG


class Look(IntEnum):
    """How a cell is drawn; the number is the byte that the map gets."""

    FREE = 0
    ACTIVE = 1
    IDLE = 2
    DEGRADED = 3
    FAILED = 4
    UNKNOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One GPU on the map; numbers are None where nothing trustworthy was measured."""

    subject: Subject
    index: int | None
    look: Look
    state: GpuState
    reason: str
    held: bool | None  # None: nobody can say
    holder: str = ""
    utilization_percent: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    hung: str = ""  # the key of the fault that keeps the GPU or its driver from answering

    @property
    def label(self) -> str:
        """The GPU as people call it on its node."""
        return f"GPU {self.index}" if self.index is not None else self.subject.gpu or ""

    @property
    def address(self) -> str:
        """What stands for it in a link: its index, or its UUID when it has none now."""
        return str(self.index) if self.index is not None else self.subject.gpu or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node: its GPUs in order, and since when it is silent."""

    name: str
    cells: tuple[Cell, ...]
    heard_at: datetime | None
    silent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Nodes that are drawn together: a rack, one node, or a run of nodes."""

    label: str
    nodes: tuple[NodeView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The numbers over the map. Shares are of GPUs whose state is known; None: there are none."""

    gpus: int
    looks: Mapping[Look, int]
    hung: Mapping[str, int]  # of those that are unknown, how many by each fault that hides them
    known: int
    held: int
    held_percent: float | None
    used_percent: float | None  # mean utilisation of the held GPUs that were measured
    power_watts: float | None
    power_limit_watts: float | None
    power_measured: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PortView:
    """One network port; `up` is None when nothing trustworthy was measured."""

    subject: Subject
    kind: str
    role: str
    up: bool | None
    was_up: bool
    speed_bits_per_second: float | None

    @property
    def word(self) -> str:
        """Its state as people say it."""
        if self.up is None:
            return "unknown"
        if self.up:
            return "up"
        return "down" if self.was_up else "never connected"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One cluster, summed with no other."""

    name: str
    simulated: bool
    nodes: tuple[NodeView, ...]
    blocks: tuple[Block, ...]  # of the nodes that have GPUs
    strip: Strip
    ports: tuple[PortView, ...]
    drivers: tuple[str, ...]  # why nodes show no GPUs, in words
    rows_at: datetime | None  # of the newest row

    @property
    def cells(self) -> tuple[Cell, ...]:
        """In the order of the map."""
        return tuple(c for block in self.blocks for node in block.nodes for c in node.cells)

    @property
    def silent_nodes(self) -> tuple[NodeView, ...]:
        return tuple(node for node in self.nodes if node.silent)

    def find(self, node: str, gpu: str) -> Cell | None:
        """The GPU that a link names by index or UUID."""
        cells = [cell for view in self.nodes if view.name == node for cell in view.cells]
        exact = [cell for cell in cells if gpu in {cell.address, cell.subject.gpu}]
        return exact[0] if exact else None


def summed(cells: Iterable[Cell]) -> Strip:
    """The numbers over the map, of GPUs of one cluster."""
    all_cells = tuple(cells)
    looks = dict.fromkeys(Look, 0)
    for cell in all_cells:
        looks[cell.look] += 1
    held = [cell for cell in all_cells if cell.held]
    known = sum(cell.held is not None for cell in all_cells)
    used = [c.utilization_percent for c in held if c.utilization_percent is not None]
    power = [
        (cell.power_watts, cell.power_limit_watts)
        for cell in all_cells
        if cell.power_watts is not None and cell.power_limit_watts is not None
    ]
    return Strip(
        gpus=len(all_cells),
        looks=looks,
        hung={fault: sum(cell.hung == fault for cell in all_cells) for fault in HUNG},
        known=known,
        held=len(held),
        held_percent=100 * len(held) / known if known else None,
        used_percent=sum(used) / len(used) if used else None,
        power_watts=sum(watts for watts, _ in power) if power else None,
        power_limit_watts=sum(limit for _, limit in power) if power else None,
        power_measured=len(power),
    )
