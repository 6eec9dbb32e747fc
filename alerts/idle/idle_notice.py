"""Notices to the holders of GPUs that compute nothing: who gets them, and what they say; pure.

A notice is a transition of an incident of its own, like those about gpuvigil itself: routed,
suppressed and delivered like any other. Its id follows from job and stage, so that two alerts
processes send it once. It is for the owner alone, who hears nothing else about idle GPUs.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from accounting.efficiency.idle_query import Measurements, why_idle
from accounting.efficiency.idle_reason import (
    END,
    FOR_JOBS,
    FOR_PODS,
    IDLE,
    IdleHolder,
    Idleness,
    Policy,
    due,
    gpus_idle_since,
)
from accounting.efficiency.on_call import is_interactive
from gpuvigil.clock import duration
from gpuvigil.config import IdleSettings
from gpuvigil.lifecycle import Signal, State
from gpuvigil.matching.matchers import Labels, fit
from gpuvigil.model import (
    Allocation,
    Evidence,
    Holder,
    HolderKind,
    Impact,
    Incident,
    Severity,
    Subject,
    Transition,
    fingerprint,
)

from ..messages.self_monitoring import OWN, ended
from ..routing.notice import IDLE_NOTICE

_PROCESSES = Holder(HolderKind.OTHER, "processes")
PLACE = Subject(cluster=OWN, node="idle")  # the subject of the notices


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleHolding:
    """The GPUs that one job, one pod, or a user's processes hold in a cluster."""

    cluster: str
    holder: Holder  # a job, a pod, or `_PROCESSES`
    pod: str | None = None  # of what Kubernetes runs, one of its pods: "team/train-0"
    user: str
    gpus: tuple[Subject, ...]
    idle: Mapping[str, datetime]  # since when each idle one is idle, by its key
    started_at: datetime
    partition: str | None = None
    account: str | None = None
    command: str | None = None

    @property
    def since(self) -> datetime:
        return min(self.idle.values())

    def only(self, keys: Iterable[str]) -> "IdleHolding":
        """Return the same with only these of its idle GPUs; ValueError when none of them is idle."""
        idle = {key: self.idle[key] for key in keys if key in self.idle}
        if not idle:
            raise ValueError("none of them is idle")
        return replace(self, idle=idle)

    @property
    def of_slurm(self) -> bool:
        """Whether the holder is a job, and not of a pod."""
        return self.holder.kind is HolderKind.JOB and self.pod is None

    @property
    def labels(self) -> Labels:
        """The labels that policies match."""
        nodes = dict.fromkeys(one.node for one in self.gpus)
        found = {
            "fault": (IDLE,),
            "cluster": (self.cluster,),
            "node": tuple(nodes),
            "owner": (self.user,),
            "holder": (str(self.holder),),
            "account": (self.account or "",),
            "partition": (self.partition or "",),
        }
        return {label: values for label, values in found.items() if any(values)}

    @property
    def interactive(self) -> bool:
        """Whether the job may be interactive, by its command: a shell or a notebook."""
        return is_interactive(self.command)

    def notice(self, stage: str) -> str:
        """Return the id of a stage's notice, the same as long as it is one job.

        Names of pods, of their owners, and of users' processes come again; for them each day's
        idleness has its own id.
        """
        again = "" if self.of_slurm else f"{self.since:%Y-%m-%d}"
        named = f"{self.cluster}|{self.holder}|{self.user}|{again}"
        return f"{IDLE_NOTICE}{hashlib.sha256(named.encode()).hexdigest()[:16]}-{stage.replace(' ', '-')}"


def idle_since(active: Iterable[Incident]) -> dict[str, datetime]:
    """Return since when GPUs are idle, by key, according to incidents; not simulated ones."""
    return gpus_idle_since(one for one in active if one.subject.real)


def holdings(allocations: Iterable[Allocation], idle: Mapping[str, datetime]) -> list[IdleHolding]:
    """Return the holders of idle GPUs, the longest idle first.

    GPUs without a user's name, shared ones and slices are left out: nobody can say whose idleness
    it is.
    """
    groups: dict[tuple[str, Holder, str], list[Allocation]] = defaultdict(list)
    users: dict[str, set[str | None]] = defaultdict(set)
    for one in allocations:
        users[one.subject.key].add(one.user)
        if one.user and one.ended_at is None and one.part is None:
            named = one.holder.kind in {HolderKind.JOB, HolderKind.POD}
            holder = one.holder if named else _PROCESSES
            groups[one.subject.cluster, holder, one.user].append(one)
    shared = {key for key, of_gpu in users.items() if len(of_gpu) > 1}
    found = []
    for (cluster, holder, user), them in groups.items():
        oldest_last = sorted(them, key=lambda one: one.started_at, reverse=True)
        held = {one.subject.key: one for one in oldest_last if one.subject.key not in shared}
        gpus = {key: one.subject for key, one in held.items()}
        first = oldest_last[-1]
        # Whoever had a GPU before may have left it idle, too.
        mine = {key: max(idle[key], one.started_at) for key, one in held.items() if key in idle}
        if mine:
            found.append(
                IdleHolding(
                    cluster=cluster,
                    holder=holder,
                    user=user,
                    gpus=tuple(gpus.values()),
                    idle=mine,
                    started_at=first.started_at,
                    pod=first.pod,
                    partition=first.partition,
                    account=first.account,
                    command=first.command,
                )
            )
    return sorted(found, key=lambda one: (one.since, one.cluster, one.holder, one.user))


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A policy, and the time zone of its days."""

    policy: Policy
    local: Callable[[datetime], datetime]
    end_by: str = "cancel"  # how a job is ended, where the policy has an end


def terms(settings: Sequence[IdleSettings], held: IdleHolding) -> Terms | None:
    """Return the terms for a holder; None when there are none, as for a declared standby."""
    if not settings:
        return Terms(policy=FOR_PODS if held.pod else FOR_JOBS, local=lambda at: at)
    fitting = next((one for one in settings if fit(one.match, held.labels)), None)
    if fitting is None or fitting.standby or not fitting.notice_minutes:
        return None
    policy = Policy(
        notices=tuple(timedelta(minutes=one) for one in fitting.notice_minutes),
        interactive_exempt=not fitting.interactive,
        busy_share_exempt=fitting.busy_percent / 100.0,
        work_days=fitting.weekdays(),
        end_after=timedelta(minutes=fitting.end_minutes) if fitting.end_minutes else None,
    )
    zone = ZoneInfo(fitting.zone)
    return Terms(policy=policy, local=lambda at: at.astimezone(zone), end_by=fitting.end_by)


def stage_of(
    held: IdleHolding,
    asked: Terms,
    sent: Mapping[str, datetime],
    now: datetime,
    why: Idleness = Idleness.NOTHING_COMPUTED,
    used_share: float | None = None,
) -> str | None:
    """Return the stage whose notice is due; without a reason, whether it is worth asking for one."""
    idler = IdleHolder(
        why=why, since=held.since, interactive=held.interactive, used_share=used_share
    )
    return due(asked.policy, idler, sent, asked.local(now))


def reasons(held: IdleHolding, span: Measurements) -> dict[str, Idleness]:
    """Return why each idle GPU of the holder is idle, by key; not those that computed something."""
    told = {
        gpu.key: why_idle(gpu, [one for one in held.gpus if one.key != gpu.key], span)
        for gpu in held.gpus
        if gpu.key in held.idle
    }
    return {key: why for key, why in told.items() if why is not None}


def verdict(found: Iterable[Idleness]) -> Idleness:
    """Return the most frequent reason; one that excuses any of the GPUs excuses their holder."""
    them = list(found)
    return min(set(them), key=lambda one: (one.blames, -them.count(one), one.value))


def over(before: Transition, now: datetime) -> Transition | None:
    """Return the end of a notice that was not sent yet; None when it has ended."""
    step = ended(before, now)
    reason = "its holder has ended or computes again"
    return None if step is None else replace(step, subject=before.subject, reason=reason)


def notice(
    held: IdleHolding,
    stage: str,
    policy: Policy,
    why: Idleness,
    now: datetime,
    before: Transition | None = None,
) -> Transition:
    """Return the notice for the owner at a stage; `before` is the end of one that was never sent."""
    idle = [one for one in held.gpus if one.key in held.idle]
    subject = idle[0] if len(idle) == 1 else idle[0].of_node()
    count = len(idle)
    many = f"{count} GPU{'s' if count > 1 else ''}"
    whose = "Your processes" if held.holder == _PROCESSES else f"Your {held.holder}"
    verb = "hold" if held.holder == _PROCESSES else "holds"
    hours = sum((now - since).total_seconds() for since in held.idle.values()) / 3600.0
    incident = Incident(
        id=held.notice(stage),
        fingerprint=fingerprint(IDLE, subject, f"{held.holder}|{held.user}|{stage}"),
        fault=IDLE,
        subject=subject,
        severity=Severity.INFO,
        state=State.OPEN.value,
        title=f"{whose} {verb} {many} that compute{'s' if count == 1 else ''} nothing",
        since=held.since,
        updated_at=now,
        impact=Impact(
            gpus=count,
            holders=(str(held.holder),),
            users=(held.user,),
            text=f"{many} of {len(held.gpus)} that are allocated to you; {hours:.1f} GPU-hours idle until now",
            accounts=(held.account,) if held.account else (),
            partitions=(held.partition,) if held.partition else (),
        ),
        evidence=(
            Evidence(name="seen", value=f"{why.value}, for {duration(now - held.since)}"),
            *((Evidence(name="command", value=held.command),) if held.command else ()),
        ),
        action=_action(held, why),
        source="the site's idle policy",
        members=tuple(one.key for one in idle) if count > 1 else (),
        label=str(held.holder),
    )
    said = replace(incident, action=f"{incident.action}{_last(held, stage, policy)}")
    return Transition(
        incident=incident.id,
        number=1 if before is None else before.number + 1,
        from_state=State.SUSPECT.value if before is None else before.to_state,
        to_state=State.OPEN.value,
        signal=(Signal.CONFIRMED if before is None else Signal.RETURNED).value,
        at=now,
        reason=stage,
        # As for incidents about gpuvigil itself, so that no page takes it for one of the node.
        subject=PLACE,
        snapshot=said.to_record().to_json(),
    )


def _last(held: IdleHolding, stage: str, policy: Policy) -> str:
    """Return the sentence on what follows the last notice; empty for an earlier one."""
    if [name for name, _ in policy.stages() if name != END][-1] != stage:
        return ""
    if policy.end_after is None or not held.of_slurm:
        return " This is the last notice about it."
    return f" It may be ended when they were idle for {duration(policy.end_after)}."


_HINTS = {
    Idleness.NO_PROCESS: "No process of yours is on them: a program may have ended early. ",
    Idleness.MEMORY_PARKED: "Their memory is in use, and nothing is computed. ",
    Idleness.NO_REQUESTS: "Their inference server runs but gets no requests: scale it to zero, or have it declared"
    " as standby. ",
    Idleness.SOME_GPUS: "Others of the same job compute: ask for as many as it uses. ",
}


def _action(held: IdleHolding, why: Idleness) -> str:
    if held.pod:
        ends = f"If you do not need them, scale down or delete what pod {held.pod} is of"
    elif held.holder.kind is HolderKind.JOB:
        ends = f"If you do not need them: scancel {held.holder.name}"
    else:
        ends = "If you do not need them, end the processes"
    return f"{_HINTS.get(why, '')}{ends}."
