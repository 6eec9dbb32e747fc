"""Incidents that explain something although their own numbers are missing just now."""

from collections.abc import Callable, Collection, Iterable

from gpuvigil.model import CoveredBy, Finding, Incident, Subject

from ..window.fault_kinds import SILENCES
from .causes import hides, multi_node
from .observation import by_incident


def by_unseen(
    found: Iterable[Finding], standing: Iterable[Incident], visible: Callable[[Incident], bool]
) -> dict[str, CoveredBy]:
    """Return the covers of what follows from an incident that no finding repeats, by fingerprint.

    It stands until its numbers say otherwise, and explains as much until then. What is graver is told.
    """
    found = list(found)
    causes = [
        (_as_finding(one), one)
        for one in _unseen(standing, {it.fingerprint for it in found})
        if not visible(one)
    ]
    return {
        it.fingerprint: by_incident(one)
        for it in found
        for cause, one in causes
        if one.severity.rank <= it.severity.rank and hides(cause, it)
    }


def _unseen(standing: Iterable[Incident], seen: Collection[str]) -> list[Incident]:
    return [
        one
        for one in standing
        if one.fingerprint not in seen and one.fault not in SILENCES and not multi_node(one)
    ]


def _as_finding(one: Incident) -> Finding:
    return Finding(
        fault=one.fault,
        subject=one.subject,
        severity=one.severity,
        since=one.since,
        evidence=one.evidence,
        detector=one.fault,
        action=one.action,
        source="",
        title=one.title,
        condition=one.condition,
        xid=one.xid,
        sxid=one.sxid,
        members=tuple(map(Subject.parse, one.members)),
        goes_on=one.fingerprint,
    )
