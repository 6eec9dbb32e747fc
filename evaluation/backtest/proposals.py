"""The effect of other limits on a site's own past: only the evidence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gpuvigil.config import AnalyzerSettings
from gpuvigil.faults import FAULTS
from gpuvigil.model import Opinion, Severity

from ..judge.claims import Claim
from .compare import pairs

# Limits that decide how many people are notified, each tried at half and at twice the site's value: those that make
# a rule of warnings or criticals rarer, and three that no single rule has.
TRIED = tuple(
    sorted(
        {
            "silent_after_seconds",
            "passing_xid_seconds",
            "clear_seconds",
            *(
                row.tuned_by
                for row in FAULTS.values()
                if row.tuned_by is not None and row.severity is not Severity.INFO
            ),
        }
    )
)
# Two is the least count of something that happens repeatedly.
_LEAST_COUNT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One setting at another value."""

    key: str  # in the section `analyzer`
    now: float
    other: float

    def applied(self, settings: AnalyzerSettings) -> AnalyzerSettings:
        changed: dict[str, Any] = {self.key: type(getattr(settings, self.key))(self.other)}
        return replace(settings, **changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The effect of a limit: warnings and criticals that would no longer be sent, and additional ones."""

    limit: Limit
    fewer: tuple[Claim, ...]
    more: tuple[Claim, ...]
    noise: int  # votes on `fewer` that called them noise; `useful` likewise
    useful: int

    @property
    def is_recommended(self) -> bool:
        """Whether the limit only silences, and nothing that was voted useful or that paged somebody."""
        wakes = any(one.severity is Severity.CRITICAL for one in self.fewer)
        return bool(self.fewer) and not self.more and not self.useful and not wakes


def limits(settings: AnalyzerSettings) -> list[Limit]:
    """Return all limits to try on a site with these settings."""
    found = []
    for key in TRIED:
        now = getattr(settings, key)
        others = (now / 2, now * 2)
        if isinstance(now, int):
            others = (max(_LEAST_COUNT, now // 2), now * 2)
        found += [Limit(key=key, now=now, other=other) for other in others if other != now]
    return found


def proposals(
    today: Sequence[Claim],
    others: Mapping[Limit, Sequence[Claim]],
    voted: Callable[[Claim], Sequence[Opinion]],
    since: datetime,
) -> list[Proposal]:
    """Return the effect of each limit compared with `today`; recommended ones first, then by size.

    `voted` returns people's opinions on an incident.
    """
    found = []
    for limit, would in others.items():
        changed = [pair for pair in pairs(_loud(today), _loud(would), since) if pair.changes]
        fewer = [pair.was for pair in changed if pair.would is None and pair.was is not None]
        votes = [opinion for claim in fewer for opinion in voted(claim)]
        found.append(
            Proposal(
                limit=limit,
                fewer=tuple(fewer),
                more=tuple(it.would for it in changed if it.was is None and it.would is not None),
                noise=sum(not opinion.useful for opinion in votes),
                useful=sum(opinion.useful for opinion in votes),
            )
        )
    return sorted(found, key=_order)


def _order(one: Proposal) -> tuple[bool, int, int]:
    return not one.is_recommended, -len(one.fewer), len(one.more)


def _loud(found: Sequence[Claim]) -> list[Claim]:
    return [one for one in found if one.loud_from is not None]


def votes_on(
    recorded: Sequence[Claim], today: Sequence[Claim], opinions: Sequence[Opinion], since: datetime
) -> Callable[[Claim], Sequence[Opinion]]:
    """Return a function with people's opinions on a replayed incident: those on the matching recorded one."""
    same: dict[str, str] = {
        pair.would.id: pair.was.id
        for pair in pairs(recorded, today, since)
        if pair.was is not None and pair.would is not None
    }

    def voted(claim: Claim) -> Sequence[Opinion]:
        return [one for one in opinions if one.incident == same.get(claim.id)]

    return voted
