"""Sends prepared bodies over many connections at once, as cheaply as this machine can.

A collector's own client would cost more processor time than the store that is measured, and the
hub answers a body with its next commit, so that some thousand must be under way at a time.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import uvloop

_END = b"\r\n\r\n"


@dataclass(slots=True)
class Sent:
    """What came back: how many answers of each status, and when the last one was in."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0


def send(url: str, requests: Iterable[bytes], connections: int) -> Sent:
    """Send every request, each as soon as a connection is free; ConnectionError when one is cut."""
    return uvloop.run(_send(url, iter(requests), connections))


async def _send(url: str, requests: Iterator[bytes], connections: int) -> Sent:
    loop = asyncio.get_running_loop()
    place = urlsplit(url)
    sent = Sent()
    began = loop.time()
    lines = [_Line(requests, sent, loop.create_future()) for _ in range(connections)]
    for line in lines:
        await loop.create_connection(partial(_same, line), str(place.hostname), place.port or 80)
    await asyncio.gather(*(line.over for line in lines))
    sent.seconds = loop.time() - began
    return sent


def _same(line: "_Line") -> "_Line":
    return line


class _Line(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    def __init__(self, requests: Iterator[bytes], sent: Sent, over: "asyncio.Future[None]") -> None:
        self._requests, self._sent, self.over = requests, sent, over
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods
        self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, rest = self._buffer.partition(_END)
        if not end or len(rest) < _length(head):
            return
        self._buffer = rest[_length(head) :]
        self._sent.statuses[int(head[9:12])] += 1
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(exc or ConnectionError("the server closed the connection"))

    def _next(self) -> None:
        assert self._transport is not None
        request = next(self._requests, None)  # made now: it says when it was sent
        if request is not None:
            self._transport.write(request)
        else:
            if not self.over.done():
                self.over.set_result(None)
            self._transport.close()


def _length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"content-length:")
    return int(rest.partition(b"\r\n")[0]) if found else 0


def request(path: str, headers: Sequence[str], body: bytes) -> bytes:
    """A whole POST; `headers` are ready lines."""
    lines = [f"POST {path} HTTP/1.1", "Host: store", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + _END + body
