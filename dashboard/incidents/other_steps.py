"""Handing an incident over, closing it as false, and taking it along: forms and files."""

from collections.abc import Callable

import streamlit as st

from gpuvigil.clock import SystemClock
from gpuvigil.errors import HubError
from gpuvigil.model import Incident, Record

from ..data import live
from ..layout.tree import el, show
from .acknowledgement import LONGEST_NOTE
from .closing import false_alarm, handed_over
from .hub_queries import Story
from .typed_text import LONGEST_NAME, cleaned

_NAME = "own_name"


def form(incident: Incident, key: tuple[str, str]) -> None:
    """Who gives it to whom, or says that it is none."""
    shared, state, name = live.shared(), st.session_state, f"gives-{incident.id}"
    if not shared.may_change:
        return
    state.setdefault(name, shared.own_name or state.get(_NAME, ""))
    with st.form(f"give-{incident.id}", border=False):
        who, to, why, give, close = st.columns([2, 2, 3, 1.3, 1.5], vertical_alignment="bottom")
        who.text_input(
            "Given or closed by",
            key=name,
            max_chars=LONGEST_NAME,
            disabled=bool(shared.own_name),
        )
        to.text_input("Hand over to", key=f"to-{incident.id}", max_chars=LONGEST_NAME)
        why.text_input("Why", key=f"why-{incident.id}", max_chars=LONGEST_NOTE)
        for column, label, act in ((give, "Hand over", _give), (close, "Close as false", _close)):
            column.form_submit_button(
                label,
                key=f"{label}-{incident.id}",
                width="stretch",
                on_click=act,
                args=(incident, key),
            )
    said = state.get(f"given-{incident.id}")
    show(f"given-{incident.id}", el("p", said, class_="empty", role="status") if said else None)


def files(story: Story, markdown: Callable[[], str], as_json: Callable[[], str]) -> None:
    """The same as Markdown for a ticket and as JSON; made when somebody asks for it."""
    one = story.incident
    left, right, _ = st.columns([1.3, 1.1, 4])
    for column, label, ending, made in (
        (left, "Export Markdown", "md", markdown),
        (right, "Export JSON", "json", as_json),
    ):
        column.download_button(
            label,
            data=made,
            file_name=f"{one.id}.{ending}",
            key=f"export-{ending}-{one.id}",
            on_click="ignore",
            width="stretch",
        )


def _typed(incident: Incident) -> tuple[str, str, str]:
    def text(name: str, longest: int) -> str:
        return cleaned(st.session_state.get(f"{name}-{incident.id}", ""), longest)

    # Who has a name votes by it, whatever the field holds.
    by = live.shared().own_name or text("gives", LONGEST_NAME)
    return by, text("to", LONGEST_NAME), text("why", LONGEST_NOTE)


def _give(incident: Incident, key: tuple[str, str]) -> None:
    by, to, why = _typed(incident)
    if not by or not to:
        _say(incident, "Nothing was sent: write your name and who takes it over.")
        return
    record = handed_over(incident, by, to, why, SystemClock().now()).to_record()
    _write(incident, key, by, [record], f"Handed over to {to}.")


def _close(incident: Incident, key: tuple[str, str]) -> None:
    by, _, why = _typed(incident)
    if not by:
        _say(incident, "Nothing was sent: write your name first.")
        return
    records = false_alarm(incident, by, why, SystemClock().now())
    said = "Counted as a false alarm and muted here for 7 days; Silences ends that."
    _write(incident, key, by, records, said)


def _write(
    incident: Incident, key: tuple[str, str], by: str, records: list[Record], said: str
) -> None:
    try:
        live.shared().questions.tell(lambda hub: hub.write_records(records))
    except HubError as error:
        _say(incident, f"Not sent: {error}. Send it again.")
        return
    st.session_state[_NAME] = by
    _say(incident, said)
    live.shared().questions.forget(key)


def _say(incident: Incident, said: str) -> None:
    st.session_state[f"given-{incident.id}"] = said
