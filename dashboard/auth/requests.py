"""What the door reads from an ASGI request."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

from .origins import Origin, is_own, site
from .replies import Message, Receive
from .sessions import SESSION_HEADER

LARGEST_FORM_BYTES = 4096
_WORD = SESSION_HEADER.encode()


class OwnAddress:
    """The address of the pages as browsers see it; `public` is a proxy's address, if there is one."""

    def __init__(self, public: Origin | None) -> None:
        self._public = public

    def site(self, scope: Message) -> Origin | None:
        return site(scope["scheme"], header(scope, "host"), self._public)

    def is_ours(self, scope: Message) -> bool:
        """Return whether the `Origin` header names one of our own pages."""
        return is_own(header(scope, "origin"), self.site(scope), self._public)

    def is_secure(self, scope: Message) -> bool:
        here = self.site(scope)
        return here is not None and here.scheme == "https"


def with_session(scope: Message, session: str) -> Message:
    """Return the request with its session, by which a page learns who asks."""
    headers = [*scope["headers"], (_WORD, session.encode())]
    return {**scope, "headers": headers, SESSION_HEADER: session}


def without_session_header(scope: Message) -> Message:
    """Return the request without a session header that an outsider may have set."""
    if "headers" not in scope:
        return scope
    return {**scope, "headers": [pair for pair in scope["headers"] if pair[0].lower() != _WORD]}


def local(place: str) -> str:
    """Return the address if it is a path on this site, else "/"."""
    return place if re.fullmatch(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*", place) else "/"


def header(scope: Message, name: str) -> str:
    values = [value for key, value in scope["headers"] if key == name.encode()]
    return b"; ".join(values).decode("latin-1")


def cookies(scope: Message) -> Iterator[tuple[str, str]]:
    """Yield names and values. SimpleCookie is not used, as it fails on odd cookies of the same host."""
    for pair in header(scope, "cookie").split(";"):
        name, _, value = pair.strip().partition("=")
        yield name, value


def address(scope: Message) -> str:
    client: Any = scope.get("client")
    return str(client[0]) if client else ""


async def form(receive: Receive) -> dict[str, str] | None:
    """Return the form's fields, from its first 4096 bytes; None if the client disconnects early."""
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
