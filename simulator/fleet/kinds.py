"""The one table of faults that the fleet can have."""

from . import gpu_faults, link_faults, node_faults
from .site import FaultKind

KINDS: dict[str, FaultKind] = {
    kind.key: kind for kind in (*gpu_faults.KINDS, *link_faults.KINDS, *node_faults.KINDS)
}
