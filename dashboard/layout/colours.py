"""The colours of `components/tokens.css` for what cannot read CSS: charts that Streamlit draws."""

import re
from collections.abc import Mapping
from functools import cache

import streamlit as st

from ..components import HERE

_TOKEN = re.compile(r"--gv-([a-z-]+):\s*light-dark\(([^,]+),\s*([^)]+)\)")


@cache
def colours(scheme: str) -> Mapping[str, str]:
    """Every colour by its name without `--gv-`, for a screen that is `light` or `dark`."""
    found = _TOKEN.findall((HERE / "tokens.css").read_text(encoding="utf-8"))
    return {name: light if scheme == "light" else dark for name, light, dark in found}


def shown() -> Mapping[str, str]:
    """Those of the screen that the running page is on; dark while the browser has not said it."""
    return colours("light" if st.context.theme.type == "light" else "dark")
