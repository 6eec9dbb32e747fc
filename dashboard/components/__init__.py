"""The parts of the pages that run in the browser, each a JavaScript file with its style."""

from functools import cache
from pathlib import Path

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

HERE = Path(__file__).parent


@cache
def component(name: str, html: str, *before: str) -> ComponentRenderer:
    """Return the component of `<name>.js` and `<name>.css` on this HTML.

    `before` names scripts that it builds on; they are put in front of its own script.
    """
    scripts = (HERE / f"{part}.js" for part in (*before, name))
    js = "\n".join(script.read_text(encoding="utf-8") for script in scripts)
    css = (HERE / f"{name}.css").read_text(encoding="utf-8")
    return st.components.v2.component(f"gpuvigil.{name}", html=html, css=css, js=js)


def style(*names: str) -> None:
    """Put style sheets on the page."""
    for name in names:
        st.html(HERE / f"{name}.css")
