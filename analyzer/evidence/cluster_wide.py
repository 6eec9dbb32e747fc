"""When it is most of a cluster, and no longer some nodes or a rack."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from gpuvigil.model import Subject
from gpuvigil.model.reporting import in_the_middle

from ..window.window import Window

# Nodes that were heard of within this time are in the cluster.
_LATELY = timedelta(minutes=10)


def heard_lately(window: Window, cluster: str) -> set[str]:
    """The keys of a cluster's nodes that were heard of lately."""
    prefix = Subject(cluster=cluster, node="-").key[:-1]
    after = window.now - _LATELY
    return {key for key, at in window.heard.items() if at > after and key.startswith(prefix)}


def half_of(window: Window, cluster: str, since: Mapping[Subject, datetime]) -> bool:
    """Whether so many nodes are silent at once that the cause is in the middle, by since when."""
    late = {node.key: at for node, at in since.items()}
    heard = heard_lately(window, cluster)
    return bool(in_the_middle(late, heard - late.keys(), racks(window, cluster)))


def racks(window: Window, cluster: str) -> Mapping[str, str]:
    """By node of the cluster, by its key, the rack that its inventory names."""
    told = window.inventories.items()
    return {key: it.rack for key, it in told if it.rack and it.subject.cluster == cluster}
