"""HTTP connections that are given so much time, and no more, to say what they want."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# From the first byte of a request, or from the connection, to the end of the headers.
_HEAD_SECONDS = 10.0
_HEAD_BYTES = 64 * 1024
# For the rest of a body that was answered before its end.
_REST_SECONDS = 10.0


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which by itself waits for a request's headers for ever, and for the rest
    of a body that nobody reads any more.
    """

    _deadline: asyncio.TimerHandle | None = None
    _rest: asyncio.TimerHandle | None = None
    _in_head = True
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_here()
        self._rest_is_here()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._head_is_here()
        super().on_headers_complete()

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
