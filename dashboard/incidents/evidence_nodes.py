"""Which nodes the charts of a node's or a rack's incident are of, and which ones they are held against; pure."""

from collections.abc import Sequence

from gpuvigil.model import Incident, Inventory, Subject

from ..model.incident_place import Inventories, node_names

# The most nodes on each side, as each takes two queries to the store; ours.
MOST_NODES = 6
# With fewer nodes of its rack beside it, a node is held against others of the cluster; ours.
LEAST_MATES = 2


def nodes_of_rack(cluster: str, rack: str, inventories: Inventories) -> Sequence[Subject]:
    """Return some nodes of a rack."""
    return _some([one for one in inventories.values() if _is_in(one, cluster, rack)])


def peers(one: Incident, rack: str, inventories: Inventories) -> Sequence[Subject]:
    """Return some nodes with the same GPUs that the incident is not about, of the same rack where there are enough.

    `rack` is the rack that it is about, whose other nodes are no peers; empty for a node's incident.
    """
    own = inventories.get(one.subject.of_node())
    if own is None:
        return ()
    hit = frozenset(node_names(one.subject, one.members))
    alike = [it for it in inventories.values() if _is_alike(it, own) and it.subject.node not in hit]
    if rack:
        return _some([it for it in alike if it.rack != rack])
    mates = [it for it in alike if own.rack and it.rack == own.rack]
    return _some(mates if len(mates) >= LEAST_MATES else alike)


def _some(found: Sequence[Inventory]) -> Sequence[Subject]:
    """Return so few, spread over all of them."""
    apart = max(len(found) / MOST_NODES, 1.0)
    ordered = sorted(one.subject for one in found)
    return [ordered[int(place * apart)] for place in range(min(MOST_NODES, len(ordered)))]


def _is_in(one: Inventory, cluster: str, rack: str) -> bool:
    return one.rack == rack and one.subject.cluster == cluster


def _is_alike(one: Inventory, own: Inventory) -> bool:
    """Return whether it is a node of the same cluster with as many GPUs of the same model."""
    return (
        one.subject.cluster == own.subject.cluster
        and len(one.gpus) == len(own.gpus)
        and [it.model for it in one.gpus[:1]] == [it.model for it in own.gpus[:1]]
    )
