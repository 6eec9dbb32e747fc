"""The effects of injected faults on the numbers of the simulated fleet while it plays. Pure."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.model import Unmeasured

from .cluster import Node
from .fabric.cabling import LANES, Cabling
from .faults import Effect, InjectedFault, Target
from .fleet.changes import FOREVER, Change, How, On
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
_Bend = tuple[On, str, tuple[int, ...], How, float]


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
            yield _now(On.SWITCH_PORT, name, place, How.STEP, float(value))
        for name, share in (("speed", odd.speed), ("lanes", odd.lanes / LANES)):
            yield _now(On.SWITCH_PORT, name, place, How.TIMES, share)
        if not odd.up:
            yield _now(On.SWITCH_PORT, "up", place, How.SET, 0.0)
    for switch in lost(cabling, faults, at):
        yield _now(On.SWITCH, "lost", switch, How.SET, 1.0)


def _is_beyond(fault: InjectedFault) -> bool:
    return fault.kind.effect.is_beyond_hosts


def _now(on: On, name: str, target: int, how: How, value: float) -> Change:
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
            yield On.GPU, name, hit.gpus, How.STEP, errors


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
            yield On.WORK, "stall", struck, How.SET, 1.0
        if waits := tuple(gpu for gpu in job.gpus if gpu not in lost):
            yield On.WORK, "spin", waits, How.SET, 1.0


def _lost(hit: _Hit) -> Iterator[_Bend]:
    yield On.GPU, "lost", hit.gpus, How.SET, float(Unmeasured.LOST)
    yield On.GPU, "pcie_present", hit.gpus, How.SET, 0.0
    yield On.NODE, "gpus_answering", hit.node, How.ADD, -1.0


def _silent(hit: _Hit) -> Iterator[_Bend]:
    yield On.GPU, "mute", hit.gpus, How.SET, float(Unmeasured.DRIVER_NOT_ANSWERING)
    yield On.NODE, "gpus_answering", hit.node, How.ADD, -float(len(hit.gpus))
    if hit.fault.kind.target is Target.NODE:
        yield On.NODE, "driver_answering", hit.node, How.SET, 0.0
        yield On.NODE, "driver_silent_seconds", hit.node, How.CLOCK, 1.0


def _idle(hit: _Hit) -> Iterator[_Bend]:
    yield On.WORK, "stall", hit.gpus, How.SET, 1.0


def _heat(hit: _Hit) -> Iterator[_Bend]:
    for name in ("temperature_celsius", "memory_temperature_celsius"):
        yield On.GPU, name, hit.gpus, How.SET, float(HOT_CELSIUS)
    for name in HOT_COUNTERS:
        yield On.GPU, name, hit.gpus, How.STEP, hit.fault.lasted_seconds(hit.at)
    yield On.GPU, "sm_clock_hertz", hit.gpus, How.TIMES, HOT_CLOCK_SHARE
    yield On.GPU, "clock_event_reasons", hit.gpus, How.SET, float(HOT_REASONS)


def _slow(hit: _Hit) -> Iterator[_Bend]:
    yield On.PHYSICS, "speed", hit.gpus, How.TIMES, 1.0 / (1.0 + SLOWER)


def _nvlink(hit: _Hit) -> Iterator[_Bend]:
    for name in NVLINK_COUNTERS:
        yield On.GPU, name, hit.gpus, How.STEP, float(nvlink_errors(hit.fault, hit.at))
    yield On.GPU, "nvlink_worst_link", hit.gpus, How.SET, float(BAD_LINK)


def _node_silent(hit: _Hit) -> Iterator[_Bend]:
    yield On.DELIVERY, "silent", hit.node, How.SET, 1.0


def _host_hot(hit: _Hit) -> Iterator[_Bend]:
    for name, count in slowed_by_heat(hit.fault, hit.at).items():
        yield On.NODE, name, hit.node, How.STEP, float(count)
    yield On.PHYSICS, "speed", hit.gpus, How.TIMES, 1.0 / (1.0 + SLOWER)


def _port(hit: _Hit) -> Iterator[_Bend]:
    yield On.PORT, "link_downed", hit.port, How.STEP, float(times_down(hit.fault, hit.at))
    if is_down(hit.fault, hit.at):
        yield On.PORT, "up", hit.port, How.SET, 0.0
        yield On.PORT, "physical_state", hit.port, How.SET, float(PHYSICAL_STATE_POLLING)
        yield On.PORT, "throughput", hit.port, How.SET, 0.0


def _port_numbers(hit: _Hit) -> Iterator[_Bend]:
    kind, lasted = hit.fault.kind, hit.fault.lasted_seconds(hit.at)
    for name, per_second in kind.grows.items():
        yield On.PORT, name, hit.port, How.STEP, float(math.floor(per_second * lasted))
    for name, value in kind.sets.items():
        yield On.PORT, name, hit.port, How.SET, value
    for name, value in kind.times.items():
        yield On.PORT, name, hit.port, How.TIMES, value


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
