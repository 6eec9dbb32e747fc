"""Recently resolved incidents: a job that a fault stopped need not go on when the fault ends."""

from datetime import datetime

from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import Incident, RecordKind, readable

_FIRST, _MOST = 500, 100_000


def active_since(hub: Hub, since: datetime) -> list[Incident]:
    """Return the incidents that stood at any time since then, whenever they began. Errors as `resolved_since`."""
    states = tuple(state.value for state in ACTIVE)
    active = hub.records(RecordKind.INCIDENT, states=states, limit=_MOST)
    return [*readable(active, Incident.from_record), *resolved_since(hub, since)]


def resolved_since(hub: Hub, since: datetime) -> list[Incident]:
    """Return the incidents that were resolved since then, whenever they began.

    The hub returns them in the order in which they were written, which is nearly that of their ends; so the
    query grows until a whole half of the page is older. Raises HubError when the hub does not answer.
    """
    limit = _FIRST
    while True:
        records = hub.records(RecordKind.INCIDENT, states=(State.RESOLVED.value,), limit=limit)
        found = list(readable(records, Incident.from_record))
        older = (one.resolved_at is None or one.resolved_at < since for one in found[: limit // 2])
        if len(records) < limit or limit >= _MOST or all(older):
            return [
                one for one in found if one.resolved_at is not None and one.resolved_at >= since
            ]
        limit = min(8 * limit, _MOST)
