"""HTTP connections that are given so much time, and no more, to say what they want."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# From the first byte of a request, or from the connection, to the end of the headers.
_HEAD_SECONDS = 10.0
_HEAD_BYTES = 64 * 1024


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which by itself waits for a request's headers for ever."""

    _deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_here()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._head_is_here()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._deadline is not None:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES and not self.transport.is_closing():
                self._head_is_here()
                self.send_400_response(f"The headers are longer than {_HEAD_BYTES} bytes.")

    def _wait_for_head(self) -> None:
        if self._deadline is None:
            self._head_bytes = 0
            self._deadline = self.loop.call_later(_HEAD_SECONDS, self._give_up)

    def _head_is_here(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        self.transport.close()
