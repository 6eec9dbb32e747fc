"""Reading of HTTP bodies, and writing of JSON answers and errors."""

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from gpuvigil.errors import StoreError
from gpuvigil.web.limits import Shares

from .limits import FairQueue
from .timeouts import Timeout

_T = TypeVar("_T")
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# The error codes of InfluxDB v2's API, where it has one for a status.
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

# A body up to this size, both packed and inflated, is inflated in place: a thread would cost more.
# A gzip bomb grows a thousandfold, so its packed size says little.
_ON_THE_SPOT_BYTES = 128 * 1024

# A body that is too large is still read, and dropped, up to this many times the limit: a sender
# that is cut off in the middle sees a broken connection instead of the answer, and would only
# retry.
_DRAINED = 4

# Large bodies inflated at a time: each may grow to the largest size allowed.
_INFLATING = FairQueue(4)

# Each member of a gzip body costs a copy of all that follow it.
_MOST_MEMBERS = 100

# Parsing a longer one in place would block the event loop.
_JSON_ON_THE_SPOT_BYTES = 64 * 1024

_BODIES = "bodies are on their way in"

# Larger answers are sent in pieces of this size, each when the one before has left.
_PIECE_BYTES = 256 * 1024

# A sender that takes longer is told to retry, so that it does not hold memory for ever.
_ON_THE_WAY = Timeout(60)


class Refused(Exception):
    """A request that is answered with an error; the message says what is wrong, in one line."""

    def __init__(self, status: int, message: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = retry_after_seconds


async def in_thread(work: Callable[[], _T]) -> _T:
    """Run `work` in a thread; raise Refused (503) when the store fails."""
    try:
        return await run_in_threadpool(work)
    except StoreError as error:
        raise Refused(503, str(error), 5) from error


def failure(
    status: int,
    message: str,
    retry_after_seconds: int | None = None,
    more: Mapping[str, Any] | None = None,
) -> Response:
    """Return an error response in the form of InfluxDB v2."""
    headers = {} if retry_after_seconds is None else {"Retry-After": str(retry_after_seconds)}
    content = {"code": _CODES.get(status, "error"), "message": message, **(more or {})}
    return JSONResponse(content, status, headers)


async def refused(_request: Request, error: Exception) -> Response:
    """Answer a request that raised `Refused`."""
    assert isinstance(error, Refused)
    return failure(error.status, str(error), error.retry_after_seconds)


async def no_such_place(request: Request, error: Exception) -> Response:
    """Answer a request whose path or method does not exist."""
    assert isinstance(error, HTTPException)
    place = f"{request.method} {request.url.path[:200]}"
    return failure(error.status_code, f"{place}: {error.detail.lower()}")


async def gone(_request: Request, _error: Exception) -> Response:
    """Answer a client that has disconnected, for the log only: the client does not read it."""
    return Response(status_code=400)


async def body_from(
    receive: Receive, headers: Mapping[str, str], largest_bytes: int, held: "MemoryHold"
) -> bytes:
    """Return the whole body, inflated; its bytes are charged to `held`.

    Raise Refused with 413 when it is larger than `largest_bytes`, with 429 when there is no room.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "gzip", ""}:
        raise Refused(400, f"content encoding {encoding!r} is not understood; send gzip or none")
    try:
        with _ON_THE_WAY:
            packed = await _read(receive, largest_bytes, held)
    except TimeoutError:
        raise Refused(503, f"the body took longer than {_ON_THE_WAY.seconds} s", 1) from None
    except asyncio.CancelledError:
        # Only the hub's shutdown cancels a request.
        raise Refused(503, "the hub stops", 1) from None
    if encoding != "gzip":
        return packed
    content = await _inflated(packed, largest_bytes, held.who)
    held.change(len(content) - len(packed))
    return content


async def _read(receive: Receive, largest_bytes: int, held: "MemoryHold") -> bytes:
    content = bytearray()
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
            held.change(len(piece))
            if seen == len(piece) and not more:
                return bytes(piece)
            content += piece
        elif seen > _DRAINED * largest_bytes:
            break
    if seen > largest_bytes:
        raise too_large(largest_bytes)
    return bytes(content)


class MemoryBudget:
    """The memory for bodies on their way in, or answers on their way out, shared by all senders."""

    def __init__(self, most_bytes: int, pause_seconds: int = 1, what: str = _BODIES) -> None:
        """A sender that finds no room is told to retry after `pause_seconds`."""
        self._shares = Shares(most_bytes)
        self._busy = Refused(429, f"too many {what}", pause_seconds)

    @property
    def bytes(self) -> int:
        return self._shares.held

    @contextmanager
    def of(self, who: Hashable) -> Iterator["MemoryHold"]:
        """Yield what one request of `who` holds, and release it at the end."""
        held = self.held(who)
        try:
            yield held
        finally:
            held.let_go()

    def held(self, who: Hashable) -> "MemoryHold":
        """Return an empty hold for one request, kept until `let_go` is called."""
        return MemoryHold(self._shares, who, self._busy)


class MemoryHold:
    """The bytes that one request holds; Refused (429) is raised where there is no room for more."""

    def __init__(self, shares: Shares, who: Hashable, busy: Refused) -> None:
        self.who = who
        self._shares = shares
        self._busy = busy
        self._bytes = 0

    def change(self, size: int) -> None:
        """Hold `size` bytes more, or fewer when it is negative."""
        if size > 0 and not self._shares.acquire(self.who, size):
            raise self._busy
        if size < 0:
            self._shares.give_back(self.who, -size)
        self._bytes += size

    def let_go(self) -> None:
        if self._bytes:
            self._shares.give_back(self.who, self._bytes)
            self._bytes = 0


async def _inflated(packed: bytes, largest_bytes: int, who: Hashable) -> bytes:
    # The last four bytes of a gzip body give its inflated size (RFC 1952), but may lie.
    told = int.from_bytes(packed[-4:], "little")
    if max(len(packed), told) <= _ON_THE_SPOT_BYTES:
        try:
            return inflate(packed, min(_ON_THE_SPOT_BYTES, largest_bytes))
        except Refused as error:
            if error.status != 413 or largest_bytes <= _ON_THE_SPOT_BYTES:
                raise
    async with _INFLATING.turn(who):
        return await run_in_threadpool(inflate, packed, largest_bytes)


class PacedResponse(Response):
    """A large answer, sent in pieces and charged to `held` until the client has taken it."""

    def __init__(self, content: bytes, media_type: str, held: MemoryHold) -> None:
        """Raise Refused (429) when there is no room for the answer."""
        super().__init__(content, media_type=media_type)
        held.change(len(content))
        self._held = held

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        try:
            await send({**start, "headers": self.raw_headers})
            content = bytes(self.body)
            self.body = b""
            for at in range(0, len(content), _PIECE_BYTES):
                piece = content[at : at + _PIECE_BYTES]
                more = at + _PIECE_BYTES < len(content)
                await send({"type": "http.response.body", "body": piece, "more_body": more})
        finally:
            self._held.let_go()


def answer_of(content: bytes, media_type: str, held: MemoryHold) -> Response:
    """Return the answer, paced when it is large."""
    if len(content) <= _PIECE_BYTES:
        return Response(content, media_type=media_type)
    return PacedResponse(content, media_type, held)


def inflate(packed: bytes, largest_bytes: int) -> bytes:
    """Inflate a gzip body of one or several members.

    Raise Refused with 413 when it is larger than `largest_bytes`, with 400 when it is no complete
    gzip.
    """
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


async def question_of(request: Request, largest_bytes: int, held: MemoryHold) -> Mapping[str, Any]:
    """Return the JSON object in the body of a request; Refused (400) when there is none."""
    body = await body_from(request.receive, request.headers, largest_bytes, held)
    if len(body) <= _JSON_ON_THE_SPOT_BYTES:
        value = json_of(body, "the body")
    else:
        value = await run_in_threadpool(json_of, body, "the body")
    if not isinstance(value, Mapping):
        raise Refused(400, "the body must be a JSON object")
    return value


def json_of(text: bytes, what: str) -> Any:
    """Parse a JSON value; Refused (400) says that `what` is not JSON."""
    try:
        return json.loads(text.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Refused(400, f"{what} is not JSON") from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


EXCEPTION_HANDLERS = {Refused: refused, HTTPException: no_such_place, ClientDisconnect: gone}
