"""Two accounts of the same span: what was raised, and what would be."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from gpuvigil.clock import EPOCH
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import Incident, Record, Severity, Transition

from ..judge.claims import Claim, claims

# The most that one account may be later than the other: a tick more or less, a node's clock.
_SLACK = timedelta(minutes=5)
_FOREVER = datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An incident in both accounts, or in one of them."""

    was: Claim | None
    would: Claim | None

    @property
    def either(self) -> Claim:
        """Whichever exists; of two, the one that would be raised."""
        found = self.would or self.was
        assert found is not None
        return found

    @property
    def changes(self) -> bool:
        """Whether people would be notified differently."""
        was, would = self.was, self.would
        return was is None or would is None or was.severity is not would.severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The incidents and pages of one fault, or of all."""

    was: int = 0
    would: int = 0
    both: int = 0
    pages_were: int = 0
    pages_would: int = 0


def raised(steps: Iterable[Transition]) -> list[Claim]:
    """Return the incidents of these steps, with the pages that were sent.

    An incident that stood before its first step here began long ago, whatever happened to it since; and
    nobody is paged for a critical incident on a node that is out of service.
    """
    ordered = sorted(steps, key=lambda step: (step.at, step.incident, step.number))
    first = {step.incident: step for step in reversed(ordered)}
    old = {id_ for id_, step in first.items() if State(step.from_state) in ACTIVE}
    quiet = {(step.incident, step.at) for step in ordered if _is_out_of_service(step)}
    found = []
    for one in claims(ordered):
        pages = tuple(at for at in one.pages if (one.id, at) not in quiet)
        (_, until), *others = one.spans
        spans = ((EPOCH, until), *others) if one.id in old else one.spans
        found.append(replace(one, pages=pages, spans=spans))
    return found


def _is_out_of_service(step: Transition) -> bool:
    incident = Incident.from_record(Record.from_json(step.snapshot))
    return incident.out_of_service is not None


def pairs(was: Sequence[Claim], would: Sequence[Claim], since: datetime) -> list[Pair]:
    """Return every incident opened from `since` on, in either account, in the order of time.

    Two incidents are the same when fault and subject are equal and they stood at the same time; of several
    candidates, the one that began nearest.
    """
    left: dict[tuple[str, str], list[Claim]] = defaultdict(list)
    for claim in would:
        left[claim.fault, claim.subject.key].append(claim)
    found = []
    for claim in was:
        others = left[claim.fault, claim.subject.key]
        near = [it for it in others if _meet(claim, it)]
        other = min(near, key=lambda it: abs(it.opened_at - claim.opened_at), default=None)
        if other is not None:
            others.remove(other)
        found.append(Pair(was=claim, would=other))
    found += [Pair(was=None, would=claim) for others in left.values() for claim in others]
    young = [it for it in found if _opened_at(it) >= since]
    return sorted(young, key=lambda it: (_opened_at(it), it.either.fault, it.either.subject.key))


def accounts(found: Sequence[Pair]) -> dict[str, Account]:
    """Return the accounts by fault, and under "" the account of all."""
    of: dict[str, list[Pair]] = defaultdict(list)
    for pair in found:
        of[pair.either.fault].append(pair)
        of[""].append(pair)
    return {fault: _account(them) for fault, them in sorted(of.items())}


def _account(them: Sequence[Pair]) -> Account:
    return Account(
        was=sum(it.was is not None for it in them),
        would=sum(it.would is not None for it in them),
        both=sum(it.was is not None and it.would is not None for it in them),
        pages_were=sum(_pages(it.was) for it in them),
        pages_would=sum(_pages(it.would) for it in them),
    )


def _pages(claim: Claim | None) -> int:
    return 0 if claim is None or claim.severity is not Severity.CRITICAL else len(claim.pages)


def _opened_at(pair: Pair) -> datetime:
    return min(it.opened_at for it in (pair.was, pair.would) if it is not None)


def _meet(one: Claim, other: Claim) -> bool:
    return any(
        other.stood(start - _SLACK, _FOREVER if end is None else end + _SLACK)
        for start, end in one.spans
    )
