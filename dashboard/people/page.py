"""Draw the page of users and teams: thin glue between the hub and Streamlit."""

import streamlit as st

from accounting.cost.example import of_cluster
from gpuvigil.errors import HubError, StoreError
from gpuvigil.web.markup import joined, tag

from ..components import style
from ..data import live
from ..layout import panels
from ..layout.tree import show
from .address import Asked
from .drawing import page
from .hub_queries import everybody
from .money import Money

# Usage is counted by quarters of an hour, so answers stay fresh for this long for all sessions.
# The page shows at once; missing answers come with a refresh.
FRESH_SECONDS, FIRST_SECONDS = 120.0, 1.0
RENEWED_SECONDS = 5.0


def draw() -> None:
    """Draw the whole page, which refreshes as one."""
    style("incidents")
    st.fragment(_live, run_every=max(RENEWED_SECONDS, live.refresh_seconds()))()


def _live() -> None:
    view, shared = live.current().view(), live.shared()
    asked = Asked.of(st.query_params.to_dict())
    title = tag("h1", asked.title, class_="gv-page")
    try:
        said = shared.questions.ask(
            ("people", asked.last),
            lambda hub: everybody(hub, shared.config.cost, asked.span),
            FRESH_SECONDS,
            first_seconds=FIRST_SECONDS,
        )
    except (HubError, StoreError) as error:
        unknown = panels.notes([live.unanswered("Usage is not known", error)])
        st.html(joined(title, panels.warnings(view), unknown))
        return
    late = live.outdated("everything below is", said)
    st.html(joined(title, panels.warnings(view), panels.notes(late)))
    prices = {one.cluster: of_cluster(shared.config.cost, one.cluster) for one in said.value}
    money = {name: Money(currency=it.currency) for name, it in prices.items() if it}
    show("people", *page(said.value, asked, money))
