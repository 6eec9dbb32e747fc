"""Which claim is about which fault, and what each fault and each claim then comes to.

A claim belongs to at most one fault. It can belong to one that it shares a machine with and during
which, or shortly after which, it began to stand (or stood again): from its first sign on, and one
that names it and is about its own machine from its very start, since the first sign is an estimate.
Of several the one that it names comes first, then the one on its very subject, then the one that
began last.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from gpuvigil.model import Severity, Subject
from simulator.fleet import Truth

from .claims import Claim
from .fault_names import is_of_use, names, steps

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
    """A claim with its verdict, and the fault it belongs to."""

    claim: Claim
    verdict: Verdict
    truth: str | None  # id of the fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one fault."""

    fault: str
    magnitude: float | None
    model: str = ""
    seconds: float | None = None  # from the first sign to the first claim; None is not found
    cause: bool = False  # a claim named it
    place: bool = False  # a claim was about its very subject
    action: bool = False  # the advice began with the right step
    severity: bool = False  # somebody was told with the right urgency
    incidents: int = 0  # that belong to it
    named: int = 0  # of them, those that name it
    told: str = ""  # the gravest severity in which it was found
    # From the first sign to when a claim named it for good; None also where an older judge did not ask.
    named_seconds: float | None = None
    named_at_first: bool | None = None  # whether the first claim named it in its first words

    @property
    def found(self) -> bool:
        return self.seconds is not None


def judge(truths: Sequence[Truth], claims: Iterable[Claim]) -> tuple[list[Outcome], list[Judged]]:
    """An outcome for each fault, in their order, and a verdict for each claim about a fault."""
    judged = [_judged(claim, truths) for claim in claims if not is_of_use(claim.fault, claim.said)]
    belonging: dict[str, list[Judged]] = {truth.id: [] for truth in truths}
    for one in judged:
        if one.truth is not None:
            belonging[one.truth].append(one)
    return [_outcome(truth, belonging[truth.id]) for truth in truths], judged


def began(claim: Claim, truth: Truth, until: datetime) -> datetime | None:
    """When a claim first began to stand for a fault, before `until`.

    That is after the fault's first sign, or already after its start where the claim names it and is
    about its machine: nothing else says so before the estimate does.
    """
    named = truth.fault in names(claim.fault, claim.said)
    first = truth.start if named and _of_own_machine(claim, truth) else truth.detectable_from
    return next((s for s, _ in claim.spans if first <= s < until), None)


def named_for_good(claim: Claim, truth: Truth) -> datetime | None:
    """When a claim that stands for a fault said its name and never took it back."""
    since = began(claim, truth, truth.end)
    if since is None:
        return None
    named = None
    for at, said in claim.words:
        if truth.fault not in names(claim.fault, said):
            named = None
        elif named is None:
            named = max(at, since)
    return named


def _judged(claim: Claim, truths: Iterable[Truth]) -> Judged:
    named = names(claim.fault, claim.said)
    best: tuple[tuple[bool, bool, bool, datetime], Truth] | None = None
    for truth in truths:
        if not _shares_a_machine(claim, truth) or began(claim, truth, truth.end + ECHO) is None:
            continue
        in_time = began(claim, truth, truth.end) is not None
        key = (in_time, truth.fault in named, _about(claim, truth.subject), truth.start)
        if best is None or key > best[0]:
            best = (key, truth)
    if best is None:
        return Judged(claim=claim, verdict=Verdict.FALSE, truth=None)
    (in_time, is_named, _, _), truth = best
    own_machine = _of_own_machine(claim, truth)
    if not in_time:
        verdict = Verdict.ECHO
    elif is_named and own_machine:
        verdict = Verdict.RIGHT
    else:
        verdict = Verdict.OTHER if own_machine else Verdict.SYMPTOM
    return Judged(claim=claim, verdict=verdict, truth=truth.id)


def _shares_a_machine(claim: Claim, truth: Truth) -> bool:
    node = claim.subject.of_node()
    return any(subject.of_node() == node for subject in (truth.subject, *truth.affected))


def _of_own_machine(claim: Claim, truth: Truth) -> bool:
    """Whether it is about the machine that is to blame.

    Of a rack or a switch every machine is as good a name as the one that the truth is filed under.
    """
    if claim.subject.of_node() == truth.subject.of_node():
        return True
    return truth.group is not None and truth.fault in names(claim.fault, claim.said)


def _about(claim: Claim, subject: Subject) -> bool:
    return claim.subject == subject or subject.key in claim.members


def _outcome(truth: Truth, judged: Sequence[Judged]) -> Outcome:
    # What says of another machine that it suffers has not found the one to act on; a note about
    # something else, which wakes nobody and is read in the digest, has found nothing.
    finders = [
        (at, one.claim)
        for one in judged
        if (one.verdict is Verdict.RIGHT or _tells_of_other(one))
        and (at := began(one.claim, truth, truth.end)) is not None
    ]
    first = min((at for at, _ in finders), default=None)
    right = [one.claim for one in judged if one.verdict is Verdict.RIGHT]
    named = [at for claim in right if (at := named_for_good(claim, truth)) is not None]
    return Outcome(
        fault=truth.fault,
        magnitude=truth.magnitude,
        seconds=None if first is None else _seconds(truth, first),
        cause=bool(right),
        place=any(_about(claim, truth.subject) for _, claim in finders),
        action=any(steps(claim.action) == steps(truth.action) for _, claim in finders),
        severity=any(claim.severity is truth.severity for _, claim in finders),
        incidents=len(judged),
        named=len(right),
        told=min((claim.severity for _, claim in finders), key=_rank).value if finders else "",
        named_seconds=_seconds(truth, min(named)) if named else None,
        named_at_first=any(
            at == first and truth.fault in names(claim.fault, claim.words[0][1])
            for at, claim in finders
        ),
    )


def _seconds(truth: Truth, at: datetime) -> float:
    """From the first sign on; 0 for what was told before that estimate."""
    return max((at - truth.detectable_from).total_seconds(), 0.0)


def _rank(severity: Severity) -> int:
    return severity.rank


def _tells_of_other(one: Judged) -> bool:
    return one.verdict is Verdict.OTHER and one.claim.severity is not Severity.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Machines and windows: how many of which kind."""

    found: int = 0  # a fault, and a claim
    missed: int = 0  # a fault, and none
    alarmed: int = 0  # no fault, and a claim
    quiet: int = 0  # neither

    def __add__(self, other: "Units") -> "Units":
        return Units(
            found=self.found + other.found,
            missed=self.missed + other.missed,
            alarmed=self.alarmed + other.alarmed,
            quiet=self.quiet + other.quiet,
        )


# The window in which Minder (NSDI 25) looks for the faulty machine.
WINDOW = timedelta(minutes=15)


def units(
    truths: Sequence[Truth],
    claims: Iterable[Claim],
    nodes: Iterable[Subject],
    span: tuple[datetime, datetime],
) -> Units:
    """One verdict for each machine and whole window of the span.

    A window that a fault fills only in part, that is its echo, or in which the machine only
    suffers from a fault elsewhere is not counted at all. A claim about several machines, as a rack's
    or a switch's, is one about each.
    """
    by_node: dict[Subject, list[Claim]] = {}
    for claim in claims:
        if not is_of_use(claim.fault, claim.said):
            for node in {claim.subject.of_node(), *_machines(claim)}:
                by_node.setdefault(node, []).append(claim)
    total = Units()
    windows = int((span[1] - span[0]) / WINDOW)
    for node in nodes:
        own = [t for t in truths if t.subject.of_node() == node]
        others = [t for t in truths if t not in own and node in {s.of_node() for s in t.affected}]
        said = by_node.get(node, [])
        if not own and not others and not said:
            total += Units(quiet=windows)
            continue
        for number in range(windows):
            start = span[0] + number * WINDOW
            total += _unit(own, others, said, (start, start + WINDOW))
    return total


def _machines(claim: Claim) -> set[Subject]:
    return {Subject.parse(member).of_node() for member in claim.members}


def _unit(
    own: Iterable[Truth],
    others: Iterable[Truth],
    said: Iterable[Claim],
    window: tuple[datetime, datetime],
) -> Units:
    start, end = window
    claimed = any(claim.stood(start, end) for claim in said)
    if any(t.detectable_from <= start and end <= t.end for t in own):
        return Units(found=1) if claimed else Units(missed=1)
    if any(t.start < end and start < t.end + ECHO for t in (*own, *others)):
        return Units()
    return Units(alarmed=1) if claimed else Units(quiet=1)


def false_pages(judged: Iterable[Judged]) -> int:
    """How often somebody was woken for nothing."""
    return sum(
        len(one.claim.pages)
        for one in judged
        if one.verdict is Verdict.FALSE and one.claim.severity is Severity.CRITICAL
    )
