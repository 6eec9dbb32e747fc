"""Which change deserves a message of its own, where what was sent cannot be edited; pure.

Jobs come and go over a GPU that fails: in a simulated month nine changes in ten were that, hundreds
about one GPU (docs/decisions/0034). Somebody is told what would make them act otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accounting.efficiency.idle_reason import IDLE
from gpuvigil.faults import FAULTS, Halts
from gpuvigil.lifecycle import State
from gpuvigil.model import Subject

from .case import Case
from .notice import Notice, Verdict, is_idle_notice

# Another order of size: twice as many as was ever told, and a node's worth of GPUs more at least.
GROWN_TIMES, GROWN_BY = 2, 8


def news(case: Case) -> Verdict | None:
    """What the channel has not heard in this spell that it should; None for nothing.

    It is held against all that was told of the spell and not against the last of it alone: an
    incident that has two names in turn is explained twice, and then no more.
    """
    told, notice = case.told, case.notice
    if notice.to_state == State.FLAPPING.value and told[-1].to_state != State.FLAPPING.value:
        return Verdict.CHANGED
    if title(notice) not in {title(one) for one in told}:
        return Verdict.EXPLAINED
    largest = max(map(_size, case.told_to_all), default=0)
    if _size(notice) >= max(GROWN_TIMES * largest, largest + GROWN_BY):
        return Verdict.GREW
    if case.route.owners and set(owners(notice)) - told_owners(told):
        return Verdict.NEWLY_HIT
    return None


def stops_now(notice: Notice) -> bool:
    """Whether what was bad is by now what jobs wait for, as a link with errors that is lost."""
    body = notice.snapshot["body"]
    row = FAULTS.get(body.get("condition") or "")
    is_other = row is not None and row.key != body["fault"]
    return row is not None and is_other and row.halts is not Halts.NO


def owners(notice: Notice) -> Sequence[str]:
    """Whose GPUs the incident blocks, as far as they are written to about such a thing."""
    body = notice.snapshot["body"]
    idle = body["fault"] == IDLE and not is_idle_notice(notice.incident)
    if idle or not Subject.parse(notice.subject).real:
        return ()
    return tuple(_impact(notice).get("users") or ())


def told_owners(told: Iterable[Notice]) -> set[str]:
    """Who was written to as an owner."""
    return {user for one in told for user in owners(one)}


def title(notice: Notice) -> str:
    """What the incident was called."""
    return str(notice.snapshot["body"]["title"])


def _size(notice: Notice) -> int:
    """How many subjects it is about, or GPUs it blocks."""
    members = notice.snapshot["body"].get("members") or ()
    return max(len(members), int(_impact(notice).get("gpus") or 0))


def _impact(notice: Notice) -> Mapping[str, Any]:
    found = notice.snapshot["body"].get("impact")
    return found if isinstance(found, Mapping) else {}
