"""What a link asks to see; anything unknown in it is reported, not ignored."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..data.views import FleetView
from ..model.cluster import Cell, ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The cluster and the GPU that are shown, and lines on what of the link is not known."""

    cluster: ClusterView | None
    gpu: Cell | None = None
    unknown: tuple[str, ...] = ()


def place(view: FleetView, query: Mapping[str, str]) -> Place:
    """Return the place that `cluster`, `node` and `gpu` of an address name."""
    asked, node, gpu = (query.get(name, "") for name in ("cluster", "node", "gpu"))
    shown = view.cluster(asked or _of_node(view, node))
    if shown is None:
        return Place(cluster=None)
    if asked and shown.name != asked:
        said = f"The link's cluster {asked!r} is not known; this is {shown.name}."
        return Place(cluster=shown, unknown=(said,))
    if not node:
        said = f"The link names GPU {gpu!r}, but no node."
        return Place(cluster=shown, unknown=(said,) if gpu else ())
    if shown.node(node) is None:
        said = f"The link's node {node!r} is not known in cluster {shown.name}."
        return Place(cluster=shown, unknown=(said,))
    found = shown.find(node, gpu) if gpu else None
    said = f"The link's GPU {gpu!r} is not known on node {node}."
    return Place(cluster=shown, gpu=found, unknown=(said,) if gpu and found is None else ())


def _of_node(view: FleetView, node: str) -> str | None:
    """Return the cluster of a node whose link names none, or None."""
    return next((one.name for one in view.clusters if one.node(node) is not None), None)
