"""A fabric as far as it is known: nodes' ports and switches, their connections, and the sources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from .link_names import device_name


class Source(str, Enum):
    """The source of a fact. If two sources contradict each other, the earlier one here counts."""

    LLDP = "LLDP"  # the switch's own announcement, heard by the node
    IBNETDISCOVER = "ibnetdiscover"  # the subnet's own
    FILE = "file"  # a person's file
    SLURM = "Slurm"
    LABELS = "labels"  # of Kubernetes, a cloud or topograph
    PEERS = "peers"  # inferred from where the same port of nodes at the same switches is
    DOWN_TOGETHER = "down together"  # inferred from going down with ports whose switch is known
    PORT_NAMES = "port names"

    @property
    def rank(self) -> int:
        """The priority of the source; 0 is trusted most."""
        return _RANKS[self]


_RANKS = {source: rank for rank, source in enumerate(Source)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A name, and its source.

    `confidence`: 1 for a stated fact, else the share of the evidence that agrees.
    """

    value: str
    source: Source
    confidence: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A statement that a port is at a switch. `device` None: it is about the node alone."""

    node: str
    switch: str
    source: Source
    device: str | None = None
    port: str | None = None
    switch_port: str | None = None
    rail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """A cable between two switches; `lower` is nearer to the nodes where that is known."""

    lower: str
    upper: str
    source: Source
    lower_port: str | None = None
    upper_port: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a node is when no port is named: its block, or the name of its lowest switch."""

    node: str
    place: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The content of one topology file."""

    wires: tuple[Wire, ...] = ()
    uplinks: tuple[Uplink, ...] = ()
    places: tuple[Placed, ...] = ()

    def __add__(self, other: "Imported") -> "Imported":
        return Imported(
            wires=self.wires + other.wires,
            uplinks=self.uplinks + other.uplinks,
            places=self.places + other.places,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One port of a node. None means not known."""

    node: str
    device: str
    port: str
    role: str = "fabric"
    was_up: bool = True
    switch: Fact | None = None
    switch_port: str | None = None
    rail: Fact | None = None

    @property
    def name(self) -> str:
        """The port's name: `mlx5_0`, or `mlx4_0/2` for a device with several ports."""
        return device_name(self.device, self.port)


class Question(str, Enum):
    """The kind of a contradiction."""

    SWAPPED = "swapped cables"
    WRONG_RAIL = "cable in the wrong rail"
    RAIL_MISSING = "rail missing"
    NO_UPLINK = "leaf without an uplink"
    SOURCES = "sources disagree"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One contradiction, with the ports it is about: node and port, as in `Link.name`.

    For a cable in the wrong rail, the first switch is where the first port is, the second where it
    belongs; `rails` are the names of most hosts' ports there, and `basis` says how many hosts agree. For
    rails that a host lacks, `rails` are their names, and `details` says what is wrong with each.
    """

    question: Question
    text: str
    ports: tuple[tuple[str, str], ...] = ()
    switches: tuple[str, ...] = ()
    rails: tuple[str, ...] = ()
    basis: str = ""
    details: str = ""
    certain: bool = True  # False: the host may number its ports differently, or be built so


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradictions:
    """Contradictions among stated facts, and what could be compared with others."""

    doubts: tuple[Doubt, ...] = ()
    judged: frozenset[tuple[str, str]] = frozenset()  # node and name of each compared port
    hosts: frozenset[str] = frozenset()  # compared by their rails
    # The leaf of each fabric port: stated, or where nearly all such ports of its pod are.
    leaves: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A cluster's fabric: all ports of its nodes, cables between switches, and contradictions."""

    links: tuple[Link, ...] = ()
    uplinks: tuple[Uplink, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    places: Mapping[str, Fact]  # of nodes

    @property
    def leaves(self) -> frozenset[str]:
        """The switches that a port of a node is at."""
        return frozenset(link.switch.value for link in self.links if link.switch is not None)
