"""Everything that will happen, put together: life, jobs, faults, and what follows from them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuvigil.model import EventKind

from . import kernel_log_lines
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
# Nodes that fail more than others, and their share of all faults (Meta, "Revisiting Reliability",
# HPCA 2025: 1.2 % of the nodes; the share is chosen).
_LEMONS, _LEMONS_FAULTS = 0.012, 0.12
# Nobody can see these on a GPU that does nothing.
_UNDER_LOAD = frozenset(
    {"heatsink", "HW thermal", "stuck clocks", "lowered power limit", "slow GPU", "hung process",
     "zombie memory", "PCIe width", "PCIe generation", "congestion", "rack inlet", "power brake",
     "fan", "PSU", "power feed", "stale mount"}
)  # fmt: skip
# Of those, the ones of which no number tells without work, and what work that is [chosen].
_SEEN_BUSY = frozenset(
    {"heatsink", "HW thermal", "stuck clocks", "slow GPU", "hung process", "PCIe generation"}
)
_BUSY, _BUSY_SECONDS = 0.2, 300.0
# At the end of a job that failed, or was cancelled, the driver may log what the program did.
_USER_XIDS = {Ending.FAILED: ((13, 0.04), (31, 0.06), (43, 0.03)), Ending.CANCELLED: ((45, 0.2),)}
# When a job dies of a fault, the driver clears up after it on its other GPUs [chosen].
_AFTERMATH = ((45, 0.4),)
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
    for kind, site in sites:
        site.seen = _seen(kind, site, jobs)
    told += _of_users(settings, topology, jobs)
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
    held = {"gpu": (site.gpu,), "port": (site.gpu_of_port,), "node": site.gpus()}[kind.target]
    site.peers = peers(jobs, held, order.start_seconds)
    kind.make(site)
    return kind, site


def _seen(kind: FaultKind, site: Site, jobs: Iterable[Job]) -> float:
    """The first moment at which a perfect watcher could tell; the end when there is none."""
    first = min(site.start + site.delay, site.end)
    if kind.key not in _SEEN_BUSY:
        return first
    begun = [
        max(first, job.start + job.workload.startup_seconds)
        for job in jobs
        if site.gpu in job.gpus
        and job.workload.duty >= _BUSY
        and job.stopped is None
        and job.start < site.end
        and job.end > first
    ]
    return min([at for at in begun if at + _BUSY_SECONDS < site.end], default=site.end)


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


def peers(jobs: Iterable[Job], gpus: Sequence[int], at: float) -> tuple[int, ...]:
    """The GPUs of the jobs that hold any of these then; none when they are free."""
    mine = frozenset(gpus)
    held = [job for job in jobs if job.start <= at < job.end and not mine.isdisjoint(job.gpus)]
    return tuple(sorted({gpu for job in held for gpu in job.gpus}))


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
                job.struck |= gpus
            kept.append(job)
        elif not stop.shut:
            kept.append(job)
    return kept


def _voice(topology: Topology, code: int, gpu: int, dice: Dice) -> str:
    address, index = topology.pci_address(gpu), gpu % topology.per_node
    return kernel_log_lines.xid(code, index, address, dice, process="python")


def _hit(job: Job, code: int) -> list[int]:
    """The GPUs of a job that log what became of it: all that still answer, or its first."""
    return [g for g in job.gpus if g not in job.struck] if code == 45 else [job.gpus[0]]


def _of_users(settings: FleetSettings, topology: Topology, jobs: Iterable[Job]) -> list[Told]:
    """Xids that programs cause themselves."""
    told = []
    for job in jobs:
        dice = Dice(settings.seed, "user", job.number)
        codes = _USER_XIDS.get(job.ending, ()) if job.stopped is None else _AFTERMATH
        for code, share in codes:
            if settings.life and dice.share() < share:
                for gpu in _hit(job, code):
                    message = _voice(topology, code, gpu, dice)
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
        if change.on is On.GPU and change.name == "mute":
            for gpu in change.targets:
                taken[gpu // settings.gpus_per_node].append((change.start, change.end))
    return taken


def _draw(kind: FaultKind, settings: FleetSettings, topology: Topology, dice: Dice) -> FaultOrder:
    horizon = settings.days * DAY
    seconds = min(round(_hours(kind, dice) * HOUR), horizon / 3.0)
    start = round(dice.between(0.05, 0.95) * (horizon - seconds))
    if kind.hours[0] >= _WHOLE_HORIZON:
        start, seconds = 0, horizon
    slot = dice.below(topology.per_node)
    return FaultOrder(
        kind=kind.key,
        node=_where(settings, topology, dice),
        start_seconds=float(start),
        seconds=float(seconds),
        gpu=slot if kind.target == "gpu" else None,
        port=slot if kind.target == "port" else None,
    )


def _hours(kind: FaultKind, dice: Dice) -> float:
    """Half of the faults are over by the median, a few last to the longest."""
    least, usual, most = kind.hours
    return dice.of(((0.0, least), (0.5, usual), (0.85, min(3.0 * usual, most)), (1.0, most)))


def _where(settings: FleetSettings, topology: Topology, dice: Dice) -> int:
    """Any node, or one of the lemons, which fail again and again."""
    if dice.share() >= _LEMONS_FAULTS:
        return dice.below(topology.nodes)
    lemons = max(round(topology.nodes * _LEMONS), 1)
    return Dice(settings.seed, "lemon", dice.below(lemons)).below(topology.nodes)


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
