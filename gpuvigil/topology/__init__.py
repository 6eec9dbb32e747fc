"""The switch of each node's port: from topology files, from LLDP, and by inference."""

from .files import Files
from .infiniband import from_switches
from .learner import contradictions, learn
from .model import (
    Contradictions,
    Doubt,
    Fact,
    Imported,
    Link,
    Placed,
    Question,
    Source,
    Topology,
    Uplink,
    Wire,
)
from .reader import read

__all__ = [
    "Contradictions",
    "Doubt",
    "Fact",
    "Files",
    "Imported",
    "Link",
    "Placed",
    "Question",
    "Source",
    "Topology",
    "Uplink",
    "Wire",
    "contradictions",
    "from_switches",
    "learn",
    "read",
]
