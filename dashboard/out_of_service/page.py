"""Draw the page of nodes that are out of service."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from gpuvigil.errors import HubError
from gpuvigil.web import page_links
from gpuvigil.web.markup import joined, tag

from ..components import style
from ..data import live
from ..data.views import FleetView
from ..layout import panels
from ..layout.tree import el, show
from . import drawing
from .hub_queries import known
from .rows import OutOfServiceRecords, Silent, rows, unknown

_SECONDS = 10.0
_PAST = "Not known for the past: which nodes a scheduler had drained. Silent nodes and those stopped by a fault are listed."


def draw() -> None:
    """Draw the whole page, which refreshes as one."""
    style("incidents")
    st.fragment(_live, run_every=max(live.refresh_seconds(), _SECONDS))()


def _live() -> None:
    snapshot, shared = live.current(), live.shared()
    view = snapshot.view()
    try:
        answer = shared.questions.ask(
            "out of service",
            lambda hub: known(hub, snapshot.inventories().values(), shared.config.analyzer),
            _SECONDS,
        )
    except HubError as error:
        title = tag("h1", "Out of service", class_="gv-page")
        st.html(
            joined(
                title, panels.notes([live.unanswered("What is out of service is not known", error)])
            )
        )
        return
    told: OutOfServiceRecords = answer.value
    found = replace(told, silent=silent(view), allocations=snapshot.allocations())
    listed = rows(found)
    not_known = unknown(found) if shared.at is None else [_PAST]
    st.html(
        joined(
            tag("h1", "Out of service", class_="gv-page"),
            panels.warnings(view),
            panels.notes([*live.outdated("this list is", answer), *not_known]),
        )
    )
    show(
        "out-of-service",
        el("p", el("b", drawing.sentence(listed)), key="sentence"),
        *drawing.table(listed, view.now),
        el(
            "p",
            "A node that passed its tests is recorded with gpuvigil node accept NODE --results FILE. ",
            el("a", "Shift handover", href=page_links.HANDOVER),
            class_="sub",
            key="accept",
        ),
    )


def silent(view: FleetView) -> Sequence[Silent]:
    """Return the nodes that are silent now, without those of the selftest."""
    return [
        Silent(node=node.subject, gpus=node.gpu_count, heard_at=node.heard_at)
        for cluster in view.clusters
        for node in cluster.silent_nodes
        if not node.subject.marked
    ]
