"""A cause that is known only after its sign was told: the incident goes on, in the words of the cause."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpuvigil.model import Finding, Incident, Severity, fingerprint

from ..window.fault_kinds import LINKS_LOST, LINKS_SLOWER, POWER_LOST, POWER_SHORT
from .causes import is_apart, spreads


def with_late_causes(
    found: Sequence[Finding], standing: Mapping[str, Incident], over: Iterable[Incident]
) -> list[Finding]:
    """Findings of which a cause goes on as the incident of its sign, which stands or may come back.

    A link that was lost and comes up slower is one matter, as a power brake is whose supply turns out
    to have failed. What has an incident of its own keeps it, and a link that is down is not slower.
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
    """The incident of what it shows first at the same place; neither a note nor a rack's."""
    before = LINKS_LOST if one.fault in LINKS_SLOWER else frozenset[str]()
    before |= POWER_SHORT if one.fault in POWER_LOST else frozenset()
    signs = (known.get(fingerprint(fault, one.subject)) for fault in sorted(before))
    grave = (it for it in signs if it is not None and it.severity is not Severity.INFO)
    return next((it for it in grave if not (spreads(it) or is_apart(one, it))), None)


def _goes_on(one: Finding, first: Incident, sign: Finding | None) -> Finding:
    """What is found of the sign beside it is said with it, and is as grave."""
    condition = one.condition or one.fault  # as it began, it would be called another fault
    goes_on = replace(one, goes_on=first.fingerprint, condition=condition)
    if sign is None:
        return goes_on
    gravest = min(one.severity, sign.severity, key=lambda it: it.rank)
    return replace(goes_on, severity=gravest, evidence=(*one.evidence, *sign.evidence))
