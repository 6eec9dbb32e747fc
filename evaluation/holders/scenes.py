"""What holders do that no workload of the fleet does: GPUs left idle in every way, and what looks like it.

The simulated fleet has notebooks, data-starved training, compile, evaluation and checkpoint phases; hardly any of its
jobs leaves a GPU idle for an hour. Here some of its jobs are changed in the plan, outside of the fleet, by the fleet's
own means (`simulator.fleet.changes`): which and how follows from the seed. Shares and lengths are chosen.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from accounting.efficiency.idle_reason import Idleness
from gpuvigil.model import Subject
from simulator.fleet import Fleet, FleetSettings
from simulator.fleet.changes import Change, Operation, Quantity
from simulator.fleet.jobs import Job, Schedule
from simulator.fleet.plan import Plan, held_by, make

MINUTE, DAY = 60.0, 86400.0
STANDBY_PARTITION, PARTITION = "standby", "gpu"
CLUSTER = "fleet"  # a real name: nobody is notified about clusters marked as simulated
# A changed job lasts at least this long, and is no larger: its GPUs are not independent evidence.
_LEAST_SECONDS, _MOST_GPUS = 90 * MINUTE, 16
_CHANGED, _NOTEBOOKS_CHANGED = 0.7, 0.3
_BUSY_DUTY = 0.5  # from this duty on the other GPUs of a job are always at work
_HANGS_ON = 0.5  # share of jobs struck by a fault that their program does not end
# No job hangs by these: what is left of a job that is over, and a mode that the driver leaves pending while a
# program holds the GPU ("In use by another client", NVIDIA's MIG User Guide, Enable MIG Mode).
_NO_JOB = frozenset({"zombie memory", "MIG mode drift"})
_CONTEXT_BYTES, _PARKED_BYTES = 6e8, 3.0e10
_ACTIVITIES = (
    "graphics_activity_percent",
    "sm_activity_percent",
    "sm_occupancy_percent",
    "tensor_activity_percent",
    "dram_activity_percent",
)
PEER = "its peer died"
HIDDEN_SCENE = "every activity read as zero"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a job is made to do; `why` is the true reason while its GPUs compute nothing."""

    name: str
    why: Idleness | None = None  # None: it computes, whatever is read
    several: bool = False  # only jobs with several GPUs at work


SCENES = (
    Scene(name="its program ended early", why=Idleness.NO_PROCESS),
    Scene(name="a context without data", why=Idleness.NOTHING_COMPUTED),
    Scene(name="a model that nobody asks", why=Idleness.MEMORY_PARKED),
    Scene(name="half of its GPUs", why=Idleness.SOME_GPUS, several=True),
    Scene(name="standby by declaration", why=Idleness.STANDBY),
    Scene(name="zeros read of a busy GPU"),
    Scene(name="every activity read as zero"),
    Scene(name="10 to 25 minutes of compiling", why=Idleness.MEMORY_PARKED),
    Scene(name="pauses of 35 to 55 minutes", why=Idleness.MEMORY_PARKED),
    Scene(name="10 seconds of work in 15 to 27 minutes", why=Idleness.MEMORY_PARKED),
)
_BY_NAME = {scene.name: scene for scene in SCENES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A fleet with scenes; `scenes` by the job's number, `changes` are those of the fleet itself."""

    fleet: Fleet
    scenes: Mapping[int, Scene]
    idle_gpus: Mapping[int, frozenset[int]]  # for "half of its GPUs", which half
    hanging: frozenset[int]  # numbers of jobs struck by a fault that nobody ended
    changes: tuple[Change, ...]


def boots(plan: Plan, job: Job) -> Iterator[float]:
    """Yield when a node of a job boots while it runs by the plan, where no job outlives that."""
    nodes = {gpu // plan.topology.per_node for gpu in job.gpus}
    for _, site in plan.sites:
        if site.node in nodes:
            yield from (boot for boot in site.boots if job.start < boot < job.end)


def real(subject: Subject) -> Subject:
    """Return the subject in a cluster that is not marked as simulated."""
    return replace(subject, cluster=CLUSTER)


def staged(settings: FleetSettings) -> Staged:
    """Stage a fleet; the same settings give the same scenes."""
    plan = make(settings)
    chance = Random(f"scenes {settings.seed}")
    horizon = settings.days * DAY
    hanging = frozenset(_hang_on(plan, settings, chance))
    scenes: dict[int, Scene] = {}
    halves: dict[int, frozenset[int]] = {}
    own: list[Change] = []
    for job in plan.jobs:
        scene = _drawn(job, horizon, chance)
        if scene is None:
            continue
        scenes[job.number] = scene
        gpus = job.gpus[: len(job.gpus) // 2] if scene.several else job.gpus
        halves[job.number] = frozenset(gpus)
        own += _changes(scene, gpus, max(job.start, 0.0), min(job.end, horizon), chance)
    faults = (*plan.changes, *_wait_for_storage(plan))
    return Staged(
        fleet=Fleet(settings, replace(plan, changes=(*faults, *own))),
        scenes=scenes,
        idle_gpus=halves,
        hanging=hanging,
        changes=faults,
    )


def _wait_for_storage(plan: Plan) -> Iterator[Change]:
    """Yield that the rest of a job stands still while one of its nodes waits for storage."""
    stalls = (change for _, site in plan.sites for change in site.changes)
    for change in stalls:
        if change.on is not Quantity.WORK or change.name != "stall":
            continue
        for job in held_by(plan.jobs, change.targets, change.start):
            rest = tuple(gpu for gpu in job.gpus if gpu not in change.targets)
            if rest:
                yield replace(change, targets=rest, end=min(change.end, job.end))


def _drawn(job: Job, horizon: float, chance: Random) -> Scene | None:
    share, lot = chance.random(), chance.randrange(len(SCENES))
    scene = SCENES[lot]
    notebook = job.workload.key == "notebook"
    there = min(job.end, horizon) - max(job.start, 0.0)
    fits = there >= _LEAST_SECONDS and len(job.gpus) <= _MOST_GPUS and job.stopped is None
    if not fits or share >= (_NOTEBOOKS_CHANGED if notebook else _CHANGED):
        return None
    works = job.workload.duty >= _BUSY_DUTY
    return None if scene.several and (len(job.gpus) < 2 or not works) else scene


def _changes(
    scene: Scene, gpus: Sequence[int], start: float, end: float, chance: Random
) -> Iterator[Change]:
    targets = tuple(gpus)

    def bend(
        on: Quantity, name: str, value: float, first: float = start, last: float = end
    ) -> Change:
        return Change(
            on=on, name=name, targets=targets, start=first, end=last, how=Operation.SET, value=value
        )

    def of(name: str) -> bool:
        return scene is _BY_NAME[name]

    if of("zeros read of a busy GPU") or of("every activity read as zero"):
        fields = ["utilization_percent", "memory_utilization_percent"]
        fields += _ACTIVITIES if of("every activity read as zero") else ()
        yield from (bend(Quantity.GPU, name, 0.0) for name in fields)
        return
    yield from (
        bend(Quantity.WORK, "stall", 1.0, *span) for span in _still(scene, start, end, chance)
    )
    if of("its program ended early"):
        yield bend(Quantity.GPU, "compute_processes", 0.0)
    if of("its program ended early") or of("a context without data"):
        yield bend(Quantity.GPU, "memory_used_bytes", _CONTEXT_BYTES)
    elif not scene.several:
        yield bend(Quantity.GPU, "memory_used_bytes", _PARKED_BYTES)


def _still(scene: Scene, start: float, end: float, chance: Random) -> Iterator[tuple[float, float]]:
    """Yield the spans in which nothing is computed."""
    if scene is _BY_NAME["10 to 25 minutes of compiling"]:
        yield start, start + chance.uniform(10.0, 25.0) * MINUTE
    elif scene is _BY_NAME["pauses of 35 to 55 minutes"]:
        at = start
        while at < end:
            until = at + chance.uniform(35.0, 55.0) * MINUTE
            yield at, min(until, end)
            at = until + chance.uniform(2.0, 15.0) * MINUTE
    elif scene is _BY_NAME["10 seconds of work in 15 to 27 minutes"]:
        at = start
        while at < end:
            until = at + round(chance.uniform(15.0, 27.0) * 6.0) * 10.0
            yield at, min(until, end)
            at = until + 10.0
    else:
        yield start, end


def _hang_on(plan: Plan, settings: FleetSettings, chance: Random) -> Iterator[int]:
    """Yield jobs struck by a fault whose other ranks wait until the fault is over, or a node of theirs boots."""
    natural = {
        job.number: job.end for job in Schedule(settings, plan.topology, plan.life.outages).jobs
    }
    for job in plan.jobs:
        # A fault from the first moment on ended no job, though the plan ends earlier jobs by it.
        if not job.struck or job.stopped is None or job.stopped <= 0.0:
            continue
        over = max(_ends_of(plan, job), default=job.end)
        if chance.random() < _HANGS_ON and over > job.end:
            job.end = min(natural[job.number], over)
            job.end = min(boots(plan, job), default=job.end)
            yield job.number


def _ends_of(plan: Plan, job: Job) -> Iterator[float]:
    """Yield the ends of the faults that struck a job, without those that leave no job behind."""
    for kind, site in plan.sites:
        for stop in site.stops:
            mine = stop.at == job.stopped and not set(stop.gpus).isdisjoint(job.gpus)
            if mine and kind.key not in _NO_JOB:
                yield site.end
