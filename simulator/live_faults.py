"""The effects of injected faults on the numbers of the simulated fleet while it plays. Pure."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.model import Unmeasured

from .cluster import Node
from .fabric.cabling import LANES, Cabling
from .faults import Effect, InjectedFault, Target
from .fleet.changes import FOREVER, Change, Operation, Quantity
from .fleet.jobs import Job
from .injected_switches import lost, odd_ports
from .sensors import (
    BAD_LINK,
    HOT_CELSIUS,
    HOT_CLOCK_SHARE,
    HOT_COUNTERS,
    HOT_REASONS,
    NVLINK_COUNTERS,
    PHYSICAL_STATE_POLLING,
    SLOWER,
    is_down,
    nvlink_errors,
    slowed_by_heat,
    times_down,
)

# Kind of number, name, targets, how, and the value.
_Bend = tuple[Quantity, str, tuple[int, ...], Operation, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hit:
    """A fault at a moment, and the numbers of the things that it hits."""

    fault: InjectedFault
    at: datetime
    node: tuple[int, ...]
    gpus: tuple[int, ...]  # one GPU, or all of the node
    port: tuple[int, ...]
    on_fabric: bool  # whether the port is


def changes(
    faults: Sequence[InjectedFault],
    nodes: Sequence[Node],
    origin: datetime,
    at: datetime,
    jobs: Sequence[Job] = (),
) -> Sequence[Change]:
    """Return the faults' changes for the tick `at`; `origin` is when the fleet began, `jobs` are its jobs.

    Counters keep what a fault has added, as of `at`, when it is cleared.
    """
    numbers = {node.subject.node: number for number, node in enumerate(nodes)}
    found: list[Change] = []
    trains = _trainings(jobs, (at - origin).total_seconds())
    for fault in faults:
        number = numbers.get(fault.node)  # None: the file belongs to a larger fleet
        if number is None or fault.at > at:
            continue
        start, end = (fault.at - origin).total_seconds(), FOREVER
        if fault.cleared_at is not None:
            end = (fault.cleared_at - origin).total_seconds()
        hit = _hit(fault, nodes[number], number, at)
        for on, name, targets, how, value in (*_bends(hit), *_held_up(hit, trains)):
            found.append(
                Change(
                    on=on, name=name, targets=targets, start=start, end=end, how=how, value=value
                )
            )
    return found


def switch_changes(
    faults: Sequence[InjectedFault], cabling: Cabling, at: datetime
) -> Iterator[Change]:
    """Yield the faults' changes beyond the ports of hosts, as of `at`."""
    for place, odd in odd_ports(cabling, [it for it in faults if _is_beyond(it)], at).items():
        for name, value in odd.counted.items():
            yield _now(Quantity.SWITCH_PORT, name, place, Operation.STEP, float(value))
        for name, share in (("speed", odd.speed), ("lanes", odd.lanes / LANES)):
            yield _now(Quantity.SWITCH_PORT, name, place, Operation.TIMES, share)
        if not odd.up:
            yield _now(Quantity.SWITCH_PORT, "up", place, Operation.SET, 0.0)
    for switch in lost(cabling, faults, at):
        yield _now(Quantity.SWITCH, "lost", switch, Operation.SET, 1.0)


def _is_beyond(fault: InjectedFault) -> bool:
    return fault.kind.effect.is_beyond_hosts


def _now(on: Quantity, name: str, target: int, how: Operation, value: float) -> Change:
    return Change(on=on, name=name, targets=(target,), start=0.0, end=FOREVER, how=how, value=value)


def _hit(fault: InjectedFault, node: Node, number: int, at: datetime) -> _Hit:
    count = len(node.gpus)
    gpus = tuple(range(number * count, (number + 1) * count))
    if fault.gpu is not None:
        gpus = gpus[fault.gpu : fault.gpu + 1]
    ports = [(port.device, port.port) for port in node.ports]
    name = (fault.device or "", fault.port or "")
    port = (number * len(ports) + ports.index(name),) if name in ports else ()
    fabric = {(it.device, it.port) for it in node.ports if it.role == "fabric"}
    return _Hit(fault=fault, at=at, node=(number,), gpus=gpus, port=port, on_fabric=name in fabric)


def _bends(hit: _Hit) -> Iterator[_Bend]:
    yield from _BENDS[hit.fault.kind.effect](hit)
    if hit.fault.kind.uncorrected_errors:
        for name in ("ecc_uncorrected_errors", "ecc_uncorrected_dram_errors"):
            errors = float(hit.fault.kind.uncorrected_errors)
            yield Quantity.GPU, name, hit.gpus, Operation.STEP, errors


def _trainings(jobs: Sequence[Job], seconds: float) -> Sequence[Job]:
    """Return the running jobs whose ranks wait for each other."""
    return [
        job
        for job in jobs
        if job.start <= seconds < job.end and job.workload.rhythm and len(job.gpus) > 1
    ]


def _held_up(hit: _Hit, trainings: Sequence[Job]) -> Iterator[_Bend]:
    """Yield the spinning of other ranks that wait for one that cannot work; a job on one node needs no port."""
    kind = hit.fault.kind
    if not kind.holds_up:
        return
    of_port = kind.target is Target.PORT
    lost = () if of_port else hit.gpus
    for job in trainings:
        if set(hit.gpus).isdisjoint(job.gpus):
            continue
        if of_port and not (hit.on_fabric and len(job.gpus) > len(hit.gpus)):
            continue
        if struck := tuple(gpu for gpu in job.gpus if gpu in lost):
            yield Quantity.WORK, "stall", struck, Operation.SET, 1.0
        if waits := tuple(gpu for gpu in job.gpus if gpu not in lost):
            yield Quantity.WORK, "spin", waits, Operation.SET, 1.0


def _lost(hit: _Hit) -> Iterator[_Bend]:
    yield Quantity.GPU, "lost", hit.gpus, Operation.SET, float(Unmeasured.LOST)
    yield Quantity.GPU, "pcie_present", hit.gpus, Operation.SET, 0.0
    yield Quantity.NODE, "gpus_answering", hit.node, Operation.ADD, -1.0


def _silent(hit: _Hit) -> Iterator[_Bend]:
    yield Quantity.GPU, "mute", hit.gpus, Operation.SET, float(Unmeasured.DRIVER_NOT_ANSWERING)
    yield Quantity.NODE, "gpus_answering", hit.node, Operation.ADD, -float(len(hit.gpus))
    if hit.fault.kind.target is Target.NODE:
        yield Quantity.NODE, "driver_answering", hit.node, Operation.SET, 0.0
        yield Quantity.NODE, "driver_silent_seconds", hit.node, Operation.CLOCK, 1.0


def _idle(hit: _Hit) -> Iterator[_Bend]:
    yield Quantity.WORK, "stall", hit.gpus, Operation.SET, 1.0


def _heat(hit: _Hit) -> Iterator[_Bend]:
    for name in ("temperature_celsius", "memory_temperature_celsius"):
        yield Quantity.GPU, name, hit.gpus, Operation.SET, float(HOT_CELSIUS)
    for name in HOT_COUNTERS:
        yield Quantity.GPU, name, hit.gpus, Operation.STEP, hit.fault.lasted_seconds(hit.at)
    yield Quantity.GPU, "sm_clock_hertz", hit.gpus, Operation.TIMES, HOT_CLOCK_SHARE
    yield Quantity.GPU, "clock_event_reasons", hit.gpus, Operation.SET, float(HOT_REASONS)


def _slow(hit: _Hit) -> Iterator[_Bend]:
    yield Quantity.PHYSICS, "speed", hit.gpus, Operation.TIMES, 1.0 / (1.0 + SLOWER)


def _nvlink(hit: _Hit) -> Iterator[_Bend]:
    for name in NVLINK_COUNTERS:
        yield Quantity.GPU, name, hit.gpus, Operation.STEP, float(nvlink_errors(hit.fault, hit.at))
    yield Quantity.GPU, "nvlink_worst_link", hit.gpus, Operation.SET, float(BAD_LINK)


def _node_silent(hit: _Hit) -> Iterator[_Bend]:
    yield Quantity.DELIVERY, "silent", hit.node, Operation.SET, 1.0


def _host_hot(hit: _Hit) -> Iterator[_Bend]:
    for name, count in slowed_by_heat(hit.fault, hit.at).items():
        yield Quantity.NODE, name, hit.node, Operation.STEP, float(count)
    yield Quantity.PHYSICS, "speed", hit.gpus, Operation.TIMES, 1.0 / (1.0 + SLOWER)


def _port(hit: _Hit) -> Iterator[_Bend]:
    yield (
        Quantity.PORT,
        "link_downed",
        hit.port,
        Operation.STEP,
        float(times_down(hit.fault, hit.at)),
    )
    if is_down(hit.fault, hit.at):
        yield Quantity.PORT, "up", hit.port, Operation.SET, 0.0
        yield (
            Quantity.PORT,
            "physical_state",
            hit.port,
            Operation.SET,
            float(PHYSICAL_STATE_POLLING),
        )
        yield Quantity.PORT, "throughput", hit.port, Operation.SET, 0.0


def _port_numbers(hit: _Hit) -> Iterator[_Bend]:
    kind, lasted = hit.fault.kind, hit.fault.lasted_seconds(hit.at)
    for name, per_second in kind.grows.items():
        yield Quantity.PORT, name, hit.port, Operation.STEP, float(math.floor(per_second * lasted))
    for name, value in kind.sets.items():
        yield Quantity.PORT, name, hit.port, Operation.SET, value
    for name, value in kind.times.items():
        yield Quantity.PORT, name, hit.port, Operation.TIMES, value


_BENDS: Mapping[Effect, Callable[[_Hit], Iterator[_Bend]]] = {
    Effect.LOST: _lost,
    Effect.SILENT: _silent,
    Effect.XID: lambda _: iter(()),
    Effect.IDLE: _idle,
    Effect.HEAT: _heat,
    Effect.SLOW: _slow,
    Effect.NVLINK: _nvlink,
    Effect.PORT_DOWN: _port,
    Effect.PORT_FLAP: _port,
    Effect.PORT_NUMBERS: _port_numbers,
    Effect.NODE_SILENT: _node_silent,
    Effect.HOST_HOT: _host_hot,
    Effect.UPLINK: lambda _: iter(()),
    Effect.SPINE: lambda _: iter(()),
}
