"""Redirect unknown addresses to the overview, which says so; Streamlit would silently show its first page."""

from collections.abc import Collection
from urllib.parse import urlencode

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gpuvigil.web import page_links
from gpuvigil.web.signed_links import PATH

from ..auth.auth_middleware import PARTS

# The parameter by which the overview learns the unknown address.
ASKED = "astray"
_LONGEST = 80


class NotFoundMiddleware:
    """ASGI middleware in front of the pages; `paths` are all addresses that may be opened."""

    def __init__(self, app: ASGIApp, paths: Collection[str]) -> None:
        self._app = app
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._is_none(scope):
            query = urlencode({ASKED: scope["path"][:_LONGEST]})
            await RedirectResponse(f"{page_links.OVERVIEW}?{query}", 303)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_none(self, scope: Scope) -> bool:
        """Return whether a person opened an unknown page; a page's own parts do not ask for HTML."""
        path = scope["path"]
        if scope["method"] != "GET" or "text/html" not in Headers(scope=scope).get("accept", ""):
            return False
        if path in self._paths or path.rstrip("/") in self._paths:
            return False
        parts = any(part in path for part in PARTS) or path.startswith(PATH)
        return not parts and "." not in path.rpartition("/")[2]


def redirect_note(asked: str | None) -> tuple[str, ...]:
    """Return the overview's note for somebody who was redirected."""
    return (f"There is no page {asked[:_LONGEST]}; this is the overview.",) if asked else ()
