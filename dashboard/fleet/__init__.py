"""Make from facts what pages show of every cluster.

A GPU is on the map if its node's inventory lists it or if it sent a row. Without a recent row it is
unknown, never idle, free or 0. Clusters are never summed.
"""

from .build import Fleet, clusters, overdue_nodes, silent_nodes
from .identity_cache import IdentityCache

__all__ = ["Fleet", "IdentityCache", "clusters", "overdue_nodes", "silent_nodes"]
