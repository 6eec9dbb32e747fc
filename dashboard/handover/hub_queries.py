"""What a handover asks the hub: a shift's records, each kind once."""

from datetime import datetime, timedelta

from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import STANDING
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

_STANDING = sorted(state.value for state in STANDING)
_OVER = ("resolved", "dismissed")
# What ended in the shift may have begun long before it; more than these end in no shift.
_MOST_OVER = 2_000


def records(hub: Hub, end: datetime) -> Records:
    """What was written up to the end of the shift, as far back as it reaches."""
    start = end - SHIFT
    standing = hub.records(RecordKind.INCIDENT, states=_STANDING)
    over = hub.records(RecordKind.INCIDENT, states=_OVER, limit=_MOST_OVER)
    incidents = {one.id: one for one in readable([*over, *standing], Incident.from_record)}

    def since(kind: RecordKind) -> tuple[Record, ...]:
        # `at` of these is when they were written; a second more, since `until` is exclusive.
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
