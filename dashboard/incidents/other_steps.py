"""Forms to hand an incident over or close it as false, and files to export it."""

from collections.abc import Callable

import streamlit as st

from gpuvigil.clock import SystemClock
from gpuvigil.errors import HubError
from gpuvigil.model import Incident, Record

from ..data import live
from ..layout import own_name
from ..layout.tree import el, show
from ..layout.typed_text import LONGEST_NAME, cleaned
from .acknowledgement import LONGEST_NOTE
from .closing import false_alarm, handed_over
from .hub_queries import Story


def form(incident: Incident, key: tuple[str, str]) -> None:
    """Draw the form to hand the incident over or close it as false."""
    if not live.shared().may_change:
        return
    with st.form(f"give-{incident.id}", border=False):
        to, why, give, close = own_name.row(
            f"gives-{incident.id}", 2, 3, 1.3, 1.5, label="Handed over or closed by"
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
    said = st.session_state.get(f"given-{incident.id}")
    show(f"given-{incident.id}", el("p", said, class_="empty", role="status") if said else None)


def files(story: Story, markdown: Callable[[], str], as_json: Callable[[], str]) -> None:
    """Draw buttons that export the incident as Markdown and as JSON, made on demand."""
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

    by = own_name.typed(f"gives-{incident.id}")
    return by, text("to", LONGEST_NAME), text("why", LONGEST_NOTE)


def _give(incident: Incident, key: tuple[str, str]) -> None:
    by, to, why = _typed(incident)
    if not by or not to:
        _show_result(incident, "Not sent: enter your name and who takes it over.")
        return
    record = handed_over(incident, by, to, why, SystemClock().now()).to_record()
    _write(incident, key, by, [record], f"Handed over to {to}.")


def _close(incident: Incident, key: tuple[str, str]) -> None:
    by, _, why = _typed(incident)
    if not by:
        _show_result(incident, "Not sent: enter your name first.")
        return
    records = false_alarm(incident, by, why, SystemClock().now())
    said = "Counted as a false alarm and muted here for 7 days. End that on Silences."
    _write(incident, key, by, records, said)


def _write(
    incident: Incident, key: tuple[str, str], by: str, records: list[Record], result: str
) -> None:
    try:
        live.shared().questions.call(lambda hub: hub.write_records(records))
    except HubError as error:
        _show_result(incident, f"Not sent: {error}. Send it again.")
        return
    own_name.keep(by)
    _show_result(incident, result)
    live.shared().questions.forget(key)


def _show_result(incident: Incident, result: str) -> None:
    st.session_state[f"given-{incident.id}"] = result
