"""The name in which a form writes: known by sign-in, else asked for."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ..data import live
from .typed_text import LONGEST_NAME, cleaned

_KEPT = "own_name"  # the last typed name, so that it is typed once per session


def row(
    key: str, *widths: float, label: str = "Your name", width: float = 2
) -> list[DeltaGenerator]:
    """Return a form row's columns of these widths, after a field for the name if it must be asked for."""
    if live.shared().own_name:
        return list(st.columns(widths, vertical_alignment="bottom"))
    first, *others = st.columns([width, *widths], vertical_alignment="bottom")
    st.session_state.setdefault(key, st.session_state.get(_KEPT, ""))
    first.text_input(label, key=key, max_chars=LONGEST_NAME)
    return others


def typed(key: str) -> str:
    """Return the signed-in name, else the typed one."""
    return live.shared().own_name or cleaned(st.session_state.get(key, ""), LONGEST_NAME)


def keep(name: str) -> None:
    """Keep the name for the next form."""
    st.session_state[_KEPT] = name
