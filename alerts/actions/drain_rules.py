"""Decides which nodes to drain and which to resume: pure.

It works on active incidents and on the nodes as the scheduler reports them. A node is drained for
an incident of one of the chosen faults, on itself or one of its GPUs, once the incident has stood
for a while; never when that takes more of the cluster out of service than is allowed, whoever took
out the others. The reason carries our mark, the fault, the incident and its evidence.

A node is resumed only if its reason still carries that mark, a person has accepted it after its
incident was resolved, no incident of any fault stands there, and the scheduler calls it fit for
work but for the drain. A node that a person drained, or wrote a reason of their own for, is left to
them.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from gpuvigil.config import ActionsSettings
from gpuvigil.errors import GpuvigilError
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.model import Act, Incident, Subject
from gpuvigil.schedulers.out_of_service import takes_jobs
from gpuvigil.schedulers.slurm_nodes import DRAINED, most_out_of_service

_MARK = re.compile(r"gpuvigil \[(\S+) (\S+)\]")
_ACTIVE = frozenset(state.value for state in ACTIVE)
_LONGEST_REASON = 200
# Conditions that nothing reported: an exporter may have failed while the node is fine.
_UNREPORTED_CONDITIONS = frozenset({"gpu_unread", "driver_unread"})


class ActionError(GpuvigilError):
    """The scheduler did not answer, or refused: then nothing is done."""


class DrainRefusal(str, Enum):
    """Why nothing is done for an active incident."""

    TOO_RECENT = "it has not been open for actions.after_seconds yet"
    UNKNOWN_NODE = "the scheduler knows no node of that name"
    OUT_OF_SERVICE = "the node is out of service already"
    RELEASED = "somebody resumed the node while the incident was open"
    SHARE = "more of the cluster would be out of service than actions.most_percent allows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A node as its scheduler reports it, in Slurm's terms."""

    name: str
    states: frozenset[str]
    reason: str = ""
    gpus: int = 0
    version: str = field(default="", compare=False)  # for a scheduler that versions its nodes

    @property
    def in_service(self) -> bool:
        return takes_jobs(self.states)

    @property
    def fit(self) -> bool:
        """Whether the node would take jobs if it were not drained: it is up and answers."""
        return takes_jobs(self.states - {DRAINED})

    @property
    def ours(self) -> tuple[str, str] | None:
        """Fault and incident of our mark; None unless the node is drained, and by us."""
        return self._mark if DRAINED in self.states else None

    @property
    def released(self) -> tuple[str, str] | None:
        """Fault and incident of our mark on a node that somebody has resumed; None for any other."""
        return None if DRAINED in self.states else self._mark

    @property
    def _mark(self) -> tuple[str, str] | None:
        found = _MARK.match(self.reason)
        return (found[1], found[2]) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One action; `reason` is the text given to the scheduler."""

    what: Act
    node: str
    incident: str
    reason: str = ""
    version: str = ""  # of the node, when it was looked at last


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """One action that is not taken, and why."""

    node: str
    incident: str
    why: DrainRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The decisions of one look."""

    steps: tuple[Step, ...] = ()
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What was done to nodes before, by us and by people."""

    # Nodes drained here, and for which incidents: one that takes jobs again was resumed by a
    # person.
    drained: Collection[tuple[str, str]] = ()
    accepted: Mapping[str, datetime] = field(default_factory=dict)  # the last time, by node


NO_PAST = Past()


def plan(
    settings: ActionsSettings,
    cluster: str,
    incidents: Iterable[Incident],
    machines: Mapping[str, Machine],
    now: datetime,
    past: Past = NO_PAST,
) -> Plan:
    """Return the nodes to drain and to resume, and the incidents for which nothing is done.

    `incidents`: all that stand, and those that our marks name, active or not.
    """
    known = {one.id: one for one in incidents}
    suspicious = _suspicious(cluster, known.values())
    acting = [one for one in known.values() if _acts(settings, cluster, one)]
    steps: list[Step] = []
    refused: list[Refused] = []
    out = sum(not machine.in_service for machine in machines.values())
    most = most_out_of_service(len(machines), settings.most_percent)
    for one in sorted(acting, key=lambda it: (it.since, it.id)):
        why = _why_not(settings, one, machines, now, past.drained)
        planned = any(step.node == one.subject.node for step in steps)
        if why is None and (planned or out >= most):
            why = DrainRefusal.OUT_OF_SERVICE if planned else DrainRefusal.SHARE
        if why is not None:
            refused.append(Refused(node=one.subject.node, incident=one.id, why=why))
            continue
        out += 1
        node = one.subject.node
        steps.append(Step(what=Act.DRAIN, node=node, incident=one.id, reason=reason(one)))
    if settings.resume:
        steps += [
            Step(what=Act.RESUME, node=machine.name, incident=ours[1])
            for machine in machines.values()
            if (ours := machine.ours) is not None
            and machine.fit
            and machine.name not in suspicious
            and _is_over(known.get(ours[1]), past.accepted.get(machine.name))
        ]
    return Plan(steps=tuple(steps), refused=tuple(refused))


def reason(incident: Incident) -> str:
    """Return the reason as in `sinfo -R`: our mark, the fault, the incident, and what was seen."""
    seen = "; ".join(one.text for one in incident.evidence if not one.detail)
    said = f"gpuvigil [{incident.fault} {incident.id}] {incident.title}: {seen}"
    plain = "".join(ch if ch.isprintable() and ch not in "\"'\\" else " " for ch in said)
    return plain[:_LONGEST_REASON].rstrip(" :;")


def marked(machines: Iterable[Machine]) -> Sequence[str]:
    """Return the ids of the incidents that our marks name."""
    return [ours[1] for machine in machines if (ours := machine.ours) is not None]


def _acts(settings: ActionsSettings, cluster: str, one: Incident) -> bool:
    return (
        one.fault in settings.faults
        and one.condition not in _UNREPORTED_CONDITIONS
        and one.state in _ACTIVE
        and one.subject.cluster == cluster
        and one.subject.kind in {"node", "gpu"}
        and one.subject.real
        and not one.late
        and not _spreads(one)
    )


def _spreads(one: Incident) -> bool:
    """Return whether an incident is about several nodes: what they share, or the rule, is at fault."""
    node = one.subject.of_node()
    return any(Subject.parse(member).of_node() != node for member in one.members)


def _suspicious(cluster: str, incidents: Iterable[Incident]) -> frozenset[str]:
    """Return the nodes with any active incident: silence or an outage may hide others."""
    return frozenset(
        subject.node
        for one in incidents
        if one.state in _ACTIVE
        for subject in (one.subject, *map(Subject.parse, one.members))
        if subject.cluster == cluster and subject.real
    )


def _why_not(
    settings: ActionsSettings,
    one: Incident,
    machines: Mapping[str, Machine],
    now: datetime,
    drained: Collection[tuple[str, str]],
) -> DrainRefusal | None:
    machine = machines.get(one.subject.node)
    if machine is None:
        return DrainRefusal.UNKNOWN_NODE
    if not machine.in_service:
        return DrainRefusal.OUT_OF_SERVICE
    if (machine.name, one.id) in drained or machine.released == (one.fault, one.id):
        return DrainRefusal.RELEASED
    if now - one.since < timedelta(seconds=settings.after_seconds):
        return DrainRefusal.TOO_RECENT
    return None


def _is_over(one: Incident | None, accepted_at: datetime | None) -> bool:
    """Return whether a drained node's incident is over, and the node was accepted after it.

    Not if the incident is unknown, or covered by another one and so may still be there. Quiet is no
    proof: a node without jobs shows no fault. Either it was tested after its incident ended, or it
    stays drained.
    """
    if one is None or one.resolved_at is None or one.state in _ACTIVE or one.covered_by:
        return False
    return accepted_at is not None and accepted_at >= one.resolved_at
