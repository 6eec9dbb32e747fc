"""How jobs of a fleet really ended, in Slurm's words and in ours, and what `gpuvigil why` says about them.

The fleet reports who held what; how a job ended is in its plan. From that we make what Slurm would have reported:
the state, and an exit code as programs leave it. `accounting.job_ending.verdict` is judged on the nodes' reports.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from accounting.job_ending import EndCause, Ending, around, verdict
from gpuvigil.model import Event, Incident
from simulator.fleet import Fleet
from simulator.fleet.jobs import Job
from simulator.fleet.workloads import Ending as End

from .scenes import boots, real

# Asked this long after the end: what happened until then is known, and most of its consequences.
ASKED_AFTER = timedelta(minutes=15)
_SLURM = {
    End.COMPLETED: ("COMPLETED", "0:0"),
    End.FAILED: ("FAILED", "1:0"),
    End.CANCELLED: ("CANCELLED", "0:15"),
    End.PREEMPTED: ("PREEMPTED", "0:15"),
    End.TIMEOUT: ("TIMEOUT", "0:15"),
}
_TRUE = {
    End.COMPLETED: EndCause.COMPLETED,
    End.FAILED: EndCause.PROGRAM,
    End.CANCELLED: EndCause.CANCELLED,
    End.PREEMPTED: EndCause.PREEMPTED,
    End.TIMEOUT: EndCause.TIME_LIMIT,
}
# Exit codes of programs that fail: an exception, an abort of the runtime, a memory fault, a wrong argument.
_CODES = ("1:0", "1:0", "1:0", "0:6", "0:11", "2:0")
# Of programs whose GPU, peer or network failed: an exception, or the collective library's abort.
_STRUCK_CODES = ("1:0", "0:6")
# The true causes of faults that end jobs, by expert judgement; all others are the hardware's.
# A GPU that is missing after a boot ended nothing: the boot did.
_OF_NODES = frozenset({"dead node", "missing since boot"})
_OF_NETWORKS = frozenset({"port down"})
_OF_SETTINGS = frozenset({"MIG mode drift"})
# The plan ends jobs on a GPU that was never there, at the fleet's first moment: these are left out.
_NO_JOBS = "missing since installation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """A job that ended within the fleet's time: its true cause, and what Slurm and its nodes would report."""

    job: Job
    true: EndCause
    name: str  # the fault that ended it, or its kind of work
    ending: Ending
    nodes: frozenset[str]


def over(fleet: Fleet, left_out: frozenset[int]) -> list[Over]:
    """Return jobs that ended, without those that a fault had stopped but not ended."""
    found = []
    for job in fleet.plan.jobs:
        ended = 0.0 <= job.end < fleet.settings.days * 86_400.0
        if ended and job.number not in left_out and (job.stopped is None or job.struck):
            found.append(_over(fleet, job))
    # The plan lets jobs run on while their node boots after a cure, which no job can.
    return [one for one in found if one.name != _NO_JOBS and not [*boots(fleet.plan, one.job)]]


def _over(fleet: Fleet, job: Job) -> Over:
    chance = Random(f"ending {fleet.settings.seed} {job.number}")
    state, code = _SLURM[job.ending]
    true, name = _TRUE[job.ending], job.workload.key
    if job.struck:
        name = _struck_by(fleet, job)
        true, state, code = _of_fault(name, chance)
    elif job.ending is End.FAILED:
        code = chance.choice(_CODES)
    topology = fleet.plan.topology
    gpus = [real(topology.gpu_subject(gpu)) for gpu in job.gpus]
    nodes = frozenset(gpu.of_node().key for gpu in gpus)
    ending = Ending(
        state=state,
        ended_at=fleet.at(job.end),
        exit_code=code,
        started_at=fleet.at(job.start),
        gpus=frozenset(gpu.key for gpu in gpus),
        nodes=len(nodes),
    )
    return Over(job=job, true=true, name=name, ending=ending, nodes=nodes)


def _struck_by(fleet: Fleet, job: Job) -> str:
    """Return the fault whose stop ended the job."""
    for kind, site in fleet.plan.sites:
        for stop in site.stops:
            mine = not job.struck.isdisjoint(stop.gpus) and not set(job.gpus).isdisjoint(stop.gpus)
            if mine and abs(stop.at + stop.linger - job.end) < 1e-6:
                return kind.key
    raise ValueError(f"job {job.number} was struck by nothing")


def _of_fault(kind: str, chance: Random) -> tuple[EndCause, str, str]:
    """Return the true cause of a job that this fault ended, and Slurm's state and exit code for it."""
    if kind in _OF_NODES:
        return EndCause.NODE, "NODE_FAIL", "1:0"
    code = chance.choice(_STRUCK_CODES)
    if kind in _OF_NETWORKS:
        return EndCause.NETWORK, "FAILED", code
    return (EndCause.NODE if kind in _OF_SETTINGS else EndCause.HARDWARE), "FAILED", code


def judged(
    jobs: Iterable[Over],
    events: Sequence[Event],
    incidents: Mapping[int, Sequence[Incident]],
) -> Counter[tuple[str, str, str]]:
    """Count pairs of true and reported cause, by fault or work; `incidents` by the job's number."""
    by_node: dict[str, list[Event]] = {}
    for event in events:
        by_node.setdefault(event.subject.of_node().key, []).append(event)
    found: Counter[tuple[str, str, str]] = Counter()
    for one in jobs:
        assert one.ending.ended_at is not None
        start, end = around(one.ending.ended_at)
        told = [it for node in one.nodes for it in by_node.get(node, ()) if start <= it.at < end]
        stood = [
            it
            for it in incidents[one.job.number]
            if it.subject.of_node().key in one.nodes and it.since < end
        ]
        said = verdict(one.ending, told, stood)
        found[one.true.value, said.why.value, one.name] += 1
    return found


def asked_at(one: Over, end: datetime) -> datetime:
    """Return when the verdict on an ending is asked for, in the fleet's time at most."""
    assert one.ending.ended_at is not None
    return min(one.ending.ended_at + ASKED_AFTER, end)
