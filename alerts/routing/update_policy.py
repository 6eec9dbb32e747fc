"""Which changes deserve a message of their own, where a sent message cannot be edited; pure.

Jobs come and go on a GPU that fails: in a simulated month nine changes in ten were that, hundreds
about one GPU (docs/decisions/0034). People are told what would make them act otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accounting.efficiency.idle_reason import IDLE
from gpuvigil.faults import FAULTS, Halts
from gpuvigil.lifecycle import State
from gpuvigil.model import Subject

from .case import Case
from .notice import Notice, Verdict, is_idle_notice

# A new order of size: at least twice as many as was ever told, and a node's worth of GPUs more.
GROWN_TIMES, GROWN_BY = 2, 8


def news(case: Case) -> Verdict | None:
    """Return the verdict on news that the channel should get in this spell; None without any.

    The notice is compared with all that was sent in the spell, and not only with the last: an
    incident that has two titles in turn is explained twice, and then no more.
    """
    sent, notice = case.sent, case.notice
    if notice.to_state == State.FLAPPING.value and sent[-1].to_state != State.FLAPPING.value:
        return Verdict.CHANGED
    if title(notice) not in {title(one) for one in sent}:
        return Verdict.EXPLAINED
    largest = max(map(_size, case.sent_to_all), default=0)
    if _size(notice) >= max(GROWN_TIMES * largest, largest + GROWN_BY):
        return Verdict.GREW
    if case.profile.owners and set(owners(notice)) - notified_owners(sent):
        return Verdict.NEWLY_HIT
    return None


def stops_now(notice: Notice) -> bool:
    """Return whether a fault has become one that jobs wait for, as when a link with errors is lost."""
    body = notice.snapshot["body"]
    row = FAULTS.get(body.get("condition") or "")
    is_other = row is not None and row.key != body["fault"]
    return row is not None and is_other and row.halts is not Halts.NO


def owners(notice: Notice) -> Sequence[str]:
    """Return the users whose GPUs the incident blocks, if they are written to about such a thing."""
    body = notice.snapshot["body"]
    idle = body["fault"] == IDLE and not is_idle_notice(notice.incident)
    if idle or not Subject.parse(notice.subject).real:
        return ()
    return tuple(_impact(notice).get("users") or ())


def notified_owners(sent: Iterable[Notice]) -> set[str]:
    """Return the users who were written to as owners."""
    return {user for one in sent for user in owners(one)}


def title(notice: Notice) -> str:
    """Return the title of the incident."""
    return str(notice.snapshot["body"]["title"])


def _size(notice: Notice) -> int:
    """Return how many subjects the incident is about, or GPUs it blocks, whichever is more."""
    members = notice.snapshot["body"].get("members") or ()
    return max(len(members), int(_impact(notice).get("gpus") or 0))


def _impact(notice: Notice) -> Mapping[str, Any]:
    found = notice.snapshot["body"].get("impact")
    return found if isinstance(found, Mapping) else {}
