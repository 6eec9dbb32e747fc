"""Telling a problem of most of a cluster from one of some nodes or a rack."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from gpuvigil.model import Subject
from gpuvigil.model.reporting import late_by_one_cause

from ..window.window import Window

# Nodes that were heard within this time are in the cluster.
_LATELY = timedelta(minutes=10)


def reporting_nodes(window: Window, cluster: str) -> set[str]:
    """Return the keys of a cluster's nodes that were heard in the last ten minutes."""
    prefix = Subject(cluster=cluster, node="-").key[:-1]
    after = window.now - _LATELY
    return {key for key, at in window.last_seen.items() if at > after and key.startswith(prefix)}


def half_of(window: Window, cluster: str, since: Mapping[Subject, datetime]) -> bool:
    """Tell whether nodes are silent by one cause, the hub or the way to it; `since`: when each fell silent."""
    late = {node.key: at for node, at in since.items()}
    heard = reporting_nodes(window, cluster)
    return bool(late_by_one_cause(late, heard - late.keys(), racks(window, cluster)))


def racks(window: Window, cluster: str) -> Mapping[str, str]:
    """Return the rack in each node's inventory, by node key; nodes without a rack are left out."""
    told = window.inventories.items()
    return {key: it.rack for key, it in told if it.rack and it.subject.cluster == cluster}
