"""A link that was bad and is lost now is one matter, which grows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuvigil.faults import FAULTS
from gpuvigil.model import SWITCH_DEVICE, Finding, Incident, Subject

from ..window.fault_kinds import BAD_LINKS, LINKS_DOWN, LINKS_LOST
from .causes import spreads


def grown(found: Sequence[Finding], standing: Mapping[str, Incident]) -> list[Finding]:
    """Findings of which a lost link goes on as the incident of the bad one that stands, in its own words.

    Whoever was told of errors hears that the link is gone, and once that all is over. What has an
    incident of its own already keeps it.
    """
    bad = _bad_links(standing)
    flaps_first = sorted(found, key=lambda one: one.fault in LINKS_DOWN)
    lost = [
        one
        for one in flaps_first
        if one.fault in LINKS_LOST and one.fingerprint not in standing and one.subject in bad
    ]
    if not lost:
        return list(found)
    named: dict[Subject, Finding] = {}
    for one in lost:
        named.setdefault(one.subject, _goes_on(one, bad[one.subject]))
    said = {one.fingerprint for one in named.values()} | {one.fingerprint for one in lost}
    return [*(one for one in found if one.fingerprint not in said), *named.values()]


def _bad_links(standing: Mapping[str, Incident]) -> Mapping[Subject, Incident]:
    """By port the oldest incident about its link; of a host's port also one by the switch's end."""
    found: dict[Subject, Incident] = {}
    for it in sorted(standing.values(), key=lambda it: (it.since, it.id)):
        if it.fault in BAD_LINKS and it.subject.kind == "port":
            ends = {it.subject, *map(Subject.parse, it.members)}
            one_cable = it.subject.device == SWITCH_DEVICE and len(ends) == len(("host", "switch"))
            for end in ends if one_cable else () if spreads(it) else (it.subject,):
                found.setdefault(end, it)
    return found


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
