"""Links that were bad, or had a bad module, and are lost now: one incident, which grows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpuvigil.faults import FAULTS
from gpuvigil.model import SWITCH_DEVICE, Finding, Incident, Subject

from ..window.fault_kinds import (
    BAD_LINKS,
    LINKS_DOWN,
    LINKS_LOST,
    MODULES_BAD,
    WORN_LINKS,
)
from .causes import multi_node


def grown(found: Sequence[Finding], active: Mapping[str, Incident]) -> list[Finding]:
    """Let a lost link continue the active incident of the bad link, in the lost link's words.

    Whoever was told of errors hears that the link is gone or that its module is to blame, and later
    once that all is over. A finding with an incident of its own keeps it.
    """
    bad, worn = _links(active, BAD_LINKS | MODULES_BAD), _links(active, WORN_LINKS)
    said_of = {**dict.fromkeys(LINKS_LOST, bad), **dict.fromkeys(MODULES_BAD, worn)}
    graver = [
        one
        for one in sorted(found, key=_graver_first)
        if one.fingerprint not in active and one.subject in said_of.get(one.fault, ())
    ]
    if not graver:
        return list(found)
    modules = {one.subject: one for one in found if one.fault in MODULES_BAD}
    named: dict[Subject, Finding] = {}
    for one in graver:
        stands = said_of[one.fault][one.subject]
        named.setdefault(one.subject, _goes_on(_of_module(one, modules), stands))
    said = {one.fingerprint for one in (*named.values(), *graver)}
    return [*(one for one in found if one.fingerprint not in said), *named.values()]


def _graver_first(one: Finding) -> tuple[bool, bool]:
    """Sort flapping before being down now, and both before the state of the module."""
    return one.fault in MODULES_BAD, one.fault in LINKS_DOWN


def _links(active: Mapping[str, Incident], faults: Iterable[str]) -> Mapping[Subject, Incident]:
    """Return each port's oldest such incident about its link; a host's also by the switch's end."""
    found: dict[Subject, Incident] = {}
    for it in sorted(active.values(), key=lambda it: (it.since, it.id)):
        if it.fault in faults and it.subject.kind == "port":
            ends = {it.subject, *map(Subject.parse, it.members)}
            one_cable = it.subject.device == SWITCH_DEVICE and len(ends) == len(("host", "switch"))
            for end in ends if one_cable else () if multi_node(it) else (it.subject,):
                found.setdefault(end, it)
    return found


def _of_module(one: Finding, modules: Mapping[Subject, Finding]) -> Finding:
    """Return a lost link with the action and evidence of its bad module, if it has one."""
    module = modules.get(one.subject)
    if module is None or module.fault == one.fault:
        return one
    return replace(one, action=module.action, evidence=(*one.evidence, *module.evidence))


def _goes_on(one: Finding, bad: Incident) -> Finding:
    moved = () if one.subject == bad.subject else (one.subject,)
    return replace(
        one,
        fault=bad.fault,
        subject=bad.subject,
        members=(*moved, *(it for it in one.members if it != bad.subject)),
        title=one.title or FAULTS[one.fault].title,
        condition=one.fault,
    )
