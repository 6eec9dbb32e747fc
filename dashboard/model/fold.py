"""Open incidents about how GPUs are used, as one row for each fault; pure.

One by one, twenty idle GPUs of somebody hide what is broken.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from gpuvigil.faults import FAULTS, Blame, where
from gpuvigil.model import Incident, Severity
from gpuvigil.numbers_in_words import counted

# Fewer are listed one by one; ours.
LEAST = 3
_MOST_NAMED = 3
_OF_USE = where(lambda row: row.blame in {Blame.HOLDER, Blame.USE})


class _Row(Protocol):
    @property
    def id(self) -> str: ...


_T = TypeVar("_T", bound=_Row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Incidents of a cluster with the same fault, severity and state."""

    incidents: Sequence[Incident]
    since: datetime  # when the oldest of them began
    gpus: int
    holders: Mapping[str, int]  # GPUs by job, pod or other holder, most first
    users: Mapping[str, int]  # likewise
    nobodys: bool  # whether the user of some is not known

    @property
    def first(self) -> Incident:
        return self.incidents[0]

    @property
    def id(self) -> str:
        """The row's ID, which stays the same while incidents come and go."""
        return "|".join(_key(self.first))

    @property
    def title(self) -> str:
        return FAULTS[self.first.fault].title

    @property
    def severity(self) -> Severity:
        return self.first.severity

    @property
    def where(self) -> str:
        """`20 GPUs of job 4711 of alice`, `20 GPUs of alice` or `20 GPUs of 12 users`."""
        names = list(self.users)
        one_user, one_holder = ([*it.values()] == [self.gpus] for it in (self.users, self.holders))
        parts = [counted(self.gpus, "GPU"), *(self.holders if one_holder and not names[1:] else ())]
        if one_user:
            parts += names
        elif names and len(parts) == 1:
            others = " and others" if self.nobodys else ""
            parts.append(f"{counted(len(names), 'user')}{others}")
        return " of ".join(parts)

    @property
    def shares(self) -> str:
        """Who has most: `9 of alice, 6 of bob, 2 of carol and 3 more`; of a single user's, which jobs."""
        if len(self.users) < 2:
            more = len(self.holders) - _MOST_NAMED
            named = ", ".join([*self.holders][:_MOST_NAMED])
            return f"{named} and {more:,} more" if more > 0 else named
        named = ", ".join(
            f"{gpus:,} of {user}" for user, gpus in [*self.users.items()][:_MOST_NAMED]
        )
        more = self.gpus - sum([*self.users.values()][:_MOST_NAMED])
        return f"{named} and {more:,} more" if more > 0 else named

    @property
    def action(self) -> str:
        """What to do; empty if it is not the same for all of them."""
        every = {one.action for one in self.incidents}
        return every.pop() if len(every) == 1 else ""


def folds(open_incidents: Iterable[Incident]) -> Mapping[str, Fold]:
    """Return the fold of each incident that is in one, by the incident's ID."""
    groups: dict[tuple[str, ...], list[Incident]] = defaultdict(list)
    for one in open_incidents:
        if one.fault in _OF_USE:
            groups[_key(one)].append(one)
    made = [_fold(group) for group in groups.values() if len(group) >= LEAST]
    return {one.id: fold for fold in made for one in fold.incidents}


def rows(listed: Iterable[_T], found: Mapping[str, Fold]) -> list[_T]:
    """Return those that have a row: of each fold only the first."""
    return [one for one in listed if one.id not in found or found[one.id].first.id == one.id]


def _fold(group: Sequence[Incident]) -> Fold:
    holders, users = Counter[str](), Counter[str]()
    for one in group:
        gpus = max(one.impact.gpus, 1)
        holders.update(dict.fromkeys(one.impact.holders, gpus))
        users.update(dict.fromkeys(one.impact.users, gpus))
    return Fold(
        incidents=group,
        since=min(one.since for one in group),
        gpus=sum(max(one.impact.gpus, 1) for one in group),
        holders=dict(holders.most_common()),
        users=dict(users.most_common()),
        nobodys=any(not one.impact.users for one in group),
    )


def _key(one: Incident) -> tuple[str, ...]:
    """What they share: those that somebody took, or whose nodes are out of service, are rows of their own."""
    cluster, severity = one.subject.cluster, one.severity.value
    why_out = "" if one.out_of_service is None else one.out_of_service.reason
    return one.fault, cluster, severity, one.state, one.acknowledged_by, why_out
