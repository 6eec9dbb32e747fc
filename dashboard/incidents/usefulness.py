"""The vote on whether an incident was worth a message, also after it is over."""

import streamlit as st

from gpuvigil.clock import SystemClock
from gpuvigil.config.tuning import tried_on_the_past
from gpuvigil.errors import HubError
from gpuvigil.model import Incident, Opinion

from ..data import live
from ..layout import own_name
from ..layout.tree import el, show


def counted(incident: Incident, useful: bool) -> str:
    """Return the thanks for a vote; for noise also the command that tries another limit on the past."""
    said = f"Thank you: counted as {'useful' if useful else 'noise'} for the rule {incident.fault}."
    command = "" if useful else tried_on_the_past(incident.fault)
    return f"{said} What another limit would have raised says: {command}" if command else said


def form(incident: Incident) -> None:
    """Draw the question with two answers, and the result of voting."""
    if not live.shared().may_change:
        return
    with st.form(f"worth-{incident.id}", border=False):
        asked, yes, no = own_name.row(f"says-{incident.id}", 3, 1.4, 1.4, label="Voted by")
        asked.markdown("Was this alert useful?")
        for column, label, useful in ((yes, "Useful", True), (no, "Noise", False)):
            column.form_submit_button(
                label,
                key=f"worth-{label}-{incident.id}",
                width="stretch",
                on_click=_send,
                args=(incident, useful),
            )
    said = st.session_state.get(f"worth-said-{incident.id}")
    show(f"worth-{incident.id}", el("p", said, class_="empty", role="status") if said else None)


def _send(incident: Incident, useful: bool) -> None:
    state = st.session_state
    by = own_name.typed(f"says-{incident.id}")
    if not by:
        state[f"worth-said-{incident.id}"] = "Not counted: enter your name first."
        return
    record = Opinion.given(incident, by, useful=useful, at=SystemClock().now()).to_record()
    try:
        live.shared().questions.call(lambda hub: hub.write_records([record]))
    except HubError as error:
        state[f"worth-said-{incident.id}"] = f"Not sent: {error}. Send it again."
        return
    own_name.keep(by)
    state[f"worth-said-{incident.id}"] = counted(incident, useful)
