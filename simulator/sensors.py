"""Sensor readings of a simulated node: the model's numbers, changed by the injected faults."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from gpuvigil.lineprotocol import LineTemplate
from gpuvigil.model import Event, EventKind, PortIdentity, Subject, Unmeasured

from .cluster import Node, Slot, gpu_subject, node_name, port_subject
from .faults import Effect, InjectedFault, Target
from .model import (
    CHECKPOINT_SECONDS,
    NO_WORK,
    OWN_SHARE,
    Fields,
    Work,
    fabric_bytes,
    fabric_bytes_of,
    gpu_fields,
    node_fields,
    port_fields,
    steps_made,
    work,
)

# The readings of a GPU whose kernels wait in a collective for another rank.
_SPINS: Mapping[str, float | int] = {
    "utilization_percent": 100,
    "memory_utilization_percent": 1,
    "sm_activity_percent": 9.0,
    "clock_event_reasons": 0,
}
# A flapping port is down for the first part of each cycle.
_FLAP_SECONDS = 6.0
_FLAP_DOWN_SECONDS = 2.0
# The real collector replaces a hanging reader after this long.
_READER_PATIENCE_SECONDS = 30.0

PHYSICAL_STATE_POLLING = 2  # InfiniBand: no partner at the other end

# A GPU that overheats: above the 87 °C at which an H100 slows down, with the bits of
# nvmlDeviceGetCurrentClocksEventReasons for that (nvml.h: HwSlowdown and HwThermalSlowdown).
HOT_CELSIUS = 92
HOT_REASONS = 0x8 | 0x40
HOT_CLOCK_SHARE = 0.5
HOT_COUNTERS = ("hardware_thermal_slowdown_seconds", "thermal_violation_seconds")
# The link that counts errors, one a second, and the counters of its GPU that show it.
BAD_LINK = 3
# The extra work of a slow rank, and the longest step, as shares of the usual.
SLOWER, _LONGEST_STEP = 1.0 / 3.0, 1.25
# Of the time, and how often a second, where heat slows a host's processors down.
SLOWED_SHARE, SLOWED_A_SECOND = 0.4, 20.0
NVLINK_COUNTERS = ("nvlink_crc_errors", "nvlink_errors", "nvlink_worst_link_errors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The time of a reading: seconds since the simulation began, and the number of its tick."""

    origin: datetime
    elapsed_seconds: float
    tick: int
    spool_oldest_seconds: float = 0.0  # age of what still waits to be sent
    spool_bytes: int = 0  # bytes of it on disk

    @property
    def at(self) -> datetime:
        return self.origin + timedelta(seconds=self.elapsed_seconds)

    @property
    def counted_seconds(self) -> float:
        """The seconds that counters have run: none in the first tick's part before the origin."""
        return max(self.elapsed_seconds, 0.0)

    def seconds(self, at: datetime) -> float:
        """Return `at` in seconds since the simulation began."""
        return (at - self.origin).total_seconds()


class NodeSensors:
    """The writer of one node's telemetry."""

    def __init__(self, node: Node) -> None:
        self._node = node
        names = {"cluster": node.subject.cluster, "node": node.subject.node}
        self._node_line = LineTemplate("node", names)
        self._gpu_lines = [
            LineTemplate("gpu", {**names, "uuid": gpu.uuid, "model": gpu.model})
            for gpu in node.gpus
        ]
        self._port_lines = [
            LineTemplate(
                "port",
                {
                    **names,
                    "device": port.device,
                    "port": port.port,
                    "kind": port.kind,
                    "role": port.role,
                },
            )
            for port in node.ports
        ]

    def body(self, moment: Moment, faults: Sequence[InjectedFault]) -> str | None:
        """Return the node's lines, or None when it sends nothing.

        `faults` are all that happened to this node and to those that it shares jobs with, cleared ones
        included.
        """
        now = moment.at
        mine = [fault for fault in faults if fault.node == self._node.subject.node]
        if any(f.kind.effect is Effect.NODE_SILENT and f.active(now) for f in mine):
            return None
        at_ns = round(now.timestamp() * 1e6) * 1000
        works = {
            slot.number: work(slot, moment.counted_seconds)
            for slot in self._node.slots
            if slot is not None
        }
        gpus = [
            _gpu(self._node, index, works, moment, faults) for index in range(len(self._node.gpus))
        ]
        rows = list(zip(self._gpu_lines, gpus, strict=True))
        for line, port in zip(self._port_lines, self._node.ports, strict=True):
            rows.append((line, _port(self._node, port, moment, faults)))
        rows.append((self._node_line, _host(self._node, gpus, moment, mine)))
        lines = (line.line(fields, at_ns) for line, fields in rows)
        return "\n".join(line for line in lines if line is not None)


def _gpu(
    node: Node,
    index: int,
    works: Mapping[int, Work],
    moment: Moment,
    faults: Sequence[InjectedFault],
) -> Fields:
    slot = node.slots[index]
    now_work = NO_WORK if slot is None else works[slot.number]
    if not faults:
        return gpu_fields(node, index, now_work, moment.counted_seconds, moment.tick)
    here = [f for f in faults if f.node == node.subject.node]
    mine = [f for f in here if f.kind.target is Target.NODE or f.gpu == index]
    active = {f.kind.effect for f in mine if f.active(moment.at)}
    if Effect.LOST in active:
        return {"up": 0, "unmeasured_reason": int(Unmeasured.LOST), "index": index}
    if Effect.SILENT in active:
        return {"unmeasured_reason": int(Unmeasured.DRIVER_NOT_ANSWERING), "index": index}
    waits = [] if slot is None else [f for f in faults if holds_up(f, node, slot)]
    stops = [*(f for f in mine if f.kind.effect in {Effect.LOST, Effect.IDLE}), *waits]
    if slot is not None and stops:
        now_work = _stopped(slot, moment, stops)
    fields = gpu_fields(node, index, now_work, moment.counted_seconds, moment.tick)
    if Effect.IDLE not in active and any(f.active(moment.at) for f in waits if f not in mine):
        fields.update(_SPINS)
    fields["ecc_uncorrected_errors"] = sum(
        f.kind.uncorrected_errors for f in mine if f.at <= moment.at
    )
    _heat(fields, mine, moment.at)
    _nvlink(fields, mine, moment.at)
    if slot is not None:
        slow = [f for f in faults if f.kind.effect is Effect.SLOW and _hits(f, slot)]
        _slow_rank(fields, mine, slow, moment.at)
        _steps_made(fields, slot, moment, (waits, slow))
    return fields


def _hits(fault: InjectedFault, slot: Slot) -> bool:
    """Return whether the fault is at a GPU of the slot's job, or at one of its nodes."""
    names = ((node_name(number), gpu) for number, gpu in slot.places)
    return any(fault.node == name and fault.gpu in {None, gpu} for name, gpu in names)


def holds_up(fault: InjectedFault, node: Node, slot: Slot) -> bool:
    """Return whether a training waits for a rank that the fault hits; a job on one node needs no port."""
    if not (fault.kind.holds_up and slot.workload.step_seconds and _hits(fault, slot)):
        return False
    if fault.kind.target is not Target.PORT:
        return True
    fabric = {port.device for port in node.ports if port.role == "fabric"}
    return fault.device in fabric and len({number for number, _ in slot.places}) > 1


def _stopped(slot: Slot, moment: Moment, stops: Sequence[InjectedFault]) -> Work:
    """Return the slot's work without the times in which these faults stop a GPU."""
    is_stopped = any(fault.active(moment.at) for fault in stops)
    return Work(
        load=0.0 if is_stopped else work(slot, moment.counted_seconds).load,
        loaded_seconds=_without(lambda t: work(slot, t).loaded_seconds, moment, stops),
    )


def _steps_made(
    fields: Fields, slot: Slot, moment: Moment, held: tuple[Sequence[InjectedFault], ...]
) -> None:
    """Set a training's steps: none, and no checkpoint, while a rank is waited for; fewer while one is slow."""
    length = slot.workload.step_seconds
    if not length:
        return
    waits, slow = held
    started = slot.started_seconds(slot.run(moment.counted_seconds))

    def ran(seconds: float) -> float:
        return max(seconds - started, 0.0)

    late = SLOWER * OWN_SHARE
    went, at_full_pace = (_without(ran, moment, faults) for faults in (waits, [*waits, *slow]))
    fields["step"] = steps_made((went + late * at_full_pace) / (1.0 + late), length)
    now = moment.counted_seconds
    stands = max((now - moment.seconds(it.at) for it in waits if it.active(moment.at)), default=0.0)
    fields["checkpoint_age_seconds"] = round(went % CHECKPOINT_SECONDS + stands, 3)


def _slow_rank(
    fields: Fields, mine: Sequence[InjectedFault], of_job: Sequence[InjectedFault], now: datetime
) -> None:
    """Set the step fields of a job's rank once one rank was slow, including signs that steps go on."""
    step, own = (fields.get(name) for name in ("step_seconds", "step_own_seconds"))
    if step is None or own is None or not any(fault.at <= now for fault in of_job):
        return
    usual, length = float(own), float(step)
    late = SLOWER * usual if any(fault.active(now) for fault in of_job) else 0.0
    is_slow = any(f.active(now) for f in mine if f.kind.effect is Effect.SLOW)
    fields["step_seconds"] = round(length + late, 3)
    fields["step_own_first_seconds"] = usual
    fields["step_own_seconds"] = round(usual + late, 3) if is_slow else usual
    fields["step_p99_seconds"] = round(_LONGEST_STEP * (length + late), 3)
    fields["step_age_seconds"] = round(length / 2.0, 3)


def _heat(fields: Fields, faults: Sequence[InjectedFault], now: datetime) -> None:
    hot = [fault for fault in faults if fault.kind.effect is Effect.HEAT]
    slowed = sum(fault.lasted_seconds(now) for fault in hot)
    fields.update(dict.fromkeys(HOT_COUNTERS, round(slowed, 3)))
    if any(fault.active(now) for fault in hot):
        fields["temperature_celsius"] = HOT_CELSIUS
        fields["memory_temperature_celsius"] = HOT_CELSIUS
        fields["clock_event_reasons"] = HOT_REASONS
        fields["sm_clock_hertz"] = int(float(fields["sm_clock_hertz"] or 0) * HOT_CLOCK_SHARE)


def _nvlink(fields: Fields, faults: Sequence[InjectedFault], now: datetime) -> None:
    errors = sum(nvlink_errors(f, now) for f in faults if f.kind.effect is Effect.NVLINK)
    if errors:
        fields.update(dict.fromkeys(NVLINK_COUNTERS, errors))
        fields["nvlink_worst_link"] = BAD_LINK


def nvlink_errors(fault: InjectedFault, now: datetime) -> int:
    """Return how many errors the link has counted by now."""
    return math.floor(fault.lasted_seconds(now))


def _without(
    counter: Callable[[float], float], moment: Moment, stops: Iterable[InjectedFault]
) -> float:
    """Return `counter` now, less what it would have gained while it was stopped."""
    now, value = moment.counted_seconds, 0.0
    reached: float | None = None  # the end of the stops so far
    for stop in sorted(stops, key=lambda fault: fault.at):
        start = moment.seconds(stop.at)
        end = now if stop.cleared_at is None else min(moment.seconds(stop.cleared_at), now)
        if end <= (start if reached is None else max(start, reached)):
            continue
        if reached is None:
            value = counter(start)
        elif start > reached:
            value += counter(start) - counter(reached)
        reached = end
    return counter(now) if reached is None else value + (counter(now) - counter(reached))


def _port(
    node: Node, port: PortIdentity, moment: Moment, faults: Sequence[InjectedFault]
) -> Fields:
    place = node.subject.node, port.device, port.port
    mine = [
        f
        for f in faults
        if (f.node, f.device, f.port) == place and not f.kind.effect.is_beyond_hosts
    ]
    downs = [f for f in mine if f.kind.effect is Effect.PORT_DOWN]
    moved = _moved(node, moment, faults, downs)
    fields = port_fields(port, moved, moment.counted_seconds)
    if not mine:
        return fields
    _port_numbers(fields, mine, moment.at)
    links = [f for f in mine if f.kind.effect is not Effect.PORT_NUMBERS]
    fields["link_downed"] = sum(times_down(fault, moment.at) for fault in links)
    if any(is_down(fault, moment.at) for fault in links):
        fields["up"] = 0
        del fields["speed_bits_per_second"]
        if port.kind == "infiniband":
            fields["physical_state"] = PHYSICAL_STATE_POLLING
    return fields


def _moved(
    node: Node, moment: Moment, faults: Sequence[InjectedFault], downs: Sequence[InjectedFault]
) -> float:
    """Return the bytes that the node's trainings have sent over the fabric while they ran and the port was up."""
    if not faults:
        return fabric_bytes(node, moment.counted_seconds)
    return sum(
        _without(
            partial(fabric_bytes_of, slot),
            moment,
            [*downs, *(fault for fault in faults if holds_up(fault, node, slot))],
        )
        for slot in node.slots
        if slot is not None
    )


def _port_numbers(fields: Fields, faults: Sequence[InjectedFault], now: datetime) -> None:
    """Change the fields that the port has; an Ethernet port has no lanes and no credits."""
    for fault in faults:
        for name in fault.kind.grows.keys() & fields.keys():
            gained = math.floor(fault.kind.grows[name] * fault.lasted_seconds(now))
            fields[name] = int(fields[name] or 0) + gained
        if fault.active(now):
            for name in fault.kind.sets.keys() & fields.keys():
                fields[name] = int(fault.kind.sets[name])
            for name in fault.kind.times.keys() & fields.keys():
                fields[name] = int(float(fields[name] or 0) * fault.kind.times[name])


def is_down(fault: InjectedFault, now: datetime) -> bool:
    """Return whether the fault has the port's link down."""
    if not fault.active(now):
        return False
    flapping = fault.kind.effect is Effect.PORT_FLAP
    since = (now - fault.at).total_seconds() % _FLAP_SECONDS
    return not flapping or since < _FLAP_DOWN_SECONDS


def times_down(fault: InjectedFault, now: datetime) -> int:
    """Return how often the fault has taken the link down by now."""
    if now < fault.at:
        return 0
    if fault.kind.effect is Effect.PORT_DOWN:
        return 1
    end = now if fault.cleared_at is None else min(now, fault.cleared_at)
    return math.floor((end - fault.at).total_seconds() / _FLAP_SECONDS) + 1


def slowed_by_heat(fault: InjectedFault, now: datetime) -> Mapping[str, int]:
    """Return what the fault has added by now to the counts of how long and how often processors were slowed down."""
    seconds = fault.lasted_seconds(now)
    return {
        "cpu_throttled_milliseconds": math.floor(1000.0 * SLOWED_SHARE * seconds),
        "cpu_throttles": math.floor(SLOWED_A_SECOND * seconds),
    }


def _host(
    node: Node, gpus: Sequence[Fields], moment: Moment, faults: Sequence[InjectedFault]
) -> Fields:
    loads = [gpu.get("utilization_percent") for gpu in gpus]
    busy = sum(float(load) for load in loads if load is not None) / (100.0 * max(len(gpus), 1))
    fields = node_fields(node, busy, moment.tick)
    fields["gpus_answering"] = sum(gpu.get("up") == 1 for gpu in gpus)
    fields["spool_oldest_seconds"] = moment.spool_oldest_seconds
    fields["spool_bytes"] = moment.spool_bytes
    for fault in faults:
        if fault.kind.effect is Effect.HOST_HOT:
            for name, count in slowed_by_heat(fault, moment.at).items():
                fields[name] = int(fields[name] or 0) + count
        hang = fault.kind.target is Target.NODE and fault.kind.effect is Effect.SILENT
        if hang and fault.active(moment.at):
            silent_seconds = (moment.at - fault.at).total_seconds()
            fields["driver_answering"] = 0
            fields["driver_silent_seconds"] = silent_seconds
            fields["reader_restarts"] = int(silent_seconds / _READER_PATIENCE_SECONDS)
            fields["sweep_seconds"] = None
    return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """A change that a fault makes at one moment."""

    at: datetime
    kind: EventKind
    number: int = 0


_AT_START: Mapping[Effect, tuple[EventKind, ...]] = {
    Effect.LOST: (EventKind.GPU_LOST,),
    Effect.SILENT: (EventKind.DRIVER_SILENT,),
    Effect.PORT_DOWN: (EventKind.PORT_DOWN,),
}
_AT_END: Mapping[Effect, tuple[EventKind, ...]] = {
    Effect.LOST: (EventKind.GPU_BACK, EventKind.GPU_RESET),
    Effect.SILENT: (EventKind.DRIVER_BACK,),
    Effect.XID: (EventKind.GPU_RESET,),
    Effect.PORT_DOWN: (EventKind.PORT_UP,),
}


def _edges(fault: InjectedFault, after: datetime, until: datetime) -> Iterator[_Edge]:
    """Return the changes of the fault in the span (after, until], oldest first."""
    every = _flaps(fault, after, until) if fault.kind.effect is Effect.PORT_FLAP else _once(fault)
    return (edge for edge in every if after < edge.at <= until)


def _once(fault: InjectedFault) -> Iterator[_Edge]:
    if fault.kind.xid is not None:
        yield _Edge(at=fault.at, kind=EventKind.XID)
    for kind in _AT_START.get(fault.kind.effect, ()):
        yield _Edge(at=fault.at, kind=kind)
    if fault.cleared_at is not None:
        for kind in _AT_END.get(fault.kind.effect, ()):
            yield _Edge(at=fault.cleared_at, kind=kind)


def _flaps(fault: InjectedFault, after: datetime, until: datetime) -> Iterator[_Edge]:
    end = fault.cleared_at
    first = math.floor((after - fault.at).total_seconds() / _FLAP_SECONDS)
    last = math.floor((until - fault.at).total_seconds() / _FLAP_SECONDS)
    for number in range(max(first, 0), last + 1):
        down_at = fault.at + timedelta(seconds=number * _FLAP_SECONDS)
        if end is not None and end <= down_at:
            return
        yield _Edge(at=down_at, kind=EventKind.PORT_DOWN, number=number)
        up_at = down_at + timedelta(seconds=_FLAP_DOWN_SECONDS)
        up_at = up_at if end is None else min(up_at, end)
        yield _Edge(at=up_at, kind=EventKind.PORT_UP, number=number)


def events(node: Node, fault: InjectedFault, after: datetime, until: datetime) -> list[Event]:
    """Return the collector's events of a fault for the span (after, until], oldest first.

    The same change always has the same id.
    """
    return [
        Event(
            kind=edge.kind,
            subject=_subject(node, fault),
            at=edge.at,
            id=f"{fault.id}:{edge.kind.value}:{edge.number}",
            xid=fault.kind.xid if edge.kind is EventKind.XID else None,
            message=_message(edge, fault),
        )
        for edge in _edges(fault, after, until)
    ]


def _subject(node: Node, fault: InjectedFault) -> Subject:
    if fault.gpu is not None:
        return gpu_subject(node, fault.gpu)
    for port in node.ports:
        if (port.device, port.port) == (fault.device, fault.port):
            return port_subject(node, port)
    return node.subject


def _message(edge: _Edge, fault: InjectedFault) -> str:
    if edge.kind is EventKind.XID:
        return f"Xid {fault.kind.xid} (simulated)"
    return f"{edge.kind.value.replace('_', ' ')} (simulated)"
