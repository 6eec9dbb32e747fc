"""Whether it was worth a message: one person's word on an incident, also when it is over."""

import hashlib
from datetime import datetime

import streamlit as st

from gpuvigil.clock import SystemClock
from gpuvigil.config.tuning import tried_on_the_past
from gpuvigil.errors import HubError
from gpuvigil.model import Incident, Opinion

from ..data import live
from ..layout.tree import el, show
from .typed_text import LONGEST_NAME, cleaned

_NAME = "own_name"


def opinion(incident: Incident, by: str, useful: bool, at: datetime) -> Opinion:
    """What is written; the same person's next word on it replaces it, by whichever page."""
    named = "\0".join((incident.id, by))
    return Opinion(
        id=f"{incident.id}:{hashlib.sha256(named.encode()).hexdigest()[:24]}",
        incident=incident.id,
        fault=incident.fault,
        subject=incident.subject,
        by=by,
        useful=useful,
        at=at,
    )


def counted(incident: Incident, useful: bool) -> str:
    """What is said to whoever answered; to who called it noise also what another limit would do."""
    said = f"Thank you: counted as {'useful' if useful else 'noise'} for the rule {incident.fault}."
    command = "" if useful else tried_on_the_past(incident.fault)
    return f"{said} What another limit would have raised says: {command}" if command else said


def form(incident: Incident) -> None:
    """The question and two answers, and what came of them."""
    shared, state = live.shared(), st.session_state
    if not shared.may_change:
        return
    state.setdefault(f"says-{incident.id}", shared.own_name or state.get(_NAME, ""))
    with st.form(f"worth-{incident.id}", border=False):
        left, yes, no = st.columns([5, 1.4, 1.4], vertical_alignment="bottom")
        left.text_input(
            "Was this alert useful? Voted by",
            key=f"says-{incident.id}",
            max_chars=LONGEST_NAME,
            disabled=bool(shared.own_name),
        )
        for column, label, useful in ((yes, "Useful", True), (no, "Noise", False)):
            column.form_submit_button(
                label,
                key=f"worth-{label}-{incident.id}",
                width="stretch",
                on_click=_send,
                args=(incident, useful),
            )
    said = state.get(f"worth-said-{incident.id}")
    show(f"worth-{incident.id}", el("p", said, class_="empty", role="status") if said else None)


def _send(incident: Incident, useful: bool) -> None:
    state = st.session_state
    by = live.shared().own_name or cleaned(state.get(f"says-{incident.id}", ""), LONGEST_NAME)
    if not by:
        state[f"worth-said-{incident.id}"] = "Not counted: enter your name first."
        return
    record = opinion(incident, by, useful, SystemClock().now()).to_record()
    try:
        live.shared().questions.tell(lambda hub: hub.write_records([record]))
    except HubError as error:
        state[f"worth-said-{incident.id}"] = f"Not sent: {error}. Send it again."
        return
    state[_NAME] = by
    state[f"worth-said-{incident.id}"] = counted(incident, useful)
