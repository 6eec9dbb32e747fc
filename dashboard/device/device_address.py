"""Find the GPU or node that an address names, even one that is no longer known; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from gpuvigil.model import GpuIdentity, Inventory, Subject
from gpuvigil.web import page_links

from ..data.views import FleetView
from ..model.cluster import Cell, NodeView, PortView

DEFAULT_TICK = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The GPU or node that a page is about, with all that is known of it now."""

    node: Subject
    gpu: str = ""  # a UUID; empty if none was asked for or it is not known which
    asked_gpu: str = ""
    asked_port: str = ""
    cell: Cell | None = None
    identity: GpuIdentity | None = None
    view: NodeView | None = None
    inventory: Inventory | None = None
    ports: tuple[PortView, ...] = ()

    @property
    def subject(self) -> Subject:
        if not self.gpu:
            return self.node
        return Subject(cluster=self.node.cluster, node=self.node.node, gpu=self.gpu)

    @property
    def label(self) -> str:
        """The GPU's name, with its index if that is known."""
        if self.cell is not None:
            return self.cell.label
        if self.identity is not None and self.identity.index is not None:
            return f"GPU {self.identity.index}"
        return self.gpu or (f"GPU {self.asked_gpu}" if self.asked_gpu else "")

    @property
    def query(self) -> dict[str, str]:
        """The address parameters that name it, without a window."""
        found = {"cluster": self.node.cluster, "node": self.node.node}
        if self.gpu or self.asked_gpu:
            found["gpu"] = self.gpu or self.asked_gpu
        if self.asked_port:
            found["port"] = self.asked_port
        return found

    @property
    def path(self) -> str:
        return page_links.GPU if self.asked_gpu else page_links.NODE

    @property
    def tick(self) -> timedelta:
        return timedelta(seconds=self.inventory.tick_seconds) if self.inventory else DEFAULT_TICK

    @property
    def unknown(self) -> str:
        """Why there is little to show; empty if node and GPU are known."""
        name, cluster = self.node.node, self.node.cluster
        if self.view is None:
            gone = "is not known any more" if self.inventory else "is not known"
            return (
                f"Node {name!r} {gone} in cluster {cluster!r}. What is left of its data is below."
            )
        if self.asked_gpu and self.cell is None:
            return f"GPU {self.asked_gpu!r} is not known on node {name}, or no longer. What is left of its data is below."
        return ""


def device(
    view: FleetView, inventories: Mapping[Subject, Inventory], query: Mapping[str, str]
) -> Device | None:
    """Return what `cluster`, `node`, `gpu` and `port` of an address name; None without a node."""
    name, gpu = query.get("node", ""), query.get("gpu", "").strip()
    if not name or "/gpu/" in name:
        return None
    cluster = query.get("cluster") or _cluster_of(view, inventories, name)
    node = Subject(cluster=cluster, node=name)
    shown = next((one for one in view.clusters if one.name == cluster), None)
    here = None if shown is None else shown.node(name)
    inventory = inventories.get(node)
    cell = _cell(here, gpu) if gpu else None
    identity = _identity(inventory, cell.subject.gpu or "" if cell else gpu) if gpu else None
    uuid = cell.subject.gpu if cell else identity.uuid if identity else ""
    if not uuid and gpu and not gpu.isdecimal():
        uuid = gpu
    return Device(
        node=node,
        gpu=uuid or "",
        asked_gpu=gpu,
        asked_port=query.get("port", ""),
        cell=cell,
        identity=identity,
        view=here,
        inventory=inventory,
        ports=() if shown is None else shown.ports.of_node(name),
    )


def _cluster_of(view: FleetView, inventories: Mapping[Subject, Inventory], node: str) -> str:
    """Return the cluster of a node whose link names none."""
    shown = (one.name for one in view.clusters if one.node(node) is not None)
    told = (it.cluster for it in inventories if it.node == node)
    first = view.cluster(None)
    return next(shown, None) or next(told, None) or (first.name if first else "local")


def _cell(node: NodeView | None, gpu: str) -> Cell | None:
    cells = () if node is None else node.cells
    named = (it for it in cells if gpu in {it.address, it.subject.gpu})
    return next(named, None)


def _identity(inventory: Inventory | None, gpu: str) -> GpuIdentity | None:
    """Return the GPU with this UUID, else with this index, or None."""
    gpus = () if inventory is None else inventory.gpus
    by_uuid = next((it for it in gpus if it.uuid == gpu), None)
    by_index = (it for it in gpus if it.index is not None and str(it.index) == gpu)
    return by_uuid or next(by_index, None)
