"""Which port of a node is at which switch: from files that say it, from LLDP, and from what follows."""

from .files import Files
from .infiniband import from_switches
from .learner import learn, miswired
from .model import (
    Doubt,
    Fact,
    Imported,
    Link,
    Miswired,
    Placed,
    Question,
    Source,
    Topology,
    Uplink,
    Wire,
)
from .reader import read

__all__ = [
    "Doubt",
    "Fact",
    "Files",
    "Imported",
    "Link",
    "Miswired",
    "Placed",
    "Question",
    "Source",
    "Topology",
    "Uplink",
    "Wire",
    "from_switches",
    "learn",
    "miswired",
    "read",
]
