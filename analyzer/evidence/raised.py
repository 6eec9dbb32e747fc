"""When an incident was raised, as its id says."""

from datetime import datetime, timezone
from functools import lru_cache

from gpuvigil.model import Incident


def raised_at(incident: Incident) -> datetime:
    """When it was opened, or came back; its fault may have begun before."""
    opened = _opened_at(incident.id)
    return incident.since if opened is None else max(opened, incident.since)


# Asked of everything that stands, at each look.
@lru_cache(maxsize=65_536)
def _opened_at(identifier: str) -> datetime | None:
    """When an incident was opened, as its id says; None where an id does not."""
    opened = identifier.rpartition("-")[2]
    try:
        return datetime.strptime(opened, "%Y%m%dT%H%M%S%fZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
