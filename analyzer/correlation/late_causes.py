"""Causes that become known after their sign was reported: the incident continues, described by its cause."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpuvigil.faults import FAULTS
from gpuvigil.model import Finding, Incident, Severity, fingerprint

from ..window.fault_kinds import (
    LINKS_LOST,
    LINKS_SLOWER,
    POWER_LOST,
    POWER_SHORT,
    ROOM_LOST,
    ROOM_SHORT,
)
from .causes import is_apart, multi_node


def with_late_causes(
    found: Sequence[Finding], active: Mapping[str, Incident], over: Iterable[Incident]
) -> list[Finding]:
    """Return the findings, where a cause continues the incident of its sign that is open or may return.

    A link that was lost and comes up slower is one problem; so is a power brake whose supply turns out
    to have failed, and a spool that failed before its file system was read as full. A cause with an
    incident of its own keeps it, unless that was a note, and a link that is down is not slower.
    """
    known = {it.fingerprint: it for it in (*over, *active.values())}
    signs = {one.fingerprint: one for one in found}
    said: dict[str, Finding] = {}
    for one in found:
        first = None if one.goes_on or _keeps_its_own(one, known) else _first(one, known)
        sign = None if first is None else signs.get(first.fingerprint)
        if first is None or (sign is not None and one.fault in LINKS_SLOWER):
            continue
        said[one.fingerprint] = _goes_on(one, first, sign)
        if sign is not None:
            said[sign.fingerprint] = said[one.fingerprint]
    left = (said.get(one.fingerprint, one) for one in found)
    return list({one.fingerprint: one for one in left}.values())


def _keeps_its_own(one: Finding, known: Mapping[str, Incident]) -> bool:
    """Tell whether a cause has an incident of its own; a graver one gives up a note."""
    own = known.get(one.fingerprint)
    was_note = own is not None and own.severity is Severity.INFO
    return own is not None and not (was_note and one.severity is not Severity.INFO)


def _first(one: Finding, known: Mapping[str, Incident]) -> Incident | None:
    """Return the incident of the cause's sign at the same place; None for a note, a rack's, or none."""
    before = LINKS_LOST if one.fault in LINKS_SLOWER else frozenset[str]()
    before |= POWER_SHORT if one.fault in POWER_LOST else frozenset()
    before |= ROOM_SHORT if one.fault in ROOM_LOST else frozenset()
    signs = (known.get(fingerprint(fault, one.subject)) for fault in sorted(before))
    grave = (it for it in signs if it is not None and it.severity is not Severity.INFO)
    told = (it for it in grave if _is_severe_enough(one, it))
    return next((it for it in told if not (multi_node(it) or is_apart(one, it))), None)


def _is_severe_enough(one: Finding, sign: Incident) -> bool:
    """Tell whether a cause explains its sign: some do not as a note, unless they have already."""
    explains = FAULTS[one.fault].explains
    needs = explains is not None and explains.unless_note and one.severity is Severity.INFO
    return not needs or sign.condition == one.fault


def _goes_on(one: Finding, first: Incident, sign: Finding | None) -> Finding:
    """Return the cause as a continuation, with the evidence and the severity of a sign found beside it."""
    condition = one.condition or one.fault  # as it began, it would be called another fault
    goes_on = replace(one, goes_on=first.fingerprint, condition=condition)
    if sign is None:
        return goes_on
    gravest = min(one.severity, sign.severity, key=lambda it: it.rank)
    return replace(goes_on, severity=gravest, evidence=(*one.evidence, *sign.evidence))
