"""Repeat offenders: hardware that failed repeatedly, and whether the GPU, its slot or its node is to blame.

Pure functions of the incidents of 30 days. Meta found its lemon nodes by what happened within 28 days
(Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", 2024): Xids,
tickets, times out of service; of their root causes 28 % were GPUs, 21 % DIMMs, 15 % PCIe, 8 % network
cards. The weights are ours: a page counts four times as much as a warning, and half after two weeks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from gpuvigil.clock import duration
from gpuvigil.faults import FAULTS, EndsBy, where
from gpuvigil.lifecycle import State
from gpuvigil.model import RESERVED_CLUSTERS, Incident, Severity
from gpuvigil.silence_conditions import MAY_BE_DEATH

# No ranking over a longer time: published traces do not support one over months.
SPAN = timedelta(days=30)
_HALF_LIFE = timedelta(days=14)
_WEIGHTS = {Severity.CRITICAL: 1.0, Severity.WARNING: 0.25}
# Two pages within two weeks, or as much in warnings: more than chance.
LEMON_SCORE = 1.5
RULE = (
    f"A page weighs {_WEIGHTS[Severity.CRITICAL]:g}, a warning {_WEIGHTS[Severity.WARNING]:g}, and half"
    f" after {_HALF_LIFE.days} days; from {LEMON_SCORE:g} on it is a lemon. Hardware only, of the last"
    f" {SPAN.days} days."
)

HARDWARE = where(lambda row: row.blame.is_hardware)
# Faults in which a node goes down with all its jobs. They only count for a sentence of their own, since the failed part
# is unknown.
GONE = where(
    lambda row: row.ends_job is not None and row.ends_job.by is EndsBy.NODE and row.ends_job.always
)
# A failure within an hour of another is the same one, seen by another rule or at the next attempt.
SAME_FAILURE = timedelta(hours=1)
_AGAIN = 2  # failures
_DAYS = timedelta(days=2)  # spans from this length on are given in days


class Advice(str, Enum):
    """The first step for a part that failed so often that its usual repair is of no use; values are for people."""

    RETURN_GPU = "Drain the node and take the GPU out for RMA: resets and reboots have not held."
    LOOK_AT_SLOT = (
        "Drain the node and check the slot, its riser and its power: another GPU failed there, too."
    )
    TAKE_NODE_OUT = (
        "Take the node out of service, and read its console and its service processor's event log"
        " (ipmitool sel list) for why it goes down."
    )


class Part(str, Enum):
    """The kind of part that may be to blame."""

    NODE = "node"
    SLOT = "slot"  # of a node, by PCI address
    GPU = "gpu"  # by serial number, wherever it sits


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One hardware failure, and where it happened as far as the incident says."""

    at: datetime
    severity: Severity
    fault: str
    incident: str
    cluster: str
    node: str
    slot: str  # empty where the failure is not one GPU's
    serial: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """A node, slot or GPU with its score; `failures` within `SPAN`, oldest first."""

    part: Part
    cluster: str
    node: str  # for a GPU, where it failed last
    name: str  # the node's name, the slot's PCI address, the GPU's serial number
    score: float
    failures: tuple[Failure, ...]

    @property
    def is_lemon(self) -> bool:
        """Whether the part should be taken out of service and examined as a whole."""
        return self.score >= LEMON_SCORE

    @property
    def last_at(self) -> datetime:
        return self.failures[-1].at


def counts(incident: Incident) -> bool:
    """Return whether an incident shows failing hardware: no selftest, program, suspicion or minor one."""
    return (
        incident.fault in HARDWARE
        and incident.severity in _WEIGHTS
        and not incident.marked
        and incident.state not in {State.SUSPECT.value, State.DISMISSED.value}
    )


def is_death(incident: Incident) -> bool:
    """Return whether a node may have gone down unintentionally."""
    return (
        incident.fault in GONE
        and incident.condition in MAY_BE_DEATH
        and incident.severity in _WEIGHTS
        and not (incident.marked or incident.members or incident.covered_by)
        and incident.state not in {State.SUSPECT.value, State.DISMISSED.value}
    )


def failures(incidents: Iterable[Incident]) -> tuple[Failure, ...]:
    """Return the failures of the incidents that count, oldest first; an incident that returned counts each time."""
    return _all_times(one for one in incidents if counts(one))


def deaths(incidents: Iterable[Incident]) -> tuple[Failure, ...]:
    """Return the failures in which a node went down, oldest first."""
    return _all_times(filter(is_death, incidents))


def _all_times(incidents: Iterable[Incident]) -> tuple[Failure, ...]:
    found = [failure for one in incidents for failure in _times(one)]
    return tuple(sorted(found, key=lambda one: (one.at, one.incident)))


def offenders(found: Iterable[Failure], now: datetime) -> tuple[Offender, ...]:
    """Return every part that failed within `SPAN` before `now`, the worst first.

    Failures of one part within an hour count as one, with the highest severity among them. A GPU is followed
    by its serial number wherever it is put; simulated GPUs are never mixed with real ones.
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


@dataclass(frozen=True, slots=True)
class Before:
    """A sentence on earlier failures at the same place, and the first step because of them.

    Both are empty when there were none; the advice is empty where the failed part is not certain.
    """

    sentence: str = ""
    advice: str = ""


def history(incident: Incident, found: Iterable[Failure]) -> str:
    """Return a sentence on earlier failures at the same place, empty when there were none."""
    return before(incident, found).sentence


def before(incident: Incident, found: Iterable[Failure]) -> Before:
    """Return the earlier failures of an incident's part, or for a node that went down, those of the node.

    `found` may hold failures of any part at any time; the incident's own is counted once.
    """
    *earlier, own = _times(incident)
    others = (one for one in found if one.incident != own.incident)
    lately = [one for one in (*others, *earlier) if timedelta() <= own.at - one.at <= SPAN]
    if is_death(incident):
        return _of_node([*(one for one in lately if _same_node(one, own)), own])
    return _of_part(incident, lately, own) if counts(incident) else Before()


def _of_node(them: Iterable[Failure]) -> Before:
    times = _separate(them)
    if len(times) < _AGAIN:
        return Before()
    advice = Advice.TAKE_NODE_OUT.value if _score(times, times[-1].at) >= LEMON_SCORE else ""
    return Before(f"{_again(times)} that this node went down", advice)


def _of_part(incident: Incident, lately: Sequence[Failure], own: Failure) -> Before:
    at_slot = _separate([*(one for one in lately if _same_slot(one, own)), own])
    of_gpu = _separate([*(one for one in lately if own.serial and one.serial == own.serial), own])
    gpus = {one.serial for one in at_slot if one.serial}
    places = {(one.node, one.slot) for one in of_gpu}
    if len(places) > 1 and len(of_gpu) >= len(at_slot):
        where = f"on this GPU, in {len(places)} slots: it followed the GPU, not the slot"
        return Before(f"{_again(of_gpu)} {where}", _advice(incident, of_gpu, Advice.RETURN_GPU))
    if len(gpus) > 1:
        where = f"at this slot, with {len(gpus)} GPUs: it followed the slot, not the GPU"
        return Before(f"{_again(at_slot)} {where}", _advice(incident, at_slot, Advice.LOOK_AT_SLOT))
    if len(at_slot) >= _AGAIN:
        where = "on this GPU in this slot" if gpus else "at this slot"
        return Before(f"{_again(at_slot)} {where}", _advice(incident, at_slot, Advice.RETURN_GPU))
    on_node = _separate([*(one for one in lately if _same_node(one, own)), own])
    if len(on_node) < _AGAIN:
        return Before()
    return Before(f"{_nth(len(on_node))} failure of hardware {_within(on_node)} on this node")


def _advice(incident: Incident, times: Sequence[Failure], advice: Advice) -> str:
    """Return the advice for a critical fault that is a matter for the maker, once its score is a lemon's; else ""."""
    grave = incident.severity is Severity.CRITICAL and FAULTS[incident.fault].of_maker
    return advice.value if grave and _score(times, times[-1].at) >= LEMON_SCORE else ""


def _again(times: Sequence[Failure]) -> str:
    return f"Again: {_nth(len(times))} time {_within(times)}"


def _within(times: Sequence[Failure]) -> str:
    span = times[-1].at - times[0].at
    return f"in {round(span / timedelta(days=1))} days" if span >= _DAYS else f"in {duration(span)}"


def _times(one: Incident) -> list[Failure]:
    """Return a failure for each time the incident was open, the newest last."""
    return [_failure(one, at) for at in (*one.earlier, one.since)]


def _failure(one: Incident, at: datetime) -> Failure:
    return Failure(
        at=at,
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
        # A GPU moves between nodes and clusters; a simulated one does not.
        world = one.cluster if one.cluster in RESERVED_CLUSTERS else ""
        yield Part.GPU, world, "", one.serial


def _offender(part: Part, name: str, them: Sequence[Failure], now: datetime) -> Offender:
    last = them[-1]
    separate = _separate(them)
    return Offender(
        part=part,
        cluster=last.cluster,
        node=last.node,
        name=name,
        score=_score(separate, now),
        failures=tuple(separate),
    )


def _score(separate: Iterable[Failure], now: datetime) -> float:
    score: float = sum(
        _WEIGHTS[one.severity] * 0.5 ** ((now - one.at) / _HALF_LIFE) for one in separate
    )
    return score


def _separate(them: Iterable[Failure]) -> list[Failure]:
    """Return one failure for each run of failures within an hour of each other, that of the highest severity."""
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


_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def _nth(number: int) -> str:
    teens = number % 100 in {11, 12, 13}
    return f"{number}{'th' if teens else _ENDINGS.get(number % 10, 'th')}"
