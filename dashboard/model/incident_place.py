"""Where an incident is: its nodes, its rack, and the page of what it is about; pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache

from gpuvigil.faults import FAULTS
from gpuvigil.faults.relations import Shared
from gpuvigil.model import GroupKind, Incident, Inventory, Subject
from gpuvigil.web import page_links

Inventories = Mapping[Subject, Inventory]
# The end of a link's window moves in steps, so that the link stays the same while somebody reads.
_STEP_SECONDS = 300


def members(incident: Incident) -> list[Subject]:
    """Return the incident's subject and members, sorted; members that cannot be parsed are left out."""
    return sorted(_subjects(incident.subject, incident.members))


# A list is drawn every few seconds, and an incident of a whole cluster has very many members.
@lru_cache(maxsize=1_024)
def node_names(subject: Subject, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of all nodes and switches of an incident with these members, sorted."""
    return tuple(sorted({one.node for one in _subjects(subject, keys)}))


def _subjects(subject: Subject, keys: Iterable[str]) -> set[Subject]:
    found = {subject}
    for key in keys:
        try:
            found.add(Subject.parse(key))
        except ValueError:
            continue
    return found


def rack_of(incident: Incident, inventories: Inventories) -> str:
    """Return the rack that the incident is about, as its nodes call it; empty for anything else."""
    known = inventories.get(incident.subject.of_node())
    own = (known.rack if known is not None else "") or ""
    if incident.group is not None:
        # A file that maps racks may write them in other letters.
        return (own or incident.group.name) if incident.group.kind is GroupKind.RACK else ""
    row = FAULTS.get(incident.fault)
    shared = row is not None and row.shared is Shared.RACK
    return own if shared and len(node_names(incident.subject, incident.members)) > 1 else ""


def link_end(incident: Incident, now: datetime) -> datetime:
    """Return up to when links from an incident show what it is about."""
    step = timedelta(seconds=_STEP_SECONDS - now.timestamp() % _STEP_SECONDS)
    return incident.resolved_at or now + step


def place_page(incident: Incident, until: datetime, inventories: Inventories) -> str:
    """Return the page of its rack, or of its GPU, node, port or switch with a margin around `until`."""
    rack = rack_of(incident, inventories)
    if rack:
        return page_links.rack_page(incident.subject.cluster, rack)
    return page_links.around(incident.subject, incident.since, until)
