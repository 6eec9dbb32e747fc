"""The WebSocket of an open page, which keeps its connection's place until it closes."""

import asyncio
from functools import partial
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from gpuvigil.web.connections import Limits, Place
from gpuvigil.web.http_server import break_off, refusal


class LiveSocket(WebSocketsSansIOProtocol):
    """uvicorn's protocol, with a time limit for pages that read nothing; by itself it waits for ever."""

    def __init__(self, *given: Any, place: Place, limits: Limits, **named: Any) -> None:
        super().__init__(*given, **named)
        self._place = place
        self._limits = limits
        self._unread: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated and not self.transport.is_closing():
            # The first data is the whole request. The protocol does not answer one that it cannot parse
            # (a line over 8 KiB, more than 128 headers), and would wait for ever.
            self.transport.write(refusal(400, "This handshake cannot be read."))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_read()
        self._place.leave()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            seconds = self._limits.drain_seconds
            self._unread = self.loop.call_later(seconds, partial(break_off, self.transport))

    def resume_writing(self) -> None:
        self._is_read()
        super().resume_writing()

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
