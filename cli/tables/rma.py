"""`gpuvigil rma`: parts on their way back to the manufacturer, and how far each return is."""

from collections.abc import Sequence
from datetime import datetime

from accounting.hardware.returns import can_be_returned, newest, step
from dashboard.lists.table import Column, Grid, length
from gpuvigil.clock import moment
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, RecordKind, Rma, RmaState, readable

_MOST = 20_000

COLUMNS = (
    Column(key="state", title="STATE"),
    Column(key="for_seconds", title="FOR", show=length, right=True),
    Column(key="node", title="NODE", flexible=True),
    Column(key="serial", title="SERIAL", flexible=True),
    Column(key="slot", title="SLOT", flexible=True),
    Column(key="by", title="BY", flexible=True),
    Column(key="note", title="NOTE", flexible=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
    Column(key="incident", title="INCIDENT", flexible=True),
)
_FOR_PEOPLE = 8


def listed(hub: Hub, cluster: str | None, *, everything: bool, now: datetime) -> Grid:
    """Return a row per open return, longest in its state first; with `everything` also finished ones."""
    steps = readable(hub.records(RecordKind.RMA, limit=_MOST), Rma.from_record)
    found = sorted(newest(steps).values(), key=lambda one: (one.at, one.incident))
    rows = [
        (
            one.state.value,
            now - one.at,
            one.subject.node,
            one.serial,
            one.slot,
            one.by,
            one.note,
            one.subject.cluster,
            one.incident,
        )
        for one in found
        if (everything or one.state is not RmaState.REPLACED)
        and cluster in {None, one.subject.cluster}
    ]
    return Grid(
        columns=COLUMNS,
        rows=rows,
        for_people=_FOR_PEOPLE,
        empty="No part is on its way back to its maker.",
    )


def shown(hub: Hub, identifier: str) -> Grid:
    """Return what a manufacturer asks for about an incident, and the return's steps with who and when."""
    incident = _incident(hub, identifier)
    steps = _steps(hub, incident)
    rows = [(item.name, item.value) for item in incident.evidence]
    rows += [
        (one.state.value, ", ".join(filter(None, (f"{moment(one.at)} by {one.by}", one.note))))
        for one in steps
    ]
    return Grid(
        columns=(
            Column(key="what", title="WHAT"),
            Column(key="value", title="VALUE", flexible=True),
        ),
        rows=rows,
        head=[f"{incident.label or incident.subject.key}: {incident.title}"],
        notes=[] if steps else ["No return was opened for it: gpuvigil rma INCIDENT open"],
    )


def record_step(
    hub: Hub, identifier: str, state: RmaState, by: str, note: str, now: datetime
) -> Grid:
    """Record a step of a return and return `shown`; ConfigError for a fault that no manufacturer takes back."""
    incident = _incident(hub, identifier)
    if not can_be_returned(incident):
        raise ConfigError(
            f"{identifier} is {incident.fault}: that is not a part that a maker takes back"
        )
    if not by.strip():
        raise ConfigError("say who you are with --by NAME")
    hub.write_records([step(incident, state, by.strip(), note.strip(), now).to_record()])
    return shown(hub, identifier)


def _incident(hub: Hub, identifier: str) -> Incident:
    record = hub.record(RecordKind.INCIDENT, identifier)
    found = next(readable([record] if record else [], Incident.from_record), None)
    if found is None:
        raise ConfigError(
            f"the hub knows no incident {identifier!r}; 'gpuvigil status' lists the open ones"
        )
    return found


def _steps(hub: Hub, incident: Incident) -> Sequence[Rma]:
    steps = readable(hub.records(RecordKind.RMA, parent=incident.id), Rma.from_record)
    return sorted(steps, key=lambda one: one.at)
