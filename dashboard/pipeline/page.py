"""Draw the pipeline page: thin glue between the hub's answers and Streamlit."""

from collections.abc import Sequence
from datetime import timedelta

import streamlit as st

from gpuvigil.errors import HubError
from gpuvigil.web.markup import joined, tag

from ..components import style
from ..data import live
from ..data.questions import AnswerPending
from ..layout import panels
from ..layout.tree import el, show
from . import drawing, in_force
from .hub_queries import Sources, inventories, read, token_list
from .view import pipeline

# How long answers stay fresh for all sessions, as an answer counts rows and covers every node.
FRESH_SECONDS = 5.0
INVENTORY_SECONDS = 30.0
TOKENS_SECONDS = 60.0


def draw() -> None:
    """Draw the whole page, which refreshes as one."""
    style("incidents")
    st.fragment(_live, run_every=live.refresh_seconds())()


def _live() -> None:
    title = tag("h1", "Monitoring ", tag("small", "can the pages be trusted?"), class_="gv-page")
    try:
        ask = live.shared().questions.ask
        allowed = live.shared().config.analyzer.silent_after_seconds
        known = ask("inventories", inventories, INVENTORY_SECONDS).value
        said = ask("pipeline", lambda hub: read(hub, known, allowed), FRESH_SECONDS)
    except AnswerPending as error:
        loading = panels.notes([live.unanswered("", error)])
        st.html(joined(title, panels.warnings(live.current().view()), loading))
        return
    except HubError as error:
        text = f"The pages may be wrong: the state of the pipeline is not known. {error}"
        st.html(joined(title, panels.banners([text])))
        return
    sources: Sources = said.value
    now = sources.now + timedelta(seconds=said.age_seconds)
    banners = []
    if said.error:
        silence = live.current().silence()
        banners = [silence] if silence else live.outdated("everything below is", said)
        now = sources.now
    st.html(joined(title, panels.banners(banners)))
    fleet = live.current().view()
    view = pipeline(sources, now, fleet.clusters)
    show(
        "pipeline",
        None if said.error else drawing.verdict(view),
        drawing.services(view, fleet.rows_at, live.refresh_seconds()),
        drawing.outbox(view.outboxes, now),
        *(drawing.cluster(one, now) for one in view.clusters),
        None if view.clusters else el("p", "No collector has reported yet.", class_="empty"),
    )
    config = live.shared().config
    show(
        "in-force",
        in_force.limits_drawn(in_force.limits(config.analyzer)),
        in_force.channels_drawn(config.alerts),
        in_force.tokens_drawn(_tokens(), now),
    )


def _tokens() -> Sequence[in_force.Token] | None:
    """Return the tokens that the hub has issued; None if it does not say."""
    try:
        said = live.shared().questions.ask("tokens", token_list, TOKENS_SECONDS)
    except HubError:
        return None
    return in_force.tokens(said.value)
