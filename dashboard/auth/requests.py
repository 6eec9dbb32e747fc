"""What the door reads of a request, as ASGI has it."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

from .origins import Origin, is_own, site
from .replies import Message, Receive
from .sessions import SESSION_HEADER

LARGEST_FORM_BYTES = 4096
_WORD = SESSION_HEADER.encode()


class Place:
    """Where the pages are, as browsers see them; `public` where that is a proxy's address."""

    def __init__(self, public: Origin | None) -> None:
        self._public = public

    def site(self, scope: Message) -> Origin | None:
        return site(scope["scheme"], header(scope, "host"), self._public)

    def is_ours(self, scope: Message) -> bool:
        """Whether the browser says that one of our own pages asks."""
        return is_own(header(scope, "origin"), self.site(scope), self._public)

    def is_secure(self, scope: Message) -> bool:
        here = self.site(scope)
        return here is not None and here.scheme == "https"


def with_word(scope: Message, session: str) -> Message:
    """The request with its session, by which a page learns who asks."""
    headers = [*scope["headers"], (_WORD, session.encode())]
    return {**scope, "headers": headers, SESSION_HEADER: session}


def without_word(scope: Message) -> Message:
    """The request without what an outsider claims to be."""
    if "headers" not in scope:
        return scope
    return {**scope, "headers": [pair for pair in scope["headers"] if pair[0].lower() != _WORD]}


def local(place: str) -> str:
    """The address if it leads to this very site, else its first page."""
    return place if re.fullmatch(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*", place) else "/"


def header(scope: Message, name: str) -> str:
    values = [value for key, value in scope["headers"] if key == name.encode()]
    return b"; ".join(values).decode("latin-1")


def cookies(scope: Message) -> Iterator[tuple[str, str]]:
    """Names and values; others of this host may look like anything, which SimpleCookie does not bear."""
    for pair in header(scope, "cookie").split(";"):
        name, _, value = pair.strip().partition("=")
        yield name, value


def address(scope: Message) -> str:
    client: Any = scope.get("client")
    return str(client[0]) if client else ""


async def form(receive: Receive) -> dict[str, str] | None:
    """What was sent, as far as a form goes; None when the sender went before its end."""
    body = b""
    while len(body) <= LARGEST_FORM_BYTES:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    sent = body[:LARGEST_FORM_BYTES].decode("latin-1")
    return dict(parse_qsl(sent, keep_blank_values=True))
