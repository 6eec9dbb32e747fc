"""Draws the page of GPUs that are held and do little: thin glue between the hub and Streamlit."""

import streamlit as st

from gpuvigil.errors import HubError
from gpuvigil.web.markup import joined, tag

from ..components import style
from ..data import live
from ..layout import panels
from ..layout.tree import show
from .drawing import page
from .hub_queries import Tables, tables

# The store is asked for an hour of every GPU: not more often than this for all who look.
FRESH_SECONDS = 60.0
FIRST_SECONDS = 20.0


def draw() -> None:
    """The whole page; it renews itself as one."""
    style("incidents")
    st.fragment(_live, run_every=5 * live.refresh_seconds())()


def _live() -> None:
    title = tag("h1", "Efficiency ", tag("small", "held GPUs that do little"), class_="gv-page")
    snapshot, config = live.current(), live.shared().config
    view = snapshot.view()
    try:
        said = live.shared().questions.ask(
            "efficiency",
            lambda hub: tables(hub, snapshot, config),
            FRESH_SECONDS,
            first_seconds=FIRST_SECONDS,
        )
    except HubError as error:
        unknown = panels.notes([f"How GPUs are used is not known: {error}"])
        st.html(joined(title, panels.banners(view.warnings), unknown))
        return
    found: Tables = said.value
    late = live.outdated("everything below is", said)
    st.html(joined(title, panels.banners(view.warnings), panels.notes(late)))
    show("efficiency", *page(found))
