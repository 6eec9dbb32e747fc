"""The form to acknowledge an incident, add a note or silence it; a double click writes only once."""

import hashlib
import secrets
import time
from datetime import datetime

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from gpuvigil.clock import SystemClock, duration
from gpuvigil.errors import HubError
from gpuvigil.model import Acknowledgement, Incident, Record

from ..data import live
from ..layout import own_name
from ..layout.tree import el, show
from ..layout.typed_text import LONGEST_NAME, cleaned
from .closing import SILENCED, silenced
from .story import Assignment, AssignmentState

LONGEST_NOTE = 2_000
# The same text sent again within this time counts as the same click.
SAME_CLICK_SECONDS = 30.0


def acknowledgement(
    incident: Incident, by: str, note: str, form: str, at: datetime
) -> Acknowledgement:
    """Return the record to write; the same text from the same form always has the same ID."""
    by, note = cleaned(by, LONGEST_NAME), cleaned(note, LONGEST_NOTE)
    named = "\0".join((incident.id, form, by, note))
    return Acknowledgement(
        id=f"{incident.id}:{hashlib.sha256(named.encode()).hexdigest()[:24]}",
        incident=incident.id,
        subject=incident.subject,
        by=by,
        note=note,
        at=at,
    )


def form(incident: Incident, hands: Assignment, story_key: tuple[str, str]) -> None:
    """Draw the form while the incident is open, and the error of the last sending."""
    if hands.state is AssignmentState.OVER or not live.shared().may_change:
        return
    first, state = hands.state is AssignmentState.BY_NOBODY, st.session_state
    with st.container(key=f"take-{incident.id}"), st.form(f"taken-{incident.id}", border=False):
        right, end, quiet = own_name.row(f"name-{incident.id}", 4, 1.3, 1.7)
        right.text_input(
            "What you know or are doing about it",
            key=note_key(incident.id),
            max_chars=LONGEST_NOTE,
        )
        for column, label, silence in _buttons((end, quiet), first=first):
            column.form_submit_button(
                label,
                key=f"{'silence' if silence else 'send'}-{incident.id}",
                type="primary" if first and not silence else "secondary",
                width="stretch",
                on_click=_send,
                args=(incident, first, story_key, silence),
            )
    wrong = state.get(f"wrong-{incident.id}")
    show(f"sent-{incident.id}", el("div", wrong, class_="wrong", role="alert") if wrong else None)


def _buttons(
    columns: tuple[DeltaGenerator, DeltaGenerator], *, first: bool
) -> tuple[tuple[DeltaGenerator, str, bool], ...]:
    """Return each button's column, label, and whether it silences."""
    end, quiet = columns
    hours = duration(SILENCED)
    if first:
        return (
            (end, "Acknowledge", False),
            (quiet, f"Acknowledge, silence {hours}", True),
        )
    return (end, "Add note", False), (quiet, f"Silence {hours}", True)


def _send(incident: Incident, first: bool, story_key: tuple[str, str], silence: bool) -> None:
    """Write what the form holds; if that fails, the text stays in the form, with the reason."""
    state = st.session_state
    by = own_name.typed(f"name-{incident.id}")
    note = cleaned(state.get(note_key(incident.id), ""), LONGEST_NOTE)
    state[f"wrong-{incident.id}"] = ""
    if not note and not silence and _just_sent(incident.id):
        return  # the second click of a double click, which meets the empty field of the next note
    if not by or not (note or first or silence):
        missing = "your name" if not by else "a note"
        state[f"wrong-{incident.id}"] = f"Not sent: enter {missing} first."
        return
    records = _records(incident, by, note, taken=first or bool(note), silence=silence)
    try:
        live.shared().questions.call(lambda hub: hub.write_records(records))
    except HubError as error:
        state[f"wrong-{incident.id}"] = (
            f"Not sent: {error}. What you wrote is still here; send it again."
        )
        return
    own_name.keep(by)
    state[f"notes-{incident.id}"] = state.get(f"notes-{incident.id}", 0) + 1
    state[f"kept-{incident.id}"] = time.monotonic()
    live.shared().questions.forget(story_key)


def _records(incident: Incident, by: str, note: str, *, taken: bool, silence: bool) -> list[Record]:
    form_id, now = _form_id(incident.id), SystemClock().now()
    told = [acknowledgement(incident, by, note, form_id, now).to_record()] if taken else []
    return [*told, silenced(incident, by, now, form_id).to_record()] if silence else told


def note_key(incident: str) -> str:
    """Return the key of the note's field, which changes after each note that was sent.

    Clearing a field reaches the browser in one run only; if a refresh of the page overtakes that run, the
    old text stays. A new field is empty in every run.
    """
    return f"note-{incident}-{st.session_state.get(f'notes-{incident}', 0)}"


def _form_id(incident: str) -> str:
    """Return the form's ID, kept for some time after sending, so that a second click has the same ID."""
    state, name = st.session_state, f"form-{incident}"
    sent = state.get(f"kept-{incident}") is not None
    if name not in state or (sent and not _just_sent(incident)):
        state[name] = secrets.token_hex(8)
        state[f"kept-{incident}"] = None
    return str(state[name])


def _just_sent(incident: str) -> bool:
    kept = st.session_state.get(f"kept-{incident}")
    return kept is not None and time.monotonic() - kept <= SAME_CLICK_SECONDS
