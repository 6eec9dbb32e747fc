"""From conditions that hold to findings: one per fault and subject, in words of the gravest."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.faults.model import Described
from gpuvigil.model import Evidence, Finding, Severity, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A condition that holds on a subject."""

    condition: str  # a key of `gpuvigil.faults.conditions.CONDITIONS`
    subject: Subject
    since: datetime
    evidence: tuple[Evidence, ...]
    severity: Severity | None = None  # instead of the condition's own
    members: tuple[Subject, ...] = ()
    late: bool = False  # see `Finding.late`

    @property
    def urgency(self) -> Severity:
        return self.severity or CONDITIONS[self.condition].severity


def findings(fault: str, claims: Iterable[Claim]) -> list[Finding]:
    """Return a finding per subject, in words of its gravest condition.

    Among equally grave ones the first in the table counts.
    """
    by_subject: dict[Subject, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_subject[claim.subject].append(claim)
    return [_finding(fault, subject, by_subject[subject]) for subject in sorted(by_subject)]


_ORDER = {key: place for place, key in enumerate(CONDITIONS)}


def _finding(fault: str, subject: Subject, claims: Sequence[Claim]) -> Finding:
    ranked = sorted(claims, key=lambda c: (c.urgency.rank, _ORDER[c.condition]))
    worst = ranked[0]
    row = CONDITIONS[worst.condition]
    return Finding(
        fault=fault,
        subject=subject,
        severity=worst.urgency,
        since=min(claim.since for claim in claims),
        evidence=tuple(item for claim in ranked for item in claim.evidence),
        detector=fault,
        action=row.action,
        source=row.source,
        own_limit=row.own_limit,
        title=row.title,
        condition=worst.condition,
        members=worst.members,
        late=all(claim.late for claim in claims),
    )


def in_words_of(finding: Finding, row: Described) -> Finding:
    """Return a finding in the words of another condition or fault."""
    return replace(
        finding,
        title=row.title,
        condition=row.key,
        action=row.action,
        source=row.source,
        own_limit=row.own_limit,
    )
