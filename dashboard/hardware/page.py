"""Draw the page of hardware: thin glue between the snapshot, the hub and Streamlit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import streamlit as st

from accounting.hardware.repeat_offenders import SPAN, Failure, failures, offenders
from accounting.hardware.returns import newest
from gpuvigil.errors import HubError
from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, RecordKind, Rma, readable, with_kind
from gpuvigil.web.markup import joined, tag

from ..components import style
from ..data import live
from ..data.offenders import MOST_INCIDENTS
from ..layout import panels
from ..layout.tree import show
from .drawing import Shown, page
from .summary import Matrix, matrix, racks

# A month of incidents is asked for rarely, once for all sessions.
# The page shows at once; missing answers come with a refresh.
FRESH_SECONDS, FIRST_SECONDS = 120.0, 1.0
RENEWED_SECONDS = 5.0
_MOST_RMA = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The failures of 30 days and the returns of parts."""

    failures: Sequence[Failure] = ()
    rmas: Sequence[Rma] = ()


def failed(hub: Hub, now: datetime) -> Failed:
    """Ask the hub for failures and returns, once for all sessions."""
    records = hub.records(RecordKind.INCIDENT, since=now - SPAN, limit=MOST_INCIDENTS)
    steps = readable(hub.records(RecordKind.RMA, limit=_MOST_RMA), Rma.from_record)
    return Failed(
        failures=failures(readable(records, Incident.from_record)),
        rmas=tuple(newest(steps).values()),
    )


def draw() -> None:
    """Draw the whole page, which refreshes as one."""
    style("incidents")
    st.fragment(_live, run_every=max(RENEWED_SECONDS, live.refresh_seconds()))()


def _live() -> None:
    snapshot = live.current()
    view, rack = snapshot.view(), st.query_params.get("rack", "")[:200]
    cluster = st.query_params.get("cluster", "")
    try:
        said = live.shared().questions.ask(
            "hardware",
            lambda hub: failed(hub, view.now),
            FRESH_SECONDS,
            first_seconds=FIRST_SECONDS,
        )
        found, notes, known = said.value, live.outdated("what failed is", said), True
    except HubError as error:
        found, notes, known = Failed(), [live.unanswered("What failed is not known", error)], False
    title = tag("h1", with_kind("Rack", rack) if rack else "Hardware", class_="gv-page")
    st.html(joined(title, panels.warnings(view), panels.notes(notes)))
    told = {one.subject: one.rack for one in snapshot.inventories().values() if one.rack}
    active = [item.incident for item in view.attention]
    shown = Shown(
        now=view.now,
        errors=matrix(found.failures, {(it.cluster, it.node): name for it, name in told.items()})
        if found.failures
        else Matrix(places=(), rows=(), more=0),
        offenders=offenders(found.failures, view.now),
        returns=found.rmas,
        racks=[
            it
            for one in view.clusters
            if cluster in {"", one.name}
            for it in racks(one, told, active, rack)
        ],
        rack=rack,
        known=known,
    )
    show("hardware", *page(shown))
