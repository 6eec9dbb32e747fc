"""Repeat offenders: hardware that failed again and again, and whether it is the GPU, its slot or its node.

A pure function of the incidents of 30 days. Meta found its lemon nodes by what happened within 28 (Kokolis
et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", 2024): Xids, tickets,
times out of service; of their root causes 28 % were GPUs, 21 % DIMMs, 15 % PCIe, 8 % network cards. How
much each failure weighs is ours: a page four times as much as what can wait, one of two weeks ago half.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from gpuvigil.faults import where
from gpuvigil.lifecycle import State
from gpuvigil.model import RESERVED_CLUSTERS, Incident, Severity

# Nothing ranks hardware over longer: published traces do not bear out a ranking over months.
SPAN = timedelta(days=30)
_HALF_LIFE = timedelta(days=14)
_WEIGHTS = {Severity.CRITICAL: 1.0, Severity.WARNING: 0.25}
# Two pages within two weeks, or as much of what can wait, and nobody calls it chance.
LEMON_SCORE = 1.5
RULE = (
    f"A page weighs {_WEIGHTS[Severity.CRITICAL]:g}, a warning {_WEIGHTS[Severity.WARNING]:g}, and half"
    f" after {_HALF_LIFE.days} days; from {LEMON_SCORE:g} on it is a lemon. Hardware only, of the last"
    f" {SPAN.days} days."
)

HARDWARE = where(lambda row: row.blame.is_hardware)
# What follows within an hour is the same failure, seen by another rule or at the next attempt.
SAME_FAILURE = timedelta(hours=1)


class Part(str, Enum):
    """What may be to blame."""

    NODE = "node"
    SLOT = "slot"  # of a node, by PCI address
    GPU = "gpu"  # by serial number, wherever it sits


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One time that hardware failed, as far as an incident says where."""

    at: datetime
    severity: Severity
    fault: str
    incident: str
    cluster: str
    node: str
    slot: str  # empty where it is not one GPU's
    serial: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """A node, slot or GPU with its score; `failures` within `SPAN`, oldest first."""

    part: Part
    cluster: str
    node: str  # of a GPU, where it failed last
    name: str  # the node's name, the slot's PCI address, the GPU's serial number
    score: float
    failures: tuple[Failure, ...]

    @property
    def is_lemon(self) -> bool:
        """Whether to take it out and look at it as a whole."""
        return self.score >= LEMON_SCORE

    @property
    def last_at(self) -> datetime:
        return self.failures[-1].at


def counts(incident: Incident) -> bool:
    """Whether it speaks of failing hardware: no selftest, no program, no suspicion, nothing minor."""
    return (
        incident.fault in HARDWARE
        and incident.severity in _WEIGHTS
        and not incident.marked
        and incident.state not in {State.SUSPECT.value, State.DISMISSED.value}
    )


def failures(incidents: Iterable[Incident]) -> tuple[Failure, ...]:
    """Those that count, oldest first."""
    found = [_failure(one) for one in incidents if counts(one)]
    return tuple(sorted(found, key=lambda one: (one.at, one.incident)))


def offenders(found: Iterable[Failure], now: datetime) -> tuple[Offender, ...]:
    """Whatever failed within `SPAN` before `now`, the worst first.

    Failures of one thing within an hour are one, as grave as the gravest. A GPU is followed to wherever it was put; simulated ones are never mixed with real ones.
    """
    groups: dict[tuple[Part, str, str, str], list[Failure]] = {}
    for one in sorted(found, key=lambda it: (it.at, it.incident)):
        if timedelta() <= now - one.at <= SPAN:
            for key in _keys(one):
                groups.setdefault(key, []).append(one)
    scored = (_offender(key[0], key[-1], them, now) for key, them in groups.items())
    return tuple(
        sorted(scored, key=lambda one: (-one.score, one.part, one.cluster, one.node, one.name))
    )


def history(incident: Incident, found: Iterable[Failure]) -> str:
    """A sentence on what happened before at the same place, empty when nothing did.

    `found` may hold failures of anything at any time; the incident's own is counted once.
    """
    if not counts(incident):
        return ""
    own = _failure(incident)
    lately = [
        one
        for one in found
        if one.incident != own.incident and timedelta() <= own.at - one.at <= SPAN
    ]
    at_slot = _separate([*(one for one in lately if _same_slot(one, own)), own])
    of_gpu = _separate([*(one for one in lately if own.serial and one.serial == own.serial), own])
    days = f"in {SPAN.days} days"
    gpus = {one.serial for one in at_slot if one.serial}
    places = {(one.node, one.slot) for one in of_gpu}
    if len(places) > 1 and len(of_gpu) >= len(at_slot):
        where = f"on this GPU, in {len(places)} slots: it followed the GPU, not the slot"
        return f"{_nth(len(of_gpu))} time {days} {where}"
    if len(at_slot) > 1:
        where = "on this GPU in this slot" if gpus else "at this slot"
        if len(gpus) > 1:
            where = f"at this slot, with {len(gpus)} GPUs: it followed the slot, not the GPU"
        return f"{_nth(len(at_slot))} time {days} {where}"
    on_node = _separate([*(one for one in lately if _same_node(one, own)), own])
    if len(on_node) > 1:
        return f"{_nth(len(on_node))} failure of hardware {days} on this node"
    return ""


def _failure(one: Incident) -> Failure:
    return Failure(
        at=one.since,
        severity=one.severity,
        fault=one.fault,
        incident=one.id,
        cluster=one.subject.cluster,
        node=one.subject.node,
        slot=one.slot,
        serial=one.serial,
    )


def _keys(one: Failure) -> Iterator[tuple[Part, str, str, str]]:
    yield Part.NODE, one.cluster, one.node, one.node
    if one.slot:
        yield Part.SLOT, one.cluster, one.node, one.slot
    if one.serial:
        # A GPU goes from node to node, and from cluster to cluster; a simulated one nowhere.
        world = one.cluster if one.cluster in RESERVED_CLUSTERS else ""
        yield Part.GPU, world, "", one.serial


def _offender(part: Part, name: str, them: Sequence[Failure], now: datetime) -> Offender:
    last = them[-1]
    separate = _separate(them)
    score = sum(_WEIGHTS[one.severity] * 0.5 ** ((now - one.at) / _HALF_LIFE) for one in separate)
    return Offender(
        part=part,
        cluster=last.cluster,
        node=last.node,
        name=name,
        score=score,
        failures=tuple(separate),
    )


def _separate(them: Iterable[Failure]) -> list[Failure]:
    """One for each failure, the gravest of those that follow each other within an hour."""
    kept: list[Failure] = []
    before: datetime | None = None
    for one in sorted(them, key=lambda it: (it.at, it.incident)):
        if before is None or one.at - before > SAME_FAILURE:
            kept.append(one)
        elif one.severity.rank < kept[-1].severity.rank:
            kept[-1] = one
        before = one.at
    return kept


def _same_node(one: Failure, other: Failure) -> bool:
    return (one.cluster, one.node) == (other.cluster, other.node)


def _same_slot(one: Failure, other: Failure) -> bool:
    return bool(other.slot) and _same_node(one, other) and one.slot == other.slot


_WORDS = ("", "First", "Second", "Third", "Fourth", "Fifth", "Sixth")


def _nth(number: int) -> str:
    return _WORDS[number] if number < len(_WORDS) else f"{number}th"
