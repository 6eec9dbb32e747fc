"""uvicorn's HTTP connections, with a limit on everything that a client may use."""

import asyncio
import contextlib
import enum
import http
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .connections import Limits, Place, Places

Scope = MutableMapping[str, Any]
App = Callable[..., Awaitable[None]]

# For a machine that acknowledges nothing that was sent to it.
_GONE_MILLISECONDS = 60_000
# While headers are expected, incoming data is fed in pieces of this size, since the parser keeps the
# whole of a header that has not ended.
_PIECE_BYTES = 16 * 1024
# The method is counted separately: "GET" " /path" " HTTP/1.1\r " ... "\r ".
_LINE_BYTES = len(b"  HTTP/1.1\r\n\r\n")
_HEADER_BYTES = len(b": \r\n")
# A chunk of one byte has five bytes around it, six with a leading zero.
_MOST_FRAMING = 8
# A client without a slot that wants to know whether the server is alive asks at once.
_CROWDED_SECONDS = 2.0
# How long a connection that this server closes over TLS waits for its client's closing alert. Ours: nobody
# has to wait for it (RFC 5246, 7.2.1), an idle client reads nothing, and uvloop would wait for 30 s.
_FAREWELL_SECONDS = 0.5
# The one path that is answered even with too many connections.
_ALIVE = "/healthz"


# Requests that strangers send by mistake, or to fill the log, are not worth a line each.
_FAILURES = logging.getLogger("uvicorn.error.http")
_FAILURES.setLevel(logging.ERROR)


class _At(enum.Enum):
    """The part of a request that a connection's next bytes are expected to be."""

    BETWEEN = enum.auto()  # requests
    HEAD = enum.auto()
    BODY = enum.auto()


class _Refused(Exception):
    """Raised in a parser's callback to end the connection."""


def limited(places: Places, limits: Limits, crowded: App) -> type[asyncio.Protocol]:
    """Return the protocol for `uvicorn.Config(http=...)`; `crowded` answers clients without a slot."""
    made = partial(LimitedProtocol, places=places, limits=limits, crowded=crowded)
    return cast(type[asyncio.Protocol], made)


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits.

    By itself uvicorn waits for a request's headers for ever, accepts any number of them, and waits for the
    rest of a body that nobody reads any more.
    """

    def __init__(
        self, *given: Any, places: Places, limits: Limits, crowded: App, **named: Any
    ) -> None:
        super().__init__(*given, **named)
        self.logger = _FAILURES
        self._limits = limits
        self._places = places
        self._crowded = crowded
        self._place: Place | None = None
        self._at = _At.BETWEEN
        self._upgraded = False
        self._ending = False  # with the answer in flight, at the latest
        self._heads = 0  # that were read to their end
        self._arrived_bytes = 0  # of a header section that has not ended
        self._head_bytes = 0
        self._body_bytes = 0
        self._framing_bytes = 0
        self._refusal: tuple[int, str] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._place = self._places.acquire(self.client[0] if self.client else "", transport.abort)
        if self._place is None:
            transport.abort()
            return
        one = transport.get_extra_info("socket")
        if one is not None:
            # Data sent to a machine that is gone is not kept for a quarter of an hour.
            with contextlib.suppress(OSError):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_MILLISECONDS)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_all()
        if self._place is not None:
            self._place.leave()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection, after its answer in flight if there is one."""
        self._ending = True
        super().shutdown()
        self._wait_for_farewell()

    def handle_websocket_upgrade(self) -> None:
        self._stop_all()
        self._upgraded = True
        assert self._place is not None
        if self._place.crowded:
            self._refuse(503, "There are too many connections; come again.")
            return
        self.ws_protocol_class = partial(  # type: ignore[assignment]
            cast(Any, self.ws_protocol_class), place=self._place, limits=self._limits
        )
        super().handle_websocket_upgrade()

    # What arrives.

    def data_received(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and not self._upgraded and not self.transport.is_closing():
            size = len(rest) if self._at is _At.BODY else _PIECE_BYTES
            self._feed(rest[:size])
            rest = rest[size:]

    def _feed(self, piece: memoryview) -> None:
        at, heads, body_bytes = self._at, self._heads, self._body_bytes
        super().data_received(cast(bytes, piece))  # the parser takes either
        if self._upgraded or self.transport.is_closing():
            return
        if self._at is _At.BODY:
            if at is _At.BODY and heads == self._heads:
                self._framing_bytes += len(piece) - (self._body_bytes - body_bytes)
                self._check_framing()
            self._wait_for_body()
            return
        if at is not _At.BODY and heads == self._heads:
            self._arrived_bytes += len(piece)
            if self._arrived_bytes > self._limits.head_bytes:
                self._refuse(*self._too_long())
                return
        answering = self.cycle is not None and not self.cycle.response_complete
        if self._at is _At.HEAD or not answering:
            self._wait_for_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._at = _At.HEAD
        self._head_bytes = _LINE_BYTES

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._at is _At.HEAD:  # otherwise it is a trailer behind a body, which nobody needs
            self._count_head(len(name) + _HEADER_BYTES + len(value))
            super().on_header(name, value)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.head_bytes:
            self._refusal = self._too_long()
            raise _Refused

    def _too_long(self) -> tuple[int, str]:
        return 431, f"The headers are longer than {self._limits.head_bytes} bytes."

    def on_headers_complete(self) -> None:
        self._count_head(len(self.parser.get_method()))
        self._stop("head")
        self._at = _At.BODY
        self._heads += 1
        self._arrived_bytes = self._body_bytes = self._framing_bytes = 0
        if len(self.pipeline) >= self._limits.pipelined_count:
            self._refusal = 400, "Too many requests were sent before an answer."
            raise _Refused
        assert self._place is not None
        self._place.mark_active()
        self.app = cast(Any, self._in_a_crowd) if self._place.crowded else self.config.loaded_app
        super().on_headers_complete()

    async def _in_a_crowd(self, scope: Scope, receive: Any, send: Any) -> None:
        app = self.config.loaded_app if scope["path"] == _ALIVE else self._crowded
        await app(scope, receive, send)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        most = self._limits.body_bytes
        if most is not None and self._body_bytes > most:
            self._refusal = 413, f"The body is longer than {most} bytes."
            raise _Refused
        super().on_body(body)

    def _check_framing(self) -> None:
        """Refuse chunks that are nearly all framing, and long trailers, which grow without a body."""
        most = self._limits.head_bytes + _MOST_FRAMING * self._body_bytes
        if self._framing_bytes > most:
            self._refuse(400, "There is more around the body than in it.")

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._at = _At.BETWEEN
        self._stop("body")
        if self._stop("rest") and not self.transport.is_closing():
            # The bytes of the rest have cancelled the wait for the next request.
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def send_400_response(self, msg: str) -> None:
        self._refuse(*(self._refusal or (400, msg)))

    def _refuse(self, status: int, sentence: str) -> None:
        """Send the reason, unless an answer is already under way, and end the connection."""
        self._stop_all()
        before = (
            self._at is not _At.BODY and self.cycle is not None and self.cycle.response_complete
        )
        if self.cycle is None or before or not self.cycle.response_started:
            self.transport.write(refusal(status, sentence))
        self.transport.close()

    # What leaves.

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("drain", self._limits.drain_seconds, partial(break_off, self.transport))

    def resume_writing(self) -> None:
        self._stop("drain")
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        answered = self.cycle is not None and self.cycle.response_complete
        if answered and self.cycle.more_body and not self.transport.is_closing():
            self._start("rest", self._limits.rest_seconds, self.transport.close)
        if self._ending:
            self._wait_for_farewell()

    # What is waited for.

    def _wait_for_head(self) -> None:
        crowded = self._place is not None and self._place.crowded
        seconds = self._limits.head_seconds
        self._start(
            "head", min(seconds, _CROWDED_SECONDS) if crowded else seconds, self.transport.close
        )

    def _wait_for_body(self) -> None:
        seconds = self._limits.body_seconds
        if seconds is not None:
            sentence = f"The body took longer than {seconds:g} s."
            self._start("body", seconds, partial(self._refuse, 408, sentence))

    def _wait_for_farewell(self) -> None:
        # A connection that is lost is in `connections` no more.
        alive = self in self.connections
        if alive and self.scheme == "https" and self.transport.is_closing():
            self._start("farewell", _FAREWELL_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        """End the connection without its client's farewell, unless it still takes what was written."""
        self._stop("farewell")
        if self.transport.get_write_buffer_size():
            self._wait_for_farewell()
        else:
            self.transport.abort()

    def _start(self, what: str, seconds: float, then: Callable[[], object]) -> None:
        """Start a timer unless it runs already; most requests come in one piece and need none."""
        if what not in self._timers:
            self._timers[what] = self.loop.call_later(seconds, then)

    def _stop(self, what: str) -> bool:
        timer = self._timers.pop(what, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def _stop_all(self) -> None:
        for what in tuple(self._timers):
            self._stop(what)


def refusal(status: int, sentence: str) -> bytes:
    """Return a complete answer, after which the connection ends."""
    phrase, body = http.HTTPStatus(status).phrase, sentence.encode() + b"\n"
    head = (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


def break_off(transport: asyncio.Transport) -> None:
    """End a connection at once; the kernel drops unsent data, too."""
    one = transport.get_extra_info("socket")
    if one is not None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
