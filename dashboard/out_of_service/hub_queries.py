"""The query to the hub for the page of nodes that are out of service."""

from collections.abc import Iterable

from gpuvigil.config import AnalyzerSettings
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.model import (
    Acceptance,
    Incident,
    Inventory,
    NodeAction,
    RecordKind,
    Rma,
    Scheduler,
    readable,
)
from gpuvigil.schedulers.out_of_service import Checks

from .rows import OutOfServiceRecords

_ACTIVE = sorted(state.value for state in ACTIVE)
_MOST = 100_000


def known(
    hub: Hub, inventories: Iterable[Inventory], settings: AnalyzerSettings
) -> OutOfServiceRecords:
    """Return all records that say why nodes take no jobs, without those of the selftest."""
    found = readable(hub.records(RecordKind.INCIDENT, states=_ACTIVE), Incident.from_record)
    accepted = readable(hub.records(RecordKind.ACCEPTANCE, limit=_MOST), Acceptance.from_record)
    return OutOfServiceRecords(
        inventories=tuple(one for one in inventories if not one.subject.marked),
        schedulers=tuple(readable(hub.records(RecordKind.SCHEDULER), Scheduler.from_record)),
        incidents=tuple(one for one in found if not one.marked),
        rmas=tuple(readable(hub.records(RecordKind.RMA), Rma.from_record)),
        acceptances={one.node.key: one for one in accepted},
        actions=tuple(readable(hub.records(RecordKind.ACTION), NodeAction.from_record)),
        checks=Checks.of(settings),
    )
