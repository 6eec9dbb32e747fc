"""The whole plan of a fleet: normal operation, jobs, faults, and their consequences."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuvigil.model import EventKind

from . import kernel_log_lines, random_faults, switch_life, world_life
from . import life as living
from .chance import Dice
from .changes import Change, Quantity
from .costs import costs
from .jobs import Job, Schedule
from .kinds import kinds_of
from .life import Life
from .model import FaultOrder, FleetSettings
from .sensors import SORTS
from .site import FaultKind, PlannedEvent, Site, Stop
from .topology import Topology
from .workloads import DAY, Ending

# The kinds in `random_faults.UNDER_LOAD` that no number shows without work, and the work that is
# needed [chosen].
_SEEN_BUSY = frozenset(
    {"heatsink", "HW thermal", "stuck clocks", "slow GPU", "hung process", "PCIe generation"}
)
_BUSY, _BUSY_SECONDS = 0.2, 300.0
# These hit whatever job sends over their leaf.
_OF_POD = frozenset({"congestion"})
# The driver may log the program's doing at the end of a job that failed or was cancelled.
_USER_XIDS = {Ending.FAILED: ((13, 0.04), (31, 0.06), (43, 0.03)), Ending.CANCELLED: ((45, 0.2),)}
# When a job dies of a fault, the driver cleans up after it on its other GPUs [chosen].
_AFTERMATH = ((45, 0.4),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan that `fleet.Fleet` plays."""

    topology: Topology
    life: Life
    jobs: tuple[Job, ...]
    sites: tuple[tuple[FaultKind, Site], ...]
    changes: tuple[Change, ...]
    planned_events: tuple[PlannedEvent, ...]  # in order of time


def make(settings: FleetSettings) -> Plan:
    """Make the plan; the same settings give the same plan, and a fault changes it only at its place."""
    topology = Topology(settings)
    life = living.plan(settings, topology)
    world_life.add(life, settings, topology)
    schedule = Schedule(settings, topology, life.outages)
    jobs = [job for job in schedule.jobs if job.end > 0.0]
    world_life.slow_jobs(life, settings, jobs)
    switch_life.add(life, settings, topology)
    orders = [*settings.faults, *random_faults.drawn(settings, topology, life, jobs)]
    orders.sort(key=lambda order: (order.start_seconds, order.node, order.kind))
    sites = []
    for order in orders:
        # A fault strikes the jobs that those before it have left.
        kind, site = _site(order, settings, topology, jobs)
        sites.append((kind, site))
        for stop in site.stops:
            jobs = _stopped(jobs, stop)
        jobs = _hanging(jobs, site)
    told = list(life.planned_events)
    changes = list(life.changes)
    for _, site in sites:
        changes += site.changes
        told += site.planned_events
    for kind, site in sites:
        site.seen = _seen(kind, site, jobs)
        site.costs = costs(site, jobs)
    told += _of_users(settings, topology, jobs)
    told.sort(key=lambda one: (one.at, one.subject, one.kind.value, one.xid or 0))
    return Plan(
        topology=topology,
        life=life,
        jobs=tuple(jobs),
        sites=tuple(sites),
        changes=tuple(changes),
        planned_events=tuple(one for one in told if 0.0 <= one.at < settings.days * DAY),
    )


def _site(
    order: FaultOrder, settings: FleetSettings, topology: Topology, jobs: list[Job]
) -> tuple[FaultKind, Site]:
    kind = kinds_of(settings)[order.kind]
    dice = Dice(settings.seed, "fault", order.kind, order.node, order.start_seconds)
    size = order.magnitude
    if size is None and kind.sizes:
        size = _size(kind, dice)
    site = Site(order=order, topology=topology, magnitude=size, dice=dice)
    held = held_by(jobs, _held(kind, site), order.start_seconds)
    site.peers = tuple(sorted({gpu for job in held for gpu in job.gpus}))
    site.sends = any(
        job.sends(topology.per_node) and (job.stopped is None or job.stopped > order.start_seconds)
        for job in held
    )
    kind.make(site)
    if kind.target == "port" and site.group is None and topology.cabling is not None:
        end = topology.cabling.downlink(site.node, order.port or 0)
        site.also.append(("switch port", end))
    return kind, site


def _held(kind: FaultKind, site: Site) -> tuple[int, ...]:
    """Return the GPUs whose jobs a fault hits."""
    if kind.key in _OF_POD:
        nodes = site.topology.nodes_of_pod(site.topology.places[site.node].pod)
        return tuple(gpu for node in nodes for gpu in site.gpus(node))
    if kind.target == "node":
        return site.gpus()
    return {"gpu": (site.gpu,), "port": (site.gpu_of_port,)}.get(kind.target, ())


def _seen(kind: FaultKind, site: Site, jobs: Iterable[Job]) -> float:
    """Return the first moment at which a perfect observer could detect it; the end when there is none."""
    first = min(site.start + site.delay, site.end)
    if not _leaves_a_trace(site):
        return site.end
    if site.stops or not (kind.needs_work or kind.key in _SEEN_BUSY):
        return first
    mine = set(_held(kind, site))
    # Another fault may stop a job later: what it showed until then could be seen.
    spans = [
        (
            max(first, job.start + job.workload.startup_seconds),
            site.end if job.stopped is None else min(site.end, job.stopped),
        )
        for job in jobs
        if not mine.isdisjoint(job.gpus)
        and job.workload.duty >= _BUSY
        and job.start < site.end
        and job.end > first
    ]
    return min([at for at, until in spans if at + _BUSY_SECONDS < until], default=site.end)


def _leaves_a_trace(site: Site) -> bool:
    """Return whether any of it is read or reported on its node, which may not report everything."""
    topology = site.topology
    told = bool(site.planned_events) and not topology.silent_log[site.node]
    if told or site.driver or site.vbios or site.missing or site.unlisted or site.boots:
        return True
    unread = {sort for sort, nodes in topology.unread.items() if nodes[site.node]}
    hidden = frozenset().union(*(SORTS[sort] for sort in unread))
    return any(
        change.on is not Quantity.LINK or "error counters" not in unread
        for change in site.changes
        if change.on not in {Quantity.GPU, Quantity.NODE} or change.name not in hidden
    )


def _size(kind: FaultKind, dice: Dice) -> float:
    """Draw a magnitude in the kind's range, evenly over doublings where the range is wide."""
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


def held_by(jobs: Iterable[Job], gpus: Sequence[int], at: float) -> list[Job]:
    """Return the jobs that hold any of these GPUs then; none when they are free."""
    mine = frozenset(gpus)
    return [job for job in jobs if job.start <= at < job.end and not mine.isdisjoint(job.gpus)]


def _stopped(jobs: list[Job], stop: Stop) -> list[Job]:
    """Return the jobs after the stop: ended, not started, or unchanged."""
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


def _hanging(jobs: list[Job], site: Site) -> list[Job]:
    """Return the jobs where those that hang hold their GPUs until somebody ends them, at the fault's end at the earliest.

    A job that another fault has ended by then does not go on.
    """
    kept = []
    hangs = frozenset(site.hangs)
    for job in jobs:
        over = job.end <= site.start or job.start >= site.end or hangs.isdisjoint(job.gpus)
        if over or job.start <= site.start:
            kept.append(job)
        if not over and job.start <= site.start and not job.struck:
            job.end = max(job.end, site.end)
    return kept


def _voice(topology: Topology, code: int, gpu: int, dice: Dice) -> str:
    address, index = topology.pci_address(gpu), gpu % topology.per_node
    return kernel_log_lines.xid(code, index, address, dice, process="python")


def _hit(job: Job, code: int) -> list[int]:
    """Return the GPUs of a job that log its end: all that still answer, or its first."""
    return [g for g in job.gpus if g not in job.struck] if code == 45 else [job.gpus[0]]


def _of_users(
    settings: FleetSettings, topology: Topology, jobs: Iterable[Job]
) -> list[PlannedEvent]:
    """Return the Xids that programs cause themselves."""
    told = []
    for job in jobs:
        dice = Dice(settings.seed, "user", job.number)
        codes = _USER_XIDS.get(job.ending, ()) if job.stopped is None else _AFTERMATH
        for code, share in codes:
            if settings.life and dice.share() < share:
                for gpu in _hit(job, code):
                    message = _voice(topology, code, gpu, dice)
                    told.append(
                        PlannedEvent(
                            at=job.end,
                            kind=EventKind.XID,
                            subject=("gpu", gpu),
                            xid=code,
                            message=message,
                        )
                    )
    return told
