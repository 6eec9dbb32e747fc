"""Draw the page of the network: thin glue between the hub and Streamlit."""

from collections.abc import Sequence
from datetime import datetime

import streamlit as st

from gpuvigil.config import Config
from gpuvigil.hub_client import Hub

from ..data.snapshot import Snapshot
from ..layout import asked_page
from ..layout.tree import Node
from ..lists.fleet_now import on_pages
from ..lists.network import Network, fetch
from . import link
from .drawing import MOST_ROWS, page


def network(hub: Hub, snapshot: Snapshot, config: Config) -> tuple[datetime, Network]:
    """Ask for the network and the time; HubError or StoreError without an answer."""
    moment = on_pages(hub, snapshot, config.analyzer)
    return moment.now, fetch(hub, moment, MOST_ROWS)


def _shown(answer: tuple[datetime, Network]) -> Sequence[Node | None]:
    """Return the whole page, or the page of the link that the address names."""
    now, found = answer
    asked = st.query_params.get("link")
    return page(found, now) if asked is None else link.page(found, asked, now)


PAGE = asked_page.AskedPage(
    key="network",
    title="Network",
    about="which link, and whose job",
    unknown="The state of the network is not known",
    ask=network,
    shown=_shown,
    fresh_seconds=20.0,  # an answer needs minutes of every port from the store
)


def draw() -> None:
    """Draw the whole page, which refreshes as one."""
    asked_page.draw(PAGE)
