"""What one look at the fleet says, before anybody decides what becomes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuvigil.model import (
    CoveredBy,
    Ended,
    Evidence,
    Finding,
    Impact,
    OutOfService,
    Severity,
    Subject,
)

from ..window.out_of_service import NOBODY, Away


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What an incident would say now."""

    finding: Finding
    severity: Severity
    title: str
    label: str
    impact: Impact
    members: tuple[str, ...]
    covers: tuple[str, ...]
    gpus: str = ""  # of a node, which of its GPUs
    held: OutOfService | None = None  # why nobody is told: all its nodes are


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """What an incident that is over turns out to have been.

    `sure`: nothing that may still come can say otherwise.
    """

    condition: str
    title: str
    action: str
    evidence: tuple[Evidence, ...]
    sure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one look says about the fleet; mappings and sets are by fingerprint.

    A standing incident that is in none of them was looked for and not found.
    """

    candidates: Mapping[str, Candidate] = field(default_factory=dict)
    covered: Mapping[str, CoveredBy] = field(default_factory=dict)
    cured: Mapping[str, Ended] = field(default_factory=dict)
    afterwards: Mapping[str, Hindsight] = field(default_factory=dict)  # of what is cured
    unknown: frozenset[str] = frozenset()  # absence of data says nothing about these
    fresh: bool = True  # rows were newly read: a second look confirms a suspect
    only: Subject | None = None  # the one node that was looked at; None is the whole fleet
    without: frozenset[Subject] = frozenset()  # nodes that were looked at again meanwhile
    whole: frozenset[str] = frozenset()  # about a whole cluster: no look at one node says anything
    away: Away = NOBODY  # which nodes are out of service on purpose

    def speaks_of(self, subject: Subject, print_: str = "") -> bool:
        """Whether this look says anything about a subject, be it that nothing is wrong."""
        if print_ in self.whole:
            return self.only is None
        node = subject.of_node()
        return node not in self.without and self.only in {None, node}
