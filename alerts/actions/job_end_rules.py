"""Decides which idle jobs are ended, and why not: pure, from what the hub and Slurm say of each.

For the owner's sake a job is ended only if all of this holds: its policy has an end, all notices
have gone out and as long ago as the policy promises, every GPU of it was seen to compute nothing
for the whole time, no incident stands that hides or excuses that, and Slurm calls it a running
batch job. A job is ended once only, and never more of a cluster in an hour than is allowed: what
looks idle all at once is more likely measured wrongly.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from accounting.efficiency.idle_reason import END, IDLE, Idleness
from gpuvigil.clock import duration
from gpuvigil.config import ActionsSettings
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import Incident, Job, Record, Severity, Transition
from gpuvigil.numbers_in_words import counted

from ..idle.idle_notice import IdleHolding, Terms, notice, stage_of

HOUR = timedelta(hours=1)
_MARK = "gpuvigil ["
_RUNS = "RUNNING"
_GOING_ON = frozenset({_RUNS, "SUSPENDED"})
# Slurm gives run times in whole seconds, and pauses that short make nobody idle.
_PAUSE = timedelta(minutes=1)
_ACTIVE = frozenset(state.value for state in ACTIVE)


class How(str, Enum):
    """How a job is ended; `cancel` cannot be undone, a requeued job begins anew."""

    CANCEL = "cancel"
    REQUEUE = "requeue"
    HOLD = "hold"

    @property
    def past(self) -> str:
        return _PAST[self]


_PAST = {
    How.CANCEL: "cancelled",
    How.REQUEUE: "requeued",
    How.HOLD: "requeued and held",
}


class EndRefusal(str, Enum):
    """Why a job whose policy has an end, and whose time has come, is not ended."""

    NOTICES_MISSING = "its notices have not all gone out"
    INTERACTIVE = "somebody may sit in front of it"
    NOT_NOW = "its policy says not now: a day off, notices too late, or much used before"
    COMPUTES = "not all of its GPUs were idle for the whole time"
    EXCUSED = "what was measured excuses its holder, or cannot be trusted"
    STALE = "some of its GPUs were not measured in the last minutes"
    OTHER_INCIDENT = "another incident is open on its GPUs, its nodes or its whole cluster"
    UNKNOWN = "Slurm's controller has not reported it: run gpuvigil slurm"
    UNSEEN = "Slurm and its nodes report different GPUs"
    CHANGED = "Slurm does not show it running as its nodes do"
    NO_BATCH = "it is no batch job"
    HETEROGENEOUS = "it is part of a heterogeneous job"
    NO_REQUEUE = "its owner does not want it to be requeued"
    ONCE = "it was ended once before"
    RATE = "actions.ends_per_hour have been ended"
    SHARE = (
        "more of the cluster's GPUs would be taken within an hour than actions.ends_percent allows"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A job as Slurm reports it right before it is ended."""

    target: str  # its own name: "17", or "15_3" for an array's task
    user: str
    state: str
    started_at: datetime | None
    batch: bool
    requeues: bool
    heterogeneous: bool
    mark: str  # its administrators' comment
    suspended: timedelta | None = None  # how long it was suspended; None if not known

    def goes_on(self, since: datetime) -> bool:
        """Return whether the run that was under way at `since` still is."""
        started = self.started_at is not None and self.started_at <= since
        return self.state in _GOING_ON and started


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A job that is to be ended, and the reasons for it."""

    held: IdleHolding
    how: How
    why: Idleness
    asked: Terms

    @property
    def number(self) -> str:
        """The job's number in Slurm."""
        return self.held.holder.name

    @property
    def gpus(self) -> int:
        return len(self.held.gpus)

    def mark(self, now: datetime) -> str:
        """Return the comment for the job: who ended it, why, and for how long it was idle."""
        idle = f"{counted(self.gpus, 'GPU')} {self.why.value} for {duration(now - _youngest(self.held))}"
        return (
            f"{_MARK}{IDLE} {self.held.notice(END)}] {self.how.past} {now:%Y-%m-%dT%H:%MZ}: {idle}"
        )

    @property
    def undo(self) -> str:
        """The command that undoes it, as far as that is possible."""
        return {
            How.CANCEL: "none: it is submitted anew by its owner",
            How.REQUEUE: "none: it starts again by itself; scontrol hold prevents that",
            How.HOLD: f"scontrol release {self.number}",
        }[self.how]


def end_is_due(held: IdleHolding, asked: Terms, now: datetime) -> bool:
    """Return whether a job's end is due, by its GPU that is idle for the longest."""
    after = asked.policy.end_after
    return held.of_slurm and after is not None and now - held.since >= after


def by_policy(
    held: IdleHolding,
    asked: Terms,
    sent: Mapping[str, datetime],
    found: Mapping[str, Idleness],
    used_share: float | None,
    now: datetime,
) -> EndRefusal | None:
    """Return what its policy or the measurements say against it; `found`: why each GPU is idle."""
    everything = {gpu.key for gpu in held.gpus}
    sent_stages = {name: at for name, at in sent.items() if name != END}
    promised = {name for name, _ in asked.policy.stages()} - {END}
    young = asked.policy.end_after is None or now - _youngest(held) < asked.policy.end_after
    why = next(iter(found.values()), Idleness.NO_DATA)
    cases = (
        (EndRefusal.INTERACTIVE, held.interactive and asked.policy.interactive_exempt),
        (EndRefusal.NOTICES_MISSING, sent_stages.keys() != promised),
        (EndRefusal.COMPUTES, held.idle.keys() != everything or young),
        (EndRefusal.EXCUSED, any(not one.blames for one in found.values())),
        (EndRefusal.COMPUTES, found.keys() != everything),
        (EndRefusal.NOT_NOW, stage_of(held, asked, sent_stages, now, why, used_share) != END),
    )
    return next((no for no, holds in cases if holds), None)


def has_other_incident(held: IdleHolding, active: Iterable[Incident]) -> bool:
    """Return whether another active incident, of its nodes or of many, may explain idleness."""
    nodes = {gpu.of_node().key for gpu in held.gpus}
    for one in active:
        harmless = one.fault == IDLE or one.severity is Severity.INFO or one.state not in _ACTIVE
        if harmless or one.subject.cluster != held.cluster:
            continue
        members = {key.partition("/gpu/")[0].partition("/port/")[0] for key in one.members}
        if one.subject.kind == "node" and members - {one.subject.key}:
            return True  # about many: a switch, a part of the cluster
        if (members | {one.subject.of_node().key}) & nodes:
            return True
    return False


def by_controller(held: IdleHolding, job: Job | None) -> EndRefusal | None:
    """Return what the hub's record of the job says against it, such as nodes without a report."""
    if job is None:
        return EndRefusal.UNKNOWN
    if job.state != _RUNS or job.user != held.user:
        return EndRefusal.CHANGED
    seen = {gpu.node for gpu in held.gpus}
    return None if job.gpus == len(held.gpus) and set(job.nodes) == seen else EndRefusal.UNSEEN


def by_slurm(ending: Ending, found: Running | None, now: datetime) -> EndRefusal | None:
    """Return what Slurm itself, asked right before, says against it; None when nothing."""
    after = ending.asked.policy.end_after
    if found is None or after is None or found.started_at is None:
        return EndRefusal.CHANGED
    same = found.state == _RUNS and found.user == ending.held.user
    # While it is suspended it computes nothing, and that is not its owner's doing.
    paused = found.suspended is None or found.suspended > _PAUSE
    cases = (
        (EndRefusal.ONCE, found.mark.startswith(_MARK)),
        (EndRefusal.CHANGED, not same or paused or now - found.started_at < after),
        (EndRefusal.HETEROGENEOUS, found.heterogeneous),
        (EndRefusal.NO_BATCH, not found.batch),
        (EndRefusal.NO_REQUEUE, ending.how is not How.CANCEL and not found.requeues),
    )
    return next((why for why, holds in cases if holds), None)


def within_limits(
    settings: ActionsSettings, endings: Iterable[Ending], lately: Sequence[int], installed: int
) -> tuple[list[Ending], list[tuple[Ending, EndRefusal]]]:
    """Return the endings that may be done now, the longest idle first, and those over a limit.

    `lately`: the GPUs of each job that was ended in the last hour; `installed`: all of the cluster.
    """
    most = int(installed * settings.ends_percent / 100.0)
    count, taken = len(lately), sum(lately)
    may: list[Ending] = []
    may_not: list[tuple[Ending, EndRefusal]] = []
    for one in sorted(endings, key=lambda it: (it.held.since, it.number)):
        if count >= settings.ends_per_hour:
            may_not.append((one, EndRefusal.RATE))
        elif taken + one.gpus > most:
            may_not.append((one, EndRefusal.SHARE))
        else:
            may.append(one)
            count, taken = count + 1, taken + one.gpus
    return may, may_not


def end_notice(ending: Ending, now: datetime) -> Transition:
    """Return the notice to the owner: one of the last stage, which also records the end itself."""
    held = ending.held
    step = notice(held, END, ending.asked.policy, ending.why, now)
    said = Incident.from_record(Record.from_json(step.snapshot))
    many = f"{ending.gpus} GPU{'s' if ending.gpus > 1 else ''}"
    idle = duration(now - _youngest(held))
    changed = replace(
        said,
        title=f"Your {held.holder} was {ending.how.past}: its {many} computed nothing for {idle}",
        action=_NEXT[ending.how].format(number=ending.number),
    )
    return replace(step, snapshot=changed.to_record().to_json())


def end_started(end: Transition) -> Transition:
    """Return the step that is recorded first: it counts, but nobody is notified until `done`."""
    return replace(end, to_state=State.SUSPECT.value)


def is_end_started(step: Transition) -> bool:
    return step.to_state == State.SUSPECT.value


def done(started: Transition) -> Transition:
    """Return the following step, of which the owner is notified."""
    return replace(started, number=started.number + 1, to_state=State.OPEN.value)


_NEXT = {
    How.CANCEL: "Submit it again when it can use what it asks for.",
    How.REQUEUE: "It begins again from its start when there is room; it is not ended a second time.",
    How.HOLD: "It waits until it is released: scontrol release {number}.",
}


def _youngest(held: IdleHolding) -> datetime:
    return max(held.idle.values())
