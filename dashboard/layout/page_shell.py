"""The HTML that every page begins with: Streamlit's own, told where its server is.

Otherwise Streamlit's client looks for its server below the path of a page that was opened by its address
(`/node/_stcore/health`) before it looks at the root, and the browser's console has two errors.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from streamlit import file_util

# Read by Streamlit's client before anything else, as hosts that embed it give it (`window.__streamlit`).
_SERVER = "window.__streamlit = {BACKEND_BASE_URL: window.location.origin}"
_HEAD = "<head>"


def page_shell() -> str:
    """Return the HTML that every page begins with."""
    index = Path(file_util.get_static_dir()) / "index.html"
    html = index.read_text(encoding="utf-8")
    return html.replace(_HEAD, f"{_HEAD}<script>{_SERVER}</script>", 1)


def inline_scripts(html: str) -> Sequence[str]:
    """Return the scripts that stand in the HTML itself, which a policy has to allow one by one."""
    return re.findall(r"<script>(.*?)</script>", html, re.DOTALL)


def page_routes(paths: Iterable[str]) -> list[Route]:
    """Return routes that serve these pages' beginning."""
    html = page_shell()

    async def serve(_request: Request) -> Response:
        # What it loads has a hash in its name, and changes with Streamlit's version.
        return HTMLResponse(html, headers={"Cache-Control": "no-cache"})

    return [Route(path, serve, methods=["GET"]) for path in paths]
