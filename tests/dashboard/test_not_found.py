"""Who opens an address of no page is led to the overview, which says so."""

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from dashboard.layout.not_found import NotFoundMiddleware, redirect_note

PAGE = "text/html,application/xhtml+xml,*/*;q=0.8"


def answered(address: str, accept: str = PAGE) -> tuple[int, str]:
    """The status, and where it leads."""
    sent: list[Any] = []
    path, _, query = address.partition("?")

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    async def page(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"accept", accept.encode())],
    }
    asyncio.run(NotFoundMiddleware(page, {"/", "/gpu"})(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]).get(b"location", b"").decode()


@pytest.mark.parametrize(
    "path",
    ["/", "/gpu?node=n1", "/gpu/", "/gpu/_stcore/health", "/static/x", "/favicon.png", "/answer/x"],
)
def test_pages_and_their_parts_are_served(path: str) -> None:
    assert answered(path) == (200, "")


def test_what_a_program_asks_for_is_left_alone() -> None:
    assert answered("/nosuchpage", "*/*") == (200, "")


@pytest.mark.parametrize("path", ["/nosuchpage", "/incident?id=nosuch", "/gpu/3"])
def test_an_address_of_no_page_leads_to_the_overview(path: str) -> None:
    status, place = answered(path)
    asked = path.partition("?")[0].replace("/", "%2F")
    assert (status, place) == (303, f"/?astray={asked}")


def test_the_overview_says_so() -> None:
    assert redirect_note(None) == ()
    assert redirect_note("/incident") == ("There is no page /incident; this is the overview.",)
