"""What goes over the wire either way: whole bodies in, JSON and errors out."""

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# The words of InfluxDB v2's API, as far as there is one for a status.
_CODES = {
    400: "invalid",
    401: "unauthorized",
    403: "forbidden",
    404: "not found",
    405: "method not allowed",
    409: "conflict",
    413: "request too large",
    429: "too many requests",
    500: "internal error",
    503: "unavailable",
}

# Smaller bodies are inflated on the spot: a thread would cost more.
_THREAD_FROM_BYTES = 64 * 1024

# A body that is too large is read on and dropped up to this many times the limit: a sender that is
# cut off in the middle sees a broken connection instead of the answer, and would only try again.
_DRAINED = 4

# So many large bodies are inflated at a time: each may become as large as a body may be.
_INFLATING = asyncio.Semaphore(4)

# Each member of a gzip body costs a copy of all that follow it.
_MOST_MEMBERS = 100

# A sender that takes longer is asked to come again, so that it does not hold memory for ever.
_BODY_SECONDS = 60


class Refused(Exception):
    """A request that is answered with an error; the message says what is wrong, in one line."""

    def __init__(self, status: int, message: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = retry_after_seconds


def failure(
    status: int,
    message: str,
    retry_after_seconds: int | None = None,
    more: Mapping[str, Any] | None = None,
) -> Response:
    """An error as InfluxDB v2 words it."""
    headers = {} if retry_after_seconds is None else {"Retry-After": str(retry_after_seconds)}
    content = {"code": _CODES.get(status, "error"), "message": message, **(more or {})}
    return JSONResponse(content, status, headers)


async def refused(_request: Request, error: Exception) -> Response:
    """The answer to a `Refused` request."""
    assert isinstance(error, Refused)
    return failure(error.status, str(error), error.retry_after_seconds)


async def no_such_place(request: Request, error: Exception) -> Response:
    """The answer where no path or no method fits."""
    assert isinstance(error, HTTPException)
    place = f"{request.method} {request.url.path}"
    return failure(error.status_code, f"{place}: {error.detail.lower()}")


async def gone(_request: Request, _error: Exception) -> Response:
    """For the log's sake only: the client that left will not read it."""
    return Response(status_code=400)


async def body_of(request: Request, largest_bytes: int) -> bytes:
    """The whole body, inflated; Refused with 413 when it is larger than `largest_bytes`."""
    return await body_from(request.receive, request.headers, largest_bytes)


async def body_from(
    receive: Receive,
    headers: Mapping[str, str],
    largest_bytes: int,
    arriving: "Arriving | None" = None,
) -> bytes:
    """As `body_of`, of a request that is not taken apart yet; `arriving` counts with others'."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "gzip", ""}:
        raise Refused(400, f"content encoding {encoding!r} is not understood; send gzip or none")
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            pieces = await _read(receive, largest_bytes, arriving)
    except TimeoutError:
        raise Refused(503, f"the body took longer than {_BODY_SECONDS} s", 1) from None
    except asyncio.CancelledError:
        # Nobody but the end of the hub cancels a request.
        raise Refused(503, "the hub stops", 1) from None
    if encoding != "gzip":
        return pieces
    if len(pieces) < _THREAD_FROM_BYTES:
        return inflate(pieces, largest_bytes)
    async with _INFLATING:
        return await run_in_threadpool(inflate, pieces, largest_bytes)


async def _read(receive: Receive, largest_bytes: int, arriving: "Arriving | None") -> bytes:
    if arriving is None:
        return await _pieces(receive, largest_bytes, lambda _: None)
    taken = 0

    def take(size: int) -> None:
        nonlocal taken
        arriving.take(size)
        taken += size

    try:
        return await _pieces(receive, largest_bytes, take)
    finally:
        arriving.give_back(taken)


async def _pieces(receive: Receive, largest_bytes: int, take: Callable[[int], None]) -> bytes:
    pieces: list[bytes] = []
    seen = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece = message.get("body", b"")
        more = message.get("more_body", False)
        seen += len(piece)
        if seen <= largest_bytes:
            take(len(piece))
            pieces.append(piece)
        elif seen > _DRAINED * largest_bytes:
            break
    if seen > largest_bytes:
        raise too_large(largest_bytes)
    return b"".join(pieces)


class Arriving:
    """Bytes of bodies that are on their way in, all together; Refused with 429 beyond a bound."""

    def __init__(self, most_bytes: int, pause_seconds: int) -> None:
        self._most_bytes = most_bytes
        self._pause_seconds = pause_seconds
        self.bytes = 0

    def take(self, size: int) -> None:
        if self.bytes + size > self._most_bytes:
            raise Refused(429, "too many bodies are on their way in", self._pause_seconds)
        self.bytes += size

    def give_back(self, size: int) -> None:
        self.bytes -= size


def inflate(packed: bytes, largest_bytes: int) -> bytes:
    """The content of a gzip body, of one member or several; never more than is allowed."""
    content = b""
    rest = packed
    members = 0
    try:
        while rest:
            members += 1
            if members > _MOST_MEMBERS:
                raise Refused(400, f"the gzip body has more than {_MOST_MEMBERS} members")
            member = zlib.decompressobj(wbits=31)
            content += member.decompress(rest, largest_bytes - len(content) + 1)
            if len(content) > largest_bytes:
                raise too_large(largest_bytes)
            if not member.eof:
                raise Refused(400, "the gzip body ends too early")
            rest = member.unused_data
    except zlib.error:
        raise Refused(400, "the body is not gzip, as its header says") from None
    return content


def too_large(largest_bytes: int) -> Refused:
    return Refused(413, f"the body is larger than {largest_bytes} bytes; send smaller ones")


async def question_of(request: Request, largest_bytes: int) -> Mapping[str, Any]:
    """The JSON object that a request asks with."""
    value = json_of(await body_of(request, largest_bytes), "the body")
    if not isinstance(value, Mapping):
        raise Refused(400, "the body must be a JSON object")
    return value


def json_of(text: bytes, what: str) -> Any:
    """A JSON value; Refused says that `what` is none."""
    try:
        return json.loads(text.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Refused(400, f"{what} is not JSON") from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


EXCEPTION_HANDLERS = {Refused: refused, HTTPException: no_such_place, ClientDisconnect: gone}
