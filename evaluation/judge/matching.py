"""Which claim is about which fault, and the outcome of each fault and each claim.

Each span in which a claim stood is a message, judged by itself. A message belongs to at most one fault. It can belong
to a fault on the same machine if it began during the fault or shortly after it: from the fault's first sign on, or
from its very start if the message names it and is about its own machine, since the first sign is an estimate. Of
several faults, the one it names comes first, then the one on its exact subject, then the one that began last. A fault
is found by a warning or a critical; one that deserves only a note, by the note that names it.
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

# A claim that begins this long after a fault's end is its echo: too late to count as found, but not false
# either. The longest span that a detector looks back over is half an hour.
ECHO = timedelta(minutes=30)


class Verdict(str, Enum):
    """What a claim turned out to be."""

    RIGHT = "right"  # the fault is there, and this is its name
    OTHER = "other cause"  # a fault is there, and this is not its name
    SYMPTOM = "symptom"  # a consequence of a fault with another subject
    ECHO = "echo"  # the fault is over
    FALSE = "false"  # no fault exists here


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
    seconds: float | None = None  # from the first sign to the first message; None: not found
    cause: bool = False  # whether an incident named it
    place: bool = False  # whether a message was about its exact subject
    action: bool = False  # whether the advice began with the right step
    incidents: int = 0  # how many belong to it
    named: int = 0  # how many of these name it
    told: str = ""  # the gravest severity reported for it, including a note's
    named_at_first: bool = False  # whether the first message named it in its first text
    id: str = ""

    @property
    def found(self) -> bool:
        return self.seconds is not None

    @property
    def exactly_one(self) -> bool:
        """Whether there was exactly one incident, and it named the fault, as should be for every fault."""
        return self.incidents == 1 and self.named == 1


def judge(truths: Sequence[Truth], claims: Iterable[Claim]) -> tuple[list[Outcome], list[Judged]]:
    """Return an outcome for each fault, in order, and a verdict for each message about a fault."""
    near: dict[Subject, list[Truth]] = defaultdict(list)
    for truth in truths:
        for node in {it.of_node() for it in (truth.subject, *truth.also, *truth.affected)}:
            near[node].append(truth)
    judged = [
        _judged(message, _about_it(message, near.get(message.subject.of_node(), ())))
        for claim in claims
        if not is_of_use(claim.fault, claim.text)
        for message in claim.messages()
    ]
    belonging: dict[str, list[Judged]] = {truth.id: [] for truth in truths}
    for one in judged:
        if one.truth is not None:
            belonging[one.truth].append(one)
    return [_outcome(truth, belonging[truth.id]) for truth in truths], judged


def with_hidden(judged: Iterable[Judged], hidden: Sequence[Truth]) -> list[Judged]:
    """Return the same verdicts, but a claim that names a hidden fault is right, and one about its very part not wrong."""
    return [
        _of_hidden(one, hidden) or one if one.verdict is Verdict.FALSE else one for one in judged
    ]


def _of_hidden(one: Judged, hidden: Sequence[Truth]) -> Judged | None:
    """Return the verdict on a claim that is about a fault which nobody had to find; None for any other claim."""
    again = judge(hidden, [one.claim])[1]
    right = next((it for it in again if it.verdict is Verdict.RIGHT), None)
    own = next((it.id for it in hidden if _is_of_its_part(one.claim, it)), None)
    if right is not None or own is None:
        return right
    return Judged(claim=one.claim, verdict=Verdict.OTHER, truth=own)


def _is_of_its_part(claim: Claim, truth: Truth) -> bool:
    """Return whether a claim about the fault's exact subject began while the fault lasted."""
    during = any(truth.start <= since < truth.end for since, _ in claim.spans)
    return during and claim.subject in (truth.subject, *truth.also)


def _about_it(claim: Claim, truths: Sequence[Truth]) -> Sequence[Truth]:
    """Return the faults that a claim may be about; on a switch, only those of the exact port."""
    if claim.subject.device != SWITCH_DEVICE:
        return truths
    return [it for it in truths if claim.subject in (it.subject, *it.also, *it.affected)]


def began(claim: Claim, truth: Truth, until: datetime) -> datetime | None:
    """Return when a claim first began to stand for a fault, before `until`; None when it did not.

    Counted from the fault's first sign, or from its start where the claim names it and is about its machine: no other
    cause could explain such a claim before the estimated first sign.
    """
    named = is_named(truth, claim.fault, claim.text)
    first = truth.start if named and _of_own_machine(claim, truth) else truth.detectable_from
    return next((s for s, _ in claim.spans if first <= s < until), None)


def named_for_good(claim: Claim, truth: Truth) -> datetime | None:
    """Return when a claim that stands for a fault named it and never took the name back; None when it did not."""
    since = began(claim, truth, truth.end)
    if since is None:
        return None
    named = None
    for at, said in claim.texts:
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
            is_named(truth, claim.fault, claim.text),
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
    """Return whether a claim is about the machine to blame.

    For a fault of a rack, a switch or a whole job, any of its machines is as good as the one that the truth records.
    """
    if claim.subject in (truth.subject, *truth.also):
        return True
    if SWITCH_DEVICE in {claim.subject.device, truth.subject.device}:
        return False
    if claim.subject.of_node() == truth.subject.of_node():
        return True
    shared = truth.group is not None or claim.subject.of_node() in {
        it.of_node() for it in truth.also
    }
    return shared and is_named(truth, claim.fault, claim.text)


def _about(claim: Claim, subject: Subject) -> bool:
    return claim.subject == subject or subject.key in claim.members


def _is_at(claim: Claim, truth: Truth) -> bool:
    """Return whether a claim is about the exact subject, by one of its names.

    A rack or a switch may be reported by any of its own machines, if several and no others are named.
    """
    names = (truth.subject, *truth.also)
    if any(_about(claim, it) for it in names):
        return True
    own = {it.key for it in (*names, *truth.affected)}
    by_several = (
        truth.group is not None and len(claim.members) > 1 and own.issuperset(claim.members)
    )
    return by_several and is_named(truth, claim.fault, claim.text)


def _outcome(truth: Truth, judged: Sequence[Judged]) -> Outcome:
    # A claim that another machine suffers has not found the machine to act on.
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
            at == first and is_named(truth, one.claim.fault, one.claim.texts[0][1])
            for at, one in read
        ),
        id=truth.id,
    )


def _read_at(one: Judged, truth: Truth) -> datetime | None:
    """Return when people read the message; a note counts where it names a fault that deserves only a note."""
    is_note = truth.severity is Severity.INFO and one.verdict is Verdict.RIGHT
    return one.claim.spans[-1][0] if is_note else one.claim.read_at


def _seconds(truth: Truth, at: datetime) -> float:
    """Return the seconds from the first sign on; 0 for a message before that estimate."""
    return max((at - truth.detectable_from).total_seconds(), 0.0)


def _rank(severity: Severity) -> int:
    return severity.rank
