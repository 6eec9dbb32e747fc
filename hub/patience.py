"""HTTP connections that are given so much time, and no more, to say what they want and to hear it."""

import asyncio
import contextlib
import socket
import struct
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gpuvigil.log import Log

from .answers import failure

# From the first byte of a request, or from the connection, to the end of the headers.
_HEAD_SECONDS = 10.0
_HEAD_BYTES = 64 * 1024
# For the rest of a body that was answered before its end.
_REST_SECONDS = 10.0
# For a piece of an answer that waits to be read by a client that reads slowly, or no longer.
_DRAIN_SECONDS = 10.0
# For a machine that acknowledges nothing of what was sent to it.
_GONE_MILLISECONDS = 60_000
# Requests that are sent before the answer to the one before: one stood in for a whole packet.
_MOST_PIPELINED = 16
# The one path that is answered when there are too many connections: the hub lives.
_ALIVE = "/healthz"
_TELL_AGAIN_SECONDS = 60.0

_LOG = Log("hub")


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which by itself waits for a request's headers for ever, and for the rest
    of a body that nobody reads any more.
    """

    _deadline: asyncio.TimerHandle | None = None
    _rest: asyncio.TimerHandle | None = None
    _in_head = True
    _head_bytes = 0
    _unread: asyncio.TimerHandle | None = None
    _told_at = -_TELL_AGAIN_SECONDS  # of all connections

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        # uvicorn's own refusal would not say what is the matter.
        self._most, self.limit_concurrency = self.limit_concurrency, None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        one = transport.get_extra_info("socket")
        if one is not None:
            # What is sent to a machine that is gone is not kept for a quarter of an hour.
            with contextlib.suppress(OSError):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_MILLISECONDS)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_here()
        self._rest_is_here()
        self._is_read()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._head_is_here()
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise ValueError("too many requests at once")  # the parser ends the connection
        if self._most is not None and len(self.connections) >= self._most:
            self._turn_away(self._most - 1)
        else:
            self.app = self.config.loaded_app
        super().on_headers_complete()

    def _turn_away(self, most: int) -> None:
        now = time.monotonic()
        if now - PatientProtocol._told_at >= _TELL_AGAIN_SECONDS:
            PatientProtocol._told_at = now
            _LOG.warning("too many connections", most=most)
        answer = failure(
            503,
            f"the hub has {most} connections, and takes no more (hub.connections_count, or what"
            " the system grants as open files); come again",
            1,
        )
        answer.headers["Connection"] = "close"
        answer_all = self.config.loaded_app

        async def crowded(scope: Any, receive: Any, send: Any) -> None:
            await (answer_all if scope["path"] == _ALIVE else answer)(scope, receive, send)

        self.app = crowded

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(_DRAIN_SECONDS, self._break_off)

    def resume_writing(self) -> None:
        self._is_read()
        super().resume_writing()

    def _break_off(self) -> None:
        one = self.transport.get_extra_info("socket")
        if one is not None:
            # The kernel drops what it still has to send, too.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        answered = self.cycle is not None and self.cycle.response_complete
        if answered and self.cycle.more_body and not self.transport.is_closing():
            self._rest = self.loop.call_later(_REST_SECONDS, self.transport.close)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self._rest_is_here() and not self.transport.is_closing():
            # The bytes of the rest have ended the wait for the next request.
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Most requests come in one piece, and need no timer.
        if self._in_head:
            self._wait_for_head()
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES and not self.transport.is_closing():
                self._head_is_here()
                self.send_400_response(f"The headers are longer than {_HEAD_BYTES} bytes.")

    def _wait_for_head(self) -> None:
        if self._deadline is None:
            self._head_bytes = 0
            self._deadline = self.loop.call_later(_HEAD_SECONDS, self._give_up)

    def _head_is_here(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _rest_is_here(self) -> bool:
        """Whether the rest of a body was waited for; it is no longer."""
        rest, self._rest = self._rest, None
        if rest is not None:
            rest.cancel()
        return rest is not None

    def _give_up(self) -> None:
        self._deadline = None
        self.transport.close()
