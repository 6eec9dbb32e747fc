"""Causes that become known after their sign was reported: the incident continues, described by its cause."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpuvigil.model import Finding, Incident, Severity, fingerprint

from ..window.fault_kinds import LINKS_LOST, LINKS_SLOWER, POWER_LOST, POWER_SHORT
from .causes import is_apart, multi_node


def with_late_causes(
    found: Sequence[Finding], standing: Mapping[str, Incident], over: Iterable[Incident]
) -> list[Finding]:
    """Return the findings, where a cause continues the incident of its sign that is open or may return.

    A link that was lost and comes up slower is one problem; so is a power brake whose supply turns out
    to have failed. A cause with an incident of its own keeps it, and a link that is down is not slower.
    """
    known = {it.fingerprint: it for it in (*over, *standing.values())}
    signs = {one.fingerprint: one for one in found}
    said: dict[str, Finding] = {}
    for one in found:
        first = None if one.fingerprint in known or one.goes_on else _first(one, known)
        sign = None if first is None else signs.get(first.fingerprint)
        if first is None or (sign is not None and one.fault in LINKS_SLOWER):
            continue
        said[one.fingerprint] = _goes_on(one, first, sign)
        if sign is not None:
            said[sign.fingerprint] = said[one.fingerprint]
    left = (said.get(one.fingerprint, one) for one in found)
    return list({one.fingerprint: one for one in left}.values())


def _first(one: Finding, known: Mapping[str, Incident]) -> Incident | None:
    """Return the incident of the cause's sign at the same place; None for a note, a rack's, or none."""
    before = LINKS_LOST if one.fault in LINKS_SLOWER else frozenset[str]()
    before |= POWER_SHORT if one.fault in POWER_LOST else frozenset()
    signs = (known.get(fingerprint(fault, one.subject)) for fault in sorted(before))
    grave = (it for it in signs if it is not None and it.severity is not Severity.INFO)
    return next((it for it in grave if not (multi_node(it) or is_apart(one, it))), None)


def _goes_on(one: Finding, first: Incident, sign: Finding | None) -> Finding:
    """Return the cause as a continuation, with the evidence and the severity of a sign found beside it."""
    condition = one.condition or one.fault  # as it began, it would be called another fault
    goes_on = replace(one, goes_on=first.fingerprint, condition=condition)
    if sign is None:
        return goes_on
    gravest = min(one.severity, sign.severity, key=lambda it: it.rank)
    return replace(goes_on, severity=gravest, evidence=(*one.evidence, *sign.evidence))
