"""The return of a part to its manufacturer, on a hardware incident: its steps, and a form for the next."""

import streamlit as st

from accounting.hardware.returns import LONGEST_NOTE, can_be_returned, step, step_line
from gpuvigil.clock import SystemClock, moment, to_text
from gpuvigil.errors import HubError
from gpuvigil.model import Incident, RmaState

from ..data import live
from ..layout import own_name
from ..layout.tree import Node, el, show
from ..layout.typed_text import cleaned
from .hub_queries import Story

_WORDS = {
    RmaState.OPEN: "Case open",
    RmaState.SHIPPED: "Shipped",
    RmaState.REPLACED: "Replaced",
}


def form(story: Story, key: tuple[str, str]) -> None:
    """Draw the steps so far and the form for the next one; nothing for faults without a return."""
    incident = story.incident
    if not can_be_returned(incident):
        return
    show(f"rma-steps-{incident.id}", _steps(story))
    if not live.shared().may_change:
        return
    with st.form(f"rma-{incident.id}", border=False):
        right, *ends = own_name.row(f"rma-by-{incident.id}", 3, 1.3, 1.1, 1.2, label="Recorded by")
        right.text_input(
            "Return to the maker: case, tracking number",
            key=f"rma-note-{incident.id}",
            max_chars=LONGEST_NOTE,
        )
        for column, (chosen, word) in zip(ends, _WORDS.items(), strict=True):
            column.form_submit_button(
                word,
                key=f"rma-{chosen.value}-{incident.id}",
                width="stretch",
                on_click=_send,
                args=(incident, chosen, key),
            )
    told = st.session_state.get(f"rma-said-{incident.id}")
    show(f"rma-said-{incident.id}", el("p", told, class_="empty", role="status") if told else None)


def _steps(story: Story) -> Node | None:
    if not story.rma:
        return None
    rows = (
        el("li", el("time", moment(one.at), datetime=to_text(one.at)), el("div", step_line(one)))
        for one in story.rma
    )
    return el("section", el("h3", "Return to the maker"), el("ol", *rows, class_="timeline"))


def _send(incident: Incident, chosen: RmaState, key: tuple[str, str]) -> None:
    state = st.session_state
    by = own_name.typed(f"rma-by-{incident.id}")
    note = cleaned(state.get(f"rma-note-{incident.id}", ""), LONGEST_NOTE)
    if not by:
        state[f"rma-said-{incident.id}"] = "Not saved: enter your name first."
        return
    record = step(incident, chosen, by, note, SystemClock().now()).to_record()
    try:
        live.shared().questions.call(lambda hub: hub.write_records([record]))
    except HubError as error:
        state[f"rma-said-{incident.id}"] = f"Not sent: {error}. Send it again."
        return
    own_name.keep(by)
    state[f"rma-said-{incident.id}"] = f"Saved: {_WORDS[chosen].lower()}, by {by}."
    live.shared().questions.forget(key)
