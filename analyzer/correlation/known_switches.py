"""The active incident that a finding about a switch continues: its own, or its first port's."""

from collections.abc import Iterable

from gpuvigil.faults import FAULTS
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Finding, Incident


def known_switch(one: Finding, incidents: Iterable[Incident]) -> Incident | None:
    """Return the incident with most of the switch's ports, active ones first, None without one."""
    keys = {one.subject.key, *(member.key for member in one.members)}
    shared = [
        (i.resolved_at is None, len(common), i)
        for i in incidents
        if (common := keys.intersection(i.members))
        and (i.resolved_at is None or i.fault == one.fault)
    ]
    return max(shared, key=lambda it: it[:2])[2] if shared else None


def first_port(one: Finding, incidents: Iterable[Incident]) -> Incident | None:
    """Return the oldest incident of the same detector about one of the switch's ports.

    Incidents with a reason of the port's own do not count. None without one.
    """
    ports, detector = {one.subject, *one.members}, FAULTS[one.fault].detector
    alone = [
        i
        for i in incidents
        if i.subject in ports
        and i.fault in FAULTS
        and FAULTS[i.fault].detector == detector
        and i.condition not in CONDITIONS
        and i.condition not in FAULTS  # by now its own link is lost
    ]
    return min(alone, key=lambda i: (i.since, i.id), default=None)
