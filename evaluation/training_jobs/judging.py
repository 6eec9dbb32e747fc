"""What was reported about jobs, compared with the truth."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import Incident, Record, Severity, Subject, Transition
from simulator.fleet import Fleet, Truth
from simulator.fleet.jobs import Job
from simulator.fleet.steps import makes_steps_from, report_level, step_seconds

from ..judge.claims import IncidentText
from ..judge.fault_names import names
from .collectives import READ, Last, is_read
from .fleets import ASYMMETRIC, HANGS, STRAGGLERS
from .ras import is_asked

# A report that begins this long after a fault's end is still about the fault.
_ECHO = timedelta(minutes=12)
# An onset within this many steps is right.
_STEPS = 3.0
UNEVEN = "uneven_stage"
# Reports about ranks do not blame hardware, except for a lower clock; clocks that somebody may have set are not blamed.
_OF_RANKS = frozenset(
    {UNEVEN, "slow_rank", "slow_from_start", "last_in_collectives", "node_clocks"}
)


@dataclass(slots=True, kw_only=True)
class IncidentSpan:
    """One span in which an incident stood."""

    incident: str
    fault: str
    condition: str
    subject: Subject
    title: str
    at: datetime
    since: datetime
    loud_at: datetime | None
    members: frozenset[str]
    waited_for: tuple[str, ...]  # the ranks that the others wait for, as the evidence names them
    until: datetime | None = None
    blames: bool = False  # whether a warning blamed hardware at any time
    evidence: str = ""

    @property
    def _names(self) -> frozenset[str]:
        return names(self.fault, IncidentText(title=self.title, condition=self.condition))

    @property
    def slow(self) -> bool:
        return self.condition != UNEVEN and not self._names.isdisjoint(STRAGGLERS)

    @property
    def hung(self) -> bool:
        return not self._names.isdisjoint(HANGS)

    def is_at(self, truth: Truth) -> bool:
        return truth.subject == self.subject or truth.subject.key in self.members


def incident_spans(transitions: Iterable[Transition]) -> list[IncidentSpan]:
    """Return each span in which an incident about a job's pace or a hang stood, in order."""
    active: dict[str, IncidentSpan] = {}
    found: list[IncidentSpan] = []
    for step in sorted(transitions, key=lambda it: (it.at, it.incident, it.number)):
        incident = Incident.from_record(Record.from_json(step.snapshot))
        stands = State(step.to_state) in ACTIVE
        one = active.get(step.incident)
        if not stands:
            if one is not None:
                one.until = step.at
                del active[step.incident]
            continue
        if one is None:
            one = _begun(step, incident)
            if not (one.slow or one.hung or one.condition == UNEVEN):
                continue
            active[step.incident] = one
            found.append(one)
        _follow(one, step, incident)
    return found


def _begun(step: Transition, incident: Incident) -> IncidentSpan:
    return IncidentSpan(
        incident=step.incident,
        fault=incident.fault,
        condition=incident.condition,
        subject=incident.subject,
        title=incident.title,
        at=step.at,
        since=incident.since,
        loud_at=None,
        members=frozenset(),
        waited_for=(),
    )


def _follow(one: IncidentSpan, step: Transition, incident: Incident) -> None:
    loud = incident.severity is not Severity.INFO
    if loud and one.loud_at is None:
        one.loud_at = step.at
    one.members |= frozenset((incident.subject.key, *incident.members))
    one.condition, one.title = incident.condition, incident.title
    one.blames |= loud and one.slow and blames(incident.condition, incident.title)
    one.evidence = one.evidence or "; ".join(f"{it.name}: {it.value}" for it in incident.evidence)
    named = tuple(it.value for it in incident.evidence if it.name == "the others wait for")
    one.waited_for = named or one.waited_for


def blames(condition: str, title: str) -> bool:
    """Return whether a report blames hardware; one about a rank does where its title names the GPU or node."""
    return condition not in _OF_RANKS or title.startswith(("GPU ", "Node "))


def judged(
    fleet: Fleet,
    said: Sequence[IncidentSpan],
    last: Sequence[Last] = (),
    read: float = READ,
    asked: float = 0.0,
) -> dict[str, Any]:
    """Return one fleet's faults with what became of each, and the wrong reports.

    `last` holds the GPUs reported as last to join collectives; `read` is the share of jobs whose collectives are read,
    `asked` the share that NCCL's RAS is asked about.
    """
    truths = [it for it in fleet.truths() if not it.hidden]
    jobs = _Jobs(fleet, read, asked)
    used: set[int] = set()
    faults = [_fault(truth, jobs, said, used) for truth in truths]
    wrong = [_wrong(it, jobs) for number, it in enumerate(said) if number not in used]
    return {
        "faults": [it for it in faults if it],
        "wrong": wrong,
        "last": _of_collectives(truths, jobs, last),
        "healthy": jobs.healthy(truths),
    }


def _of_collectives(
    truths: Sequence[Truth], jobs: "_Jobs", last: Sequence[Last]
) -> list[dict[str, Any]]:
    """Return each straggler whose job's collectives are read, and each rank wrongly reported as last."""
    slow = [it for it in truths if it.fault in STRAGGLERS]
    found: list[dict[str, Any]] = []
    for truth in slow:
        job = jobs.of(truth.subject, truth.start + timedelta(seconds=5))
        if job is not None and jobs.is_read(job):
            begun = _shows_from(job, truth, jobs)
            at = min((at for at, gpu in last if _is_about(truth, at, gpu)), default=None)
            seconds = None if at is None else max((at - begun).total_seconds(), 0.0)
            found.append({"id": truth.id, "seconds": seconds, "workload": job.workload.key})
    for at, gpu in last:
        if not any(_is_about(truth, at, gpu) for truth in slow):
            of = jobs.of(gpu, at)
            found.append({"id": None, "seconds": None, "workload": of and of.workload.key})
    return found


def _is_about(truth: Truth, at: datetime, gpu: Subject) -> bool:
    return gpu == truth.subject and truth.start <= at < truth.end + _ECHO


class _Jobs:
    def __init__(self, fleet: Fleet, read: float = READ, asked: float = 0.0) -> None:
        self._fleet, self._read, self._asked = fleet, read, asked
        topology = fleet.plan.topology
        self._numbers = {topology.gpu_subject(it): it for it in range(topology.gpus)}
        self._nodes = {topology.node_subject(it).key: it for it in range(topology.nodes)}
        self._per_node = topology.per_node

    def is_read(self, job: Job) -> bool:
        return is_read(job, self._read)

    def is_asked(self, job: Job) -> bool:
        return is_asked(job, self._asked)

    def rank(self, subject: Subject, job: Job) -> int:
        return job.gpus.index(self._numbers[subject])

    def of(self, subject: Subject, at: datetime) -> Job | None:
        """Return the job on a GPU, or the largest on its node; else one that ended within the last minute."""
        seconds = (at - self._fleet.settings.start).total_seconds()
        gpu = self._numbers.get(subject)
        node = self._nodes[subject.of_node().key]
        mine = (
            {gpu}
            if gpu is not None
            else set(range(node * self._per_node, (node + 1) * self._per_node))
        )
        held = [
            it for it in self._fleet.plan.jobs
            if it.start <= seconds < it.end + 60.0 and not mine.isdisjoint(it.gpus)
        ]  # fmt: skip
        return max(held, key=lambda it: (it.end > seconds, len(it.gpus), it.start), default=None)

    def healthy(self, truths: Sequence[Truth]) -> dict[str, dict[str, float]]:
        """Return the hours and pauses of training jobs by workload, without the time of their faults."""
        found: dict[str, dict[str, float]] = {}
        end = self._fleet.settings.days * 86400.0
        sick = spans(self._fleet, truths)
        for job in self._fleet.plan.jobs:
            work = job.workload
            if work.rhythm is None or len(job.gpus) < 2:
                continue
            begun = max(job.start + work.startup_seconds, 0.0)
            seconds = max(min(job.end, end) - begun, 0.0)
            seconds -= sum(
                max(min(last, job.end, end) - max(first, begun), 0.0)
                for first, last in sick.get(job.number, ())
            )
            seconds = max(seconds, 0.0)
            one = found.setdefault(work.key, {"hours": 0.0, "pauses": 0.0})
            one["hours"] += seconds / 3600.0
            for every in (work.checkpoint_every, work.evaluate_every, work.stall_every):
                one["pauses"] += seconds / every if every < 1e9 else 0.0
        return found


def spans(fleet: Fleet, truths: Sequence[Truth]) -> dict[int, list[tuple[float, float]]]:
    """Return the spans of faults for each job number, in seconds from the fleet's start."""
    jobs, origin = _Jobs(fleet), fleet.settings.start
    found: dict[int, list[tuple[float, float]]] = {}
    for truth in truths:
        job = jobs.of(truth.subject, max(truth.start + timedelta(seconds=5), origin))
        if job is not None:
            span = ((it - origin).total_seconds() for it in (truth.start, truth.end + _ECHO))
            first, last = span
            found.setdefault(job.number, []).append((first, last))
    return found


def _fault(truth: Truth, jobs: _Jobs, said: Sequence[IncidentSpan], used: set[int]) -> dict[str, Any] | None:  # fmt: skip
    job = jobs.of(truth.subject, truth.start + timedelta(seconds=5))
    if job is None or job.workload.rhythm is None:
        return None
    mine = {it.key for it in (truth.subject, *truth.affected)}
    nodes = {it.of_node().key for it in (truth.subject, *truth.affected)}
    slow = truth.fault in STRAGGLERS
    begun = truth.start - timedelta(seconds=1)
    about = []
    for number, it in enumerate(said):
        in_time = begun <= it.at < truth.end + _ECHO or (it.at < begun and (it.until is None or it.until > truth.start))  # fmt: skip
        near = it.subject.key in mine | nodes or not it.members.isdisjoint(mine)
        if slow:
            near, kind = it.is_at(truth), it.slow
        else:
            kind = it.hung
            # A rank that waits for a hung one slows nobody down: a report of slowness is an echo then.
            if it.slow and in_time and near:
                used.add(number)
        if in_time and near and kind:
            used.add(number)
            about.append(it)
    first = min((it.at for it in about), default=None)
    loud = min((it.loud_at for it in about if it.loud_at is not None), default=None)
    from_start = _begins_with(job, truth, jobs)
    start = _shows_from(job, truth, jobs) if slow or truth.fault in ASYMMETRIC else truth.start

    def after(at: datetime | None) -> float | None:
        return None if at is None or at > truth.end + _ECHO else max((at - start).total_seconds(), 0.0)  # fmt: skip

    rank = jobs.rank(truth.subject, job)
    return {
        "id": truth.id,
        "kind": truth.fault,
        "magnitude": truth.magnitude,
        "slower": _slower(truth),
        "job": job.number,
        "workload": job.workload.key,
        "gpus": len(job.gpus),
        "step": round(step_seconds(job) or 0.0, 3),
        "tells": report_level(job).name.lower(),
        "read": jobs.is_read(job),
        "asked": jobs.is_asked(job),
        "from_start": from_start,
        "seconds": after(first),
        "onset": None
        if not about
        else round((min(it.since for it in about) - start).total_seconds(), 1),
        "loud": after(loud),
        "culprit": any(_names(it, truth, rank) for it in about),
        "named": any(it.waited_for or it.subject.gpu for it in about),
        "said": [f"{it.title} ({it.condition})" for it in about],
    }


def _shows_from(job: Job, truth: Truth, jobs: _Jobs) -> datetime:
    """Return when a job with a slow or hung rank begins to show it.

    Nobody waits during a pause, and a slow rank shows only after three steps.
    """
    begun = (truth.start - jobs._fleet.settings.start).total_seconds()
    first = max(begun, job.start + job.workload.startup_seconds)
    works = makes_steps_from(job, first)
    if truth.fault in STRAGGLERS:
        third = works + _STEPS * (step_seconds(job) or 0.0)
        after = makes_steps_from(job, third)
        works = after if after > third else works
    return jobs._fleet.at(works)


def _begins_with(job: Job, truth: Truth, jobs: _Jobs) -> bool:
    return job.start >= (truth.start - jobs._fleet.settings.start).total_seconds()


def _slower(truth: Truth) -> float | None:
    """Return the share by which the rank's work takes longer; None for a fault without a magnitude."""
    size = truth.magnitude
    if size is None:
        return None
    if truth.fault == "slow rank":
        return size
    return 1.0 / (1.0 - size) - 1.0 if truth.fault == "slow GPU" else 1.0 / size - 1.0


def _names(it: IncidentSpan, truth: Truth, rank: int) -> bool:
    """Return whether an incident names exactly this rank or GPU, and no other."""
    if it.waited_for:
        return len(it.waited_for) == 1 and it.waited_for[0].startswith(f"rank {rank},")
    return it.subject == truth.subject


def _wrong(it: IncidentSpan, jobs: _Jobs) -> dict[str, Any]:
    job = jobs.of(it.subject, it.at)
    return {
        "title": it.title,
        "evidence": it.evidence,
        "fault": it.fault,
        "condition": it.condition,
        "subject": it.subject.key,
        "at": it.at.isoformat(),
        "loud": it.loud_at is not None,
        "blames": it.blames,
        "slow": it.slow,
        "hung": it.hung,
        "job": None if job is None else job.number,
        "workload": None if job is None else job.workload.key,
        "tells": None if job is None else report_level(job).name.lower(),
        "read": job is not None and jobs.is_read(job),
    }


def lines(one: dict[str, Any]) -> Iterator[str]:
    """Yield the faults that were missed or reported late, and the wrong reports, for whoever tunes detectors."""
    for it in one["faults"]:
        limit = 90.0 if it["kind"] in STRAGGLERS else 75.0
        good = it["culprit"] and it["seconds"] is not None and it["seconds"] <= limit
        if not good:
            yield f"  {it}"
    for it in one["wrong"]:
        yield f"  WRONG {it}"
