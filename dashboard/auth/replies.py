"""The ASGI answers that the door gives itself."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from accounting.people.roles import Person

from .sign_in_page import POLICY, SignInOptions, leaving, page

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def with_headers(send: Send, headers: dict[str, str]) -> Send:
    """Return a `send` that adds the headers which an answer does not set itself."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            present = {bytes(name).lower() for name, _ in given}
            fixed = [(name.encode(), value.encode()) for name, value in headers.items()]
            message["headers"] = given + [pair for pair in fixed if pair[0] not in present]
        await send(message)

    return sending


async def answer(
    send: Send, status: int, body: bytes, headers: dict[str, str] | None = None
) -> None:
    given = {
        "content-type": "text/plain; charset=utf-8",
        "cache-control": "no-store",
        "content-length": str(len(body)),
        **(headers or {}),
    }
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


async def redirect(send: Send, place: str, cookie: str | None = None) -> None:
    headers = {"location": place} | ({} if cookie is None else {"set-cookie": cookie})
    await answer(send, 303, b"", headers)


async def sign_in_page(
    send: Send,
    status: int,
    reason: str,
    rest: str,
    headers: dict[str, str] | None = None,
    *,
    offered: SignInOptions = SignInOptions(),  # noqa: B008 - it is frozen
) -> None:
    await _html(send, status, page(reason, rest, offered), headers)


async def sign_out_page(send: Send, person: Person, *, by_proxy: bool) -> None:
    """Send a page that says who is signed in. Signing out is a button, since a link must not change state."""
    await _html(send, 200, leaving(person, by_proxy=by_proxy))


async def _html(
    send: Send, status: int, body: bytes, headers: dict[str, str] | None = None
) -> None:
    given = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": POLICY,
        **(headers or {}),
    }
    await answer(send, status, body, given)
