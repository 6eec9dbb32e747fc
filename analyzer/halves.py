"""When it is half of a cluster, and no longer some nodes or a rack."""

from collections.abc import Collection
from datetime import timedelta

from gpuvigil.model import Subject
from gpuvigil.reporting import are_most

from .window import Window

# Nodes that were heard of within this time are in the cluster.
_LATELY = timedelta(minutes=10)


def heard_lately(window: Window, cluster: str) -> set[str]:
    """The keys of a cluster's nodes that were heard of lately."""
    prefix = Subject(cluster=cluster, node="-").key[:-1]
    after = window.now - _LATELY
    return {key for key, at in window.heard.items() if at > after and key.startswith(prefix)}


def half_of(window: Window, cluster: str, nodes: Collection[Subject]) -> bool:
    """Whether these are half of the cluster or more."""
    total = len(heard_lately(window, cluster) | {node.key for node in nodes})
    return are_most(len(nodes), total)
