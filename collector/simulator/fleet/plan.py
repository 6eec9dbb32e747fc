"""Everything that will happen, put together: life, jobs, faults, and what follows from them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from gpuvigil.model import EventKind

from . import life as living
from .chance import Dice
from .changes import Change, How, On
from .hardware import MODELS
from .jobs import Job, Schedule
from .kinds import KINDS
from .life import Life
from .model import FaultOrder, FleetSettings
from .site import FaultKind, Site, Stop, Told
from .topology import Topology
from .workloads import DAY, HOUR, Ending

# Between two faults on one node, so that their truths stay apart.
_APART_SECONDS = 2 * HOUR
_TRIES = 40
# Nobody can see these on a GPU that does nothing.
_UNDER_LOAD = frozenset(
    {"heatsink", "HW thermal", "stuck clocks", "lowered power limit", "slow GPU", "hung process",
     "zombie memory", "PCIe width", "PCIe generation", "congestion", "rack inlet", "power brake",
     "fan", "PSU", "power feed", "stale mount"}
)  # fmt: skip
# At the end of a job that failed, or was cancelled, the driver may log what the program did.
_USER_XIDS = {Ending.FAILED: ((13, 0.04), (31, 0.06), (43, 0.03)), Ending.CANCELLED: ((45, 0.2),)}
_WHOLE_HORIZON = 1e6  # hours: from the fleet's first moment to its last


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `fleet.Fleet` plays."""

    topology: Topology
    life: Life
    jobs: tuple[Job, ...]
    sites: tuple[tuple[FaultKind, Site], ...]
    changes: tuple[Change, ...]
    told: tuple[Told, ...]  # in order of time


def make(settings: FleetSettings) -> Plan:
    """The same settings make the same plan; a fault changes it only where it is."""
    topology = Topology(settings)
    life = living.plan(settings, topology)
    schedule = Schedule(settings, topology, life.outages)
    jobs = [job for job in schedule.jobs if job.end > 0.0]
    orders = [*settings.faults, *_drawn(settings, topology, life, jobs)]
    orders.sort(key=lambda order: (order.start_seconds, order.node, order.kind))
    sites = [_site(order, settings, topology, jobs) for order in orders]
    told = list(life.told)
    changes = list(life.changes)
    for _, site in sites:
        changes += site.changes
        told += site.told
        for stop in site.stops:
            jobs = _stopped(jobs, stop)
    told += _of_users(settings, jobs)
    told.sort(key=lambda one: (one.at, one.subject, one.kind.value, one.xid or 0))
    return Plan(
        topology=topology,
        life=life,
        jobs=tuple(jobs),
        sites=tuple(sites),
        changes=tuple(changes),
        told=tuple(one for one in told if 0.0 <= one.at < settings.days * DAY),
    )


def _site(
    order: FaultOrder, settings: FleetSettings, topology: Topology, jobs: list[Job]
) -> tuple[FaultKind, Site]:
    kind = KINDS[order.kind]
    dice = Dice(settings.seed, "fault", order.kind, order.node, order.start_seconds)
    size = order.magnitude
    if size is None and kind.sizes:
        size = _size(kind, dice)
    site = Site(order=order, topology=topology, magnitude=size, dice=dice)
    if order.gpu is not None:
        site.peers = peers(jobs, site.gpu, order.start_seconds)
    kind.make(site)
    return kind, site


def _size(kind: FaultKind, dice: Dice) -> float:
    """A magnitude of the kind's range, evenly over its decades where it spans several."""
    if kind.discrete:
        return float(dice.pick(kind.sizes))
    low, high = kind.sizes
    if high / low <= 20.0:
        return round(dice.between(low, high), 4)
    steps = [low]
    while steps[-1] * 2.0 < high:
        steps.append(steps[-1] * 2.0)
    step = dice.pick(steps)
    return round(min(dice.between(step, step * 2.0), high), 4)


def peers(jobs: Iterable[Job], gpu: int, at: float) -> tuple[int, ...]:
    """The GPUs of the job that holds a GPU then; none when it is free."""
    for job in jobs:
        if job.start <= at < job.end and gpu in job.gpus:
            return job.gpus
    return ()


def _stopped(jobs: list[Job], stop: Stop) -> list[Job]:
    """What becomes of the jobs on these GPUs."""
    kept = []
    gpus = frozenset(stop.gpus)
    for job in jobs:
        if job.end <= stop.at or job.start >= stop.until or gpus.isdisjoint(job.gpus):
            kept.append(job)
        elif job.start < stop.at:
            job.stopped = stop.at if job.stopped is None else min(job.stopped, stop.at)
            if stop.at + stop.linger < job.end:
                job.end, job.ending = stop.at + stop.linger, Ending.FAILED
            kept.append(job)
        elif not stop.shut:
            kept.append(job)
    return kept


def _of_users(settings: FleetSettings, jobs: Iterable[Job]) -> list[Told]:
    """Xids that programs cause themselves."""
    told = []
    for job in jobs:
        dice = Dice(settings.seed, "user", job.number)
        if job.stopped is not None:
            continue
        for code, share in _USER_XIDS.get(job.ending, ()):
            if settings.life and dice.share() < share:
                for gpu in job.gpus if code == 45 else job.gpus[:1]:
                    message = f"NVRM: Xid: {code}, name=python (simulated)"
                    told.append(
                        Told(
                            at=job.end,
                            kind=EventKind.XID,
                            subject=("gpu", gpu),
                            xid=code,
                            message=message,
                        )
                    )
    return told


def _drawn(
    settings: FleetSettings, topology: Topology, life: Life, jobs: list[Job]
) -> list[FaultOrder]:
    """Random faults, never two on a node at a time, nor while life has it away."""
    count = round(settings.fault_rate * topology.nodes * settings.days / 1000.0)
    taken = _taken(settings, life)
    names = list(settings.kinds or KINDS)
    orders = []
    for number in range(count):
        dice = Dice(settings.seed, "drawn", number)
        kind = KINDS[names[number % len(names)]]
        for _ in range(_TRIES):
            order = _draw(kind, settings, topology, dice)
            if _fits(order, kind, settings, topology, taken, jobs):
                orders.append(order)
                for node in _touched(order, kind, topology):
                    taken[node].append((order.start_seconds, order.start_seconds + order.seconds))
                break
    return orders


def _taken(settings: FleetSettings, life: Life) -> dict[int, list[tuple[float, float]]]:
    """When each node is away, or has a fault by order."""
    taken: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for order in settings.faults:
        taken[order.node].append((order.start_seconds, order.start_seconds + order.seconds))
    for change in life.changes:
        if change.on is On.DELIVERY and change.name == "silent" and change.how is How.SET:
            for node in change.targets:
                taken[node].append((change.start, change.end))
    return taken


def _draw(kind: FaultKind, settings: FleetSettings, topology: Topology, dice: Dice) -> FaultOrder:
    horizon = settings.days * DAY
    seconds = min(round(dice.between(*kind.hours) * HOUR), horizon / 3.0)
    start = round(dice.between(0.05, 0.95) * (horizon - seconds))
    if kind.hours[0] >= _WHOLE_HORIZON:
        start, seconds = 0, horizon
    slot = dice.below(topology.per_node)
    return FaultOrder(
        kind=kind.key,
        node=dice.below(topology.nodes),
        start_seconds=float(start),
        seconds=float(seconds),
        gpu=slot if kind.target == "gpu" else None,
        port=slot if kind.target == "port" else None,
    )


def _touched(order: FaultOrder, kind: FaultKind, topology: Topology) -> list[int]:
    """The nodes that a fault is about."""
    place = topology.places[order.node]
    if kind.key in {"rack inlet", "power feed", "driver drift"}:
        return topology.nodes_of_rack(place.rack)
    if kind.key in {"congestion", "leaf down"}:
        return topology.nodes_of_pod(place.pod)
    return [order.node]


def _fits(
    order: FaultOrder,
    kind: FaultKind,
    settings: FleetSettings,
    topology: Topology,
    taken: dict[int, list[tuple[float, float]]],
    jobs: list[Job],
) -> bool:
    if kind.nvidia and not MODELS[topology.places[order.node].model.key].nvidia:
        return False
    start, end = (
        order.start_seconds - _APART_SECONDS,
        order.start_seconds + order.seconds + _APART_SECONDS,
    )
    for node in _touched(order, kind, topology):
        if any(first < end and last > start for first, last in taken[node]):
            return False
    if kind.key not in _UNDER_LOAD:
        return True
    gpu = order.node * topology.per_node + (order.gpu or order.port or 0)
    soon = order.start_seconds + min(order.seconds, HOUR)
    return any(
        job.start <= order.start_seconds and job.end >= soon and gpu in job.gpus for job in jobs
    )
