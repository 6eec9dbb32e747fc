"""When an incident was raised, by its id."""

from datetime import datetime, timezone
from functools import lru_cache

from gpuvigil.model import Incident


def raised_at(incident: Incident) -> datetime:
    """Return when an incident was opened, or came back; its fault may have begun before."""
    opened = _opened_at(incident.id)
    return incident.since if opened is None else max(opened, incident.since)


# Cached, as each look asks for it for every active incident.
@lru_cache(maxsize=65_536)
def _opened_at(identifier: str) -> datetime | None:
    """Return when an incident was opened, by its id; None if the id does not tell."""
    opened = identifier.rpartition("-")[2]
    try:
        return datetime.strptime(opened, "%Y%m%dT%H%M%S%fZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
