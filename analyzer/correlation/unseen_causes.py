"""Incidents that explain something although their own numbers are missing just now, or no longer show them."""

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta

from gpuvigil.model import CoveredBy, Finding, Incident, Subject

from ..window.fault_kinds import ROOM_SHORT, SILENCES, SLOW_JOBS
from ..window.window import Window
from .causes import hides, multi_node
from .observation import by_incident

# These are judged over minutes, so that they show what was over before.
_LOOK_BACK = SLOW_JOBS | ROOM_SHORT


def by_unseen(
    window: Window,
    found: Iterable[Finding],
    active: Iterable[Incident],
    visible: Callable[[Incident], bool],
) -> dict[str, CoveredBy]:
    """Return the covers of what follows from an incident that no finding repeats, by fingerprint.

    It stands until its numbers say otherwise, and explains as much until then. What is graver is told.
    A slow job is judged over minutes: what slowed it is over before it shows that it no longer waits. So is what a
    full disk made its collector drop.
    """
    found = list(found)
    causes = [
        (_as_finding(one), one, not visible(one))
        for one in _unseen(active, {it.fingerprint for it in found})
    ]
    if any(it.fault in _LOOK_BACK for it in found):
        causes += [(_as_finding(one), one, False) for one in _just_over(window)]
    return {
        it.fingerprint: by_incident(one)
        for it in found
        for cause, one, explains_all in causes
        if (explains_all or _was_before_its_end(it, one))
        and one.severity.rank <= it.severity.rank
        and hides(cause, it)
    }


def _just_over(window: Window) -> list[Incident]:
    """Return the incidents that ended within the longest span that such faults are judged over."""
    span, over = timedelta(seconds=window.settings.steady_seconds), window.recent_incidents
    lately = (i for i in over if i.resolved_at and window.now - i.resolved_at <= span)
    return [i for i in lately if i.fault not in SILENCES and not multi_node(i)]


def _was_before_its_end(it: Finding, one: Incident) -> bool:
    return it.fault in _LOOK_BACK and (one.resolved_at is None or it.since <= one.resolved_at)


def _unseen(active: Iterable[Incident], seen: Collection[str]) -> list[Incident]:
    return [
        one
        for one in active
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
