"""Draws the page of the network: thin glue between the hub and Streamlit."""

from datetime import datetime

import streamlit as st

from gpuvigil.config import Config
from gpuvigil.errors import HubError
from gpuvigil.hub_client import Hub
from gpuvigil.web.markup import joined, tag

from ..components import style
from ..data import live
from ..data.snapshot import Snapshot
from ..layout import panels
from ..layout.tree import show
from ..lists.fleet_now import on_pages
from ..lists.network import Network, look
from . import link
from .drawing import MOST_ROWS, page

# The store is asked for minutes of every port: not more often than this for all who look.
FRESH_SECONDS = 20.0
FIRST_SECONDS = 20.0


def draw() -> None:
    """The whole page; it renews itself as one."""
    style("incidents")
    st.fragment(_live, run_every=5 * live.refresh_seconds())()


def network(hub: Hub, snapshot: Snapshot, config: Config) -> tuple[datetime, Network]:
    """The network, and when; HubError or StoreError where the hub or the store does not answer."""
    moment = on_pages(hub, snapshot, config.analyzer)
    return moment.now, look(hub, moment, MOST_ROWS)


def _live() -> None:
    title = tag("h1", "Network ", tag("small", "which link, and whose job"), class_="gv-page")
    snapshot, config = live.current(), live.shared().config
    view = snapshot.view()
    try:
        said = live.shared().questions.ask(
            "network",
            lambda hub: network(hub, snapshot, config),
            FRESH_SECONDS,
            first_seconds=FIRST_SECONDS,
        )
    except HubError as error:
        unknown = panels.notes([f"How the network is is not known: {error}"])
        st.html(joined(title, panels.banners(view.warnings), unknown))
        return
    now, found = said.value
    late = live.outdated("everything below is", said)
    st.html(joined(title, panels.banners(view.warnings), panels.notes(late)))
    asked = st.query_params.get("link")
    show("network", *(page(found, now) if asked is None else link.page(found, asked, now)))
