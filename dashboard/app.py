"""The script that Streamlit runs first, whichever page is opened."""

from pathlib import Path

import streamlit as st

from dashboard.layout.frame import PAGES, frame

HERE = Path(__file__).parent

st.set_page_config(
    page_title="gpuvigil", page_icon=str(HERE / "static" / "icon.png"), layout="wide"
)
pages = {
    st.Page(
        HERE / page.script,
        title=f"{page.title} · gpuvigil",
        url_path=page.path.strip("/"),
        default=page.path == "/",
    ): page
    for page in PAGES
}
chosen = st.navigation(list(pages), position="hidden")
frame(pages[chosen])
chosen.run()
