"""The script that Streamlit runs first, whichever page is opened."""

from pathlib import Path

import streamlit as st

HERE = Path(__file__).parent

st.set_page_config(
    page_title="gpuvigil", page_icon=str(HERE / "static" / "icon.png"), layout="wide"
)
st.navigation(
    [st.Page(HERE / "pages" / "overview.py", title="gpuvigil", default=True)], position="hidden"
).run()
