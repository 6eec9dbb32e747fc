"""How `gpuvigil selftest` makes a fault happen: what a node that has it tells.

Numbers tick by tick, the hour before included, and events. Numbers are far beyond the limits that
`docs/detectors.md` names; where a limit is a setting, the setting is named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..model import EventKind, Holder, PortIdentity

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Grows:
    """The value of a counter that grows by so much a second."""

    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """A number that was another one until a span before the selftest began."""

    before: float
    after: float
    span: str = "window_seconds"  # a key of `[analyzer]`


Fields = Mapping[str, "float | Grows | Turns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An event, so many seconds before the faults are told; about the first GPU or port, or the node."""

    kind: EventKind
    on: str = "node"  # or "gpu", "port"
    seconds_ago: float = 1.0
    older_by: str = ""  # a key of `[analyzer]`, in seconds
    xid: int | None = None
    sxid: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Who holds, or held, the first GPUs; in seconds before the selftest begins."""

    holder: Holder
    gpus: int = 1
    started_ago: float
    ended_ago: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What the nodes that have a fault tell."""

    nodes: int = 1
    gpus: Sequence[Fields] = ()  # the first GPUs, a line each tick; of the others nothing is read
    port: PortIdentity | None = None
    port_fields: Fields = field(default_factory=dict)
    node_fields: Fields = field(default_factory=lambda: {"driver_answering": 1})
    told: tuple[Told, ...] = ()
    flaps: bool = False  # the port, down and up again as often as it takes, the last time up
    held: Held | None = None
    gpus_installed: int = 5
    driver: str = "580.0"
    inventory_seconds_ago: float = 0.0
    driverless_seconds_ago: float | None = None
    rack: str = "selftest"
    # By node, where they differ: what it says of `port`, and of others that tell no numbers.
    ports: tuple[tuple[PortIdentity, ...], ...] = ()
    fabric_cluster: str | None = None  # of the NVLink domain that its nodes share
    clock_ahead_seconds: float = 0.0
    is_silent: bool = False  # after the first numbers
    ticks_slowly: bool = False  # as slowly as the idle span allows: it is long, and told in advance


def port(
    device: str,
    role: str,
    *,
    switch: str | None = None,
    addressing: tuple[str, ...] | None = None,
    kind: str = "infiniband",
    mtu: int | None = None,
) -> PortIdentity:
    return PortIdentity(
        device=device,
        port="1",
        kind=kind,
        role=role,
        was_up=True,
        switch=switch,
        addressing=addressing,
        mtu=mtu,
    )


def rails(*leaves: str) -> tuple[PortIdentity, ...]:
    """A node's ports, each at one of these leaves."""
    return tuple(port(f"mlx5_{n}", "fabric", switch=leaf) for n, leaf in enumerate(leaves))


def events(*told: Told) -> Played:
    """A node whose first GPU, as far as it is asked, is well: only events tell of the fault."""
    return Played(gpus=({"up": 1},) if told[0].on == "gpu" else (), told=told)
