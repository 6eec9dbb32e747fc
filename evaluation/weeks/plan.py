"""An invented cluster for a day or two: its jobs, their work to the second, and the resulting GPU-hours.

Everything is drawn from the seed, names as well. Jobs of one node follow each other with gaps. Some compute all the
time, some pause as a whole, some end long after their work, some leave a part of their GPUs idle, and some are busy
but use little of the GPU. GPUs are lost and stop their jobs for hours; nodes are drained for maintenance, for repair,
and by faults. The truth is known here and given to nobody.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from gpuvigil.schedulers.out_of_service import LostTo

PER_NODE, TICK = 8, 10
IDLE_AFTER = 1800.0
_HOUR = 3600.0
# How often jobs are of each sort, and how many GPUs they have [chosen].
_SORTS = {"steady": 0.3, "pauses": 0.3, "late": 0.12, "part": 0.1, "poorly": 0.18}
_SIZES = {1: 0.2, 2: 0.25, 4: 0.3, 8: 0.25}
REASONS = {
    LostTo.MAINTENANCE: "new kernel [ada@2026-01-05T08:00:00]",
    LostTo.REPAIR: "RMA of a fan [ada@2026-01-05T08:00:00]",
    LostTo.FAULT: "GPU fell off the bus [ada@2026-01-05T08:00:00]",
}
_SYLLABLES = ("ka", "lo", "mi", "ru", "te", "vo", "shi", "ban", "gel", "dro", "nu", "pax")
Span = tuple[float, float]


@dataclass(slots=True, kw_only=True)
class Work:
    """A job; times are seconds from the beginning, GPUs are indices on its node."""

    number: int
    team: str
    user: str
    node: int
    gpus: tuple[int, ...]
    start: float
    end: float
    sort: str
    load: float
    sm: float
    still: tuple[int, ...] = ()  # the GPUs that pause
    pauses: list[Span] = field(default_factory=list)
    stopped: list[tuple[int, Span]] = field(default_factory=list)  # the lost GPU, and when

    @property
    def name(self) -> str:
        return f"job {self.number}"


@dataclass(slots=True, kw_only=True)
class Week:
    """The whole invented cluster over its time."""

    seed: int
    nodes: int
    seconds: float
    jobs: list[Work]
    drains: list[tuple[int, LostTo, Span]]
    names: list[str]  # of the nodes


@dataclass(slots=True)
class Truth:
    """The true GPU-hours."""

    idle: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # by team
    broken: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    little: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    lost: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # by reason
    wasted: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # by job


def invented(seed: int, nodes: int = 8, hours: float = 24.0) -> Week:
    """Return the cluster of a seed."""
    chance, seconds = Random(f"week {seed}"), hours * _HOUR
    names = _names(chance, nodes + 30)
    teams = {team: [names.pop() for _ in range(3)] for team in (names.pop() for _ in range(4))}
    week = Week(seed=seed, nodes=nodes, seconds=seconds, jobs=[], drains=[], names=names[:nodes])
    kinds = (LostTo.MAINTENANCE, LostTo.REPAIR, LostTo.FAULT)
    for node, to in zip(chance.sample(range(nodes), min(nodes, 3)), kinds, strict=False):
        begin = chance.uniform(0.1, 0.5) * seconds
        week.drains.append((node, to, (begin, begin + chance.uniform(0.2, 0.4) * seconds)))
    for node in range(nodes):
        _fill(week, node, teams, chance)
    chance.shuffle(week.jobs)
    for number, job in enumerate(week.jobs):
        job.number = 1000 + 7 * number
    drained = {node for node, *_ in week.drains}
    long = [
        it
        for it in week.jobs
        if it.sort == "steady" and it.end - it.start > 2 * _HOUR and it.node not in drained
    ]
    for job in chance.sample(long, min(len(long), 3)):
        begin = chance.uniform(job.start + 600.0, job.end - 4800.0)
        until = begin + min(chance.uniform(0.7, 4.0) * _HOUR, job.end - 600.0 - begin)
        job.stopped.append((chance.choice(job.gpus), (begin, until)))
    return week


def _names(chance: Random, count: int) -> list[str]:
    found: set[str] = set()
    while len(found) < count:
        found.add("".join(chance.choices(_SYLLABLES, k=3)))
    return chance.sample(sorted(found), count)


def _fill(week: Week, node: int, teams: dict[str, list[str]], chance: Random) -> None:
    """Fill a node: groups of its GPUs, each with one job after another."""
    left, closed = list(range(PER_NODE)), [span for at, _, span in week.drains if at == node]
    while left:
        size = min(chance.choices([*_SIZES], [*_SIZES.values()])[0], len(left))
        gpus, left = tuple(left[:size]), left[size:]
        at = -chance.uniform(0.0, 3.0) * _HOUR
        while at < week.seconds:
            end = at + min(chance.lognormvariate(1.1, 0.7), 14.0) * _HOUR
            if not any(begin <= at < until for begin, until in closed):
                team = chance.choice(sorted(teams))
                week.jobs.append(_job(chance, node, gpus, (at, end), team, teams[team]))
            at = end + (chance.expovariate(1 / 900.0) if chance.random() < 0.6 else 0.0)


def _job(
    chance: Random, node: int, gpus: tuple[int, ...], span: Span, team: str, users: Sequence[str]
) -> Work:
    (start, end), length = span, span[1] - span[0]
    sort = chance.choices([*_SORTS], [*_SORTS.values()])[0]
    if sort == "part" and len(gpus) == 1:
        sort = "steady"
    job = Work(
        number=0, team=team, user=chance.choice(users), node=node, gpus=gpus, start=start, end=end,
        sort=sort, load=chance.uniform(84.0, 99.0), still=gpus,
        sm=chance.uniform(8.0, 42.0) if sort == "poorly" else chance.uniform(56.0, 80.0),
    )  # fmt: skip
    if sort == "late":
        job.pauses = [(start + chance.uniform(0.2, 0.8) * length, end)]
    elif sort == "part":
        job.still = gpus[: chance.randrange(1, len(gpus))]
        job.pauses = [span]
    elif sort == "pauses":
        at = start + chance.uniform(0.0, 3000.0)
        while at < end:
            until = min(at + chance.uniform(480.0, 6000.0), end)
            job.pauses.append((at, until))
            at = until + chance.uniform(300.0, 9000.0)
    return job


def truth(week: Week) -> Truth:
    """Return the true hours, by the rules that the report names."""
    found, whole = Truth(), (0.0, week.seconds)
    for job in week.jobs:
        held = _both((job.start, job.end), whole)
        # Time before the first sample and after the last does not count.
        pauses = (_length(_both(it, whole)) for it in job.pauses)
        idle = sum(it for it in pauses if it >= IDLE_AFTER)
        idle *= len(job.still) / _HOUR
        found.idle[job.team] += idle
        little = (1 - job.sm / 100) * len(job.gpus) * _length(held) / _HOUR
        little = little if job.sort == "poorly" else 0.0
        found.little[job.team] += little
        found.wasted[job.name] = idle + little
        for _, span in job.stopped:
            inside = _length(_both(span, whole)) / _HOUR
            found.lost[LostTo.FAULT.value] += inside
            if _length(_both(span, whole)) >= IDLE_AFTER:
                found.broken[job.team] += (len(job.gpus) - 1) * inside
    for node, to, span in week.drains:
        window = _both(span, whole)
        taken: float = sum(
            _length(_both((it.start, it.end), window)) * len(it.gpus)
            for it in week.jobs
            if it.node == node
        )
        found.lost[to.value] += (PER_NODE * _length(window) - taken) / _HOUR
    return found


def samples(week: Week, node: int, begin: int, end: int) -> Iterator[tuple[int, int, float, float]]:
    """Yield tick, GPU, utilisation and SM activity of a node; both values are below 0 for a lost GPU."""
    noise = Random(f"{week.seed} {node} {begin}")
    span = begin * float(TICK), (end + 1.0) * TICK
    jobs = [it for it in week.jobs if it.node == node and _length(_both((it.start, it.end), span))]
    for tick in range(begin, end):
        at = (tick + node / week.nodes) * TICK
        seen = {
            gpu: _of(job, gpu, at, noise.uniform(-3.0, 1.0))
            for job in jobs
            if job.start <= at < job.end
            for gpu in job.gpus
        }
        for gpu in range(PER_NODE):
            yield (tick, gpu, *seen.get(gpu, (0.0, 0.0)))


def _of(job: Work, gpu: int, at: float, more: float) -> tuple[float, float]:
    for lost, (begin, until) in job.stopped:
        if begin <= at < until:
            return (-1.0, -1.0) if lost == gpu else (0.0, 0.0)
    if gpu in job.still and any(begin <= at < until for begin, until in job.pauses):
        return 0.0, 0.0
    return job.load + more, job.sm


def _both(one: Span, other: Span) -> Span:
    return max(one[0], other[0]), min(one[1], other[1])


def _length(span: Span) -> float:
    return max(span[1] - span[0], 0.0)
