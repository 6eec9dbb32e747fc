"""Playing the plan: from the load of every GPU to the tables of a block."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from . import tables
from .chance import Floats, key, over_time
from .changes import Change, Operation, Quantity, apply, within
from .delivery import Delivered, Delivery
from .holding import SPINNING, Holding, RequestedLoad
from .links import LinkRows, Links
from .model import FleetSettings
from .physics import Physics, PhysicsEffects
from .plan import Plan
from .ports import PortSensors
from .sensors import ANYBODY, PROFILED, SORTS, GpuSensors, Moment, NodeSensors, Numbers
from .steps import EARLY_SECONDS, StepSensors, Stretch, early_looks
from .topology import Index
from .workloads import day

# Counters that start at zero when the collector forgets them.
_FORGOTTEN = {
    "gpu": ("energy_joules", "nvlink_receive_bytes", "nvlink_transmit_bytes", "power_cap_seconds"),
    "port": ("receive_bytes", "transmit_bytes"),
}
# Fields that the driver does not report for a GPU that is cut into slices.
_WHOLE_ONLY = ("utilization_percent", "memory_utilization_percent", *PROFILED)
# Kelvin by which the room's air is warmer by day than on average [chosen].
_TIDE_KELVIN = 1.2
# Loads that rise and fall with the pace of a job.
_WORK = ("sm", "tensor", "dram", "nvlink", "fabric", "pcie_receive", "pcie_transmit")
Shown = tuple[dict[str, pa.Table], dict[str, pa.Array]]


class Playing:
    """One run through the plan, from its beginning; blocks must be played in order."""

    def __init__(self, settings: FleetSettings, plan: Plan, tick_seconds: float) -> None:
        self._settings = settings
        self._plan = plan
        self._tick_seconds = tick_seconds
        topology = plan.topology
        self._topology = topology
        self._holding = Holding(plan.jobs, topology)
        self._physics = Physics(topology, len(plan.jobs))
        self._links = Links(topology)
        self._gpus = GpuSensors(topology, self._physics, self._links)
        self._ports = PortSensors(topology)
        # Custom kinds may change the host's sensors, so these must be shown.
        own = topology.world is not None or bool(settings.more_kinds)
        host = settings.host_sensors or own
        self._nodes = NodeSensors(topology, host=host, at_work=settings.steps)
        self._steps = StepSensors(plan.jobs, plan.changes) if settings.steps else None
        self._delivery = Delivery(topology, settings.missing, settings.life)
        self._shapes = {name: tables.Shape(name, topology) for name in ("gpu", "port", "node")}
        self._salt = key(settings.seed, "ticks")
        self._bases: dict[tuple[str, str], Index] = {}
        self._resets = sorted(plan.life.resets, key=lambda reset: reset.at)
        self._hidden = self._unknown_fields()
        self._unread = self._unread_fields()

    def _unknown_fields(self) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
        """Return, per GPU, whether it has only the common fields, and whether it is not profiled."""
        nvidia = self._topology.model_values("nvidia") > 0.0
        profiled = self._topology.model_values("profiled") > 0.0
        return (None if nvidia.all() else ~nvidia), (None if profiled.all() else ~profiled)

    def _unread_fields(self) -> dict[str, NDArray[np.bool_]]:
        """Return, by field, the nodes on which it is not read."""
        return {
            name: nodes
            for sort, nodes in self._topology.unread.items()
            if nodes.any()
            for name in SORTS[sort]
        }

    def play(self, ticks: Index, *, shown: bool) -> Shown | None:
        """Return the tables of these ticks; None when they are only played for their effects."""
        if not len(ticks):
            return ({}, {}) if shown else None
        seconds: Floats = ticks.astype(np.float64) * self._tick_seconds
        moment = Moment(
            seconds=seconds,
            tick_seconds=self._tick_seconds,
            own=over_time(self._topology.gpu_keys, ticks, self._salt),
            nodes=over_time(self._topology.node_keys, ticks, self._salt),
            noise=self._settings.noise,
        )
        changes = within(self._plan.changes, seconds[0], seconds[-1] + 1e-9)
        asked = self._holding.ask(seconds, ticks, moment.own, self._settings.noise)
        _bend_work(asked, changes, seconds)
        bends = self._bends(changes, seconds)
        played = self._physics.play(asked, bends, self._tick_seconds)
        throughput: Any = 1.0
        if any(c.on is Quantity.PORT and c.name == "throughput" for c in changes):
            throughput = np.ones((len(seconds), self._topology.ports))
            _apply_all(throughput, changes, Quantity.PORT, "throughput", seconds)
        told: Numbers = {}
        if self._steps is not None:
            bent = _bent_steps(changes, seconds, asked.sm.shape)
            bent["speed"] = np.broadcast_to(bends.speed, asked.sm.shape)
            told = self._steps.read(
                Stretch(
                    asked=asked,
                    clock=played.clock,
                    bent=bent,
                    seconds=seconds,
                    tick=self._tick_seconds,
                    bits=moment.own,
                )
            )
        numbers = {
            "gpu": self._gpus.read(asked, bends, played, moment) | told,
            "port": self._ports.read(asked, played, throughput, moment),
            "node": self._nodes.read(asked, moment),
        }
        self._forget(numbers, seconds)
        if not shown:
            return None
        traffic = numbers["gpu"]["nvlink_receive_bytes"]
        links = self._links.rows(seconds, self._tick_seconds, self._plan.changes, traffic)
        way = self._delivery.of(seconds, ticks, moment.nodes, changes)
        return self._tables(numbers, changes, way, seconds, links)

    def _bends(self, changes: Sequence[Change], seconds: Floats) -> PhysicsEffects:
        bends = self._physics.usual()
        bends.inlet = np.broadcast_to(
            _TIDE_KELVIN * day(seconds)[:, None], (len(seconds), self._topology.gpus)
        )
        for name in sorted({c.name for c in changes if c.on is Quantity.PHYSICS}):
            usual = np.asarray(getattr(bends, name))
            full = np.broadcast_to(usual, (len(seconds), self._topology.gpus)).copy()
            _apply_all(full, changes, Quantity.PHYSICS, name, seconds)
            setattr(bends, name, full)
        return bends

    def _forget(self, numbers: dict[str, Numbers], seconds: Floats) -> None:
        """Reset the counters of nodes whose collector forgot them."""
        due = [r for r in self._resets if seconds[0] <= r.at <= seconds[-1] + self._tick_seconds]
        for measurement, names in _FORGOTTEN.items():
            node_of = self._shapes[measurement].node
            for name in names:
                values = numbers[measurement][name]
                base = self._bases.get((measurement, name))
                if base is None and not due:
                    continue
                values = values.copy()
                if base is None:
                    base = np.zeros(values.shape[1], dtype=values.dtype)
                shown = values - base
                for reset in due:
                    tick = int(np.searchsorted(seconds, reset.at))
                    if tick < len(seconds):
                        mine = node_of == reset.node
                        base = np.where(mine, values[tick], base)
                        shown[tick:, mine] = (values - base)[tick:, mine]
                self._bases[measurement, name] = base
                numbers[measurement][name] = shown

    def _tables(
        self,
        numbers: dict[str, Numbers],
        changes: Sequence[Change],
        way: Delivered,
        seconds: Floats,
        links: LinkRows,
    ) -> Shown:
        rows: dict[str, pa.Table] = {}
        arrivals: dict[str, pa.Array] = {}
        origin = (self._settings.start, seconds)
        for name, on in (("gpu", Quantity.GPU), ("port", Quantity.PORT), ("node", Quantity.NODE)):
            shape = self._shapes[name]
            size = (len(seconds), len(shape.node))
            copies = way.copies[:, shape.node]
            _bend_fields(numbers[name], changes, on, seconds, size)
            absent: dict[str, NDArray[np.bool_]] = {}
            if name == "gpu":
                copies, absent = self._gone(numbers[name], changes, seconds, copies)
                rows["nvlink"], arrivals["nvlink"] = tables.link_table(
                    links, self._topology, self._counted(copies), absent.get(""), way, origin
                )
            if name == "node":
                absent = self._unread_of(numbers[name], shape.node, size)
            rows[name], arrivals[name] = tables.table(
                shape, numbers[name], absent, copies, way, origin
            )
        gone = early_looks(changes, seconds, self._tick_seconds) if self._steps else []
        for at in gone:
            rows["gpu"], arrivals["gpu"] = tables.with_a_look(
                rows["gpu"], arrivals["gpu"], self._looked(at), self._settings.start
            )
        return rows, arrivals

    def _looked(self, change: Change) -> tables.ExtraScan:
        """Return the extra scan of a node when one of its ranks has gone, whatever its ticks."""
        topology = self._topology
        node = int(topology.gpu_node[change.targets[0]])
        return tables.ExtraScan(
            node=topology.places[node].name,
            seconds=change.start + EARLY_SECONDS,
            gone=tuple(topology.uuids[gpu] for gpu in change.targets),
            gone_seconds=EARLY_SECONDS,
        )

    def _unread_of(
        self, numbers: Numbers, node_of: Index, size: tuple[int, ...]
    ) -> dict[str, NDArray[np.bool_]]:
        """Return where fields are absent because nobody reads them."""
        return {
            name: np.broadcast_to(nodes[node_of], size)
            for name, nodes in self._unread.items()
            if name in numbers
        }

    def _counted(self, copies: Index) -> Index:
        """Return the copies of rows of single links: only collectors that read error counters send them."""
        unread = self._topology.unread.get("error counters")
        return copies if unread is None else np.where(unread[self._topology.gpu_node], 0, copies)

    def _gone(
        self, numbers: Numbers, changes: Sequence[Change], seconds: Floats, copies: Index
    ) -> tuple[Index, dict[str, NDArray[np.bool_]]]:
        """Mark GPUs that are missing, lost, or do not answer, or whose driver reports less."""
        size = copies.shape
        flags = {name: np.zeros(size) for name in ("absent", "lost", "mute", "sliced")}
        for name, flag in flags.items():
            _apply_all(flag, changes, Quantity.GPU, name, seconds)
        lost, mute = flags["lost"] > 0.0, flags["mute"] > 0.0
        unread = lost | mute
        absent: dict[str, NDArray[np.bool_]] = {}
        if unread.any():
            absent[""] = unread
            absent["up"], absent["index"] = mute, np.zeros(size, dtype=bool)
            absent["pcie_present"] = absent["index"]
            numbers["up"] = np.where(lost, 0, 1)
            numbers["unmeasured_reason"] = flags["lost"] + flags["mute"]
            numbers["unmeasured_seconds"] = _since(changes, seconds, size)
            absent["unmeasured_seconds"] = ~unread
            absent["unmeasured_reason"] = ~unread
        sliced = flags["sliced"] > 0.0
        if sliced.any():
            for name in _WHOLE_ONLY:
                absent[name] = sliced | unread
        self._hide(numbers, absent, size)
        return np.where(flags["absent"] > 0.0, 0, copies), absent

    def _hide(
        self, numbers: Numbers, absent: dict[str, NDArray[np.bool_]], size: tuple[int, ...]
    ) -> None:
        """Hide fields that the driver of a model does not have."""
        strange, unprofiled = self._hidden
        unread = absent.get("")
        for name, whole in self._unread_of(numbers, self._topology.gpu_node, size).items():
            before = absent.get(name, unread)
            absent[name] = whole if before is None else whole | before
        for name in numbers:
            hidden = strange if name not in ANYBODY else None
            if name in PROFILED and unprofiled is not None:
                hidden = unprofiled
            if hidden is not None:
                whole = np.broadcast_to(hidden, size)
                before = absent.get(name, unread)
                absent[name] = whole if before is None else whole | before


def _since(changes: Sequence[Change], seconds: Floats, size: tuple[int, ...]) -> Floats:
    """Return for how long GPUs have not been measured."""
    clock = np.zeros(size)
    for change in changes:
        if change.on is Quantity.GPU and change.name in {"lost", "mute"}:
            apply(replace(change, how=Operation.CLOCK), clock, seconds)
    return clock


def _apply_all(
    values: Floats, changes: Sequence[Change], on: Quantity, name: str, seconds: Floats
) -> None:
    for change in changes:
        if change.on is on and change.name == name:
            apply(change, values, seconds)


def _bend_work(asked: RequestedLoad, changes: Sequence[Change], seconds: Floats) -> None:
    """Apply changes of work: kernels that spin, work that stalls, and work that waits for the fabric."""
    mine = [c for c in changes if c.on is Quantity.WORK]
    if not mine:
        return
    shape = asked.sm.shape
    spin, stall, wait = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    if any(c.name == "pace" for c in mine):
        own = np.ones(shape)
        _apply_all(own, mine, Quantity.WORK, "pace", seconds)
        for name in (*_WORK, "utilization"):
            setattr(asked, name, getattr(asked, name) * own)
    _apply_all(spin, mine, Quantity.WORK, "spin", seconds)
    _apply_all(stall, mine, Quantity.WORK, "stall", seconds)
    _apply_all(wait, mine, Quantity.WORK, "wait", seconds)
    if wait.any():
        # Only jobs on several nodes have work for the fabric.
        pace = np.where(asked.fabric > 0.0, 1.0 - wait, 1.0)
        for name in _WORK:
            setattr(asked, name, getattr(asked, name) * pace)
    stalls = stall > 0.0
    spins = (spin > 0.0) & asked.held & ~stalls
    asked.computing = (asked.computing | spins) & ~stalls
    asked.utilization = np.where(spins, 1.0, np.where(stalls, 0.0, asked.utilization))
    for name, value in zip(("sm", "tensor", "dram"), SPINNING, strict=True):
        asked_for = getattr(asked, name)
        setattr(asked, name, np.where(spins, value, np.where(stalls, 0.0, asked_for)))
    still = spins | stalls
    for name in ("nvlink", "fabric", "pcie_receive", "pcie_transmit"):
        setattr(asked, name, np.where(still, 0.0, getattr(asked, name)))


def _bent_steps(
    changes: Sequence[Change], seconds: Floats, shape: tuple[int, ...]
) -> dict[str, Floats]:
    """Return the effects of changes on the work of jobs and on their ranks."""
    found = {name: np.zeros(shape) for name in ("spin", "stall", "wait", "phase", "gone")}
    found["pace"] = np.ones(shape)
    for name, values in found.items():
        on = Quantity.STEPS if name in {"phase", "gone"} else Quantity.WORK
        _apply_all(values, changes, on, name, seconds)
    return found


def _bend_fields(
    numbers: Numbers,
    changes: Sequence[Change],
    on: Quantity,
    seconds: Floats,
    size: tuple[int, int],
) -> None:
    """Apply changes to the fields that are read."""
    for name in {c.name for c in changes if c.on is on}:
        if name in numbers:
            full = np.broadcast_to(np.asarray(numbers[name], dtype=np.float64), size).copy()
            _apply_all(full, changes, on, name, seconds)
            numbers[name] = full
