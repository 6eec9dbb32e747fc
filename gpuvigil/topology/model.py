"""A fabric as far as it is known: ports of nodes at switches, switches at switches, and whose word that is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Source(str, Enum):
    """Whose word a fact is. Of two that contradict each other the earlier counts."""

    LLDP = "LLDP"  # the switch's own, heard by the node
    IBNETDISCOVER = "ibnetdiscover"  # the subnet's own
    FILE = "file"  # a person's
    SLURM = "Slurm"
    LABELS = "labels"  # of Kubernetes, a cloud or topograph
    PEERS = "peers"  # where the same port of nodes at the same switches is
    DOWN_TOGETHER = "down together"  # with ports whose switch is known
    PORT_NAMES = "port names"

    @property
    def rank(self) -> int:
        """0 is believed first."""
        return _RANKS[self]


_RANKS = {source: rank for rank, source in enumerate(Source)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A name, and who says so.

    `confidence`: 1 for what was said outright, else the share of what speaks about it that agrees.
    """

    value: str
    source: Source
    confidence: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Somebody's word that a port is at a switch. `device` None: it was told of the node alone."""

    node: str
    switch: str
    source: Source
    device: str | None = None
    port: str | None = None
    switch_port: str | None = None
    rail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """A cable between two switches, of which `lower` is nearer to the nodes where that is known."""

    lower: str
    upper: str
    source: Source
    lower_port: str | None = None
    upper_port: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a node is without a port of it being named: its block or its lowest switch by name."""

    node: str
    place: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What one file says."""

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
    """One port of a node. What is None is not known."""

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
        """`mlx5_0`, and `mlx4_0/2` of a device with several ports."""
        return self.device if self.port == "1" else f"{self.device}/{self.port}"


class Question(str, Enum):
    """What does not fit together."""

    SWAPPED = "swapped cables"
    WRONG_RAIL = "cable in the wrong rail"
    RAIL_MISSING = "rail missing"
    NO_UPLINK = "leaf without an uplink"
    SOURCES = "sources disagree"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One contradiction, with the ports it is about: node and port, as `Link.name` has it.

    Of a cable in the wrong rail the first switch is where the first port is, the second where it
    belongs; `rails` are the names of most hosts' ports there, `basis` says how many hosts agree. Of
    rails that a host lacks, `rails` are their names, and `details` says what of each.
    """

    question: Question
    text: str
    ports: tuple[tuple[str, str], ...] = ()
    switches: tuple[str, ...] = ()
    rails: tuple[str, ...] = ()
    basis: str = ""
    details: str = ""
    certain: bool = True  # False: or the host counts its ports in another order, or is built so


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradictions:
    """What does not fit together by what is said outright, and what could be compared with others."""

    doubts: tuple[Doubt, ...] = ()
    judged: frozenset[tuple[str, str]] = frozenset()  # node and name of ports
    hosts: frozenset[str] = frozenset()  # by their rails
    # The leaf of each fabric port: said outright, or where nearly all such ports of its pod are.
    leaves: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A cluster's fabric: every port that its nodes have, cables between switches, contradictions."""

    links: tuple[Link, ...] = ()
    uplinks: tuple[Uplink, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    places: Mapping[str, Fact]  # of nodes

    @property
    def leaves(self) -> frozenset[str]:
        """Switches that a port of a node is at."""
        return frozenset(link.switch.value for link in self.links if link.switch is not None)
