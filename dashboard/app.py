"""The script that Streamlit runs first, whichever page is opened."""

from pathlib import Path

import streamlit as st

from dashboard.layout.frame import PLACES, frame

HERE = Path(__file__).parent

st.set_page_config(
    page_title="gpuvigil", page_icon=str(HERE / "static" / "icon.png"), layout="wide"
)
pages = {
    st.Page(
        HERE / place.script,
        title=f"{place.title} · gpuvigil",
        url_path=place.path.strip("/"),
        default=place.path == "/",
    ): place
    for place in PLACES
}
chosen = st.navigation(list(pages), position="hidden")
frame(pages[chosen])
chosen.run()
