"""Whose word it is that a form sends: known by sign-in, and asked for where nobody signs in by name."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ..data import live
from .typed_text import LONGEST_NAME, cleaned

_KEPT = "own_name"  # what was typed last: typed once for all forms of a visit


def row(
    key: str, *widths: float, label: str = "Your name", width: float = 2
) -> list[DeltaGenerator]:
    """A form's row in columns of these widths, after the field for the name where it has to be asked."""
    if live.shared().own_name:
        return list(st.columns(widths, vertical_alignment="bottom"))
    first, *others = st.columns([width, *widths], vertical_alignment="bottom")
    st.session_state.setdefault(key, st.session_state.get(_KEPT, ""))
    first.text_input(label, key=key, max_chars=LONGEST_NAME)
    return others


def typed(key: str) -> str:
    """Who has a name speaks by it, whatever the field holds."""
    return live.shared().own_name or cleaned(st.session_state.get(key, ""), LONGEST_NAME)


def keep(name: str) -> None:
    """For the next form."""
    st.session_state[_KEPT] = name
