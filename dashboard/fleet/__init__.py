"""From facts to what pages show of every cluster.

A GPU is on the map because its node's inventory names it or because it sent a row. Without a row
that is young enough it is unknown, never idle, free or 0. Clusters are never summed.
"""

from .build import Fleet, clusters, overdue_nodes, silent_nodes
from .kept import Kept

__all__ = ["Fleet", "Kept", "clusters", "overdue_nodes", "silent_nodes"]
