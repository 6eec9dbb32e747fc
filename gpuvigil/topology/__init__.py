"""Which port of a node is at which switch: from files that say it, from LLDP, and from what follows."""

from .files import Files
from .infiniband import from_switches
from .learner import learn
from .model import Doubt, Fact, Imported, Link, Placed, Question, Source, Topology, Uplink, Wire
from .reader import read

__all__ = [
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
    "from_switches",
    "learn",
    "read",
]
