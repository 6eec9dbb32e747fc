"""The queries of a handover to the hub: the records of a shift, one query for each kind."""

from datetime import datetime, timedelta

from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.model import (
    Acceptance,
    Acknowledgement,
    Incident,
    NodeAction,
    Record,
    RecordKind,
    Retirement,
    Rma,
    Silence,
    readable,
)
from gpuvigil.model.annotation import Annotation

from .summary import SHIFT, Records

_ACTIVE = sorted(state.value for state in ACTIVE)
_OVER = ("resolved", "dismissed")
# Incidents that ended in the shift may have begun long before; no shift has more ends than this.
_MOST_OVER = 2_000


def records(hub: Hub, end: datetime) -> Records:
    """Return the records of the shift that ends at `end`, and all open incidents."""
    start = end - SHIFT
    active = hub.records(RecordKind.INCIDENT, states=_ACTIVE)
    over = hub.records(RecordKind.INCIDENT, states=_OVER, limit=_MOST_OVER)
    incidents = {one.id: one for one in readable([*over, *active], Incident.from_record)}

    def since(kind: RecordKind) -> tuple[Record, ...]:
        # `at` of these kinds is when they were written. `until` is exclusive, hence a second more.
        return hub.records(kind, since=start, until=end + timedelta(seconds=1))

    return Records(
        incidents=tuple(incidents.values()),
        acknowledgements=tuple(
            readable(since(RecordKind.ACKNOWLEDGEMENT), Acknowledgement.from_record)
        ),
        actions=tuple(readable(since(RecordKind.ACTION), NodeAction.from_record)),
        rmas=tuple(readable(since(RecordKind.RMA), Rma.from_record)),
        acceptances=tuple(readable(since(RecordKind.ACCEPTANCE), Acceptance.from_record)),
        retirements=tuple(readable(since(RecordKind.RETIREMENT), Retirement.from_record)),
        annotations=tuple(readable(since(RecordKind.ANNOTATION), Annotation.from_record)),
        silences=tuple(readable(hub.records(RecordKind.SILENCE), Silence.from_record)),
    )
