"""Which claim is about which fault, and what each fault and each claim then comes to.

Each time that a claim began to stand is a message, and is judged by itself. It belongs to at most
one fault. It can belong to one that it shares a machine with and during which, or shortly after
which, it began: from its first sign on, and one that names it and is about its own machine from its
very start, since the first sign is an estimate. Of several the one that it names comes first, then
the one on its very subject, then the one that began last. A fault is found by a warning or a critical;
one that deserves no more than a note, by the note that names it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from gpuvigil.model import SWITCH_DEVICE, Severity, Subject
from simulator.fleet import Truth

from .claims import Claim
from .fault_names import is_named, is_of_use, steps

# What begins to stand this long after a fault ended is still its echo: too late to count as found,
# but no false alarm. The longest span that a detector looks back over is half an hour.
ECHO = timedelta(minutes=30)


class Verdict(str, Enum):
    """What a claim turned out to be."""

    RIGHT = "right"  # the fault is there, and this is its name
    OTHER = "other cause"  # the fault is there, and it is another one
    SYMPTOM = "symptom"  # follows from a fault whose subject is another one
    ECHO = "echo"  # began only after the fault had ended
    FALSE = "false"  # there is no fault here


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A message with its verdict, and the fault it belongs to."""

    claim: Claim
    verdict: Verdict
    truth: str | None  # id of the fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one fault."""

    fault: str
    magnitude: float | None = None
    seconds: float | None = None  # from the first sign to the first message; None is not found
    cause: bool = False  # an incident named it
    place: bool = False  # a message was about its very subject
    action: bool = False  # the advice began with the right step
    incidents: int = 0  # that belong to it
    named: int = 0  # of them, those that name it
    told: str = ""  # the gravest severity of what was said of it, a note's too
    named_at_first: bool = False  # whether the first message named it in its first words
    id: str = ""

    @property
    def found(self) -> bool:
        return self.seconds is not None

    @property
    def exactly_one(self) -> bool:
        """Every fault should be one incident, and that should name it."""
        return self.incidents == 1 and self.named == 1


def judge(truths: Sequence[Truth], claims: Iterable[Claim]) -> tuple[list[Outcome], list[Judged]]:
    """An outcome for each fault, in their order, and a verdict for each message about a fault."""
    near: dict[Subject, list[Truth]] = defaultdict(list)
    for truth in truths:
        for node in {it.of_node() for it in (truth.subject, *truth.also, *truth.affected)}:
            near[node].append(truth)
    judged = [
        _judged(message, _about_it(message, near.get(message.subject.of_node(), ())))
        for claim in claims
        if not is_of_use(claim.fault, claim.said)
        for message in claim.messages()
    ]
    belonging: dict[str, list[Judged]] = {truth.id: [] for truth in truths}
    for one in judged:
        if one.truth is not None:
            belonging[one.truth].append(one)
    return [_outcome(truth, belonging[truth.id]) for truth in truths], judged


def _about_it(claim: Claim, truths: Sequence[Truth]) -> Sequence[Truth]:
    """Those that a claim may be about: of a switch not all of its ports, but the very one."""
    if claim.subject.device != SWITCH_DEVICE:
        return truths
    return [it for it in truths if claim.subject in (it.subject, *it.also, *it.affected)]


def began(claim: Claim, truth: Truth, until: datetime) -> datetime | None:
    """When a claim first began to stand for a fault, before `until`.

    That is after the fault's first sign, or already after its start where the claim names it and is
    about its machine: nothing else says so before the estimate does.
    """
    named = is_named(truth, claim.fault, claim.said)
    first = truth.start if named and _of_own_machine(claim, truth) else truth.detectable_from
    return next((s for s, _ in claim.spans if first <= s < until), None)


def named_for_good(claim: Claim, truth: Truth) -> datetime | None:
    """When a claim that stands for a fault said its name and never took it back."""
    since = began(claim, truth, truth.end)
    if since is None:
        return None
    named = None
    for at, said in claim.words:
        if not is_named(truth, claim.fault, said):
            named = None
        elif named is None:
            named = max(at, since)
    return named


def _judged(claim: Claim, truths: Iterable[Truth]) -> Judged:
    best: tuple[tuple[bool, bool, bool, datetime], Truth] | None = None
    for truth in truths:
        if began(claim, truth, truth.end + ECHO) is None:
            continue
        in_time = began(claim, truth, truth.end) is not None
        key = (
            in_time,
            is_named(truth, claim.fault, claim.said),
            _is_at(claim, truth),
            truth.start,
        )
        if best is None or key > best[0]:
            best = (key, truth)
    if best is None:
        return Judged(claim=claim, verdict=Verdict.FALSE, truth=None)
    (in_time, named, _, _), truth = best
    own_machine = _of_own_machine(claim, truth)
    if not in_time:
        verdict = Verdict.ECHO
    elif named and own_machine:
        verdict = Verdict.RIGHT
    else:
        verdict = Verdict.OTHER if own_machine else Verdict.SYMPTOM
    return Judged(claim=claim, verdict=verdict, truth=truth.id)


def _of_own_machine(claim: Claim, truth: Truth) -> bool:
    """Whether it is about the machine that is to blame.

    Of a rack or a switch every machine is as good a name as the one that the truth is filed under.
    """
    if claim.subject in (truth.subject, *truth.also):
        return True
    if SWITCH_DEVICE in {claim.subject.device, truth.subject.device}:
        return False
    if claim.subject.of_node() == truth.subject.of_node():
        return True
    return truth.group is not None and is_named(truth, claim.fault, claim.said)


def _about(claim: Claim, subject: Subject) -> bool:
    return claim.subject == subject or subject.key in claim.members


def _is_at(claim: Claim, truth: Truth) -> bool:
    """Whether it is about the very thing, by one of its names.

    A rack or a switch is told by any of its own machines, several of them and no others.
    """
    names = (truth.subject, *truth.also)
    if any(_about(claim, it) for it in names):
        return True
    own = {it.key for it in (*names, *truth.affected)}
    by_several = (
        truth.group is not None and len(claim.members) > 1 and own.issuperset(claim.members)
    )
    return by_several and is_named(truth, claim.fault, claim.said)


def _outcome(truth: Truth, judged: Sequence[Judged]) -> Outcome:
    # What says of another machine that it suffers has not found the one to act on.
    about = [one for one in judged if one.verdict in {Verdict.RIGHT, Verdict.OTHER}]
    read = [
        (at, one) for one in about if (at := _read_at(one, truth)) is not None and at < truth.end
    ]
    first = min((at for at, _ in read), default=None)
    right = [one.claim for one in about if one.verdict is Verdict.RIGHT]
    return Outcome(
        fault=truth.fault,
        magnitude=truth.magnitude,
        seconds=None if first is None else _seconds(truth, first),
        cause=any(named_for_good(claim, truth) for claim in right),
        place=any(_is_at(one.claim, truth) for _, one in read),
        action=any(steps(one.claim.action) == steps(truth.action) for _, one in read),
        incidents=len({one.claim.id for one in judged if _read_at(one, truth) is not None}),
        named=len({one.claim.id for _, one in read if one.verdict is Verdict.RIGHT}),
        told=min((one.claim.severity for one in about), key=_rank).value if about else "",
        named_at_first=any(
            at == first and is_named(truth, one.claim.fault, one.claim.words[0][1])
            for at, one in read
        ),
        id=truth.id,
    )


def _read_at(one: Judged, truth: Truth) -> datetime | None:
    """When people read it; a note that names a fault which deserves no more is read as one."""
    is_note = truth.severity is Severity.INFO and one.verdict is Verdict.RIGHT
    return one.claim.spans[-1][0] if is_note else one.claim.read_at


def _seconds(truth: Truth, at: datetime) -> float:
    """From the first sign on; 0 for what was told before that estimate."""
    return max((at - truth.detectable_from).total_seconds(), 0.0)


def _rank(severity: Severity) -> int:
    return severity.rank
