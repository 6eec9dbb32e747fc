"""What pages show of one cluster. Large parts are columns and become objects only on access."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import numpy as np

from gpuvigil.model import Subject

from .gpus import Cell, Column, DisplayState, Gpus, Strip
from .ports import Ports, PortView

__all__ = [
    "Block",
    "Cell",
    "ClusterView",
    "DisplayState",
    "Layout",
    "NodeView",
    "PortView",
    "Strip",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeView:
    """One node, when it was last heard, and whether it is silent."""

    subject: Subject
    heard_at: datetime | None
    silent: bool
    gpus: Gpus  # of the whole cluster
    span: slice  # this node's part of `gpus`

    @property
    def name(self) -> str:
        return self.subject.node

    @property
    def gpu_count(self) -> int:
        return len(self._numbers)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The node's GPUs in order, made on each access."""
        return tuple(self.gpus.cell(number, self.subject) for number in self._numbers)

    @property
    def _numbers(self) -> range:
        return range(self.span.start, self.span.stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Nodes that are drawn together: a rack, a single node, or a run of nodes."""

    label: str
    nodes: tuple[NodeView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The places of a cluster's nodes among its GPUs and on the map; kept while the nodes stay."""

    nodes: tuple[Subject, ...]  # sorted by name
    numbers: Mapping[str, int]  # by node name: index into `nodes`
    spans: tuple[slice, ...]  # per node: its part of the cluster's GPUs
    blocks: tuple[tuple[str, tuple[int, ...]], ...]  # label, and indices of nodes with GPUs
    blocks_json: str  # the blocks in the map component's format


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterView:
    """One cluster; clusters are never summed."""

    name: str
    simulated: bool
    layout: Layout
    gpus: Gpus  # in the order of the map
    strip: Strip
    ports: Ports
    heard: Sequence[datetime | None]  # per node
    silent: Column  # per node
    drivers: tuple[str, ...]  # why nodes show no GPUs, in words
    rows_at: datetime | None  # of the newest row; without a recent one, when a node was last heard

    @cached_property
    def nodes(self) -> tuple[NodeView, ...]:
        return tuple(self._node(number) for number in range(len(self.layout.nodes)))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of nodes that have GPUs."""
        return tuple(
            Block(label=label, nodes=tuple(self.nodes[number] for number in numbers))
            for label, numbers in self.layout.blocks
        )

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All GPUs in the order of the map, made on each access; for large clusters use `gpus`."""
        return tuple(c for block in self.blocks for node in block.nodes for c in node.cells)

    @cached_property
    def silent_nodes(self) -> tuple[NodeView, ...]:
        return tuple(self._node(number) for number in np.flatnonzero(self.silent).tolist())

    def node(self, name: str) -> NodeView | None:
        """Return the node of that name, or None."""
        number = self.layout.numbers.get(name)
        return None if number is None else self._node(number)

    def find(self, node: str, gpu: str) -> Cell | None:
        """Return the GPU that a link names by index or UUID, or None."""
        view = self.node(node)
        cells = view.cells if view is not None else ()
        return next((cell for cell in cells if gpu in {cell.address, cell.subject.gpu}), None)

    def _node(self, number: int) -> NodeView:
        return NodeView(
            subject=self.layout.nodes[number],
            heard_at=self.heard[number],
            silent=bool(self.silent[number]),
            gpus=self.gpus,
            span=self.layout.spans[number],
        )
