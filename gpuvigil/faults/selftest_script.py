"""How `gpuvigil selftest` makes a fault happen: what a node with the fault reports.

This is metrics tick by tick, including the hour before, and events. The values are far beyond the limits
named in `docs/detectors.md`; where a limit is a setting, the setting is named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..model import EventKind, Holder, PortIdentity

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingCounter:
    """The value of a counter that grows at this rate per second."""

    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedValue:
    """A value that changed a given span before the selftest began."""

    before: float
    after: float
    span: str = "window_seconds"  # a key of `[analyzer]`


Fields = Mapping[str, "float | GrowingCounter | ChangedValue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedEvent:
    """An event some seconds before the faults are reported; about the first GPU or port, or the node."""

    kind: EventKind
    on: str = "node"  # or "gpu", "port"
    seconds_ago: float = 1.0
    older_by: str = ""  # a key of `[analyzer]`: that many seconds earlier still
    xid: int | None = None
    sxid: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedHolder:
    """A holder of the first GPUs, now or earlier; times in seconds before the selftest begins."""

    holder: Holder
    gpus: int = 1
    started_ago: float
    ended_ago: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestScript:
    """The metrics, events and inventory that nodes with a fault report."""

    nodes: int = 1
    gpus: Sequence[Fields] = ()  # the first GPUs, a row each tick; nothing is read from the others
    port: PortIdentity | None = None
    port_fields: Fields = field(default_factory=dict)
    node_fields: Fields = field(default_factory=lambda: {"driver_answering": 1})
    events: tuple[ScriptedEvent, ...] = ()
    flaps: bool = False  # the port goes down and up as often as it takes, and ends up
    holder: ScriptedHolder | None = None
    gpus_installed: int = 5
    driver: str = "580.0"
    inventory_seconds_ago: float = 0.0
    driverless_seconds_ago: float | None = None
    rack: str = "selftest"
    # By node, where they differ: its inventory's ports, of which some report no metrics.
    ports: tuple[tuple[PortIdentity, ...], ...] = ()
    fabric_cluster: str | None = None  # the NVLink domain that its nodes share
    clock_ahead_seconds: float = 0.0
    is_silent: bool = False  # after the first metrics
    ticks_slowly: bool = False  # as slowly as the long idle span allows; played in advance


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
    """Return a node's ports, one at each of these leaf switches."""
    return tuple(port(f"mlx5_{n}", "fabric", switch=leaf) for n, leaf in enumerate(leaves))


def events(*told: ScriptedEvent) -> SelftestScript:
    """Return a node on which only events show the fault; the GPU of the first event is otherwise well."""
    return SelftestScript(gpus=({"up": 1},) if told[0].on == "gpu" else (), events=told)
