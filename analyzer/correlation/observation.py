"""The result of one look at the fleet, before the book of incidents takes it in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from gpuvigil.model import (
    CoveredBy,
    Ended,
    Evidence,
    Finding,
    Impact,
    Incident,
    OutOfService,
    Severity,
    Subject,
)

from ..window.out_of_service import NOBODY, Away


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The present content of an incident, before the book knows it."""

    finding: Finding
    severity: Severity
    title: str
    label: str
    impact: Impact
    members: tuple[str, ...]
    covers: tuple[str, ...]
    gpus: str = ""  # which GPUs of a node, in words
    out_of_service: OutOfService | None = None  # why all its nodes are, on purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """The later insight into what an incident that is over was.

    `sure`: nothing that may still come can change this.
    """

    condition: str
    title: str
    action: str
    evidence: tuple[Evidence, ...]
    sure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The result of one look at the fleet; mappings and sets are by fingerprint.

    An active incident that is in none of them was looked for and not found.
    """

    candidates: Mapping[str, Candidate] = field(default_factory=dict)
    covered: Mapping[str, CoveredBy] = field(default_factory=dict)
    cured: Mapping[str, Ended] = field(default_factory=dict)
    afterwards: Mapping[str, Hindsight] = field(default_factory=dict)  # of what is cured
    unknown: frozenset[str] = frozenset()  # the look cannot tell whether these are over
    seldom: Mapping[str, timedelta] = field(default_factory=dict)  # how long these must be absent
    new_rows: bool = True  # rows were newly read, so that this look can confirm a suspect
    only: Subject | None = None  # the one node that was looked at; None: the whole fleet
    without: frozenset[Subject] = frozenset()  # nodes that were looked at again meanwhile
    whole: frozenset[str] = frozenset()  # about several nodes: a look at one says nothing
    away: Away = NOBODY  # which nodes are out of service on purpose

    def speaks_of(self, subject: Subject, print_: str = "") -> bool:
        """Tell whether this look says anything about a subject, even that nothing is wrong."""
        if print_ in self.whole:
            return self.only is None
        node = subject.of_node()
        return node not in self.without and self.only in {None, node}


def by_incident(one: Incident) -> CoveredBy:
    """Return the cover of what an incident explains."""
    return CoveredBy(fingerprint=one.fingerprint, what=f"{one.label}: {one.title}")
