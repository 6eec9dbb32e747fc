"""The colours of `components/tokens.css` for Streamlit's charts, which cannot read CSS."""

import re
from collections.abc import Mapping
from functools import cache

import streamlit as st

from ..components import HERE

_TOKEN = re.compile(r"--gv-([a-z-]+):\s*light-dark\(([^,]+),\s*([^)]+)\)")


@cache
def colours(scheme: str) -> Mapping[str, str]:
    """Return every colour by its name without `--gv-`, for the scheme `light` or `dark`."""
    found = _TOKEN.findall((HERE / "tokens.css").read_text(encoding="utf-8"))
    return {name: light if scheme == "light" else dark for name, light, dark in found}


def shown() -> Mapping[str, str]:
    """Return the colours of the running page's scheme; dark while the browser has not reported it."""
    return colours("light" if st.context.theme.type == "light" else "dark")
