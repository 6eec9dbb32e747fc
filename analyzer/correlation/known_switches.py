"""Under which incident what is found about a switch goes on: its own, or that of the first of its ports."""

from collections.abc import Iterable

from gpuvigil.faults import FAULTS
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Finding, Incident


def standing_switch(one: Finding, stands: Iterable[Incident]) -> Incident | None:
    """The incident with most of its ports; what stands comes before what is over."""
    keys = {one.subject.key, *(member.key for member in one.members)}
    shared = [
        (i.resolved_at is None, len(common), i)
        for i in stands
        if (common := keys.intersection(i.members))
        and (i.resolved_at is None or i.fault == one.fault)
    ]
    return max(shared, key=lambda it: it[:2])[2] if shared else None


def first_port(one: Finding, standing: Iterable[Incident]) -> Incident | None:
    """The oldest incident about one of its ports that the same detector told without a reason of that port's own."""
    ports, detector = {one.subject, *one.members}, FAULTS[one.fault].detector
    alone = [
        i
        for i in standing
        if i.subject in ports
        and i.fault in FAULTS
        and FAULTS[i.fault].detector == detector
        and i.condition not in CONDITIONS
        and i.condition not in FAULTS  # by now its own link is lost
    ]
    return min(alone, key=lambda i: (i.since, i.id), default=None)
